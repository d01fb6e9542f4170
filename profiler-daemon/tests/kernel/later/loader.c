#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

// Maps a file as code, waits, loads a library, waits and calls its function 20 times.
int main(int count, char **words) {
    if (count != 3) return 1;
    int file = open(words[1], O_RDONLY);
    if (mmap(0, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, file, 0) == MAP_FAILED) return 2;
    usleep(700000);
    void *library = dlopen(words[2], RTLD_NOW);
    if (!library) return 3;
    int (*function)(int) = (int (*)(int))dlsym(library, "t_loaded");
    usleep(1500000);
    for (int number = 0; number < 20; number++) function(number);
    return 4;
}
