/* Leaves behind what its argument says. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/wait.h>
#include <unistd.h>

static int load(const char *path)
{
    return open(path, O_RDONLY); /* LEFT load */
}

static void one(void)
{
    load("/etc/passwd");
}

/* One of twenty is forgotten, in the middle. */
static void stray(void)
{
    for (int i = 0; i < 20; i++) {
        int fd = load("/etc/passwd");
        usleep(1000);
        if (i != 5)
            close(fd);
    }
}

/* The last five of forty stay open, as in a cache. */
static void cache(void)
{
    int kept[5] = { -1, -1, -1, -1, -1 };
    for (int i = 0; i < 40; i++) {
        if (kept[i % 5] >= 0)
            close(kept[i % 5]);
        kept[i % 5] = load("/etc/passwd");
        usleep(1000);
    }
}

static void child(void)
{
    if (fork() == 0) {
        one();
        exit(0);
    }
    wait(NULL);
}

static void killed_child(void)
{
    int ready[2];
    char byte;
    if (pipe(ready) < 0)
        abort();
    pid_t pid = fork();
    if (pid == 0) {
        one();
        if (write(ready[1], "r", 1) != 1)
            abort();
        pause();
    }
    if (read(ready[0], &byte, 1) != 1)
        abort();
    close(ready[0]);
    close(ready[1]);
    kill(pid, SIGTERM);
    waitpid(pid, NULL, 0);
}

/* A grandchild with a session of its own, that nobody waits for. */
static void orphan(void)
{
    if (fork() == 0) {
        if (setsid() < 0)
            abort();
        if (fork() == 0) {
            execlp("sleep", "sleep", "1000", NULL);
            abort();
        }
        _exit(0);
    }
    wait(NULL);
}

/* Ignores the polite request. */
static void stubborn(void)
{
    if (fork() == 0) {
        signal(SIGTERM, SIG_IGN);
        for (;;)
            pause();
    }
}

static void zombie(void)
{
    if (fork() == 0)
        _exit(0);
    sleep(2);
}

static void proper(void)
{
    int fd = load("/etc/passwd"), event = eventfd(0, EFD_CLOEXEC);
    close(fd);
    close(event);
}

/* Closed past the C library: nobody sees it. */
static void closed_unseen(void)
{
    long result;
    __asm__ volatile("syscall" : "=a"(result) : "0"(3L), "D"((long)load("/etc/passwd")) : "rcx", "r11", "memory");
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "proper";
    struct {
        const char *name;
        void (*run)(void);
    } kinds[] = {
        { "one", one },       { "stray", stray },     { "cache", cache },
        { "child", child },   { "killed-child", killed_child },
        { "orphan", orphan }, { "stubborn", stubborn }, { "zombie", zombie },
        { "proper", proper }, { "closed-unseen", closed_unseen },
    };
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (strcmp(what, kinds[i].name) == 0) {
            kinds[i].run();
            return argc > 2 ? atoi(argv[2]) : 0;
        }
    return 99;
}
