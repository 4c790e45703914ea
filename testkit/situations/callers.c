/* One helper opens for two callers: one leaks what it gets, the other keeps the last four and closes older ones.
   callers PERIOD_MS DURATION_MS. Prints HELD with what the leaking caller holds, KEPT with what the other one holds. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum { WINDOW = 4 };

static void pause_ms(long ms) {
    struct timespec time = {ms / 1000, ms % 1000 * 1000000};
    nanosleep(&time, NULL);
}

__attribute__((noinline)) static int helper(void) {
    int file = open("/etc/passwd", O_RDONLY); /* HELPER */
    if (file < 0)
        exit(9);
    return file;
}

__attribute__((noinline)) static void careless(void) {
    int file = helper(); /* LEAK */
    __asm__ volatile("" ::"r"(file));
}

__attribute__((noinline)) static void careful(long turn) {
    static int window[WINDOW];
    if (turn >= WINDOW)
        close(window[turn % WINDOW]);
    window[turn % WINDOW] = helper(); /* KEPT */
}

int main(int count, char **words) {
    if (count != 3)
        return 9;
    long period = atol(words[1]), turns = atol(words[2]) / period;
    for (long turn = 0; turn < turns; turn++) {
        careless();
        careful(turn);
        pause_ms(period);
    }
    printf("HELD %ld\nKEPT %d\n", turns, WINDOW);
    fflush(stdout);
    return 0;
}
