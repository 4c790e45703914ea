/* Uses much of what a tracer writes down: many numbers, high ones, several stacks, a thread,
   children with and without exec. */
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MANY = 300 };

static void many(void)
{
    int held[MANY];
    for (int at = 0; at < MANY; at++)
        held[at] = open("/dev/null", O_RDWR | O_CLOEXEC);
    for (int at = 0; at < MANY; at++)
        close(held[at]);
}

static void *thread(void *arg)
{
    many();
    return arg;
}

int main(int argc, char **argv)
{
    pthread_t other;
    int status = 0;
    if (argc > 1) {
        many();
        return 0;
    }
    pthread_create(&other, NULL, thread, NULL);
    pthread_join(other, NULL);
    many();
    dup2(1, 900);
    FILE *file = fopen("/dev/null", "r");
    pid_t child = fork();
    if (child == 0) {
        many();
        close(900);
        execl(argv[0], argv[0], "child", (char *)NULL);
        _exit(9);
    }
    if (waitpid(child, &status, 0) < 0 || status != 0)
        return 3;
    fclose(file);
    puts("whole");
    return 0;
}
