/* Leaks one directory per job for SECONDS, lingers without a job, and ends well: jobs PERIOD_MS SECONDS_MS LINGER_MS.
   Prints HELD with the number of directories that it holds. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static void pause_ms(long ms) {
    struct timespec time = {ms / 1000, ms % 1000 * 1000000};
    nanosleep(&time, NULL);
}

static void job(void) {
    DIR *dir = opendir("/etc"); /* LEAK */
    if (!dir || !readdir(dir))
        exit(9);
}

int main(int count, char **words) {
    if (count != 4)
        return 9;
    long period = atol(words[1]), duration = atol(words[2]);
    long jobs = duration / period;
    for (long i = 0; i < jobs; i++) {
        job();
        pause_ms(period);
    }
    printf("HELD %ld\n", jobs);
    fflush(stdout);
    pause_ms(atol(words[3]));
    return 0;
}
