/* A library that is loaded into a running program. It leaks, for whoever asks it to. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>

int leak(void)
{
    return open("/dev/null", O_RDONLY); /* LEAK later */
}

__attribute__((constructor)) static void begin(void)
{
    char text[32];
    snprintf(text, sizeof text, "%lx", (unsigned long)leak);
    setenv("LATER_LEAK", text, 1);
}
