// Holds a pipe, a socket pair, an epoll instance, a counter and a file, and says so in the same
// shape as the Rust victim of this name. Not linked with anything but libc.
#define _GNU_SOURCE
#include <err.h>
#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

static int checked(int result, const char *what)
{
	if (result < 0)
		err(1, "%s", what);
	return result;
}

static uintmax_t inode(int fd)
{
	struct stat found;
	checked(fstat(fd, &found), "fstat");
	return found.st_ino;
}

// Everything up to the detail, which the caller prints.
static void say(int fd, const char *what, const char *class)
{
	static const char *const modes[] = {"r", "w", "rw"};
	int mode = checked(fcntl(fd, F_GETFL), "F_GETFL") & O_ACCMODE;
	int cloexec = checked(fcntl(fd, F_GETFD), "F_GETFD") & FD_CLOEXEC;
	printf(",{\"fd\":%d,\"what\":\"%s\",\"class\":\"%s\",\"mode\":\"%s\",\"cloexec\":%s,"
	       "\"deleted\":false,",
	       fd, what, class, modes[mode], cloexec ? "true" : "false");
}

static void say_pipe(int fd, int peer, const char *end)
{
	say(fd, "pipe", "pipe");
	printf("\"detail\":{\"end\":\"%s\",\"peer\":[{\"pid\":%d,\"fd\":%d}]}}", end, getpid(), peer);
}

static void say_socket(int fd, int peer)
{
	say(fd, "unix stream pair", "unix");
	printf("\"detail\":{\"path\":null,\"kind\":\"stream\",\"state\":\"connected\","
	       "\"peer\":{\"ino\":%ju,\"holders\":[{\"pid\":%d,\"fd\":%d}]}}}",
	       inode(peer), getpid(), peer);
}

static int open_file(char *path)
{
	const char *folder = getenv("TMPDIR");
	char name[PATH_MAX];
	snprintf(name, sizeof name, "%s/from-c.txt", folder ? folder : "/tmp");
	int file = checked(open(name, O_RDWR | O_CREAT | O_TRUNC, 0600), "open");
	if (!realpath(name, path))
		err(1, "realpath");
	checked(write(file, "0123456789", 10), "write");
	return file;
}

int main(void)
{
	int ends[2], pair[2];
	char path[PATH_MAX];
	checked(pipe2(ends, O_CLOEXEC), "pipe2");
	checked(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), "socketpair");
	int counter = checked(eventfd(3, EFD_CLOEXEC), "eventfd");
	int poll = checked(epoll_create1(EPOLL_CLOEXEC), "epoll_create1");
	struct epoll_event event = {.events = EPOLLIN, .data.fd = counter};
	checked(epoll_ctl(poll, EPOLL_CTL_ADD, counter, &event), "epoll_ctl");
	int file = open_file(path);

	printf("{\"pid\":%d,\"refused\":[],\"holdings\":["
	       "{\"fd\":0,\"what\":\"standard input\",\"class\":null},"
	       "{\"fd\":1,\"what\":\"standard output\",\"class\":null},"
	       "{\"fd\":2,\"what\":\"standard error\",\"class\":null}",
	       getpid());
	say_pipe(ends[0], ends[1], "read");
	say_pipe(ends[1], ends[0], "write");
	say_socket(pair[0], pair[1]);
	say_socket(pair[1], pair[0]);
	say(counter, "eventfd", "eventfd");
	printf("\"detail\":{\"count\":3,\"semaphore\":false}}");
	say(poll, "epoll", "eventpoll");
	printf("\"detail\":{\"watching\":1,\"ghosts\":0,\"targets\":[%d]}}", counter);
	say(file, "file", "regular");
	printf("\"target\":\"%s\",\"detail\":{\"path\":\"%s\",\"pos\":10,\"size\":10}}", path, path);
	puts("]}");
	fflush(stdout);
	while (getchar() != EOF)
		;
	return 0;
}
