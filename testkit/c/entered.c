// A library for tests of fdguard-attach: its functions report that they ran, and leave the thread
// in a state that it must not keep.
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int calls;

static void disturb(void) {
    static const unsigned rounding = 0x7f80;
    void *block = malloc(100000);
    memset(block, 1, 100000);
    free(block);
    __asm__ volatile("ldmxcsr %0" ::"m"(rounding));
    __asm__ volatile("fninit; fldpi; fldpi; fldpi");
    __asm__ volatile("pcmpeqb %%xmm0, %%xmm0; pcmpeqb %%xmm1, %%xmm1; pcmpeqb %%xmm2, %%xmm2;"
                     "pcmpeqb %%xmm3, %%xmm3; pcmpeqb %%xmm4, %%xmm4; pcmpeqb %%xmm5, %%xmm5;"
                     "pcmpeqb %%xmm6, %%xmm6; pcmpeqb %%xmm7, %%xmm7; pcmpeqb %%xmm8, %%xmm8" ::
                         : "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8");
    errno = 77;
}

// The number of calls so far.
int count(const void *argument, size_t size) {
    (void)argument;
    (void)size;
    disturb();
    return ++calls;
}

// The sum of the argument's bytes.
int sum(const void *argument, size_t size) {
    const unsigned char *bytes = argument;
    int total = 0;
    for (size_t i = 0; i < size; i++)
        total += bytes[i];
    return total;
}

int fault(const void *argument, size_t size) {
    (void)size;
    *(volatile int *)(argument ? NULL : NULL) = 1;
    return 0;
}

// Takes longer than a call may.
int tarry(const void *argument, size_t size) {
    (void)argument;
    (void)size;
    sleep(12);
    return ++calls;
}
