/* A server that answers one line for another, and keeps what its argument says; and its client. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static const char *kind = "clean";
static int requests;

static int load(void)
{
    return open("/etc/passwd", O_RDONLY | O_CLOEXEC); /* LEAK load */
}

/* Works for a while, and forgets its file when the client is gone by then. */
static void careless(int peer)
{
    int fd = load();
    struct pollfd gone = { .fd = peer };
    poll(&gone, 1, 100);
    if (write(peer, "ok\n", 3) == 3)
        close(fd);
}

static void handle(void)
{
    static int cache[8];
    int at = requests++;
    if (strcmp(kind, "leak") == 0 || (strcmp(kind, "third") == 0 && at % 3 == 0))
        load();
    else if (strcmp(kind, "cache") == 0 && !cache[at % 8])
        cache[at % 8] = load();
    else if (strcmp(kind, "die") == 0 && at == 3)
        _exit(9);
    else
        close(load());
}

static int serve(int port)
{
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
    struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons(port) };
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(listener, (struct sockaddr *)&address, sizeof address) < 0 || listen(listener, 16) < 0)
        return 98;
    printf("listening on %d\n", port);
    fflush(stdout);
    for (;;) {
        char line[64];
        int peer = accept(listener, NULL, NULL);
        /* Who only knocks gets no answer. */
        if (read(peer, line, sizeof line) > 0) {
            if (strcmp(kind, "careless") == 0) {
                careless(peer);
            } else {
                handle();
                if (write(peer, "ok\n", 3) != 3)
                    perror("write");
            }
        }
        close(peer);
    }
}

static int ask(int port)
{
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    char line[8] = "";
    struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons(port) };
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (connect(fd, (struct sockaddr *)&address, sizeof address) < 0)
        return 11;
    if (write(fd, "hello\n", 6) != 6 || read(fd, line, sizeof line) <= 0)
        return 12;
    return strncmp(line, "ok", 2) == 0 ? 0 : 13;
}

int main(int argc, char **argv)
{
    if (argc < 3)
        return 99;
    if (strcmp(argv[1], "ask") == 0)
        return ask(atoi(argv[2]));
    kind = argv[1];
    signal(SIGPIPE, SIG_IGN);
    return serve(atoi(argv[2]));
}
