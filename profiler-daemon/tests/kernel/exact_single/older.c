/* Loaded before a program, it has the kernel answer as one before Linux 6.6: links of many probes
   are not known. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdarg.h>
#include <stdint.h>
#include <sys/syscall.h>

enum { BPF_LINK_CREATE = 28, BPF_TRACE_UPROBE_MULTI = 48 };

long syscall(long number, ...)
{
    static long (*next)(long, ...);
    long values[6];
    va_list list;
    va_start(list, number);
    for (int i = 0; i < 6; i++)
        values[i] = va_arg(list, long);
    va_end(list);
    if (number == SYS_bpf && values[0] == BPF_LINK_CREATE) {
        const uint32_t *attributes = (const uint32_t *)values[1];
        if (attributes[2] == BPF_TRACE_UPROBE_MULTI) {
            errno = EINVAL;
            return -1;
        }
    }
    if (!next)
        next = (long (*)(long, ...))dlsym(RTLD_NEXT, "syscall");
    return next(number, values[0], values[1], values[2], values[3], values[4], values[5]);
}
