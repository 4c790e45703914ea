/* Holds a given number of descriptors until its input ends. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    int count = argc > 1 ? atoi(argv[1]) : 0;
    for (int i = 0; i < count; i++)
        if (open("/dev/null", O_RDONLY) < 0) {
            perror("open");
            return 1;
        }
    fprintf(stderr, "READY %d 0\n", (int)getpid());
    return getchar() != EOF;
}
