/* Every call on a descriptor that the tracer stands before: what it gives, what it refuses, and errno. Under the tracer the same
 * must be said. With a second thread, because much is done only then. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

/* The result, and errno after a failure; before that errno is a value of our own, which success must not change. */
#define SAY(call)                                                                \
    do {                                                                         \
        errno = 77;                                                              \
        long result = (long)(call);                                              \
        printf("%s = %ld errno %d\n", #call, result, errno);                     \
    } while (0)

static int both[2];

static void *reading(void *tidied)
{
    char byte;
    pthread_cleanup_push((void (*)(void *))puts, "tidied");
    if (read(both[0], &byte, 1) != 1)
        puts("no byte");
    pthread_cleanup_pop(0);
    return tidied;
}

static void interrupted(int signal)
{
    /* A handler in the middle of a call makes calls of its own. */
    if (write(both[1], "s", 1) != 1 || signal != SIGALRM)
        puts("bad");
}

static void on_little_stack(int signal)
{
    int fd = open("/dev/null", O_WRONLY);
    if (write(both[1], "s", 1) != 1 || write(fd, "s", 1) != 1 || close(fd) != 0 || signal != SIGUSR1)
        puts("bad");
}

/* A handler on a stack of its own, as little as can be: nothing may be written below it. */
static void little_stack(void)
{
    static char memory[256 * 1024];
    size_t size = sysconf(_SC_MINSIGSTKSZ) + 4096, below = sizeof memory - size, intact = 0;
    stack_t stack = { .ss_sp = memory + below, .ss_size = size };
    struct sigaction action = { .sa_handler = on_little_stack, .sa_flags = SA_ONSTACK };
    memset(memory, 0x5a, below);
    sigaltstack(&stack, NULL);
    sigaction(SIGUSR1, &action, NULL);
    for (int turn = 0; turn < 3; turn++)
        raise(SIGUSR1);
    for (size_t at = 0; at < below; at++)
        intact += memory[at] == 0x5a;
    printf("intact %d\n", intact == below);
    stack.ss_flags = SS_DISABLE;
    sigaltstack(&stack, NULL);
}

int main(void)
{
    char bytes[64] = "";
    struct iovec parts[2] = { { bytes, 3 }, { bytes + 3, 4 } };
    struct msghdr message = { .msg_iov = parts, .msg_iovlen = 2 };
    struct pollfd list[20];
    struct epoll_event event = { .events = EPOLLIN };
    fd_set set;
    struct timeval now = { 0, 0 };
    struct timespec at_once = { 0, 0 };
    pthread_t thread;
    void *result;

    setvbuf(stdout, NULL, _IOFBF, 1 << 16);
    socketpair(AF_UNIX, SOCK_STREAM, 0, both);
    pthread_create(&thread, NULL, reading, NULL);
    pthread_cancel(thread);
    pthread_join(thread, &result);
    printf("cancelled %d\n", result == PTHREAD_CANCELED);

    signal(SIGALRM, interrupted);
    pthread_create(&thread, NULL, reading, NULL);
    while (usleep(1000) == 0 && pthread_kill(thread, SIGALRM) != 0)
        ;
    pthread_join(thread, &result);
    little_stack();
    while (recv(both[0], bytes, sizeof bytes, MSG_DONTWAIT) > 0)
        ;

    int file = memfd_create("talking", 0), closed = dup(file), readable = open("/dev/null", O_RDONLY);
    close(closed);
    SAY(write(file, "0123456789", 10));
    SAY(write(file, "", 0));
    SAY(pwrite(file, "ab", 2, 0));
    SAY(pread(file, bytes, 4, 0));
    SAY(lseek(file, 0, SEEK_SET));
    SAY(read(file, bytes, 5));
    SAY(readv(file, parts, 2));
    SAY(writev(file, parts, 2));
    SAY(preadv(file, parts, 2, 1));
    SAY(pwritev(file, parts, 2, 1));
    SAY(ftruncate(file, 6));
    SAY(fsync(file));
    SAY(fdatasync(file));
    SAY(send(both[0], "\x17\x03\x03\x00\x05hello", 10, 0));
    SAY(recv(both[1], bytes, sizeof bytes, 0));
    SAY(sendto(both[0], "hey", 3, 0, NULL, 0));
    SAY(recvfrom(both[1], bytes, sizeof bytes, 0, NULL, NULL));
    SAY(sendmsg(both[0], &message, 0));
    SAY(recvmsg(both[1], &message, 0));
    SAY(sendfile(both[0], file, &(off_t){ 0 }, 4));
    SAY(recv(both[1], bytes, sizeof bytes, MSG_DONTWAIT));
    SAY(recv(both[1], bytes, sizeof bytes, MSG_DONTWAIT));
    SAY(shutdown(both[0], SHUT_WR));
    SAY(recv(both[1], bytes, sizeof bytes, 0));
    SAY(write(file, "\x17\x03\x03\x00\x05hello", 10));

    for (int at = 0; at < 20; at++)
        list[at] = (struct pollfd){ at % 3 ? file : -1, POLLIN, 0 };
    SAY(poll(list, 20, 0));
    SAY(poll(NULL, 0, 0));
    SAY(poll((void *)8, 3, 0));
    SAY(ppoll(list, 20, &at_once, NULL));
    FD_ZERO(&set);
    FD_SET(both[1], &set);
    SAY(select(both[1] + 1, &set, NULL, NULL, &now));
    SAY(select(8, (void *)8, NULL, NULL, &now));
    SAY(select(-1, NULL, NULL, NULL, &now));
    int queue = epoll_create1(0);
    SAY(epoll_ctl(queue, EPOLL_CTL_ADD, both[1], &event));
    SAY(epoll_wait(queue, &event, 1, 0));
    SAY(epoll_pwait(queue, &event, 1, 0, NULL));
    SAY(connect(both[0], NULL, 0));
    SAY(accept(both[0], NULL, NULL));
    SAY(lockf(file, F_LOCK, 0));
    SAY(lockf(file, F_ULOCK, 0));

    SAY(read(closed, bytes, 1));
    SAY(write(closed, bytes, 1));
    SAY(write(readable, bytes, 1));
    SAY(write(-1, bytes, 1));
    SAY(write(file, (void *)8, 16));
    SAY(writev(file, (void *)8, 2));
    SAY(send(file, bytes, 1, 0));
    SAY(recv(closed, bytes, 1, 0));
    SAY(fsync(closed));
    SAY(epoll_wait(closed, &event, 1, 0));
    SAY(fcntl(closed, F_SETLK, NULL));
    SAY(fcntl(file, F_SETLK, (void *)8));
    return 0;
}
