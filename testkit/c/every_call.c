// Opens and closes descriptors in every way there is. At each quiet moment it prints a line, the name
// of the moment and the numbers of all its threads as PID/TID, and waits for a line: then nothing
// changes, and the tables of these threads can be compared with /proc.
// A call that this kernel does not have or allow is reported on standard error and skipped.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/io_uring.h>
#include <mqueue.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/fanotify.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define NUMBER(name, number) enum { call_##name = number }
NUMBER(open_tree, 428);
NUMBER(fsopen, 430);
NUMBER(fsmount, 432);
NUMBER(fspick, 433);
NUMBER(pidfd_open, 434);
NUMBER(clone3, 435);
NUMBER(close_range, 436);
NUMBER(openat2, 437);
NUMBER(pidfd_getfd, 438);
NUMBER(landlock_create_ruleset, 444);
NUMBER(memfd_secret, 447);

static char others[256];

static void quiet(const char *name)
{
	char line[512], answer[16];
	int length = snprintf(line, sizeof line, "%s %d/%ld%s\n", name, getpid(),
			      syscall(SYS_gettid), others);
	if (write(1, line, length) != length || read(0, answer, sizeof answer) <= 0)
		_exit(3);
}

static int attempt(const char *name, long result)
{
	if (result < 0)
		fprintf(stderr, "cannot %s: %s\n", name, strerror(errno));
	return result;
}

static void plain(void)
{
	struct { uint64_t flags, mode, resolve; } how = {O_RDONLY, 0, 0};
	int fd = attempt("openat", openat(AT_FDCWD, "/", O_RDONLY));
	attempt("open", syscall(SYS_open, "/dev/null", O_RDONLY));
	attempt("openat2", syscall(call_openat2, AT_FDCWD, "/", &how, sizeof how));
	attempt("creat", syscall(SYS_creat, "/dev/null", 0600));
	attempt("eventfd", syscall(SYS_eventfd, 0));
	attempt("eventfd2", eventfd(0, EFD_CLOEXEC));
	attempt("epoll_create", syscall(SYS_epoll_create, 1));
	attempt("epoll_create1", epoll_create1(0));
	attempt("timerfd_create", timerfd_create(CLOCK_MONOTONIC, 0));
	attempt("inotify_init", syscall(SYS_inotify_init));
	attempt("inotify_init1", inotify_init1(0));
	attempt("fanotify_init", fanotify_init(FAN_CLASS_NOTIF, O_RDONLY));
	attempt("memfd_create", memfd_create("every", 0));
	attempt("memfd_secret", syscall(call_memfd_secret, 0));
	attempt("userfaultfd", syscall(SYS_userfaultfd, O_CLOEXEC | 1));
	quiet("files");
	sigset_t set;
	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	int signals = attempt("signalfd", syscall(SYS_signalfd, -1, &set, 8));
	attempt("signalfd4", syscall(SYS_signalfd4, signals, &set, 8, 0));
	attempt("signalfd4 new", signalfd(-1, &set, SFD_CLOEXEC));
	int pid = attempt("pidfd_open", syscall(call_pidfd_open, getpid(), 0));
	attempt("pidfd_getfd", syscall(call_pidfd_getfd, pid, fd, 0));
	struct { uint64_t handled; } rules = {1};
	attempt("landlock", syscall(call_landlock_create_ruleset, &rules, sizeof rules, 0));
	attempt("landlock version", syscall(call_landlock_create_ruleset, NULL, 0, 1));
	attempt("open_tree", syscall(call_open_tree, AT_FDCWD, "/", 0));
	int fs = attempt("fsopen", syscall(call_fsopen, "tmpfs", 0));
	syscall(431, fs, 6, NULL, NULL, 0);
	attempt("fsmount", syscall(call_fsmount, fs, 0, 0));
	attempt("fspick", syscall(call_fspick, AT_FDCWD, "/", 0));
	attempt("mq_open", mq_open("/every_call", O_RDWR | O_CREAT, 0600, NULL));
	mq_unlink("/every_call");
	struct { uint32_t type, size; uint64_t config; uint64_t rest[14]; } event = {1, 128, 0, {0}};
	attempt("perf_event_open", syscall(SYS_perf_event_open, &event, 0, -1, -1, 0));
	struct { uint32_t type, key, value, entries, rest[12]; } map = {2, 4, 4, 1, {0}};
	attempt("bpf", syscall(SYS_bpf, 0, &map, sizeof map));
	struct { struct file_handle head; char more[128]; } handle = {.head.handle_bytes = 128};
	int mount;
	if (!name_to_handle_at(AT_FDCWD, "/", &handle.head, &mount, 0))
		attempt("open_by_handle_at", open_by_handle_at(fd, &handle.head, O_RDONLY));
	quiet("objects");
}

static void duplicates(void)
{
	int fd = dup(0);
	dup2(fd, 100);
	dup2(1, 100);
	dup3(2, 101, O_CLOEXEC);
	dup2(fd, fd);
	dup3(fd, fd, 0);
	dup2(900, 100);
	dup3(fd, 100, 12345);
	fcntl(fd, F_DUPFD, 120);
	fcntl(fd, F_DUPFD_CLOEXEC, 120);
	fcntl(fd, F_GETFD);
	quiet("duplicates");
	close(120);
	close(120);
	close(-1);
	quiet("close twice");
	char byte;
	if (read(777, &byte, 1) != -1)
		_exit(4);
	quiet("bad use");
}

static void sockets(void)
{
	int pair[2], pipes[2];
	struct sockaddr_un name = {.sun_family = AF_UNIX};
	snprintf(name.sun_path + 1, sizeof name.sun_path - 1, "every-call-%d", getpid());
	int listener = attempt("socket", socket(AF_UNIX, SOCK_STREAM, 0));
	attempt("bind", bind(listener, (void *)&name, sizeof name));
	attempt("listen", listen(listener, 8));
	for (int round = 0; round < 2; round++) {
		int client = socket(AF_UNIX, SOCK_STREAM, 0);
		attempt("connect", connect(client, (void *)&name, sizeof name));
		attempt("accept", round ? accept4(listener, NULL, NULL, SOCK_CLOEXEC)
					: accept(listener, NULL, NULL));
	}
	int peer;
	socklen_t size = sizeof peer;
	attempt("socketpair", socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
	attempt("SO_PEERPIDFD", getsockopt(pair[0], SOL_SOCKET, 77, &peer, &size));
	attempt("pipe", syscall(SYS_pipe, pipes));
	attempt("pipe2", pipe2(pipes, O_CLOEXEC));
	quiet("sockets");
}

static void send_numbers(int socket, const int *numbers, int count)
{
	union { char bytes[2048]; struct cmsghdr head; } control = {0};
	struct iovec part = {"x", 1};
	struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control.bytes,
				 .msg_controllen = CMSG_SPACE(count * sizeof *numbers)};
	struct cmsghdr *head = CMSG_FIRSTHDR(&message);
	head->cmsg_level = SOL_SOCKET;
	head->cmsg_type = SCM_RIGHTS;
	head->cmsg_len = CMSG_LEN(count * sizeof *numbers);
	memcpy(CMSG_DATA(head), numbers, count * sizeof *numbers);
	attempt("sendmsg", sendmsg(socket, &message, 0));
}

static void received(void)
{
	int pair[2], numbers[200];
	for (int index = 0; index < 200; index++)
		numbers[index] = index % 3;
	socketpair(AF_UNIX, SOCK_DGRAM, 0, pair);
	int on = 1;
	setsockopt(pair[1], SOL_SOCKET, SO_PASSCRED, &on, sizeof on);
	attempt("SO_PASSPIDFD", setsockopt(pair[1], SOL_SOCKET, 76, &on, sizeof on));
	char byte, control[2][2048];
	struct iovec part = {&byte, 1};
	struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control[0],
				 .msg_controllen = sizeof control[0]};
	send_numbers(pair[0], numbers, 200);
	attempt("recvmsg", recvmsg(pair[1], &message, MSG_CMSG_CLOEXEC));
	quiet("recvmsg");
	// Not everything fits.
	message.msg_control = control[0];
	message.msg_controllen = 128;
	send_numbers(pair[0], numbers, 100);
	attempt("recvmsg", recvmsg(pair[1], &message, 0));
	quiet("recvmsg cut off");
	struct mmsghdr several[2] = {{.msg_hdr = message}, {.msg_hdr = message}};
	for (int index = 0; index < 2; index++) {
		several[index].msg_hdr.msg_control = control[index];
		several[index].msg_hdr.msg_controllen = sizeof control[index];
		send_numbers(pair[0], numbers, 3 + index);
	}
	attempt("recvmmsg", recvmmsg(pair[1], several, 2, 0, NULL));
	quiet("recvmmsg");
}

static void terminals(void)
{
	int master = attempt("posix_openpt", posix_openpt(O_RDWR | O_NOCTTY));
	grantpt(master);
	unlockpt(master);
	attempt("TIOCGPTPEER", ioctl(master, 0x5441, O_RDWR | O_NOCTTY));
	int space = attempt("open ns", open("/proc/self/ns/pid", O_RDONLY));
	attempt("NS_GET_USERNS", ioctl(space, 0xb701));
	int count;
	ioctl(master, FIONREAD, &count);
	quiet("ioctl");
}

static int ring_enter(int ring, int submit, int wait)
{
	return syscall(SYS_io_uring_enter, ring, submit, wait, wait ? IORING_ENTER_GETEVENTS : 0, NULL, 0);
}

static void rings(void)
{
	struct io_uring_params setup = {0};
	int ring = attempt("io_uring_setup", syscall(SYS_io_uring_setup, 8, &setup));
	if (ring < 0)
		return;
	quiet("io_uring_setup");
	size_t size = setup.sq_off.array + setup.sq_entries * sizeof(unsigned);
	char *queue = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, ring, IORING_OFF_SQ_RING);
	struct io_uring_sqe *entries = mmap(NULL, setup.sq_entries * sizeof *entries,
					    PROT_READ | PROT_WRITE, MAP_SHARED, ring, IORING_OFF_SQES);
	unsigned *tail = (unsigned *)(queue + setup.sq_off.tail);
	unsigned mask = *(unsigned *)(queue + setup.sq_off.ring_mask);
	unsigned *array = (unsigned *)(queue + setup.sq_off.array);
	for (int round = 0; round < 4; round++) {
		unsigned index = *tail & mask;
		memset(&entries[index], 0, sizeof *entries);
		entries[index].opcode = round == 2 ? IORING_OP_CLOSE : IORING_OP_OPENAT;
		entries[index].fd = round == 2 ? 3 : AT_FDCWD;
		entries[index].addr = round == 2 ? 0 : (uint64_t)(uintptr_t) "/dev/null";
		entries[index].flags = round == 1 || round == 3 ? IOSQE_ASYNC : 0;
		array[index] = index;
		__atomic_store_n(tail, *tail + 1, __ATOMIC_RELEASE);
		if (round == 3) {
			// Submitted by one call, completed while another waits.
			ring_enter(ring, 1, 0);
			ring_enter(ring, 0, 4);
		} else {
			ring_enter(ring, 1, round + 1);
		}
		quiet(round == 0 ? "ring open" : round == 1 ? "ring async open"
			       : round == 2 ? "ring close" : "ring late open");
	}
}

static void many(void)
{
	struct rlimit limit;
	getrlimit(RLIMIT_NOFILE, &limit);
	limit.rlim_cur = limit.rlim_max < 32768 ? limit.rlim_max : 32768;
	attempt("setrlimit", setrlimit(RLIMIT_NOFILE, &limit));
	for (int index = 0; index < 1500; index++)
		dup(0);
	quiet("1500 numbers");
	int pair[2], number[1] = {1};
	socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
	for (int index = 0; index < 18000; index++)
		dup(0);
	quiet("20000 numbers");
	char byte, control[128];
	struct iovec part = {&byte, 1};
	struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control,
				 .msg_controllen = sizeof control};
	send_numbers(pair[0], number, 1);
	recvmsg(pair[1], &message, 0);
	int master = posix_openpt(O_RDWR | O_NOCTTY);
	grantpt(master);
	unlockpt(master);
	attempt("TIOCGPTPEER", ioctl(master, 0x5441, O_RDWR | O_NOCTTY));
	fcntl(0, F_DUPFD, limit.rlim_cur - 5);
	quiet("dirty beyond 20000");
	syscall(call_close_range, 2000, 10000, 4);
	quiet("close_range cloexec");
	syscall(call_close_range, 5000, 4000, 0);
	syscall(call_close_range, 5000, 6000, 9);
	quiet("close_range invalid");
	syscall(call_close_range, 300, ~0u, 0);
	quiet("close_range");
}

static int gate[2];

static void wait_at_gate(void)
{
	char byte;
	if (read(gate[0], &byte, 1) < 0)
		_exit(5);
}

static int copied_child(void *unused)
{
	(void)unused;
	close(3);
	open("/", O_RDONLY);
	snprintf(others, sizeof others, " ");
	write(gate[1], "x", 1);
	pause();
	return 0;
}

static int sharing_child(void *unused)
{
	(void)unused;
	open("/dev/zero", O_RDONLY);
	write(gate[1], "x", 1);
	pause();
	return 0;
}

static void forks(void)
{
	pipe(gate);
	static char stack[2][65536] __attribute__((aligned(16)));
	int copied = clone(copied_child, stack[0] + 65536, SIGCHLD, NULL);
	wait_at_gate();
	int number;
	int sharing = clone(sharing_child, stack[1] + 65536, SIGCHLD | CLONE_FILES | CLONE_PIDFD, NULL,
			    &number);
	wait_at_gate();
	open("/dev/full", O_RDONLY);
	snprintf(others, sizeof others, " %d/%d %d/%d", copied, copied, sharing, sharing);
	quiet("forks");
	kill(copied, SIGKILL);
	kill(sharing, SIGKILL);
	waitpid(copied, NULL, 0);
	waitpid(sharing, NULL, 0);
	others[0] = 0;
	quiet("forks ended");
	struct { uint64_t flags, pidfd, child, parent, signal, stack, size, tls; } arguments = {
		.flags = CLONE_PIDFD | CLONE_VFORK, .pidfd = (uintptr_t)&number, .signal = SIGCHLD};
	int child = attempt("clone3", syscall(call_clone3, &arguments, sizeof arguments));
	if (child == 0) {
		close(0);
		execl("/bin/true", "true", NULL);
		_exit(6);
	}
	waitpid(child, NULL, 0);
	quiet("clone3 pidfd");
	child = vfork();
	if (child == 0) {
		close(1);
		_exit(0);
	}
	waitpid(child, NULL, 0);
	quiet("vfork");
}

static volatile int phase;

static void *unsharing_thread(void *unused)
{
	(void)unused;
	unshare(CLONE_FILES);
	close(3);
	open("/dev/null", O_RDONLY);
	open("/dev/null", O_RDONLY);
	snprintf(others, sizeof others, " %d/%ld", getpid(), syscall(SYS_gettid));
	phase = 1;
	pause();
	return NULL;
}

static void *range_thread(void *unused)
{
	(void)unused;
	syscall(call_close_range, 3, 50, 2);
	open("/dev/null", O_RDONLY);
	size_t used = strlen(others);
	snprintf(others + used, sizeof others - used, " %d/%ld", getpid(), syscall(SYS_gettid));
	phase = 2;
	pause();
	return NULL;
}

static int separate_thread(void *unused)
{
	(void)unused;
	open("/dev/zero", O_RDONLY);
	size_t used = strlen(others);
	snprintf(others + used, sizeof others - used, " %d/%ld", getpid(), syscall(SYS_gettid));
	phase = 3;
	for (;;)
		syscall(SYS_pause);
	return 0;
}

static void wait_for(int wanted)
{
	while (phase != wanted)
		usleep(1000);
}

static void threads(void)
{
	pthread_t thread;
	static char stack[65536] __attribute__((aligned(16)));
	pthread_create(&thread, NULL, unsharing_thread, NULL);
	wait_for(1);
	quiet("unshare");
	pthread_create(&thread, NULL, range_thread, NULL);
	wait_for(2);
	open("/dev/full", O_RDONLY);
	quiet("close_range unshare");
	clone(separate_thread, stack + 65536, CLONE_THREAD | CLONE_VM | CLONE_SIGHAND, NULL);
	wait_for(3);
	quiet("thread without CLONE_FILES");
}

int main(int argc, char **argv)
{
	if (argc > 1) {
		quiet("exec");
		open("/", O_RDONLY);
		quiet("end");
		return 0;
	}
	quiet("start");
	plain();
	duplicates();
	sockets();
	received();
	terminals();
	rings();
	many();
	forks();
	threads();
	// From a program with several tables: the first thread's remains.
	others[0] = 0;
	fcntl(4, F_SETFD, FD_CLOEXEC);
	execl("/proc/self/exe", argv[0], "again", NULL);
	return 7;
}
