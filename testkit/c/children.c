/* A program for each way to make a process that runs our code with a table of its own: in our memory, or in a copy of it that nobody
 * was told of. The first argument names it. The child closes what we hold and opens more; number 3 stays ours. It prints what it
 * saw; run with and without the library it must do the same. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static int kept;
static char stack[65536] __attribute__((aligned(16)));

static void show(const char *what, long value)
{
    printf("%s %ld\n", what, value);
    fflush(stdout);
}

/* In the child: what it does happens to its own table. */
static int mess(void)
{
    int bad = close(kept) != 0;
    for (int i = 0; i < 5; i++)
        bad += open("/dev/null", O_RDONLY) != kept + i;
    bad += dup2(kept, 60) != 60;
    return bad;
}

static int child(void *nothing)
{
    (void)nothing;
    _exit(mess());
}

/* What the child returns to when it is made on this stack. */
static void child_of_call(void)
{
    child(0);
}

static void after(pid_t pid)
{
    int status = 0;
    show("made", pid > 0);
    show("waited", waitpid(pid, &status, 0) == pid);
    show("child", WIFEXITED(status) ? WEXITSTATUS(status) : -1);
    show("open", fcntl(kept, F_GETFD) != -1);
    /* Recording goes on. */
    int more = open("/dev/null", O_RDONLY);
    show("more", more - kept);
    close(more);
}

static void *top(void)
{
    void (**place)(void) = (void (**)(void))(stack + sizeof stack - 64);
    *place = child_of_call;
    return place;
}

static int run_syscall_clone(void)
{
    after(syscall(SYS_clone, CLONE_VM | CLONE_VFORK | SIGCHLD, top(), 0, 0, 0));
    return 0;
}

static int run_syscall_clone3(void)
{
    struct clone_args args = { .flags = CLONE_VM | CLONE_VFORK, .exit_signal = SIGCHLD };
    args.stack = (unsigned long)stack;
    args.stack_size = (unsigned long)top() - args.stack;
    after(syscall(SYS_clone3, &args, sizeof args));
    return 0;
}

static int run_clone(void)
{
    after(clone(child, stack + sizeof stack, CLONE_VM | CLONE_VFORK | SIGCHLD, 0));
    return 0;
}

/* It does not wait: both run at once in one memory. */
static int run_clone_beside(void)
{
    after(clone(child, stack + sizeof stack, CLONE_VM | SIGCHLD, 0));
    return 0;
}

static int run_nested(void)
{
    pid_t pid = vfork();
    if (pid == 0) {
        int bad = mess(), status = 0;
        pid_t inner = vfork();
        if (inner == 0)
            _exit(close(kept) != 0 || open("/dev/null", O_RDONLY) != kept);
        waitpid(inner, &status, 0);
        bad += WEXITSTATUS(status);
        bad += close(kept) != 0 || open("/dev/null", O_RDONLY) != kept;
        _exit(bad);
    }
    after(pid);
    return 0;
}

static int run_fork_of_vfork(void)
{
    pid_t pid = vfork();
    if (pid == 0) {
        int status = 0;
        pid_t inner = fork();
        if (inner == 0)
            _exit(mess());
        waitpid(inner, &status, 0);
        _exit(WEXITSTATUS(status) + mess());
    }
    after(pid);
    return 0;
}

static int run__Fork(void)
{
    pid_t (*make)(void) = (pid_t(*)(void))dlsym(RTLD_DEFAULT, "_Fork");
    pid_t pid = make ? make() : fork();
    if (pid == 0)
        _exit(mess());
    after(pid);
    return 0;
}

static volatile int is_over;

static void *churn(void *arg)
{
    long bad = 0;
    while (!is_over) {
        int fd = open("/dev/null", O_RDONLY);
        bad += fd < 0 || close(fd);
    }
    *(long *)arg = bad;
    return 0;
}

static void *vforks(void *arg)
{
    volatile long bad = 0;
    for (int i = 0; i < 300; i++) {
        int status = 0;
        pid_t pid = vfork();
        if (pid == 0) {
            int closed = close(kept);
            _exit(closed != 0 || open("/dev/null", O_RDONLY) != kept);
        }
        bad += waitpid(pid, &status, 0) != pid || status != 0;
        int fd = open("/dev/null", O_RDONLY);
        bad += fd < 0 || close(fd);
    }
    *(long *)arg = bad;
    return 0;
}

static int run_threads(void)
{
    pthread_t t[5];
    long bad[5], sum = 0;
    for (int i = 0; i < 5; i++)
        pthread_create(&t[i], 0, i < 2 ? vforks : churn, &bad[i]);
    for (int i = 0; i < 5; i++) {
        pthread_join(t[i], 0);
        sum += bad[i];
        is_over = i > 0;
    }
    show("bad", sum);
    show("open", fcntl(kept, F_GETFD) != -1);
    return 0;
}

/* A vfork that the kernel refuses. */
static int run_refused(void)
{
    struct sock_filter steps[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_vfork, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EAGAIN),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = { sizeof steps / sizeof *steps, steps };
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    show("filtered", prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program));
    errno = 0;
    pid_t pid = vfork();
    if (pid == 0)
        _exit(0);
    show("made", pid);
    show("again", errno == EAGAIN);
    int more = open("/dev/null", O_RDONLY);
    show("more", more - kept);
    return 0;
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        int (*run)(void);
    } all[] = {
        { "syscall-clone", run_syscall_clone }, { "syscall-clone3", run_syscall_clone3 }, { "clone", run_clone },
        { "clone-beside", run_clone_beside }, { "nested", run_nested }, { "fork-of-vfork", run_fork_of_vfork },
        { "_Fork", run__Fork }, { "threads", run_threads }, { "refused", run_refused },
    };
    kept = open("/dev/null", O_RDONLY);
    for (size_t i = 0; argc > 1 && i < sizeof all / sizeof *all; i++)
        if (!strcmp(argv[1], all[i].name))
            return all[i].run();
    return 99;
}
