/* What protection must keep from happening, and what it must leave alone, one kind a mode. Each mode prints what the program sees;
 * most of it must be the same with and without protection. What the kernel sees is asked past the C library. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

#ifndef O_PATH
#define O_PATH 010000000
#endif

static const char *folder;

static char *file(const char *name)
{
    static __thread char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static long raw(long number, long a, long b, long c)
{
    long result;
    __asm__ volatile("syscall" : "=a"(result) : "0"(number), "D"(a), "S"(b), "d"(c) : "rcx", "r11", "memory");
    return result;
}

/* Whether the kernel has something at this number. */
static int is_taken(int fd)
{
    return raw(SYS_fcntl, fd, F_GETFD, 0) >= 0;
}

static int is_grave(int fd)
{
    long flags = raw(SYS_fcntl, fd, F_GETFL, 0);
    return flags >= 0 && (flags & O_PATH);
}

static int is_socket(int fd)
{
    struct stat s;
    return raw(SYS_fstat, fd, (long)&s, 0) == 0 && S_ISSOCK(s.st_mode);
}

/* Numbers that are neither free nor graves. */
static int living(void)
{
    int count = 0;
    for (int fd = 0; fd < 2048; fd++)
        count += is_taken(fd) && !is_grave(fd);
    return count;
}

static int null(void)
{
    int fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (fd < 0)
        abort();
    return fd;
}

static void wait_until_inside(pid_t tid)
{
    char name[64], state = 0;
    snprintf(name, sizeof name, "/proc/self/task/%d/stat", tid);
    while (state != 'S') {
        char text[512] = "";
        long fd = raw(SYS_open, (long)name, O_RDONLY, 0);
        long got = raw(SYS_read, fd, (long)text, sizeof text - 1);
        raw(SYS_close, fd, 0, 0);
        char *end = got > 0 ? strrchr(text, ')') : NULL;
        state = end ? end[2] : 0;
        sched_yield();
    }
}

#define CALL(text, call) (errno = 0, result = (long)(call), printf("%s %ld %d\n", text, result < 0 ? -1 : result, errno))

/* Every way to use a number that is closed. */
static void stale_at(int fd, int epoll, int other)
{
    char b[64] = "x";
    struct stat s;
    struct statx sx;
    struct statfs sf;
    struct statvfs sv;
    struct iovec v = { b, 1 };
    struct termios t;
    struct epoll_event event = { .events = EPOLLIN };
    long result;
    CALL("read", read(fd, b, 1));
    CALL("pread", pread(fd, b, 1, 0));
    CALL("readv", readv(fd, &v, 1));
    CALL("write", write(fd, b, 1));
    CALL("pwrite", pwrite(fd, b, 1, 0));
    CALL("writev", writev(fd, &v, 1));
    CALL("send", send(fd, b, 1, MSG_NOSIGNAL));
    CALL("recv", recv(fd, b, 1, 0));
    CALL("lseek", lseek(fd, 0, SEEK_SET));
    CALL("fsync", fsync(fd));
    CALL("fdatasync", fdatasync(fd));
    CALL("ftruncate", ftruncate(fd, 0));
    CALL("ioctl", ioctl(fd, FIONREAD, b));
    CALL("tcgetattr", tcgetattr(fd, &t));
    CALL("isatty", isatty(fd));
    CALL("flock", flock(fd, LOCK_SH));
    CALL("mmap", mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, fd, 0) == MAP_FAILED ? -1 : 0);
    CALL("epoll_ctl", epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event));
    CALL("epoll_wait", epoll_wait(fd, &event, 1, 0));
    CALL("sendfile", sendfile(other, fd, NULL, 1));
    CALL("accept", accept(fd, NULL, NULL));
    CALL("listen", listen(fd, 1));
    CALL("shutdown", shutdown(fd, SHUT_RDWR));
    CALL("fstat", fstat(fd, &s));
    CALL("fstatat empty", fstatat(fd, "", &s, AT_EMPTY_PATH));
    CALL("fstatat", fstatat(fd, "a", &s, 0));
    CALL("fstatat root", fstatat(fd, "/", &s, 0));
    CALL("statx", statx(fd, "", AT_EMPTY_PATH, STATX_INO, &sx));
    CALL("syscall fstat", syscall(SYS_fstat, fd, &s));
    CALL("F_GETFD", fcntl(fd, F_GETFD));
    CALL("F_SETFD", fcntl(fd, F_SETFD, 0));
    CALL("F_GETFL", fcntl(fd, F_GETFL));
    CALL("F_SETFL", fcntl(fd, F_SETFL, 0));
    CALL("F_DUPFD", fcntl(fd, F_DUPFD, 0));
    CALL("F_DUPFD_CLOEXEC", fcntl(fd, F_DUPFD_CLOEXEC, 0));
    CALL("dup", dup(fd));
    CALL("dup2", dup2(fd, 700));
    CALL("dup2 itself", dup2(fd, fd));
    CALL("dup3", dup3(fd, 700, O_CLOEXEC));
    CALL("fchdir", fchdir(fd));
    CALL("fpathconf", fpathconf(fd, _PC_NAME_MAX));
    CALL("fstatvfs", fstatvfs(fd, &sv));
    CALL("fstatfs", fstatfs(fd, &sf));
    CALL("openat", openat(fd, "a", O_RDONLY));
    CALL("openat root", openat(fd, "/nowhere", O_RDONLY));
    CALL("faccessat", faccessat(fd, "a", R_OK, 0));
    CALL("mkdirat", mkdirat(fd, "a", 0700));
    CALL("unlinkat", unlinkat(fd, "a", 0));
    CALL("readlinkat", readlinkat(fd, "a", b, sizeof b));
    CALL("fchmod", fchmod(fd, 0600));
    CALL("fchown", fchown(fd, -1, -1));
    CALL("fchmodat", fchmodat(fd, "a", 0600, 0));
    CALL("fchownat", fchownat(fd, "a", -1, -1, 0));
    CALL("utimensat", utimensat(fd, "a", NULL, 0));
    CALL("futimens", futimens(fd, NULL));
    CALL("fdopen", fdopen(fd, "r") ? 0 : -1);
    CALL("fdopendir", fdopendir(fd) ? 0 : -1);
    struct pollfd p = { fd, POLLIN, 0 };
    CALL("poll", poll(&p, 1, 0));
    printf("revents %d\n", p.revents);
    fd_set set;
    FD_ZERO(&set);
    FD_SET(fd, &set);
    struct timeval no = { 0, 0 };
    CALL("select", select(fd + 1, &set, NULL, NULL, &no));
    CALL("close", close(fd));
    CALL("close again", close(fd));
    CALL("syscall close", syscall(SYS_close, fd));
}

static int stale(void)
{
    int both[2], epoll = epoll_create1(EPOLL_CLOEXEC), other = null(), fd = null();
    if (pipe2(both, O_CLOEXEC))
        abort();
    close(fd);
    stale_at(fd, epoll, other);
    close(both[0]);
    stale_at(both[0], epoll, other);
    return 0;
}

/* The oldest grave is given up for the latest. */
static int evict(void)
{
    int fd = null();
    close(fd);
    int first = is_grave(fd), turns = 0;
    while (is_taken(fd) && turns < 2000) {
        close(null());
        turns++;
    }
    printf("grave %d, free after %d\n", first, turns);
    int again = null();
    printf("given out again %d\n", again == fd);
    return 0;
}

/* A grave that is old enough is given up with the next close. */
static int age(void)
{
    int fd = null();
    close(fd);
    int before = is_grave(fd);
    struct timespec past = { 0, 20000000 };
    nanosleep(&past, NULL);
    close(null());
    printf("grave %d, after its time %d\n", before, is_grave(fd));
    return 0;
}

/* As many as without protection, however often. */
static int limit(void)
{
    static int all[256], two[2];
    struct rlimit limit = { 64, 64 };
    for (int i = 0; i < 100; i++)
        close(null());
    if (setrlimit(RLIMIT_NOFILE, &limit))
        abort();
    for (int round = 0; round < 3; round++) {
        int count = 0;
        while (count < 256 && (all[count] = open("/dev/null", O_RDONLY)) >= 0)
            count++;
        printf("opened %d, then %d\n", count, errno);
        printf("socket %d", socket(AF_UNIX, SOCK_STREAM, 0));
        printf(" pipe %d", pipe(two));
        FILE *stream = fopen("/dev/null", "r");
        printf(" fopen %d %d\n", stream != NULL, errno);
        for (int i = 0; i < count; i++)
            if (close(all[i]))
                printf("close %d\n", errno);
        for (int i = 0; i < 40; i++)
            close(null());
    }
    return 0;
}

/* Those who select have sets of 1024. */
static int select_below(void)
{
    int highest = 0;
    for (int i = 0; i < 900; i++) {
        int fd = null();
        highest = fd > highest ? fd : highest;
        if (i % 3 == 0) {
            close(null());
            close(null());
        }
    }
    for (int i = 0; i < 3000; i++) {
        int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        highest = fd > highest ? fd : highest;
        close(fd);
    }
    printf("below %d\n", highest < 1024);
    return 0;
}

/* What a program sees that has just been started. */
static int list(void)
{
    for (int fd = 3; fd < 2048; fd++)
        if (is_taken(fd))
            printf("inherited %d\n", fd);
    return 0;
}

static char *own;

static void start_list(void)
{
    char *words[] = { own, "list", (char *)folder, NULL }, *nothing[] = { NULL };
    execve(own, words, nothing);
    _exit(9);
}

static int family(void)
{
    char b[4];
    int kept = open("/dev/zero", O_RDONLY), gone = null(), status;
    dup2(kept, 200);
    close(kept);
    close(gone);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        long result;
        CALL("child reads stale", read(gone, b, 1));
        CALL("child closes again", close(gone));
        CALL("child reads", read(200, b, 1));
        CALL("child closes", close(200));
        CALL("child reads closed", read(200, b, 1));
        int fd = open("/dev/zero", O_RDONLY);
        CALL("child reads its own", read(fd, b, 1));
        printf("child took a grave of its parent %d\n", fd == gone && is_grave(gone));
        fflush(stdout);
        _exit(0);
    }
    waitpid(child, &status, 0);
    printf("status %d, parent reads %zd\n", status, read(200, b, 1));
    fflush(stdout);
    if ((child = fork()) == 0)
        start_list();
    waitpid(child, &status, 0);
    printf("after fork and exec %d\n", status);
    fflush(stdout);
    if ((child = vfork()) == 0) {
        close(200);
        close(gone);
        start_list();
    }
    waitpid(child, &status, 0);
    printf("after vfork %d, parent reads %zd\n", status, read(200, b, 1));
    fflush(stdout);
    char *words[] = { own, "list", (char *)folder, NULL }, *nothing[] = { NULL };
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addclose(&actions, 200);
    posix_spawn_file_actions_addopen(&actions, 201, "/dev/zero", O_RDONLY, 0);
    printf("spawn %d\n", posix_spawn(&child, own, &actions, NULL, words, nothing));
    waitpid(child, &status, 0);
    printf("after spawn %d, parent reads %zd\n", status, read(200, b, 1));
    fflush(stdout);
    printf("system %d\n", system("true"));
    return 0;
}

static int range(void)
{
    int all[20];
    for (int i = 0; i < 20; i++)
        all[i] = null();
    for (int i = 0; i < 20; i += 2)
        close(all[i]);
    long result;
    CALL("close_range", close_range(all[5], all[12], 0));
    int taken = 0;
    for (int fd = all[5]; fd <= all[12]; fd++)
        taken += is_taken(fd);
    printf("taken in it %d\n", taken);
    CALL("in it", close(all[7]));
    CALL("outside", close(all[15]));
    CALL("outside again", close(all[15]));
    CALL("cloexec", close_range(all[13], all[19], CLOSE_RANGE_CLOEXEC));
    CALL("still there", fcntl(all[17], F_GETFD));
    int count = 0;
    for (int i = 0; i < 20000; i++)
        count += close_range(3, ~0U, 0);
    printf("all %d, living %d\n", count, living());
    int fd = null();
    printf("first free %d\n", fd == 3);
    CALL("close", close(fd));
    CALL("close again", close(fd));
    CALL("unshare", close_range(3, ~0U, CLOSE_RANGE_UNSHARE));
    fd = null();
    CALL("close", close(fd));
    CALL("close again", close(fd));
    /* Somebody does without the C library. */
    raw(SYS_close_range, 3, ~0U, 0);
    for (int turn = 0; turn < 3; turn++) {
        fd = null();
        CALL("close", close(fd));
    }
    CALL("close again", close(fd));
    fd = null();
    closefrom(3);
    printf("living %d\n", living());
    CALL("after closefrom", read(fd, all, 1));
    return 0;
}

static int replace(void)
{
    char b[8] = "";
    long result;
    int zero = open("/dev/zero", O_RDONLY | O_CLOEXEC), gone = null();
    close(gone);
    CALL("bad source", dup2(999, gone));
    CALL("read", read(gone, b, 1));
    int taken = dup2(zero, gone);
    printf("took it %d\n", taken == gone);
    CALL("read", read(gone, b, 1));
    CALL("fstat", fcntl(gone, F_GETFD));
    CALL("close", close(gone));
    CALL("close again", close(gone));
    taken = dup3(zero, gone, O_CLOEXEC);
    printf("took it %d\n", taken == gone);
    CALL("F_GETFD", fcntl(gone, F_GETFD));
    for (int fd = 1020; fd < 1024; fd++) {
        printf("high %d\n", dup2(zero, fd));
        CALL("read", read(fd, b, 1));
    }
    for (int i = 0; i < 600; i++)
        close(null());
    for (int fd = 1020; fd < 1024; fd++)
        CALL("read", read(fd, b, 1));
    CALL("read", read(gone, b, 1));
    int least = fcntl(zero, F_DUPFD, 900);
    printf("F_DUPFD %d\n", least);
    CALL("close", close(least));
    CALL("read", read(least, b, 1));
    for (int fd = 0; fd < 3; fd++) {
        int kept = fcntl(fd, F_DUPFD_CLOEXEC, 800);
        close(fd);
        int new = open("/dev/null", O_RDWR);
        dup2(kept, fd);
        close(kept);
        printf("stream %d\n", new == fd);
    }
    return 0;
}

static int streams(void)
{
    char b[8];
    long result;
    FILE *stream = fopen(file("stream"), "w+");
    int fd = fileno(stream);
    fputs("words", stream);
    CALL("fclose", fclose(stream));
    CALL("write", write(fd, "x", 1));
    CALL("close", close(fd));
    DIR *directory = opendir("/");
    fd = dirfd(directory);
    CALL("closedir", closedir(directory));
    CALL("fchdir", fchdir(fd));
    stream = popen("true", "r");
    fd = fileno(stream);
    CALL("pclose", pclose(stream));
    CALL("read", read(fd, b, 1));
    stream = fopen("/dev/null", "w");
    fd = fileno(stream);
    close(fd);
    CALL("fclose of closed", fclose(stream));
    CALL("close", close(fd));
    stream = fopen("/dev/null", "r");
    fd = fileno(stream);
    stream = freopen("/dev/zero", "r", stream);
    printf("freopen %d\n", fileno(stream) == fd);
    CALL("read", read(fd, b, 1));
    CALL("fclose", fclose(stream));
    CALL("read", read(fd, b, 1));
    struct stat s;
    stat(file("stream"), &s);
    printf("size %ld\n", (long)s.st_size);
    return 0;
}

static int wrong, second, others = 5;
/* How many turns the others may take between the two closes. A turn closes at most three numbers, and
   each of the others may be in one already: 3 * (60 + 5) are fewer than the 256 that are kept. */
static int turns = 1 << 30;

static void take_turn(void)
{
    while (__atomic_sub_fetch(&turns, 1, __ATOMIC_SEQ_CST) < 0) {
        __atomic_add_fetch(&turns, 1, __ATOMIC_SEQ_CST);
        sched_yield();
    }
}

static void *hammer(void *arg)
{
    char name[64], text[32], got[32];
    snprintf(name, sizeof name, "hammer-%ld", (long)arg);
    snprintf(text, sizeof text, "%-20ld", (long)arg);
    for (int i = 0; i < 4000; i++) {
        if (arg != NULL)
            take_turn();
        int fd = open(file(name), O_CREAT | O_RDWR | O_CLOEXEC, 0600);
        if (fd < 0 || pwrite(fd, text, 20, 0) != 20 || pread(fd, got, 20, 0) != 20 || memcmp(text, got, 20))
            __atomic_add_fetch(&wrong, 1, __ATOMIC_SEQ_CST);
        if (arg == NULL)
            __atomic_store_n(&turns, 60, __ATOMIC_SEQ_CST);
        if (close(fd))
            __atomic_add_fetch(&wrong, 1, __ATOMIC_SEQ_CST);
        /* A scheduler may let the others take all their turns here: now and then they do. */
        while (arg == NULL && i % 500 == 0 && __atomic_load_n(&turns, __ATOMIC_SEQ_CST) > 0
               && __atomic_load_n(&others, __ATOMIC_SEQ_CST) > 0)
            sched_yield();
        if (arg == NULL && close(fd) == 0)
            __atomic_add_fetch(&second, 1, __ATOMIC_SEQ_CST);
        if (arg == NULL)
            __atomic_store_n(&turns, 1 << 30, __ATOMIC_SEQ_CST);
        if (i % 64 == 0) {
            int both[2];
            if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, both) || dup2(both[0], both[1]) < 0)
                abort();
            close(both[0]);
            close(both[1]);
        }
    }
    if (arg != NULL)
        __atomic_sub_fetch(&others, 1, __ATOMIC_SEQ_CST);
    return NULL;
}

/* One thread closes everything twice. */
static int threads(void)
{
    pthread_t all[6];
    int before = living();
    for (long i = 0; i < 6; i++)
        pthread_create(all + i, NULL, hammer, (void *)i);
    for (int i = 0; i < 6; i++)
        pthread_join(all[i], NULL);
    printf("wrong %d, second closes %d, living %d\n", wrong, second, living() - before);
    struct rlimit limit = { 512, 512 };
    setrlimit(RLIMIT_NOFILE, &limit);
    int count = 0;
    while (open("/dev/null", O_RDONLY) >= 0)
        count++;
    printf("room for %d\n", count + before);
    return 0;
}

static pid_t worker_tid;
static int shared, peer;

static void *receiver(void *arg)
{
    char b[8];
    long result;
    __atomic_store_n(&worker_tid, gettid(), __ATOMIC_SEQ_CST);
    CALL("owner receives", recv(shared, b, 1, 0));
    CALL("owner sends", send(shared, "x", 1, 0));
    CALL("owner closes", close(shared));
    return arg;
}

static void *poller(void *arg)
{
    long result;
    char b[8];
    struct pollfd p = { shared, POLLIN, 0 };
    __atomic_store_n(&worker_tid, gettid(), __ATOMIC_SEQ_CST);
    CALL("owner polls", poll(&p, 1, 60000));
    CALL("owner reads", read(shared, b, 5));
    CALL("owner writes", write(shared, "x", 1));
    return arg;
}

static int stranger_with(void *(*work)(void *))
{
    long result;
    char b[8];
    pthread_t thread;
    int both[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, both))
        abort();
    shared = both[0], peer = both[1], worker_tid = 0;
    pthread_create(&thread, NULL, work, NULL);
    while (!__atomic_load_n(&worker_tid, __ATOMIC_SEQ_CST))
        sched_yield();
    wait_until_inside(worker_tid);
    int closed = close(shared), database = open(file("hit.txt"), O_CREAT | O_RDWR | O_CLOEXEC, 0600);
    pthread_join(thread, NULL);
    printf("stranger closed %d\n", closed);
    CALL("peer sees the end", recv(peer, b, 1, 0));
    printf("other number %d, socket gone %d\n", database != shared, !is_socket(shared));
    struct stat s;
    fstat(database, &s);
    printf("size %ld\n", (long)s.st_size);
    CALL("stranger closes again", close(shared));
    close(peer);
    close(database);
    return 0;
}

/* SIGPIPE has its default: nobody may be ended by it. */
static int stranger(void)
{
    return stranger_with(receiver) || stranger_with(poller);
}

/* The same in a program that does not die of it. */
static int stranger_ignoring(void)
{
    signal(SIGPIPE, SIG_IGN);
    return stranger();
}

static pthread_barrier_t barrier;

static void *racer(void *arg)
{
    char b[8];
    for (int i = 0; i < 3000; i++) {
        pthread_barrier_wait(&barrier);
        while (recv(shared, b, 1, 0) == 1)
            ;
        pthread_barrier_wait(&barrier);
    }
    return arg;
}

/* A close while the owner is about to come out: whoever does it, it is done. */
static int race(void)
{
    pthread_t thread;
    int left = 0;
    pthread_barrier_init(&barrier, NULL, 2);
    pthread_create(&thread, NULL, racer, NULL);
    for (int i = 0; i < 3000; i++) {
        int both[2];
        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, both))
            abort();
        shared = both[0];
        pthread_barrier_wait(&barrier);
        for (int n = 0; n < i % 7; n++)
            if (write(both[1], "x", 1) < 0)
                break;
        if (i % 2)
            close(both[1]);
        close(shared);
        pthread_barrier_wait(&barrier);
        left += is_socket(shared);
        if (i % 2 == 0)
            close(both[1]);
    }
    pthread_join(thread, NULL);
    printf("left %d\n", left);
    return 0;
}

static void *sender(void *arg)
{
    static char much[1 << 20];
    __atomic_store_n(&worker_tid, gettid(), __ATOMIC_SEQ_CST);
    long sent = write(shared, much, sizeof much);
    printf("sent all %d\n", sent == sizeof much);
    return arg;
}

/* A writer that would be ended by SIGPIPE is left alone. */
static int sending(void)
{
    static char much[1 << 16];
    pthread_t thread;
    int both[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, both))
        abort();
    shared = both[0], peer = both[1];
    pthread_create(&thread, NULL, sender, NULL);
    while (!__atomic_load_n(&worker_tid, __ATOMIC_SEQ_CST))
        sched_yield();
    wait_until_inside(worker_tid);
    printf("closed %d\n", close(shared));
    long got, all = 0;
    while ((got = read(peer, much, sizeof much)) > 0)
        all += got;
    pthread_join(thread, NULL);
    printf("received %ld\n", all);
    return 0;
}

/* Databases are out of reach, and keep their locks. */
static int band(void)
{
    const char *names[] = { "a.db", "a.db", "a.db-wal", "b.sqlite3", "plain", "books.ledger" };
    int fds[6];
    struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 0, .l_len = 10 };
    for (int i = 0; i < 6; i++) {
        fds[i] = open(file(names[i]), O_CREAT | O_RDWR | (i % 2 ? O_CLOEXEC : 0), 0600);
        printf("%s high %d below %d cloexec %d\n", names[i], fds[i] >= 512, fds[i] < 1024, fcntl(fds[i], F_GETFD));
        if (i == 0 && fcntl(fds[0], F_SETLK, &lock))
            abort();
    }
    int low = 0;
    for (int fd = 3; fd < 512; fd++)
        low += is_taken(fd) && !is_grave(fd) && fd != fds[4] && fd != fds[5];
    printf("other low ones %d\n", low);
    fflush(stdout);
    if (fork() == 0) {
        int fd = open(file("a.db"), O_RDWR);
        struct flock asked = lock;
        fcntl(fd, F_GETLK, &asked);
        printf("still locked %d\n", asked.l_type == F_WRLCK);
        fflush(stdout);
        _exit(0);
    }
    wait(NULL);
    int read_only = open(file("a.db"), O_RDONLY);
    printf("to read: high %d\n", read_only >= 512);
    return 0;
}

static int stale_write(void)
{
    int fd = null();
    close(fd);
    return write(fd, "x", 1) == 1; /* STALE */
}

/* A daemon that closes every number closes nothing twice. */
static int sweep(void)
{
    for (int i = 0; i < 20; i++)
        close(null());
    int closed = 0;
    for (int fd = 3; fd < 1024; fd++)
        closed += close(fd) == 0;
    printf("closed %d\n", closed);
    return 0;
}

static int kept_fd;

/* A thread with a descriptor table of its own: what it closes and opens there is nobody else's. */
static void *leaves_the_table(void *way)
{
    long left = *(char *)way == 'u' ? unshare(CLONE_FILES)
              : *(char *)way == 'r' ? close_range(3, ~0U, 2 /* CLOSE_RANGE_UNSHARE */)
                                    : syscall(SYS_unshare, CLONE_FILES);
    close(kept_fd);
    for (int i = 0; i < 10; i++) {
        int fd = null();
        if (write(fd, "x", 1) != 1)
            return NULL;
        close(fd);
    }
    return left ? NULL : way;
}

static int apart(void)
{
    for (const char *way = "urs"; *way; way++) {
        pthread_t thread;
        void *result;
        int before = null();
        close(before);
        kept_fd = null();
        pthread_create(&thread, NULL, leaves_the_table, (void *)way);
        pthread_join(thread, &result);
        int written = write(kept_fd, "x", 1), closed = close(kept_fd);
        printf("%c: left %d, written %d, closed %d, kept %d\n", *way, result == way, written, closed,
               is_taken(kept_fd) && !is_grave(kept_fd));
    }
    return 0;
}

int main(int count, char **words)
{
    static const struct {
        const char *name;
        int (*run)(void);
    } modes[] = {
        { "stale", stale }, { "evict", evict }, { "age", age }, { "limit", limit }, { "select", select_below }, { "list", list },
        { "family", family }, { "range", range }, { "replace", replace }, { "streams", streams },
        { "threads", threads }, { "stranger", stranger },
        { "stranger-ignoring", stranger_ignoring }, { "race", race }, { "sending", sending }, { "band", band },
        { "stale-write", stale_write }, { "sweep", sweep },
        { "apart", apart },
    };
    if (count < 3)
        return 2;
    own = "/proc/self/exe";
    folder = words[2];
    /* What the tests left open; a program that was just started is asked for that. */
    if (strcmp(words[1], "list"))
        raw(SYS_close_range, 3, 1000, 0);
    for (unsigned i = 0; i < sizeof modes / sizeof *modes; i++)
        if (!strcmp(words[1], modes[i].name))
            return modes[i].run();
    return 2;
}
