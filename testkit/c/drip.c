/* A steady leak: one helper, used well and badly, forty times a second for as many seconds as it is told. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

__attribute__((noinline, noclone)) static int arm(void)
{
    int fd = eventfd(0, EFD_CLOEXEC); /* LEAK */
    return fd + (fd < 0);
}

__attribute__((noinline, noclone)) static int careless(void)
{
    int fd = arm();
    return fd + (fd < 0);
}

__attribute__((noinline, noclone)) static int careful(void)
{
    int fd = arm();
    return close(fd);
}

int main(int argc, char **argv)
{
    int seconds = argc > 1 ? atoi(argv[1]) : 16;
    for (int i = 0; i < 40 * seconds; i++) {
        if (i % 2)
            careful();
        else
            careless();
        usleep(25000);
    }
    puts("done");
    return 0;
}
