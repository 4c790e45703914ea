// Waits in one way, prints READY before it, and the result after it: `NAME RESULT ERRNO MS`. A line
// on standard input makes what it waits for happen.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <math.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/msg.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/select.h>
#include <sys/sem.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static struct shared {
    volatile int go;
    volatile long progress;
    pthread_mutex_t lock;
    pthread_cond_t condition;
    sem_t semaphore;
} *shared;

static int ends[2], pair[2], listener, lock_file, queue, semaphores;
static pid_t parent;
static struct sockaddr_un address = {.sun_family = AF_UNIX};
static char file_name[64];
static volatile sig_atomic_t alarms;

#ifdef OWN_MALLOC
// An allocator as a server may have: one lock, and lists of free blocks by size.
static pthread_mutex_t heap_lock = PTHREAD_MUTEX_INITIALIZER;
static struct block {
    size_t class;
    struct block *next;
} *free_blocks[48];

static __attribute__((noinline)) void *take(size_t class) {
    struct block *block = free_blocks[class];
    if (block)
        free_blocks[class] = block->next;
    else
        block = mmap(NULL, (size_t)1 << class, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
                     -1, 0);
    block->class = class;
    for (volatile int i = 0; i < 200; i++)
        ;
    return block + 1;
}

void *malloc(size_t size) {
    size_t class = 64 - __builtin_clzl(size + sizeof(struct block));
    pthread_mutex_lock(&heap_lock);
    void *memory = take(class);
    pthread_mutex_unlock(&heap_lock);
    return memory;
}

void free(void *memory) {
    if (!memory)
        return;
    struct block *block = (struct block *)memory - 1;
    pthread_mutex_lock(&heap_lock);
    block->next = free_blocks[block->class];
    free_blocks[block->class] = block;
    pthread_mutex_unlock(&heap_lock);
}

void *calloc(size_t count, size_t size) {
    void *memory = malloc(count * size);
    return memset(memory, 0, count * size);
}

void *realloc(void *memory, size_t size) {
    void *larger = malloc(size);
    if (memory) {
        size_t old = ((size_t)1 << ((struct block *)memory - 1)->class) - sizeof(struct block);
        memcpy(larger, memory, old < size ? old : size);
        free(memory);
    }
    return larger;
}
#endif

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e3 + t.tv_nsec / 1e6;
}

static void handler(int signal) {
    (void)signal;
    alarms++;
}

static int is(const char *name, const char *other) { return strcmp(name, other) == 0; }

// The other process: it holds the locks, and lets go after a line.
static void help(const char *name) {
    char line[8];
    int fd = open(file_name, O_RDWR | O_CREAT, 0600);
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    if (is(name, "flock"))
        flock(fd, LOCK_EX);
    if (is(name, "setlkw"))
        fcntl(fd, F_SETLK, &whole);
    if (is(name, "traced"))
        ptrace(PTRACE_SEIZE, parent, 0, 0);
    if (write(ends[1], "h", 1) != 1 || read(0, line, sizeof line) <= 0)
        _exit(1);
    shared->go = 1;
    pthread_mutex_lock(&shared->lock);
    pthread_cond_broadcast(&shared->condition);
    pthread_mutex_unlock(&shared->lock);
    sem_post(&shared->semaphore);
    if (is(name, "write")) {
        char bytes[4096];
        for (int got = 0; got < 5000;)
            got += read(ends[0], bytes, sizeof bytes);
        _exit(0);
    }
    struct msgbuf {
        long type;
        char text[1];
    } message = {1, "m"};
    msgsnd(queue, &message, 1, IPC_NOWAIT);
    struct sembuf up = {0, 1, 0};
    semop(semaphores, &up, 1);
    if (is(name, "sigsuspend") || is(name, "pause") || strncmp(name, "sigw", 4) == 0 ||
        strncmp(name, "sigt", 4) == 0)
        kill(parent, SIGUSR1);
    if (write(pair[1], "xyz", 3) != 3)
        _exit(1);
    int client = socket(AF_UNIX, SOCK_STREAM, 0);
    if (is(name, "accept"))
        connect(client, (struct sockaddr *)&address, sizeof address);
    if (write(ends[1], "abc", 3) != 3)
        _exit(1);
    _exit(7);
}

static void prepare(const char *name) {
    pthread_mutexattr_t mutex;
    pthread_condattr_t condition;
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pthread_mutexattr_init(&mutex);
    pthread_mutexattr_setpshared(&mutex, PTHREAD_PROCESS_SHARED);
    pthread_mutex_init(&shared->lock, &mutex);
    pthread_condattr_init(&condition);
    pthread_condattr_setpshared(&condition, PTHREAD_PROCESS_SHARED);
    pthread_cond_init(&shared->condition, &condition);
    sem_init(&shared->semaphore, 1, 0);
    parent = getpid();
    snprintf(file_name, sizeof file_name, "/tmp/borrowed-%d", parent);
    snprintf(address.sun_path + 1, 60, "borrowed-%d", parent);
    if (pipe(ends) || socketpair(AF_UNIX, SOCK_STREAM, 0, pair))
        _exit(9);
    listener = socket(AF_UNIX, SOCK_STREAM, 0);
    bind(listener, (struct sockaddr *)&address, sizeof address);
    listen(listener, 8);
    queue = msgget(IPC_PRIVATE, 0600);
    semaphores = semget(IPC_PRIVATE, 1, 0600);
    sigset_t user;
    sigemptyset(&user);
    sigaddset(&user, SIGUSR1);
    if (strncmp(name, "sig", 3) == 0)
        sigprocmask(SIG_BLOCK, &user, NULL);
    signal(SIGUSR1, handler);
}

static long checksum(void) {
    double x = 0.5;
    long double y = 1.25L;
    unsigned long n = 88172645463325252UL;
    for (int i = 0; i < 20000; i++) {
        n ^= n << 13, n ^= n >> 7, n ^= n << 17;
        x = x * 1.0000001 + (double)(n & 0xff) / 3.0;
        y = y * 0.9999999L + (long double)x / 7.0L;
    }
    return (long)(x * 1e3) ^ (long)(y * 1e3L) ^ (long)n;
}

static void *in_malloc(void *unused) {
    while (!shared->go) {
        void *blocks[64];
        for (int i = 0; i < 64; i++)
            blocks[i] = malloc(200000 + 4096 * i);
        for (int i = 0; i < 64; i++)
            free(blocks[i]);
        shared->progress++;
    }
    return unused;
}

static void *in_stdio(void *unused) {
    FILE *file = fopen("/dev/null", "w");
    while (!shared->go)
        fprintf(file, "%f %d\n", sqrt(shared->progress), 7);
    fclose(file);
    return unused;
}

static void *in_loader(void *unused) {
    while (!shared->go) {
        void *handle = dlopen("libutil.so.1", RTLD_NOW);
        if (handle)
            dlclose(handle);
    }
    return unused;
}

static void *in_files(void *unused) {
    while (!shared->go)
        close(open("/dev/null", O_RDONLY));
    return unused;
}

static void *in_spin(void *unused) {
    long wanted = checksum();
    while (!shared->go)
        if (checksum() != wanted)
            _exit(5);
    return unused;
}

static void *in_condition(void *unused) {
    pthread_mutex_lock(&shared->lock);
    while (!shared->go)
        pthread_cond_wait(&shared->condition, &shared->lock);
    pthread_mutex_unlock(&shared->lock);
    return unused;
}

static long with_threads(void *(**bodies)(void *), int count) {
    pthread_t threads[64];
    for (int i = 0; i < count; i++)
        pthread_create(&threads[i], NULL, bodies[i], NULL);
    for (int i = 0; i < count; i++)
        pthread_join(threads[i], NULL);
    return 0;
}

static void forbid_memfd(void) {
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0),
        BPF_JUMP(BPF_JMP | BPF_K | BPF_JEQ, SYS_memfd_create, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {4, code};
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program))
        _exit(8);
}

static long until(double milliseconds, struct timespec *limit) {
    clock_gettime(CLOCK_REALTIME, limit);
    limit->tv_nsec += (long)(milliseconds * 1e6);
    limit->tv_sec += limit->tv_nsec / 1000000000;
    limit->tv_nsec %= 1000000000;
    return 0;
}

// Milliseconds.
#define LIMIT limit_of_waits()

static long limit_of_waits(void) {
    const char *given = getenv("BORROWED_LIMIT");
    return given ? atol(given) : 1500;
}

static long wait_in(const char *name) {
    char bytes[8192] = {0};
    struct pollfd polled = {ends[0], POLLIN, 0};
    struct timespec limit = {LIMIT / 1000, LIMIT % 1000 * 1000000};
    struct timeval limit_us = {LIMIT / 1000, LIMIT % 1000 * 1000};
    struct iovec vector = {bytes, 3};
    struct msghdr header = {.msg_iov = &vector, .msg_iovlen = 1};
    struct epoll_event event = {.events = EPOLLIN};
    struct sembuf down = {0, -1, 0};
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    struct itimerspec in_a_while = {.it_value = {LIMIT / 1000, LIMIT % 1000 * 1000000}};
    fd_set readable;
    sigset_t none, user;
    siginfo_t info;
    FD_ZERO(&readable);
    FD_SET(ends[0], &readable);
    sigemptyset(&none);
    sigemptyset(&user);
    sigaddset(&user, SIGUSR1);
    int epoll = epoll_create1(0);
    epoll_ctl(epoll, EPOLL_CTL_ADD, ends[0], &event);
    if (is(name, "read") || is(name, "seccomp") || is(name, "traced"))
        return read(ends[0], bytes, 3);
    if (is(name, "readv"))
        return readv(ends[0], &vector, 1);
    if (is(name, "accept"))
        return accept(listener, NULL, NULL) > 2;
    if (is(name, "recv"))
        return recv(pair[0], bytes, 3, 0);
    if (is(name, "recvmsg"))
        return recvmsg(pair[0], &header, 0);
    if (is(name, "recv_limited")) {
        struct timeval long_limit = {20, 0};
        setsockopt(pair[0], SOL_SOCKET, SO_RCVTIMEO, &long_limit, sizeof long_limit);
        return recv(pair[0], bytes, 3, 0);
    }
    if (is(name, "wait4"))
        return wait4(-1, NULL, 0, NULL) > 0;
    if (is(name, "waitid"))
        return waitid(P_ALL, 0, &info, WEXITED);
    if (is(name, "flock"))
        return flock(lock_file, LOCK_EX);
    if (is(name, "setlkw"))
        return fcntl(lock_file, F_SETLKW, &whole);
    if (is(name, "timerfd")) {
        int timer = timerfd_create(CLOCK_MONOTONIC, 0);
        timerfd_settime(timer, 0, &in_a_while, NULL);
        return read(timer, bytes, 8);
    }
    if (is(name, "cond_wait"))
        return in_condition(NULL) != NULL;
    if (is(name, "cond_timedwait")) {
        until(LIMIT, &limit);
        pthread_mutex_lock(&shared->lock);
        return pthread_cond_timedwait(&shared->condition, &shared->lock, &limit);
    }
    if (is(name, "sem_wait"))
        return sem_wait(&shared->semaphore);
    if (is(name, "sem_timedwait")) {
        until(LIMIT, &limit);
        return sem_timedwait(&shared->semaphore, &limit);
    }
    if (is(name, "select"))
        return select(ends[0] + 1, &readable, NULL, NULL, NULL);
    if (is(name, "select_timeout"))
        return select(ends[0] + 1, &readable, NULL, NULL, &limit_us);
    if (is(name, "pselect"))
        return pselect(ends[0] + 1, &readable, NULL, NULL, NULL, &none);
    if (is(name, "ppoll"))
        return ppoll(&polled, 1, NULL, &none);
    if (is(name, "poll"))
        return poll(&polled, 1, -1);
    if (is(name, "poll_timeout"))
        return poll(&polled, 1, LIMIT);
    if (is(name, "nanosleep"))
        return nanosleep(&limit, NULL);
    if (is(name, "clock_nanosleep"))
        return clock_nanosleep(CLOCK_MONOTONIC, 0, &limit, NULL);
    if (is(name, "sigsuspend"))
        return sigsuspend(&none);
    if (is(name, "pause"))
        return pause();
    if (is(name, "msgrcv"))
        return msgrcv(queue, bytes, 64, 0, 0);
    if (is(name, "epoll_wait"))
        return epoll_wait(epoll, &event, 1, -1);
    if (is(name, "flag")) {
        while (!alarms)
            epoll_wait(epoll, &event, 1, -1);
        return 0;
    }
    if (is(name, "epoll_limited"))
        return epoll_wait(epoll, &event, 1, 20000);
    if (is(name, "epoll_pwait"))
        return epoll_pwait(epoll, &event, 1, -1, &none);
    if (is(name, "semop"))
        return semop(semaphores, &down, 1);
    if (is(name, "sigwaitinfo"))
        return sigwaitinfo(&user, &info);
    if (is(name, "sigtimedwait")) {
        struct timespec long_limit = {20, 0};
        return sigtimedwait(&user, &info, &long_limit);
    }
    if (is(name, "write")) {
        fcntl(ends[1], F_SETPIPE_SZ, 4096);
        long written = write(ends[1], bytes, 5000);
        return written;
    }
    if (is(name, "pending")) {
        sigset_t blocked, pending;
        sigaddset(&user, SIGUSR2);
        sigprocmask(SIG_BLOCK, &user, NULL);
        raise(SIGUSR1);
        read(ends[0], bytes, 3);
        sigpending(&pending);
        sigprocmask(SIG_SETMASK, NULL, &blocked);
        return sigismember(&pending, SIGUSR1) + 10 * sigismember(&blocked, SIGUSR2) +
               100 * sigismember(&blocked, SIGTERM) + 1000 * alarms;
    }
    if (is(name, "alarms")) {
        struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
        struct itimerval often = {{0, 2000}, {0, 2000}};
        sigaction(SIGALRM, &action, NULL);
        setitimer(ITIMER_REAL, &often, NULL);
        long got = read(ends[0], bytes, 3);
        return alarms > 10 ? got : -2;
    }
    if (is(name, "checksum")) {
        long wanted = checksum();
        errno = 42;
        while (!shared->go)
            if (checksum() != wanted || errno != 42)
                return -1;
        return errno;
    }
    void *(*all[])(void *) = {in_malloc, in_stdio, in_loader, in_files, in_spin};
    if (is(name, "stress"))
        return with_threads(all, 5);
    if (is(name, "malloc"))
        return in_malloc(NULL) != NULL;
    if (is(name, "files"))
        return in_files(NULL) != NULL;
    if (is(name, "crowd")) {
        void *(*crowd[40])(void *);
        for (int i = 0; i < 40; i++)
            crowd[i] = in_condition;
        return with_threads(crowd, 40);
    }
    return -99;
}

int main(int count, char **arguments) {
    const char *name = count > 1 ? arguments[1] : "read";
    char byte;
    prepare(name);
    pid_t helper = fork();
    if (helper == 0)
        help(name);
    if (read(ends[0], &byte, 1) != 1)
        return 1;
    lock_file = open(file_name, O_RDWR | O_CREAT, 0600);
    unlink(file_name);
    if (is(name, "seccomp"))
        forbid_memfd();
    if (count > 2 && is(arguments[2], "hidden"))
        prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
    printf("READY\n");
    fflush(stdout);
    double start = now();
    errno = 0;
    long result = wait_in(name);
    int error = result < 0 ? errno : 0;
    printf("%s %ld %d %.0f\n", name, result, error, now() - start);
    msgctl(queue, IPC_RMID, NULL);
    semctl(semaphores, 0, IPC_RMID);
    return 0;
}
