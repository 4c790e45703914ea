/* A program that locks itself up by a seccomp filter, as sandboxes do, and goes on opening. The first argument says how:
 *   strict   ended for all but open, close, write and exit
 *   library  the same, installed by system call instead of prctl
 *   failing  all else fails
 *   mild     ended for ptrace alone
 *   fork     ended for what a program that forks and waits does not need
 *   refused  a filter that the kernel does not take */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define COUNT(array) (sizeof(array) / sizeof *(array))
#define NOINLINE __attribute__((noinline, noclone))

static NOINLINE int opened_before(void)
{
    return open("/dev/null", O_RDONLY) + 1; /* LEAK before */
}

static NOINLINE int opened_after(void)
{
    int fd = open("/dev/null", O_RDONLY); /* LEAK after */
    return fd;
}

static void say(const char *text)
{
    if (write(1, text, strlen(text)) < 0)
        _exit(9);
}

static int install(const int *calls, size_t count, unsigned listed, unsigned otherwise, int by_number)
{
    struct sock_filter filter[64];
    size_t used = 0;
    filter[used++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
    for (size_t i = 0; i < count; i++) {
        filter[used++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, calls[i], 0, 1);
        filter[used++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, listed);
    }
    filter[used++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, otherwise);
    struct sock_fprog program = {.len = used, .filter = filter};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
        return -1;
    if (by_number)
        return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program);
    return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0);
}

int main(int count, char **words)
{
    static const int few[] = {SYS_open, SYS_openat, SYS_close, SYS_write, SYS_exit, SYS_exit_group};
    static const int forking[] = {
        SYS_open, SYS_openat, SYS_close, SYS_write, SYS_exit, SYS_exit_group, SYS_getpid, SYS_gettid, SYS_madvise,
        SYS_rt_sigprocmask, SYS_readlink, SYS_clock_gettime, SYS_fstat, SYS_sigaltstack, SYS_clone, SYS_wait4, SYS_set_robust_list, SYS_rseq,
    };
    static const int bad[] = {SYS_ptrace};
    const char *how = count > 1 ? words[1] : "";
    const unsigned kill = SECCOMP_RET_KILL_PROCESS, allow = SECCOMP_RET_ALLOW;
    opened_before();
    int failed;
    if (!strcmp(how, "strict") || !strcmp(how, "library"))
        failed = install(few, COUNT(few), allow, kill, how[0] == 'l');
    else if (!strcmp(how, "failing"))
        failed = install(few, COUNT(few), allow, SECCOMP_RET_ERRNO | EPERM, 0);
    else if (!strcmp(how, "mild"))
        failed = install(bad, COUNT(bad), kill, allow, 1);
    else if (!strcmp(how, "fork"))
        failed = install(forking, COUNT(forking), allow, kill, 0);
    else if (!strcmp(how, "refused"))
        failed = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, ~0U, NULL) != -1;
    else
        return 2;
    if (failed)
        return 3;
    for (int i = 0; i < 3; i++)
        opened_after();
    close(opened_after());
    if (!strcmp(how, "fork")) {
        pid_t child = fork();
        if (child == 0) {
            opened_after();
            say("child\n");
            _exit(0);
        }
        int status = 1;
        if (waitpid(child, &status, 0) != child || status)
            say("child lost\n");
    }
    say("done\n");
    _exit(0);
}
