/* A service on a handed-over socket that answers its number, leaks fifty descriptors a second, and has a child in a session of its own. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { LISTENER = 3, PAUSE_MS = 20 };

static long long milliseconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000LL + now.tv_nsec / 1000000;
}

static int was_handed_over(void)
{
    const char *count = getenv("LISTEN_FDS"), *pid = getenv("LISTEN_PID");
    return count && pid && atoi(count) == 1 && atoi(pid) == getpid();
}

/* Outlives its parent and its group unless somebody ends it. */
static void stray(void)
{
    if (fork() != 0)
        return;
    setsid();
    for (;;)
        pause();
}

static void answer(void)
{
    char line[64];
    int peer = accept4(LISTENER, NULL, NULL, SOCK_CLOEXEC);
    if (peer < 0)
        return;
    if (read(peer, line, sizeof line) > 0) {
        int length = snprintf(line, sizeof line, "%d\n", (int)getpid());
        if (write(peer, line, length) != length)
            fprintf(stderr, "a client was gone\n");
    }
    close(peer);
}

int main(void)
{
    if (!was_handed_over())
        return 98;
    signal(SIGPIPE, SIG_IGN);
    stray();
    long long began = milliseconds(), opened = 0;
    for (;;) {
        struct pollfd waiting = { .fd = LISTENER, .events = POLLIN };
        if (poll(&waiting, 1, PAUSE_MS) > 0)
            answer();
        for (; opened < (milliseconds() - began) / PAUSE_MS; opened++)
            if (open("/etc/passwd", O_RDONLY | O_CLOEXEC) < 0) /* LEAK */
                return 24;
    }
}
