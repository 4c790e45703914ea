/* Ten ways to leak, most of them from valgrind's suite: shapes SHAPE leaves descriptors open and ends.
   Prints SITE LINE OPENED CLASS for the line that leaks. Everything else that it opens it closes. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { TIMES = 3 };

static int need(int result) {
    if (result < 0) {
        perror("shapes");
        exit(9);
    }
    return result;
}

static int last_line;

/* Remembers the line that leaks, for `site`. */
static void leak(int line, int result) {
    last_line = line;
    need(result);
}

static void site(int opened, const char *class) {
    printf("SITE %d %d %s\n", last_line, opened, class);
}

static void by_open(void) {
    for (int i = 0; i < TIMES; i++)
        leak(__LINE__, open("/etc/passwd", O_RDONLY));
    site(TIMES, "regular");
}

static void by_creat(void) {
    for (int i = 0; i < TIMES; i++)
        leak(__LINE__, creat("/dev/null", 0600));
    site(TIMES, "chardev");
}

static void by_pipe(void) {
    int ends[2];
    for (int i = 0; i < TIMES; i++)
        leak(__LINE__, pipe(ends));
    site(2 * TIMES, "pipe");
}

static void by_socket(void) {
    for (int i = 0; i < TIMES; i++)
        leak(__LINE__, socket(AF_INET, SOCK_STREAM, 0));
    site(TIMES, "tcp:UNBOUND");
}

static void by_socketpair(void) {
    int ends[2];
    for (int i = 0; i < TIMES; i++)
        leak(__LINE__, socketpair(AF_UNIX, SOCK_STREAM, 0, ends));
    site(2 * TIMES, "unix");
}

static void by_dup(void) {
    int file = need(open("/etc/passwd", O_RDONLY));
    for (int i = 0; i < TIMES; i++)
        leak(__LINE__, dup(file));
    site(TIMES, "regular");
    close(file);
}

static void by_dup2(void) {
    int file = need(open("/etc/passwd", O_RDONLY));
    for (int i = 0; i < TIMES; i++)
        leak(__LINE__, dup2(file, 50 + i));
    site(TIMES, "regular");
    close(file);
}

static void by_fcntl(void) {
    int file = need(open("/etc/passwd", O_RDONLY));
    for (int i = 0; i < TIMES; i++)
        leak(__LINE__, fcntl(file, F_DUPFD, 60));
    site(TIMES, "regular");
    close(file);
}

static void by_accept(void) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path + 1, sizeof address.sun_path - 1, "shapes-%d", getpid());
    int listener = need(socket(AF_UNIX, SOCK_STREAM, 0)), clients[TIMES];
    need(bind(listener, (struct sockaddr *)&address, sizeof address));
    need(listen(listener, TIMES));
    for (int i = 0; i < TIMES; i++) {
        clients[i] = need(socket(AF_UNIX, SOCK_STREAM, 0));
        need(connect(clients[i], (struct sockaddr *)&address, sizeof address));
    }
    for (int i = 0; i < TIMES; i++)
        leak(__LINE__, accept(listener, NULL, NULL));
    site(TIMES, "unix");
    for (int i = 0; i < TIMES; i++)
        close(clients[i]);
    close(listener);
}

static void by_recvmsg(void) {
    int ends[2], file = need(open("/dev/null", O_RDONLY));
    need(socketpair(AF_UNIX, SOCK_DGRAM, 0, ends));
    for (int i = 0; i < TIMES; i++) {
        char byte = 0;
        union {
            struct cmsghdr header;
            char bytes[CMSG_SPACE(sizeof(int))];
        } control = {0};
        struct iovec data = {&byte, 1};
        struct msghdr message = {.msg_iov = &data, .msg_iovlen = 1, .msg_control = &control,
                                 .msg_controllen = sizeof control.bytes};
        struct cmsghdr *header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(header), &file, sizeof file);
        need((int)sendmsg(ends[0], &message, 0));
        message.msg_controllen = sizeof control.bytes;
        leak(__LINE__, (int)recvmsg(ends[1], &message, 0));
    }
    site(TIMES, "chardev");
    close(ends[0]);
    close(ends[1]);
    close(file);
}

static const struct {
    const char *name;
    void (*run)(void);
} SHAPES[] = {
    {"open", by_open},           {"creat", by_creat},   {"pipe", by_pipe},   {"socket", by_socket},
    {"socketpair", by_socketpair}, {"dup", by_dup},     {"dup2", by_dup2},   {"fcntl", by_fcntl},
    {"accept", by_accept},       {"recvmsg", by_recvmsg},
};

int main(int count, char **words) {
    for (size_t i = 0; i < sizeof SHAPES / sizeof *SHAPES; i++)
        if (count == 2 && !strcmp(words[1], SHAPES[i].name)) {
            SHAPES[i].run();
            return 0;
        }
    return 9;
}
