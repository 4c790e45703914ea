/* Leaks a file from one line and event counters from another, closes what a third opens, and has a name that no page may
 * take for its own. Then it waits for its end. The argument is the file. */
#include <fcntl.h>
#include <stdio.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline, noclone))

NOINLINE static int read_settings(const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC); /* FILE */
    return fd + (fd < 0);
}

NOINLINE static int arm(void)
{
    int fd = eventfd(0, EFD_CLOEXEC); /* EVENT */
    return fd + (fd < 0);
}

NOINLINE static int careful(void)
{
    int fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC); /* CLOSED */
    return close(fd);
}

int strange(void);

int main(int argc, char **argv)
{
    for (int i = 0; i < 6; i++)
        read_settings(argv[argc - 1]);
    for (int i = 0; i < 4; i++)
        arm();
    for (int i = 0; i < 3; i++)
        careful();
    strange();
    puts("held");
    fflush(stdout);
    pause();
    return 0;
}

#line 7 "<script>alert(1)<b>;.c"
NOINLINE int strange(void) { int fd = dup(2); return fd + (fd < 0); }
