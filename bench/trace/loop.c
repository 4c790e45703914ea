/* Opens and closes /dev/null a given number of times; prints the CPU time in nanoseconds. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static long long spent(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return now.tv_sec * 1000000000LL + now.tv_nsec;
}

__attribute__((noinline)) static int once(void)
{
    int fd = open("/dev/null", O_RDONLY);
    if (fd >= 0)
        close(fd);
    return fd;
}

int main(int argc, char **argv)
{
    long count = argc > 1 ? atol(argv[1]) : 0, failed = 0;
    for (int warm = 0; warm < 100; warm++)
        failed += once() < 0;
    long long before = spent();
    for (long i = 0; i < count; i++)
        failed += once() < 0;
    fprintf(stderr, "SPENT %lld\n", spent() - before);
    return failed != 0;
}
