int t_loaded(int number) {
    __asm__ volatile("" ::: "memory");
    return number * number;
}
