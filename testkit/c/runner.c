/* A program that is already running when fdguard attaches. It does what its input says, one letter
 * a line, and answers each with a line:
 *   o  opens a file and keeps it         h  opens a file and closes it
 *   c  closes the last that it keeps     d  closes a number twice
 *   f  forks a child that opens three and stays until the program ends
 *   e  executes itself again             r  opens one of the same kind as before the start
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BEFORE = 5, MOST = 4096 };

static int kept[MOST];
static int count;

static int keep(void) {
    return open("/etc/passwd", O_RDONLY); /* KEEP */
}

static int hold(void) {
    return open("/dev/null", O_WRONLY); /* HOLD */
}

static int child_keeps(void) {
    return eventfd(0, 0); /* CHILD */
}

static pid_t start_child(void) {
    int ready[2];
    char byte;
    if (pipe(ready) != 0) return -1;
    pid_t child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (int i = 0; i < 3; i++) child_keeps();
        if (write(ready[1], "x", 1) != 1) _exit(1);
        for (;;) pause();
    }
    close(ready[1]);
    if (read(ready[0], &byte, 1) != 1) return -1;
    close(ready[0]);
    return child;
}

static void obey(char order, char **argv) {
    int fd;
    switch (order) {
    case 'o':
        fd = keep();
        if (count < MOST) kept[count++] = fd;
        printf("open %d\n", fd);
        break;
    case 'r':
        printf("open %d\n", hold());
        break;
    case 'h':
        fd = keep();
        printf("closed %d\n", close(fd));
        break;
    case 'c':
        printf("closed %d\n", count > 0 ? close(kept[--count]) : -1);
        break;
    case 'd':
        fd = keep();
        close(fd);
        fd = close(fd);
        printf("closed %d %s\n", fd, strerror(errno));
        break;
    case 'f':
        printf("child %d\n", (int)start_child());
        break;
    case 'e':
        fflush(stdout);
        execv("/proc/self/exe", argv);
        break;
    default:
        printf("what?\n");
    }
    fflush(stdout);
}

int main(int argc, char **argv) {
    char line[16];
    (void)argc;
    for (int i = 0; i < BEFORE; i++) hold();
    printf("READY %d\n", (int)getpid());
    fflush(stdout);
    while (fgets(line, sizeof line, stdin) != NULL) obey(line[0], argv);
    printf("DONE\n");
    return 7;
}
