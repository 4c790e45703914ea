/* A service for the tests of `fdguard run`. Its first word says what it does. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

static int handed(void) {
    const char *pid = getenv("LISTEN_PID"), *count = getenv("LISTEN_FDS");
    return pid && count && atoi(pid) == getpid() ? atoi(count) : 0;
}

static int bound(int port) {
    int s = socket(AF_INET, SOCK_STREAM, 0), one = 1;
    setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(port)};
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (bind(s, (struct sockaddr *)&a, sizeof a) || listen(s, 128)) {
        perror("bind");
        exit(1);
    }
    return s;
}

static void serve(int s, int leaks) {
    for (;;) {
        int c = accept(s, 0, 0);
        if (c < 0)
            continue;
        if (leaks && open("/dev/null", O_RDONLY) < 0)
            perror("open");
        if (write(c, "ok", 2) < 0)
            perror("write");
        close(c);
    }
}

/* One datagram to NOTIFY_SOCKET, with a descriptor if it is not negative. */
static void tell(const char *text, int fd) {
    const char *path = getenv("NOTIFY_SOCKET");
    if (!path)
        exit(9);
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    strncpy(a.sun_path, path, sizeof a.sun_path - 1);
    int s = socket(AF_UNIX, SOCK_DGRAM, 0);
    struct iovec part = {(void *)text, strlen(text)};
    char space[CMSG_SPACE(sizeof(int))];
    struct msghdr m = {.msg_name = &a, .msg_namelen = sizeof a, .msg_iov = &part, .msg_iovlen = 1};
    if (fd >= 0) {
        memset(space, 0, sizeof space);
        m.msg_control = space;
        m.msg_controllen = sizeof space;
        struct cmsghdr *c = CMSG_FIRSTHDR(&m);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(c), &fd, sizeof fd);
    }
    if (sendmsg(s, &m, 0) < 0)
        perror("notify");
    close(s);
}

static void caught(int signal) {
    char text[] = "caught 00\n";
    text[7] = '0' + signal / 10;
    text[8] = '0' + signal % 10;
    if (write(1, text, sizeof text - 1) < 0)
        _exit(1);
}

int main(int count, char **words) {
    const char *what = count > 1 ? words[1] : "";
    const char *more = count > 2 ? words[2] : "";
    setvbuf(stdout, 0, _IOLBF, 0);
    if (!strcmp(what, "stamp")) { /* when it began, and who it is */
        struct timespec t;
        clock_gettime(CLOCK_MONOTONIC, &t);
        printf("stamp %lld %d\n", (long long)t.tv_sec * 1000000000LL + t.tv_nsec, getpid());
    } else if (!strcmp(what, "serve")) { /* from the socket that was handed over, else at this port; "leaky" leaves one open for each */
        int s = handed() ? 3 : bound(atoi(more));
        printf("serving %d\n", getpid());
        serve(s, !strcmp(more, "leaky"));
    } else if (!strcmp(what, "daemon")) { /* a server in the background, and away */
        int ready[2];
        if (pipe(ready))
            return 1;
        if (!fork()) {
            setsid();
            if (fork())
                _exit(0);
            int s = bound(atoi(more));
            close(ready[0]);
            printf("daemon %d\n", getpid());
            if (write(ready[1], "1", 1) < 0)
                _exit(1);
            close(ready[1]);
            serve(s, 0);
        }
        close(ready[1]);
        char byte;
        return read(ready[0], &byte, 1) != 1;
    } else if (!strcmp(what, "notify")) { /* tells this, with \n as it is written */
        tell(more, -1);
        printf("told\n");
    } else if (!strcmp(what, "alive")) { /* ready, then signs of life as often as asked, so many times */
        tell("READY=1", -1);
        long micros = atol(getenv("WATCHDOG_USEC") ? getenv("WATCHDOG_USEC") : "0") / 3;
        for (int i = 0; i < atoi(more); i++) {
            usleep(micros);
            tell("WATCHDOG=1", -1);
        }
        printf("silent\n");
    } else if (!strcmp(what, "store")) { /* keeps a counter in memory over restarts */
        int fd = handed() ? 3 : memfd_create("counter", 0), value = 0;
        if (pread(fd, &value, sizeof value, 0) < 0)
            return 1;
        value++;
        if (pwrite(fd, &value, sizeof value, 0) < 0)
            return 1;
        printf("run %d of %s\n", value, getenv("LISTEN_FDNAMES") ? getenv("LISTEN_FDNAMES") : "-");
        if (!handed())
            tell("FDSTORE=1\nFDNAME=counter", fd);
    } else if (!strcmp(what, "leak")) { /* so many more every 10 ms */
        printf("leaking %d\n", getpid());
        for (;;) {
            for (int i = 0; i < atoi(more); i++)
                if (open("/dev/null", O_RDONLY) < 0)
                    pause();
            usleep(10000);
        }
    } else if (!strcmp(what, "catch")) { /* says which signals came */
        for (int s = 1; s < 32; s++)
            if (s != SIGTERM && s != SIGKILL && s != SIGSTOP)
                signal(s, caught);
        printf("catching %d\n", getpid());
    } else if (!strcmp(what, "stubborn")) { /* does not end when it is asked to */
        signal(SIGTERM, SIG_IGN);
        signal(SIGINT, SIG_IGN);
        printf("stubborn %d\n", getpid());
    }
    for (;;)
        pause();
}
