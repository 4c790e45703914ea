// Says that it is ready and waits for the end of its input: by select(), by poll(), or by poll() after a
// select() that only sleeps, as WAIT says. For tests of what a program imports.
#define _GNU_SOURCE
#include <poll.h>
#include <stdio.h>
#include <sys/select.h>
#include <unistd.h>

#define BY_SELECT 1
#define BY_POLL 2
#define BY_SLEEP 3

#if WAIT == BY_SELECT
static void wait_for(int fd)
{
	fd_set set;
	FD_ZERO(&set);
	FD_SET(fd, &set);
	select(fd + 1, &set, NULL, NULL, NULL);
}
#else
static void wait_for(int fd)
{
	struct pollfd asked = {.fd = fd, .events = POLLIN};
#if WAIT == BY_SLEEP
	struct timeval moment = {.tv_usec = 1};
	select(0, NULL, NULL, NULL, &moment);
#endif
	poll(&asked, 1, -1);
}
#endif

int main(int argc, char **argv)
{
	char byte;
	(void)argv;
	printf("{\"pid\":%d,\"refused\":[],\"holdings\":[]}\n", getpid());
	fflush(stdout);
	// The number is not a constant: the compiler must not settle the check of FD_SET by itself.
	do
		wait_for(argc - 1);
	while (read(0, &byte, 1) > 0);
	return 0;
}
