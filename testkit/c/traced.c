/* A program for each thing that an injected library could break. The first argument names it. It prints
 * what it saw and ends; run with and without the library it must do the same. */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline, noclone))

extern char **environ;

static int is_open(int fd)
{
    return fcntl(fd, F_GETFD) != -1;
}

static void show(const char *what, long value)
{
    printf("%s %ld\n", what, value);
    fflush(stdout);
}

/* The child of vfork has our memory and a table of its own. */
static int run_vfork(void)
{
    int kept = open("/dev/null", O_RDONLY);
    pid_t pid = vfork();
    if (pid == 0) {
        close(kept);
        dup2(1, kept);
        execl("/bin/true", "true", (char *)0);
        _exit(9);
    }
    int status;
    waitpid(pid, &status, 0);
    show("child", WEXITSTATUS(status));
    show("open", is_open(kept));
    return 0;
}

static int run_fork(void)
{
    int kept = open("/dev/null", O_RDONLY);
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        close(kept);
        int again = open("/dev/zero", O_RDONLY);
        show("same", again == kept);
        execl("/bin/sh", "sh", "-c", "echo child; exit 3", (char *)0);
        _exit(9);
    }
    int status;
    waitpid(pid, &status, 0);
    show("child", WEXITSTATUS(status));
    char *words[] = { "sh", "-c", "exit 4", 0 };
    posix_spawn(&pid, "/bin/sh", 0, 0, words, environ);
    waitpid(pid, &status, 0);
    show("spawned", WEXITSTATUS(status));
    show("system", WEXITSTATUS(system("exit 5")));
    FILE *p = popen("echo piped", "r");
    char line[32];
    printf("%s", fgets(line, sizeof line, p) ? line : "nothing\n");
    show("pclose", pclose(p));
    show("open", is_open(kept));
    return 0;
}

static void *churn(void *arg)
{
    long bad = 0;
    for (int i = 0; i < 2000; i++) {
        int fd = open("/dev/null", O_RDONLY), pair[2];
        bad += fd < 0 || pipe(pair) != 0;
        bad += close(fd) || close(pair[0]) || close(pair[1]);
        FILE *f = fopen("/dev/null", "r");
        bad += !f || fclose(f);
    }
    *(long *)arg = bad;
    return 0;
}

static int run_threads(void)
{
    pthread_t t[8];
    long bad[8], sum = 0;
    for (int i = 0; i < 8; i++)
        pthread_create(&t[i], 0, churn, &bad[i]);
    for (int i = 0; i < 8; i++) {
        pthread_join(t[i], 0);
        sum += bad[i];
    }
    show("bad", sum);
    return 0;
}

static volatile sig_atomic_t handled;

static void on_alarm(int n)
{
    (void)n;
    int saved = errno, fd = open("/dev/null", O_RDONLY);
    if (fd >= 0)
        close(fd);
    handled++;
    errno = saved;
}

/* A handler that opens and closes interrupts a program that does the same. */
static int run_signals(void)
{
    struct sigaction act = { .sa_handler = on_alarm, .sa_flags = SA_RESTART };
    sigaction(SIGPROF, &act, 0);
    stack_t alt = { .ss_sp = malloc(65536), .ss_size = 65536 };
    sigaltstack(&alt, 0);
    act.sa_flags |= SA_ONSTACK;
    sigaction(SIGUSR1, &act, 0);
    long bad = 0;
    for (int i = 0; i < 20000; i++) {
        if (i % 20 == 0)
            raise(i % 40 ? SIGPROF : SIGUSR1);
        int fd = open("/dev/null", O_RDONLY);
        bad += fd != 3 || close(fd);
    }
    show("handled", handled);
    show("bad", bad);
    return 0;
}

/* The same at any moment. */
static int run_timer(void)
{
    struct sigaction act = { .sa_handler = on_alarm, .sa_flags = SA_RESTART };
    sigaction(SIGALRM, &act, 0);
    struct itimerval often = { { 0, 150 }, { 0, 150 } }, never = { { 0, 0 }, { 0, 0 } };
    setitimer(ITIMER_REAL, &often, 0);
    long bad = 0;
    for (int i = 0; i < 100000; i++) {
        int fd = open("/dev/null", O_RDONLY);
        bad += fd < 3 || close(fd);
    }
    setitimer(ITIMER_REAL, &never, 0);
    show("handled", handled > 10);
    show("bad", bad);
    return 0;
}

static sigjmp_buf out;

static void on_jump(int n)
{
    (void)n;
    siglongjmp(out, 1);
}

/* A handler leaves a blocking call, and all frames between, without returning. */
static int run_longjmp(void)
{
    struct sigaction act = { .sa_handler = on_jump, .sa_flags = SA_NODEFER };
    sigaction(SIGALRM, &act, 0);
    int listener = socket(AF_UNIX, SOCK_STREAM, 0);
    struct sockaddr a = { .sa_family = AF_UNIX };
    bind(listener, &a, sizeof(sa_family_t));
    listen(listener, 1);
    volatile int jumps = 0;
    while (jumps < 5) {
        if (sigsetjmp(out, 1)) {
            jumps++;
            continue;
        }
        ualarm(2000, 0);
        accept(listener, 0, 0);
    }
    show("jumps", jumps);
    int fd = open("/dev/null", O_RDONLY);
    show("next", fd);
    return 0;
}

static int run_dlopen(void)
{
    for (int i = 0; i < 3; i++) {
        void *lib = dlopen("libm.so.6", RTLD_NOW);
        double (*root)(double) = (double (*)(double))dlsym(lib, "sqrt");
        show("root", (long)root(49));
        int fd = open("/dev/null", O_RDONLY);
        close(fd);
        show("closed", dlclose(lib));
    }
    void *self = dlopen(0, RTLD_NOW);
    int (*opener)(const char *, int, ...) = (int (*)(const char *, int, ...))dlsym(self, "open");
    show("opened", opener("/dev/null", O_RDONLY) >= 0);
    return 0;
}

/* Started with 0 to 2 closed: they must still be free. Tells by its exit code alone. */
static int run_closed_stdio(void)
{
    int code = 0;
    for (int fd = 0; fd < 3; fd++)
        code += is_open(fd) ? 1 : 0;
    int first = open("/dev/null", O_RDONLY), second = open("/dev/null", O_RDONLY);
    return code == 0 && first == 0 && second == 1 ? 42 : 43;
}

static int run_close_range(void)
{
    int a = open("/dev/null", O_RDONLY), b = open("/dev/null", O_RDONLY), c = open("/dev/null", O_RDONLY);
    show("cloexec", close_range(a, b, CLOSE_RANGE_CLOEXEC));
    show("still", is_open(a) + is_open(b));
    show("closed", close_range(b, ~0U, 0));
    show("left", is_open(a) * 100 + is_open(b) * 10 + is_open(c));
    show("backwards", close_range(5, 4, 0));
    show("error", errno == EINVAL);
    return 0;
}

static int run_emfile(void)
{
    struct rlimit limit = { 32, 32 };
    setrlimit(RLIMIT_NOFILE, &limit);
    int opened = 0;
    while (open("/dev/null", O_RDONLY) >= 0)
        opened++;
    show("full", errno == EMFILE);
    show("some", opened > 20);
    show("stream", fopen("/dev/null", "r") == 0 && errno == EMFILE);
    show("folder", opendir("/") == 0 && errno == EMFILE);
    int pair[2];
    show("pipe", pipe(pair) == -1 && errno == EMFILE);
    show("dup", dup(0) == -1 && errno == EMFILE);
    show("accept", accept(0, 0, 0) == -1 && errno == ENOTSOCK);
    show("close", close(999) == -1 && errno == EBADF);
    show("missing", open("/no/such/file", O_RDONLY) == -1 && errno == ENOENT);
    errno = 77;
    close(5);
    show("kept", errno);
    return 0;
}

static void tidy(void *arg)
{
    *(int *)arg = 1;
}

static void *accepting(void *arg)
{
    pthread_cleanup_push(tidy, arg);
    int listener = socket(AF_UNIX, SOCK_STREAM, 0);
    struct sockaddr a = { .sa_family = AF_UNIX };
    bind(listener, &a, sizeof(sa_family_t));
    listen(listener, 1);
    accept(listener, 0, 0);
    pthread_cleanup_pop(0);
    return 0;
}

static int run_cancel(void)
{
    pthread_t t;
    int tidied = 0;
    void *result = 0;
    pthread_create(&t, 0, accepting, &tidied);
    pthread_cancel(t);
    pthread_join(t, &result);
    show("cancelled", result == PTHREAD_CANCELED);
    show("tidied", tidied);
    return 0;
}

static int run_crash(void)
{
    for (int i = 0; i < 7; i++)
        eventfd(0, 0); /* LEAK crash */
    raise(SIGKILL);
    return 0;
}

NOINLINE static int helper(void)
{
    int fd = eventfd(0, EFD_CLOEXEC); /* LEAK helper */
    return fd + (fd < 0);
}

NOINLINE static int careless(void)
{
    int fd = helper();
    return fd + (fd < 0);
}

NOINLINE static int careful(void)
{
    int fd = helper();
    return close(fd);
}

/* One helper, used well and badly. */
static int run_leak(void)
{
    for (int i = 0; i < 12; i++) {
        careless();
        careful();
    }
    FILE *f = fopen("/dev/null", "r"); /* LEAK stream */
    DIR *d = opendir("/"); /* LEAK folder */
    show("last", f != 0 && d != 0);
    return 0;
}

static void *storm(void *arg)
{
    for (int i = 0; i < 125000; i++) {
        int fd = eventfd(0, 0);
        if (i % 1250)
            close(fd);
    }
    return arg;
}

/* A million openings by eight threads, of which 800 stay. */
static int run_storm(void)
{
    struct rlimit limit = { 4096, 4096 };
    setrlimit(RLIMIT_NOFILE, &limit);
    pthread_t t[8];
    for (int i = 0; i < 8; i++)
        pthread_create(&t[i], 0, storm, 0);
    for (int i = 0; i < 8; i++)
        pthread_join(t[i], 0);
    return 0;
}

/* What has no function of its own. */
static int run_syscall(void)
{
    int fd = syscall(SYS_pidfd_open, getpid(), 0); /* LEAK syscall */
    show("pidfd", fd);
    int other = syscall(SYS_memfd_create, "x", 0);
    show("closed", syscall(SYS_close, other));
    show("again", syscall(SYS_close, other) == -1 && errno == EBADF);
    show("parent", syscall(SYS_getppid) == getppid());
    char *page = (char *)syscall(SYS_mmap, 0, 4096, 3, 0x22, -1, 0);
    show("six", page != (char *)-1 && page[4095] == 0);
    show("none", syscall(999) == -1 && errno == ENOSYS);
    fflush(stdout);
    long pid = syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    if (pid == 0) {
        close(fd);
        _exit(6);
    }
    int status;
    waitpid(pid, &status, 0);
    show("child", WEXITSTATUS(status));
    return 0;
}

static int run_received(void)
{
    int pair[2], sent = open("/dev/null", O_RDONLY);
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair))
        return 1;
    char byte = 'x', space[CMSG_SPACE(sizeof sent)];
    struct iovec part = { &byte, 1 };
    struct msghdr m = { .msg_iov = &part, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof space };
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);
    c->cmsg_level = SOL_SOCKET, c->cmsg_type = SCM_RIGHTS, c->cmsg_len = CMSG_LEN(sizeof sent);
    memcpy(CMSG_DATA(c), &sent, sizeof sent);
    sendmsg(pair[0], &m, 0);
    m.msg_controllen = sizeof space;
    show("received", recvmsg(pair[1], &m, 0)); /* LEAK received */
    int got;
    memcpy(&got, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof got);
    show("number", got);
    return 0;
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        int (*run)(void);
    } all[] = {
        { "vfork", run_vfork }, { "fork", run_fork }, { "threads", run_threads }, { "signals", run_signals },
        { "longjmp", run_longjmp }, { "dlopen", run_dlopen }, { "closed-stdio", run_closed_stdio },
        { "close-range", run_close_range }, { "emfile", run_emfile }, { "cancel", run_cancel },
        { "crash", run_crash }, { "leak", run_leak }, { "storm", run_storm }, { "received", run_received },
        { "timer", run_timer }, { "syscall", run_syscall },
    };
    for (size_t i = 0; argc > 1 && i < sizeof all / sizeof *all; i++)
        if (!strcmp(argv[1], all[i].name))
            return all[i].run();
    return 99;
}
