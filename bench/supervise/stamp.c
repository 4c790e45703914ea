/* A service that records its start time and waits. With a second argument it has a child in its
   group and one in a separate session. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

static void child(int own_session, const char *seconds)
{
    if (fork() != 0)
        return;
    if (own_session)
        setsid();
    execlp("sleep", "sleep", seconds, (char *)NULL);
    _exit(127);
}

int main(int count, char **words)
{
    struct timespec now;
    char line[64];
    if (count < 2)
        return 2;
    clock_gettime(CLOCK_MONOTONIC, &now);
    int length = snprintf(line, sizeof line, "%lld %d\n", (long long)now.tv_sec * 1000000000LL + now.tv_nsec, (int)getpid());
    int file = open(words[1], O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (write(file, line, length) != length)
        return 1;
    close(file);
    if (count > 2) {
        child(0, "300");
        child(1, "301");
    }
    for (;;)
        pause();
}
