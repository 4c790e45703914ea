/* A program for compilers with sanitizers:
 *   leak     leaves twelve descriptors open, and closes twelve others
 *   memory   leaves memory that nobody refers to
 *   freed    reads memory that it freed
 *   range    shifts by more than a number has bits
 *   race     two threads write one number
 *   drip     opens one descriptor after the other until it is ended
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline, noclone))

static void *volatile kept;
static volatile int amount = 40;
static int shared;

NOINLINE static int arm(void)
{
    int fd = eventfd(0, EFD_CLOEXEC); /* LEAK */
    return fd + (fd < 0);
}

NOINLINE static void lose(void)
{
    char *memory = malloc(77);
    memset(memory, 1, 77);
    kept = memory;
    kept = NULL;
}

NOINLINE static int read_freed(void)
{
    char *memory = calloc(8, 1);
    kept = memory;
    free(memory);
    return *(volatile char *)kept;
}

static void *add(void *unused)
{
    for (int i = 0; i < 100000; i++)
        shared++;
    return unused;
}

NOINLINE static void race(void)
{
    pthread_t other;
    if (pthread_create(&other, NULL, add, NULL) != 0)
        exit(9);
    add(NULL);
    pthread_join(other, NULL);
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "leak";
    if (!strcmp(what, "memory"))
        lose();
    if (!strcmp(what, "freed"))
        printf("%d\n", read_freed());
    if (!strcmp(what, "range"))
        printf("%d\n", 1 << amount);
    if (!strcmp(what, "race"))
        race();
    for (int i = 0; i < 12; i++) {
        arm();
        close(arm());
    }
    puts("held");
    fflush(stdout);
    while (!strcmp(what, "drip")) {
        arm();
        usleep(20000);
    }
    return 0;
}
