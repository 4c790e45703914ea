/* Misuse of descriptors, one kind a mode, and in the mode "innocent" what only looks like it. Every step waits for the one
 * before: nothing depends on time. Marks in comments name the lines that a report must name. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *folder;
static char path[4096];

static const char *file(const char *name)
{
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static int journal(const char *name)
{
    return open(file(name), O_CREAT | O_RDWR | O_CLOEXEC, 0600); /* JOURNAL */
}

static int connection(int *peer)
{
    int both[2];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, both) < 0) /* CONNECT */
        abort();
    *peer = both[1];
    return both[0];
}

/* Waits until a thread of ours sleeps in the kernel. */
static void wait_until_inside(pid_t tid)
{
    char name[64], state = 0;
    snprintf(name, sizeof name, "/proc/self/task/%d/stat", tid);
    while (state != 'S') {
        char text[512] = "";
        int fd = syscall(SYS_open, name, O_RDONLY);
        ssize_t got = syscall(SYS_read, fd, text, sizeof text - 1);
        syscall(SYS_close, fd);
        char *end = got > 0 ? strrchr(text, ')') : NULL;
        state = end ? end[2] : 0;
        sched_yield();
    }
}

static sem_t ready, go;
static int shared, shared_peer;
static pid_t inside;

static void closes_twice(void)
{
    int fd = journal("twice");
    if (close(fd) < 0) /* FIRST */
        abort();
    if (close(fd) == 0 || errno != EBADF) /* SECOND */
        abort();
}

static void uses_what_was_given_out_again(void)
{
    int old = journal("old");
    close(old); /* GIVEN BACK */
    int new = journal("new");
    if (write(old, "x", 1) < 0 && errno != EBADF) /* STALE USE */
        abort();
    close(new);
}

static void *waits(void *arg)
{
    sem_post(&ready);
    sem_wait(&go);
    return arg;
}

static void closes_twice_beside_a_thread(void)
{
    pthread_t other;
    pthread_create(&other, NULL, waits, NULL);
    sem_wait(&ready);
    closes_twice();
    sem_post(&go);
    pthread_join(other, NULL);
}

static void names_what_was_never_open(void)
{
    if (close(-1) == 0 || errno != EBADF) /* MINUS */
        abort();
    if (write(77, "x", 1) >= 0 || errno != EBADF) /* NEVER */
        abort();
    /* Open, but not for this: the same error, and a good number. */
    int fd = open("/dev/null", O_RDONLY);
    if (write(fd, "x", 1) >= 0 || errno != EBADF)
        abort();
    close(fd);
}

static void *appends(void *arg)
{
    shared = journal("swept");
    for (int turn = 0; turn < 2; turn++) {
        if ((write(shared, "a", 1) == 1) != !turn) /* SWEPT */
            abort();
        sem_post(&ready);
        sem_wait(&go);
    }
    return arg;
}

/* Closes every number under a thread that goes on. */
static void closes_a_range_under_a_writer(void)
{
    pthread_t thread;
    pthread_create(&thread, NULL, appends, NULL);
    sem_wait(&ready);
    closefrom(3); /* SWEEP */
    sem_post(&go);
    sem_wait(&ready);
    sem_post(&go);
    pthread_join(thread, NULL);
}

static void finish(int fd)
{
    close(fd); /* FINISH */
}

static void *victim(void *arg)
{
    sem_wait(&go);
    shared = journal("victim");
    if (write(shared, "a", 1) != 1)
        abort();
    sem_post(&ready);
    sem_wait(&go);
    if (write(shared, "b", 1) >= 0 || errno != EBADF) /* LOST */
        abort();
    return arg;
}

/* The second close of a connection hits what another thread has opened since. */
static void closes_anothers(void)
{
    pthread_t thread;
    /* Not unrolled: both closes come from one place. */
    volatile int turn;
    int peer, number = connection(&peer);
    pthread_create(&thread, NULL, victim, NULL);
    for (turn = 0; turn < 2; turn++) {
        finish(number);
        sem_post(&go);
        if (turn == 0)
            sem_wait(&ready);
        if (turn == 0 && shared != number)
            abort();
    }
    pthread_join(thread, NULL);
    close(peer);
}

static void uses_after_close(void)
{
    int fd = journal("used");
    close(fd); /* CLOSED */
    if (write(fd, "x", 1) >= 0 || errno != EBADF) /* USED */
        abort();
}

static void *reader(void *arg)
{
    char byte;
    inside = gettid();
    sem_post(&ready);
    if (read(shared, &byte, 1) != 1) /* INSIDE */
        abort();
    return arg;
}

static void closes_under_a_reader(void)
{
    pthread_t thread;
    shared = connection(&shared_peer);
    pthread_create(&thread, NULL, reader, NULL);
    sem_wait(&ready);
    wait_until_inside(inside);
    close(shared); /* STRANGER */
    if (write(shared_peer, "x", 1) != 1)
        abort();
    pthread_join(thread, NULL);
    close(shared_peer);
}

static void *forgetful(void *arg)
{
    static const char record[24] = "\x17\x03\x03\x00\x13";
    inside = gettid();
    shared = connection(&shared_peer);
    sem_post(&ready);
    struct pollfd one = { shared, POLLIN, 0 };
    poll(&one, 1, -1); /* POLLED */
    sem_wait(&go);
    if (write(shared, record, sizeof record) != sizeof record) /* STALE */
        abort();
    return arg;
}

/* A record of a connection that somebody closed goes into a file. */
static void writes_into_anothers(void)
{
    pthread_t thread;
    pthread_create(&thread, NULL, forgetful, NULL);
    sem_wait(&ready);
    wait_until_inside(inside);
    int number = shared;
    close(shared); /* INTERRUPT */
    if (journal("database") != number || write(shared_peer, "x", 1) != 1)
        abort();
    sem_post(&go);
    pthread_join(thread, NULL);
    close(number);
    close(shared_peer);
}

static void drops_a_lock(void)
{
    struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 10, .l_len = 5 };
    int holder = journal("locked");
    if (fcntl(holder, F_SETLK, &lock) < 0) /* LOCKED */
        abort();
    int second = journal("locked");
    close(second); /* DROPPED */
    close(holder);
}

static void retries_a_close(void)
{
    int fd = journal("retried");
    while (close(fd) < 0 && errno == EINTR) /* RETRIED */
        ;
}

static void selects_too_high(void)
{
    struct rlimit limit = { 4096, 4096 };
    unsigned long bits[64] = { 0 };
    struct timeval now = { 0, 0 };
    setrlimit(RLIMIT_NOFILE, &limit);
    int fd = journal("selected");
    int high = fcntl(fd, F_DUPFD, 1500); /* HIGH */
    bits[high / 64] |= 1ul << high % 64;
    select(high + 1, (fd_set *)bits, NULL, NULL, &now); /* SELECT */
    close(high);
    close(fd);
}

static void runs_out(void)
{
    struct rlimit limit = { 40, 40 };
    setrlimit(RLIMIT_NOFILE, &limit);
    for (;;) {
        int fd = dup(2); /* HOARD */
        if (fd < 0)
            break;
    }
    if (errno != EMFILE)
        abort();
    if (open("/dev/null", O_RDONLY) >= 0) /* REFUSED */
        abort();
}

/* ---- innocent ---- */

static void *served(void *arg)
{
    char byte;
    int fd = (int)(long)arg;
    if (read(fd, &byte, 1) != 0)
        abort();
    close(fd);
    return NULL;
}

static void shuts_down_and_owner_closes(void)
{
    pthread_t thread;
    int peer, fd = connection(&peer);
    pthread_create(&thread, NULL, served, (void *)(long)fd);
    shutdown(fd, SHUT_RDWR);
    pthread_join(thread, NULL);
    close(peer);
}

static void *closes_what_it_was_given(void *arg)
{
    finish((int)(long)arg);
    return NULL;
}

static void hands_over(void)
{
    for (int turn = 0; turn < 20; turn++) {
        pthread_t thread;
        int fd = turn % 2 ? journal("handed") : dup(1);
        if (write(fd, "", 0) < 0)
            abort();
        pthread_create(&thread, NULL, closes_what_it_was_given, (void *)(long)fd);
        pthread_join(thread, NULL);
    }
}

static void redirects(void)
{
    int fd = journal("redirected"), other = journal("other");
    if (write(fd, "x", 1) != 1 || dup2(other, fd) != fd || write(fd, "y", 1) != 1)
        abort();
    close(fd);
    close(other);
}

static void forks_and_closes_all(void)
{
    int fd = journal("inherited");
    for (int turn = 0; turn < 3; turn++) {
        pid_t child = fork();
        if (child == 0) {
            if (turn == 0)
                close_range(3, ~0U, 0);
            for (int number = 3; number < 64; number++)
                close(number);
            execlp("true", "true", NULL);
            _exit(9);
        }
        int status;
        waitpid(child, &status, 0);
        if (status != 0)
            abort();
    }
    for (int number = fd; number < fd + 20; number++)
        close(number);
}

static void locks_and_unlocks(void)
{
    struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 0, .l_len = 0 };
    int first = journal("shared"), second = journal("shared");
    if (fcntl(first, F_SETLK, &lock) < 0)
        abort();
    lock.l_type = F_UNLCK;
    if (fcntl(first, F_SETLK, &lock) < 0)
        abort();
    close(second);
    close(first);
}

static void probes(void)
{
    if (fcntl(900, F_GETFD) >= 0)
        abort();
    int fd = journal("probed");
    close(fd);
    if (read(fd, path, 0) == 0)
        abort();
    fd = open(file("other"), O_RDONLY);
    if (write(fd, "x", 1) >= 0 || errno != EBADF)
        abort();
    close(fd);
}

static void *leaves_the_table(void *arg)
{
    if (syscall(SYS_close_range, 3, ~0U, 2 /* CLOSE_RANGE_UNSHARE */))
        abort();
    int fd = open("/dev/null", O_WRONLY);
    if (write(fd, "x", 1) != 1)
        abort();
    close(fd);
    return arg;
}

/* A thread closes everything in a descriptor table of its own. */
static void goes_on_in_the_old_table(void)
{
    pthread_t thread;
    int fd = journal("kept"), other = journal("kept too");
    pthread_create(&thread, NULL, leaves_the_table, NULL);
    pthread_join(thread, NULL);
    if (write(fd, "x", 1) != 1 || write(other, "x", 1) != 1)
        abort();
    close(fd);
    close(other);
}

static void innocent(void)
{
    goes_on_in_the_old_table();
    shuts_down_and_owner_closes();
    hands_over();
    redirects();
    forks_and_closes_all();
    locks_and_unlocks();
    probes();
}

int main(int argc, char **argv)
{
    static const struct { const char *name; void (*run)(void); } modes[] = {
        { "double-close", closes_twice }, { "double-close-hits", closes_anothers },
        { "use-after-close", uses_after_close }, { "stranger-close", closes_under_a_reader },
        { "recycled-write", writes_into_anothers }, { "lock-drop", drops_a_lock },
        { "close-retry", retries_a_close }, { "select-past-1024", selects_too_high },
        { "exhaustion", runs_out }, { "innocent", innocent },
        { "double-close-threaded", closes_twice_beside_a_thread }, { "never-open", names_what_was_never_open },
        { "closefrom", closes_a_range_under_a_writer },
        { "stale-reuse", uses_what_was_given_out_again },
    };
    if (argc < 3)
        return 2;
    folder = argv[2];
    sem_init(&ready, 0, 0);
    sem_init(&go, 0, 0);
    for (size_t at = 0; at < sizeof modes / sizeof *modes; at++)
        if (strcmp(modes[at].name, argv[1]) == 0) {
            modes[at].run();
            puts("done");
            return 0;
        }
    return 2;
}
