// Starts a child in every way there is, each on a line of its own. With `wait` it waits for each in one of the ways to wait; with
// `leave` it waits for none, says so and blocks. With `orphan` it leaves a grandchild behind by two forks, with `shell` one by system(),
// with `daemon-shell` one of a shell that was started by fork. With `last` and `last-runs` it waits for every child of a line but the
// last, which has ended or runs on.
#define _GNU_SOURCE
#include <err.h>
#include <pty.h>
#include <sched.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;
extern pid_t _Fork(void);
static char stack[64 * 1024] __attribute__((aligned(16)));
static FILE *stream;

static pid_t checked(pid_t pid, const char *what)
{
	if (pid < 0)
		err(1, "%s", what);
	return pid;
}

#define WAY static __attribute__((noinline)) pid_t

WAY by_fork(void)
{
	pid_t pid = fork(); /* START fork */
	if (pid == 0)
		_exit(0);
	return checked(pid, "fork");
}

WAY by_plain_fork(void)
{
	pid_t pid = _Fork(); /* START _Fork */
	if (pid == 0)
		_exit(0);
	return checked(pid, "_Fork");
}

WAY by_vfork(void)
{
	pid_t pid = vfork(); /* START vfork */
	if (pid == 0)
		_exit(0);
	return checked(pid, "vfork");
}

WAY by_spawn(void)
{
	pid_t pid;
	char *words[] = {"true", NULL};
	int error = posix_spawn(&pid, "/bin/true", NULL, NULL, words, environ); /* START posix_spawn */
	if (error)
		errx(1, "posix_spawn: %s", strerror(error));
	return pid;
}

WAY by_spawnp(void)
{
	pid_t pid;
	char *words[] = {"true", NULL};
	int error = posix_spawnp(&pid, "true", NULL, NULL, words, environ); /* START posix_spawnp */
	if (error)
		errx(1, "posix_spawnp: %s", strerror(error));
	return pid;
}

static int nothing(void *unused)
{
	(void)unused;
	return 0;
}

WAY by_clone(void)
{
	int pid = clone(nothing, stack + sizeof stack, SIGCHLD, NULL); /* START clone */
	return checked(pid, "clone");
}

WAY by_forkpty(void)
{
	int master;
	pid_t pid = forkpty(&master, NULL, NULL, NULL); /* START forkpty */
	if (pid == 0)
		_exit(0);
	return checked(pid, "forkpty");
}

WAY by_number(void)
{
	pid_t pid = syscall(SYS_fork); /* START syscall */
	if (pid == 0)
		_exit(0);
	return checked(pid, "SYS_fork");
}

WAY by_clone_number(void)
{
	pid_t pid = syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0); /* START syscall-clone */
	if (pid == 0)
		_exit(0);
	return checked(pid, "SYS_clone");
}

WAY by_popen(void)
{
	stream = popen("exit 0", "r"); /* START popen */
	if (!stream)
		err(1, "popen");
	return 0;
}

static void with_wait(pid_t pid)
{
	while (wait(NULL) != pid)
		;
}

static void with_waitpid(pid_t pid)
{
	int status;
	checked(waitpid(pid, &status, 0), "waitpid");
}

static void with_wait3(pid_t pid)
{
	while (wait3(NULL, 0, NULL) != pid)
		;
}

static void with_wait4(pid_t pid)
{
	struct rusage usage;
	checked(wait4(pid, NULL, 0, &usage), "wait4");
}

static void with_waitid(pid_t pid)
{
	siginfo_t found;
	// Only a look: it can be waited for again.
	checked(waitid(P_PID, pid, &found, WEXITED | WNOWAIT), "waitid");
	checked(waitid(P_PID, pid, NULL, WEXITED), "waitid");
}

static void with_number(pid_t pid)
{
	checked(syscall(SYS_wait4, pid, NULL, 0, NULL), "SYS_wait4");
}

static void with_waitid_number(pid_t pid)
{
	checked(syscall(SYS_waitid, P_PID, pid, NULL, WEXITED, NULL), "SYS_waitid");
}

static void with_pclose(pid_t pid)
{
	(void)pid;
	if (pclose(stream) != 0)
		err(1, "pclose");
}

static const struct {
	pid_t (*start)(void);
	void (*wait)(pid_t);
} ways[] = {
	{by_fork, with_wait},
	{by_plain_fork, with_waitpid},
	{by_vfork, with_wait3},
	{by_spawn, with_wait4},
	{by_spawnp, with_waitid},
	{by_clone, with_waitpid},
	{by_forkpty, with_waitpid},
	{by_number, with_number},
	{by_clone_number, with_waitid_number},
	{by_popen, with_pclose},
};

static void linger(void)
{
	execlp("sleep", "sleep", "1000", NULL);
	err(1, "sleep");
}

// The first child ends at once, and so its own child belongs to nobody.
static void orphan(void)
{
	pid_t pid = fork(); /* START intermediate */
	if (pid == 0) {
		setsid();
		if (fork() == 0) /* START orphan */
			linger();
		_exit(0);
	}
	with_waitpid(pid);
}

static void shell(void)
{
	if (system("sleep 1000 & exit 0") != 0) /* START shell */
		errx(1, "system");
}

static void daemon_shell(void)
{
	pid_t pid = fork(); /* START daemon-shell */
	if (pid == 0) {
		execl("/bin/sh", "sh", "-c", "sleep 1000 & exit 0", NULL);
		err(1, "sh");
	}
	with_waitpid(pid);
}

static void habit(int runs)
{
	for (int nth = 0; nth < 12; nth++) {
		int is_last = nth == 11;
		pid_t pid = fork(); /* START habit */
		if (pid == 0) {
			if (is_last && runs)
				linger();
			_exit(0);
		}
		if (is_last)
			usleep(1500 * 1000); /* Long enough to be a zombie, or to be looked at. */
		else
			with_waitpid(pid);
	}
}

int main(int count, char **words)
{
	const char *mode = count > 1 ? words[1] : "wait";
	if (strcmp(mode, "orphan") == 0) {
		orphan();
		return 0;
	}
	if (strcmp(mode, "shell") == 0) {
		shell();
		return 0;
	}
	if (strcmp(mode, "daemon-shell") == 0) {
		daemon_shell();
		return 0;
	}
	if (strncmp(mode, "last", 4) == 0) {
		habit(strcmp(mode, "last-runs") == 0);
		return 0;
	}
	int waits = strcmp(mode, "wait") == 0;
	for (size_t way = 0; way < sizeof ways / sizeof *ways; way++) {
		pid_t pid = ways[way].start();
		if (waits)
			ways[way].wait(pid);
	}
	if (waits && system("exit 0") != 0) /* START system */
		errx(1, "system");
	puts("ready");
	fflush(stdout);
	if (!waits)
		pause();
	return 0;
}
