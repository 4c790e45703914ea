/* Holds what it says it holds, with children that hold more, until its input ends. Each place is marked. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline, noclone))

NOINLINE static int hold_files(int count)
{
    int last = -1;
    for (int i = 0; i < count; i++)
        last = open("/dev/null", O_RDONLY); /* HOLD files */
    return last + (last < 0);
}

NOINLINE static int hold_counters(int count)
{
    int last = -1;
    for (int i = 0; i < count; i++)
        last = eventfd(0, 0); /* HOLD counters */
    return last + (last < 0);
}

/* The C library is not asked. */
NOINLINE static void hold_unseen(int count)
{
    for (int i = 0; i < count; i++) {
        long call = SYS_eventfd2;
        __asm__ volatile("syscall" : "+a"(call) : "D"(0L), "S"(0L) : "rcx", "r11", "memory");
    }
}

int main(void)
{
    hold_files(7);
    hold_unseen(2);
    pid_t child = fork();
    if (child == 0) {
        hold_counters(5);
        printf("child %d\n", getpid());
    } else {
        waitpid(child, NULL, WNOHANG);
        printf("parent %d\n", getpid());
    }
    fflush(stdout);
    char byte;
    while (read(0, &byte, 1) > 0)
        ;
    if (child > 0)
        waitpid(child, NULL, 0);
    return 0;
}
