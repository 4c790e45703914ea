// A program that holds a keeper: `hold_keeper TOKEN HOW PID`, where PID is 0 for its own parent.
// HOW is `stop` (again and again), `once` (one SIGSTOP), `trace` (as a debugger) or `end` (one SIGSTOP, then it exits with 3).
// It ignores TERM and has a child in a session of its own. It begins when it reads a line, and prints `held` when it holds.
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LIFETIME = 120 }; // seconds: nobody lives on after a test that failed

static void say(const char *text) {
    puts(text);
    fflush(stdout);
}

// A traced process is stopped when its tracer can wait for it.
static void trace(pid_t pid) {
    if (ptrace(PTRACE_SEIZE, pid, NULL, NULL) != 0 || ptrace(PTRACE_INTERRUPT, pid, NULL, NULL) != 0) {
        printf("cannot trace: %s\n", strerror(errno));
        fflush(stdout);
        return;
    }
    waitpid(pid, NULL, __WALL);
    say("held");
}

int main(int argc, char **argv) {
    if (argc != 4) {
        return 2;
    }
    const char *how = argv[2];
    pid_t pid = atoi(argv[3]);
    if (pid == 0) {
        pid = getppid();
    }
    signal(SIGTERM, SIG_IGN);
    char line[8];
    if (fgets(line, sizeof line, stdin) == NULL) {
        return 2;
    }
    if (fork() == 0) {
        setsid();
        alarm(LIFETIME);
        for (;;) {
            pause();
        }
    }
    alarm(LIFETIME);
    if (strcmp(how, "trace") == 0) {
        trace(pid);
    } else {
        kill(pid, SIGSTOP);
        say("held");
    }
    if (strcmp(how, "end") == 0) {
        return 3;
    }
    for (;;) {
        if (strcmp(how, "stop") == 0) {
            kill(pid, SIGSTOP);
            usleep(100);
        } else {
            pause();
        }
    }
}
