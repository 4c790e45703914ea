/* Opens files by system calls of its own, which no library sees, and closes most of them through the C library. Each number was
   that of a file which the C library opened and closed.
   unseen PERIOD_MS DURATION_MS. Prints HELD with what it leaked. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static void pause_ms(long ms) {
    struct timespec time = {ms / 1000, ms % 1000 * 1000000};
    nanosleep(&time, NULL);
}

__attribute__((noinline)) static int open_unseen(const char *path) {
    long result;
    register long mode __asm__("r10") = 0;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(SYS_openat), "D"(AT_FDCWD), "S"(path), "d"(O_RDONLY), "r"(mode)
                     : "rcx", "r11", "memory");
    if (result < 0)
        exit(9);
    return (int)result;
}

int main(int count, char **words) {
    if (count != 3)
        return 9;
    long period = atol(words[1]), turns = atol(words[2]) / period;
    for (long turn = 0; turn < turns; turn++) {
        close(open("/etc/passwd", O_RDONLY));
        close(open_unseen("/etc/group"));
        open_unseen("/etc/hosts");
        pause_ms(period);
    }
    printf("HELD %ld\n", turns);
    fflush(stdout);
    return 0;
}
