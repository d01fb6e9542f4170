/* Functions of shapes that compilers make, spelled out so that each compiler makes the same: left
   by conditional jumps, around a loop, by one jump alone, through a table. Each is called a known
   number of times, and spends most of its time in a function that it calls. */
#include <stdio.h>
#include <time.h>

enum { CALLS = 400, TURNS = 7, DEEP = 300 };

static long now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1000000000L + now.tv_nsec;
}

/* Twenty microseconds of the processor. */
__attribute__((noinline, used)) void shape_work(void) {
  long until = now_ns() + 20000;
  while (now_ns() < until) {
  }
}

/* A jump that is never taken, to code without a name, before anything is on the stack; one that is
   taken every other time, to such code that goes on in the function. */
void shape_cold(long argument);
__asm__(".text\n"
        ".globl shape_cold\n"
        ".type shape_cold, @function\n"
        "shape_cold:\n"
        "  test %rdi, %rdi\n"
        "  js .Lnever\n"
        "  sub $8, %rsp\n"
        "  test $1, %dil\n"
        "  jne .Lodd\n"
        ".Lback:\n"
        "  call shape_work\n"
        "  add $8, %rsp\n"
        "  ret\n"
        ".size shape_cold, .-shape_cold\n"
        ".section .text.unlikely, \"ax\"\n"
        "  nop\n"
        ".Lnever:\n"
        "  ud2\n"
        ".Lodd:\n"
        "  nop\n"
        "  jmp .Lback\n"
        ".text\n");

/* Left by a conditional jump to another function every other time. */
void shape_conditional(long argument);
__asm__(".globl shape_conditional\n"
        ".type shape_conditional, @function\n"
        "shape_conditional:\n"
        "  nop\n"
        "  test $1, %dil\n"
        "  jne shape_work\n"
        "  sub $8, %rsp\n"
        "  call shape_work\n"
        "  add $8, %rsp\n"
        "  ret\n"
        ".size shape_conditional, .-shape_conditional\n");

/* A loop around all of it. */
void shape_loop(long turns);
__asm__(".globl shape_loop\n"
        ".type shape_loop, @function\n"
        "shape_loop:\n"
        "  sub $1, %rdi\n"
        "  jne shape_loop\n"
        "  ret\n"
        ".size shape_loop, .-shape_loop\n");

/* One jump. */
void shape_jump(void);
__asm__(".globl shape_jump\n"
        ".type shape_jump, @function\n"
        "shape_jump:\n"
        "  jmp shape_work\n"
        ".size shape_jump, .-shape_jump\n");

/* A jump through a table of functions, behind a check of its bound. */
void (*const shape_handlers[2])(void) = {shape_work, shape_work};
void shape_table(long which);
__asm__(".globl shape_table\n"
        ".type shape_table, @function\n"
        "shape_table:\n"
        "  cmp $1, %rdi\n"
        "  ja 1f\n"
        "  lea shape_handlers(%rip), %rdx\n"
        "  jmp *(%rdx, %rdi, 8)\n"
        "1: ret\n"
        ".size shape_table, .-shape_table\n");

/* Deeper than calls are followed. */
__attribute__((noinline)) long shape_deep(long depth) {
  __asm__ volatile("");
  return depth == 1 ? 1 : 1 + shape_deep(depth - 1);
}

int main(int count, char **arguments) {
  if (count > 1) {
    /* One call of very many turns. */
    shape_loop(100000000);
    puts(arguments[1]);
    return 0;
  }
  for (long call = 0; call < CALLS; call++) {
    shape_cold(call);
    shape_conditional(call);
    shape_loop(TURNS);
    shape_jump();
    shape_table(call & 1);
  }
  long deep = shape_deep(DEEP);
  printf("{\"calls\":%d,\"deep\":%ld}\n", CALLS, deep);
  return 0;
}
