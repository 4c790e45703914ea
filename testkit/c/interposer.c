/* Another library that stands before `open`: it must still be asked, once a call. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>

static int asked;

static void tell(void)
{
    printf("asked %d\n", asked);
}

int eventfd(unsigned value, int flags)
{
    int (*real)(unsigned, int) = (int (*)(unsigned, int))dlsym(RTLD_NEXT, "eventfd");
    if (!asked++)
        atexit(tell);
    return real(value, flags);
}
