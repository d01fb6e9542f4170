// What return probes by replaced return addresses end or lead astray. Each mode writes what it came
// to, and ends with a code of its own.
#include <csetjmp>
#include <csignal>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>

#include <dlfcn.h>
#include <execinfo.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#define PROBED extern "C" __attribute__((noinline))

// A call before it must stay one: it is not the last thing that a function does.
#define STAY asm volatile("" ::: "memory")

struct Guard {
    const char *name;
    ~Guard() { printf("left %s\n", name); }
};

PROBED int t_throw(int number) {
    if (number % 3 == 0) throw number;
    STAY;
    return number;
}

PROBED int t_middle(int number) {
    Guard guard{"middle"};
    int result = t_throw(number) + 1;
    STAY;
    return result;
}

PROBED int t_catch(int number) {
    try {
        int result = t_middle(number);
        STAY;
        return result;
    } catch (int thrown) {
        return -thrown;
    }
}

static int exceptions() {
    int sum = 0;
    for (int number = 0; number < 30; number++) sum += t_catch(number);
    printf("exceptions %d\n", sum);
    return 3;
}

static jmp_buf place;

PROBED int t_leap(int depth) {
    if (depth == 0) longjmp(place, 5);
    int result = t_leap(depth - 1);
    STAY;
    return result + 1;
}

PROBED int t_lands(int depth) {
    int landed = _setjmp(place);
    if (landed == 0) t_leap(depth);
    STAY;
    return landed;
}

static int jumps() {
    int sum = 0;
    for (int depth = 0; depth < 50; depth++) sum += t_lands(depth % 9);
    printf("jumps %d\n", sum);
    return 4;
}

static ucontext_t outside, inside;
static int passed;

PROBED int t_yield(int value) {
    passed = value;
    swapcontext(&inside, &outside);
    STAY;
    return passed;
}

PROBED void t_body() {
    for (int value = 1;; value += passed) {
        t_yield(value);
        STAY;
    }
}

PROBED int t_resume(int value) {
    passed = value;
    swapcontext(&outside, &inside);
    STAY;
    return passed;
}

static int coroutines() {
    static char stack[1 << 16];
    getcontext(&inside);
    inside.uc_stack.ss_sp = stack;
    inside.uc_stack.ss_size = sizeof stack;
    inside.uc_link = &outside;
    makecontext(&inside, t_body, 0);
    int sum = 0;
    for (int value = 0; value < 60; value++) sum = (sum + t_resume(value)) % 100003;
    printf("coroutines %d\n", sum);
    return 5;
}

PROBED void t_leaves(int depth) {
    Guard guard{"thread"};
    if (depth == 0) pthread_exit(nullptr);
    t_leaves(depth - 1);
    STAY;
}

PROBED void t_waits() {
    Guard guard{"cancelled"};
    for (;;) {
        pause();
        STAY;
    }
}

static int threads() {
    pthread_t one, other;
    pthread_create(&one, nullptr, [](void *) -> void * { t_leaves(4); return nullptr; }, nullptr);
    pthread_join(one, nullptr);
    pthread_create(&other, nullptr, [](void *) -> void * { t_waits(); return nullptr; }, nullptr);
    timespec wait{0, 20000000};
    nanosleep(&wait, nullptr);
    pthread_cancel(other);
    void *result;
    pthread_join(other, &result);
    printf("threads %d\n", result == PTHREAD_CANCELED);
    return 6;
}

PROBED int t_value(int number) {
    STAY;
    return number * 7 % 31;
}

PROBED pid_t t_forks() {
    pid_t child = fork();
    STAY;
    return child;
}

static int forks() {
    fflush(stdout);
    int sum = 0;
    for (int round = 0; round < 8; round++) {
        pid_t children[8];
        for (int number = 0; number < 8; number++) {
            children[number] = t_forks();
            if (children[number] == 0) _exit(t_value(round * 8 + number));
        }
        for (pid_t child : children) {
            int status = 0;
            waitpid(child, &status, 0);
            sum += WIFEXITED(status) ? WEXITSTATUS(status) : 1000;
        }
    }
    printf("forks %d\n", sum);
    return 7;
}

PROBED void t_executes(char *program) {
    char mode[] = "exceptions";
    char *arguments[] = {program, mode, nullptr};
    fflush(stdout);
    execv(program, arguments);
    STAY;
}

static int executes(char *program) {
    printf("executes %d\n", t_value(9));
    t_executes(program);
    return 1;
}

static int filtered() {
    // Kills at the calls by which the kernel's own trampolines come in.
    sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 335, 1, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 336, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    sock_fprog program = {sizeof filter / sizeof *filter, filter};
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) return 1;
    int sum = 0;
    for (int number = 0; number < 100; number++) sum += t_value(number);
    printf("filtered %d\n", sum);
    return 8;
}

static int loads(const char *library) {
    int sum = 0;
    for (int round = 0; round < 20; round++) {
        void *loaded = dlopen(library, RTLD_NOW);
        if (loaded == nullptr) return 1;
        auto function = reinterpret_cast<int (*)(int)>(dlsym(loaded, "t_loaded"));
        sum += function(round);
        dlclose(loaded);
    }
    printf("loads %d\n", sum);
    return 9;
}

PROBED int t_frames(int depth) {
    void *frames[64];
    int found = depth == 0 ? backtrace(frames, 64) : t_frames(depth - 1);
    STAY;
    return found;
}

static int backtraces() {
    int above = t_frames(1);
    printf("backtraces %d\n", t_frames(11) - above);
    return 10;
}

PROBED void t_slow() {
    timespec wait{0, 2000000};
    nanosleep(&wait, nullptr);
    STAY;
}

static volatile sig_atomic_t over;

// Until it is told to end: the address of a function first, and how it went.
static int goes_on() {
    signal(SIGTERM, [](int) { over = 1; });
    printf("%lx\n", (unsigned long)&t_slow);
    fflush(stdout);
    long calls = 0;
    for (; !over; calls++) t_slow();
    printf("went on %d\n", calls > 0);
    return 11;
}

PROBED void t_busy(long rounds) {
    for (long round = 0; round < rounds; round++) STAY;
}

static double now() {
    timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec / 1e9;
}

// Calls a function of a microsecond all the time, for five seconds; writes calls of each half
// second.
static int busy() {
    double began = now();
    long rounds = 10000000;
    for (long round = 0; round < rounds; round++) STAY;
    long rounds_per_us = rounds / ((now() - began) * 1e6);
    for (int slot = 0; slot < 10; slot++) {
        long calls = 0;
        for (double until = now() + 0.5; now() < until; calls += 20)
            for (int call = 0; call < 20; call++) t_busy(rounds_per_us);
        printf("%ld\n", calls);
    }
    return 12;
}

int main(int count, char **arguments) {
    if (count < 2) return 2;
    const char *mode = arguments[1];
    if (!strcmp(mode, "exceptions")) return exceptions();
    if (!strcmp(mode, "jumps")) return jumps();
    if (!strcmp(mode, "coroutines")) return coroutines();
    if (!strcmp(mode, "threads")) return threads();
    if (!strcmp(mode, "forks")) return forks();
    if (!strcmp(mode, "executes")) return executes(arguments[0]);
    if (!strcmp(mode, "filtered")) return filtered();
    if (!strcmp(mode, "loads")) return loads(arguments[2]);
    if (!strcmp(mode, "backtraces")) return backtraces();
    if (!strcmp(mode, "goes_on")) return goes_on();
    if (!strcmp(mode, "busy")) return busy();
    return 2;
}
