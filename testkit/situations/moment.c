/* Holds a known number of descriptors of known classes when it ends, about 0.3 s after its start.
   Prints HELD CLASS COUNT for each class. */
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

static int need(int result) {
    if (result < 0) {
        perror("moment");
        exit(9);
    }
    return result;
}

static void hold(void) {
    int ends[2];
    for (int i = 0; i < 4; i++)
        need(open("/etc/passwd", O_RDONLY));
    for (int i = 0; i < 2; i++)
        need(pipe(ends));
    for (int i = 0; i < 2; i++)
        need(socketpair(AF_UNIX, SOCK_STREAM, 0, ends));
    for (int i = 0; i < 3; i++)
        need(socket(AF_INET, SOCK_STREAM, 0));
    for (int i = 0; i < 2; i++)
        need(socket(AF_INET, SOCK_DGRAM, 0));
    need(eventfd(0, 0));
    need(timerfd_create(CLOCK_MONOTONIC, 0));
    need(epoll_create1(0));
    int listener = need(socket(AF_INET, SOCK_STREAM, 0));
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    need(bind(listener, (struct sockaddr *)&address, sizeof address));
    need(listen(listener, 1));
    puts("HELD regular 4\nHELD pipe 4\nHELD unix 4\nHELD tcp:UNBOUND 3\nHELD udp 2\nHELD eventfd 1\n"
         "HELD timerfd 1\nHELD eventpoll 1\nHELD tcp:LISTEN 1");
    fflush(stdout);
}

int main(void) {
    hold();
    struct timespec time = {0, 300000000};
    nanosleep(&time, NULL);
    return 0;
}
