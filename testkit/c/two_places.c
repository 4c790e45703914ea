// Opens and closes /dev/null from two functions, as often as each line of standard input says, with
// locals that differ each time. Prints the return addresses of the two calls.
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static void *callers[2];

// The C library's function uses the frame pointer for something else.
#ifdef RAW
static inline __attribute__((always_inline)) int open_null(void)
{
	long result = 2;
	__asm__ volatile("syscall"
			 : "+a"(result)
			 : "D"("/dev/null"), "S"(O_RDONLY)
			 : "rcx", "r11", "memory");
	return (int)result;
}
#else
#define open_null() open("/dev/null", O_RDONLY)
#endif

__attribute__((noinline)) static int open_it(int which, volatile long *noise)
{
	callers[which] = __builtin_return_address(0);
	volatile long more[8];
	for (int index = 0; index < 8; index++)
		more[index] = *noise + index;
	int fd = open_null();
	close(fd);
	return fd + (int)(more[3] & 0);
}

__attribute__((noinline)) static int first(long count)
{
	volatile long noise = count * 7919;
	return open_it(0, &noise) + 1;
}

__attribute__((noinline)) static int second(long count)
{
	volatile long noise = count * 104729;
	return open_it(1, &noise) + 2;
}

int main(void)
{
	char line[64];
	while (fgets(line, sizeof line, stdin)) {
		long count = atol(line);
		volatile int sum = 0;
		for (long index = 0; index < count; index++)
			sum += first(index);
		for (long index = 0; index < count; index++)
			sum += second(index);
		printf("%lx %lx\n", (unsigned long)callers[0], (unsigned long)callers[1]);
		fflush(stdout);
	}
	return 0;
}
