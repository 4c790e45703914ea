// A tree that is hard to end: a plain child, one that ignores TERM, one that is stopped, one in a session of its own, one whose
// parent is gone, and a hopper that forks and exits every two milliseconds. Every member has the token in its command line.
// family TOKEN [still] [fast] [leave]: `still` is without the hopper, `fast` with one that does not pause; with `leave` the first process exits with 0 when all are there.
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { LIFETIME = 120 }; // seconds: nobody lives on after a test that failed

static int ready[2];

static void wait_for_the_end(void) {
    alarm(LIFETIME);
    for (;;) pause();
}

static void there(void) {
    if (write(ready[1], ".", 1) != 1) _exit(1);
}

static void hop(int fast) {
    time_t end = time(NULL) + LIFETIME;
    struct timespec pause = {0, 2000000};
    there();
    while (time(NULL) < end) {
        pid_t child = fork();
        if (child > 0) _exit(0);
        if (child == 0) setsid();
        if (!fast) nanosleep(&pause, NULL);
    }
    _exit(0);
}

int main(int count, char **words) {
    int still = 0, fast = 0, leave = 0;
    for (int i = 2; i < count; i++) {
        still |= !strcmp(words[i], "still");
        fast |= !strcmp(words[i], "fast");
        leave |= !strcmp(words[i], "leave");
    }
    if (count < 2 || pipe(ready)) return 2;
    if (fork() == 0) { // plain
        there();
        wait_for_the_end();
    }
    if (fork() == 0) { // ignores TERM
        signal(SIGTERM, SIG_IGN);
        there();
        wait_for_the_end();
    }
    pid_t stopped = fork();
    if (stopped == 0) {
        alarm(LIFETIME);
        raise(SIGSTOP);
        wait_for_the_end();
    }
    int status;
    if (waitpid(stopped, &status, WUNTRACED) != stopped) return 2;
    if (fork() == 0) { // a session of its own
        setsid();
        there();
        wait_for_the_end();
    }
    pid_t between = fork();
    if (between == 0) { // its parent is gone
        setsid();
        if (fork()) _exit(0);
        there();
        wait_for_the_end();
    }
    if (waitpid(between, &status, 0) != between) return 2;
    if (!still && fork() == 0) {
        close(1);
        hop(fast);
    }
    char dot;
    for (int i = 0; i < (still ? 4 : 5); i++)
        if (read(ready[0], &dot, 1) != 1) return 2;
    printf("up\n");
    fflush(stdout);
    if (leave) return 0;
    wait_for_the_end();
}
