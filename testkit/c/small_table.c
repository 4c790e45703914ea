/* A program with an array for the numbers that it expects: one that is too high has no place in it.
   "events": an event loop that asks for as many events as the array has places.
   "start": one that opens and closes much before that. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

enum { PLACES = 70, CONNECTIONS = 20, ROUNDS = 400 };

static int highest;

static int opened(void)
{
    int fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (fd > highest)
        highest = fd;
    return fd;
}

static void events(void)
{
    struct epoll_event all[PLACES];
    int loop = epoll_create1(EPOLL_CLOEXEC), held[CONNECTIONS];
    for (int at = 0; at < CONNECTIONS; at++)
        held[at] = opened();
    for (int round = 0; round < ROUNDS; round++) {
        epoll_wait(loop, all, PLACES, 0);
        close(held[round % CONNECTIONS]);
        held[round % CONNECTIONS] = opened();
    }
}

static void start(void)
{
    for (int round = 0; round < ROUNDS; round++)
        close(opened());
}

int main(int argc, char **argv)
{
    if (argc < 2)
        return 2;
    if (strcmp(argv[1], "events") == 0)
        events();
    else
        start();
    printf("%s\n", highest < PLACES ? "has a place" : "has none");
    return 0;
}
