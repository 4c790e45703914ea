/* Opens a log for each job; when the job cannot be started, it forgets to close it. */
#include <fcntl.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

static int start(int job)
{
    return job % 3 ? 0 : -1;
}

static void run(int job)
{
    int log = open("/dev/null", O_WRONLY); /* OPENED */
    if (start(job) < 0)
        return;
    close(log);
}

int main(void)
{
    for (int job = 0; job < 300; job++) {
        run(job);
        nanosleep(&(struct timespec){ 0, 50000000 }, NULL);
    }
    puts("done");
    return 0;
}
