/* Opens and closes /dev/null a given number of times; prints the CPU time in nanoseconds. With `-`
   it reads numbers from its input and does that for each. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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

static long turns(long count)
{
    long failed = 0;
    long long before = spent();
    for (long i = 0; i < count; i++)
        failed += once() < 0;
    fprintf(stderr, "SPENT %lld\n", spent() - before);
    return failed;
}

int main(int argc, char **argv)
{
    long failed = 0;
    char line[32];
    for (int warm = 0; warm < 100; warm++)
        failed += once() < 0;
    if (argc < 2 || strcmp(argv[1], "-") != 0)
        return (failed + turns(argc > 1 ? atol(argv[1]) : 0)) != 0;
    fprintf(stderr, "READY %d 0\n", (int)getpid());
    while (fgets(line, sizeof line, stdin))
        failed += turns(atol(line));
    return failed != 0;
}
