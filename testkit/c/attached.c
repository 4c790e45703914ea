/* A running program that takes the injected library by itself, as an attaching tracer would make it do:
 *   attached LIBRARY DIR MODE
 * Each mode attaches, does something, and prints what it saw. */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline, noclone))

typedef int entry(const void *, size_t);

static entry *attach_entry, *detach_entry;
static char dir[4000];
static char *variables = "";

static void show(const char *what, long value)
{
    printf("%s %ld\n", what, value);
    fflush(stdout);
}

static void load(const char *path)
{
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        printf("%s\n", dlerror());
        exit(3);
    }
    attach_entry = (entry *)dlsym(library, "fdguard_attach");
    detach_entry = (entry *)dlsym(library, "fdguard_detach");
}

static int attach_in(const char *where)
{
    char request[8192];
    size_t size = (size_t)sprintf(request, "%s", where) + 1;
    for (char *word = strtok(strdup(variables), " "); word; word = strtok(0, " "))
        size += (size_t)sprintf(request + size, "%s", word) + 1;
    return attach_entry(request, size);
}

static int attach(void)
{
    return attach_in(dir);
}

static int detach(void)
{
    return detach_entry(0, 0);
}

static int is_open(int fd)
{
    return fcntl(fd, F_GETFD) != -1;
}

static int count_open(void)
{
    int count = 0;
    for (int fd = 0; fd < 1024; fd++)
        count += is_open(fd);
    return count;
}

/* What every call returns, and errno. */
static void results(void)
{
    errno = 77;
    int fd = open("/dev/null", O_RDWR);
    show("open", fd >= 0 && errno == 77);
    show("write", write(fd, "x", 1) == 1 && errno == 77);
    show("none", open("/nonexistent/x", O_RDONLY) == -1 && errno == ENOENT);
    show("close", close(fd) == 0);
    show("again", close(fd) == -1 && errno == EBADF);
    show("bad", close(-1) == -1 && errno == EBADF);
    show("read", read(fd, &fd, 0) == -1 && errno == EBADF);
    show("gone", syscall(SYS_close, 999) == -1 && errno == EBADF);
}

static int run_results(void)
{
    show("attach", attach());
    show("twice", attach());
    results();
    show("detach", detach());
    results();
    show("twice", detach());
    show("request", attach_entry("x", 1));
    show("relative", attach_entry("x", 2));
    show("null", attach_entry(0, 0));
    show("nowhere", attach_entry("/nonexistent/dir", 17));
    results();
    return 0;
}

/* Opens one descriptor by every way, and prints the number and the call. */
static void born(const char *how, int fd)
{
    printf("%s %d\n", how, fd);
}

static int run_coverage(void)
{
    int before = open("/dev/null", O_RDONLY);
    int high = fcntl(before, F_DUPFD, 1500);
    show("attach", attach());
    show("inherited", before);
    show("high", high);
    int fds[2];
    born("open", open("/dev/null", O_RDONLY));
    born("open", openat(AT_FDCWD, "/dev/null", O_RDONLY));
    born("creat", creat("/dev/null", 0600));
    born("fopen", fileno(fopen("/dev/null", "r")));
    born("opendir", dirfd(opendir("/")));
    born("socket", socket(AF_UNIX, SOCK_STREAM, 0));
    pipe(fds);
    born("pipe", fds[0]), born("pipe", fds[1]);
    pipe2(fds, O_CLOEXEC);
    born("pipe", fds[0]), born("pipe", fds[1]);
    socketpair(AF_UNIX, SOCK_STREAM, 0, fds);
    born("socketpair", fds[0]), born("socketpair", fds[1]);
    born("dup", dup(0));
    born("dup2", dup2(0, 100));
    born("fcntl", fcntl(0, F_DUPFD, 110));
    born("epoll", epoll_create1(0));
    born("eventfd", eventfd(0, 0));
    born("timerfd", timerfd_create(CLOCK_MONOTONIC, 0));
    born("inotify", inotify_init1(0));
    sigset_t none;
    sigemptyset(&none);
    born("signalfd", signalfd(-1, &none, 0));
    born("memfd", memfd_create("x", 0));
    char name[] = "/tmp/fdguard-attached-XXXXXX";
    born("mkstemp", mkstemp(name));
    unlink(name);
    born("tmpfile", fileno(tmpfile()));
    born("open", (int)syscall(SYS_openat, AT_FDCWD, "/dev/null", O_RDONLY));
    close(open("/dev/null", O_RDONLY));
    int closed = open("/dev/null", O_RDONLY);
    syscall(SYS_close, closed);
    fclose(fopen("/dev/null", "r"));
    closedir(opendir("/"));
    fflush(stdout);
    _exit(0);
}

/* A table of pointers: relocated when the program was loaded. */
static int (*const volatile table[])(const char *, int, ...) = { open, open64 };

NOINLINE static int leak_by_table(void)
{
    return table[0]("/dev/null", O_RDONLY); /* LEAK table */
}

static int run_table(void)
{
    show("attach", attach());
    show("fd", leak_by_table());
    fflush(stdout);
    _exit(0);
}

static int run_fork(void)
{
    setenv("LD_PRELOAD", "", 1);
    int kept = open("/dev/null", O_RDONLY);
    show("attach", attach());
    int mine = open("/dev/null", O_RDONLY);
    pid_t pid = fork();
    if (pid == 0) {
        close(mine);
        int own = dup(kept);
        show("own", own);
        dup2(kept, 50);
        fflush(stdout);
        _exit(0);
    }
    int status;
    waitpid(pid, &status, 0);
    show("child", pid);
    show("mine", mine);
    fflush(stdout);
    _exit(0);
}

static int run_exec(void)
{
    setenv("FDGUARD_TRACE_DIR", "/nonexistent/old", 1);
    show("attach", attach());
    fflush(stdout);
    execl("/usr/bin/env", "env", (char *)0);
    return 9;
}

static int tidied;

static void tidy(void *unused)
{
    (void)unused;
    tidied = 1;
}

static void *wait_for_one(void *socket)
{
    pthread_cleanup_push(tidy, 0);
    accept(*(int *)socket, 0, 0);
    pthread_cleanup_pop(0);
    return 0;
}

static int run_cancel(void)
{
    int socket_fd = socket(AF_UNIX, SOCK_STREAM, 0);
    struct sockaddr_un any = { .sun_family = AF_UNIX };
    bind(socket_fd, (struct sockaddr *)&any, sizeof(sa_family_t));
    listen(socket_fd, 1);
    show("attach", attach());
    pthread_t thread;
    pthread_create(&thread, 0, wait_for_one, &socket_fd);
    usleep(100000);
    pthread_cancel(thread);
    void *result;
    pthread_join(thread, &result);
    show("cancelled", result == PTHREAD_CANCELED);
    show("tidied", tidied);
    show("detach", detach());
    return 0;
}

/* The words of this program's and all libraries' tables that lead into a library of ours. */
struct range {
    uintptr_t start, end;
    long words;
};

static int count_words(struct dl_phdr_info *info, size_t size, void *data)
{
    (void)size;
    struct range *range = data;
    /* The C library keeps two functions that are told of forks and of ends of threads. */
    if (strstr(info->dlpi_name, "libc.so"))
        return 0;
    if (info->dlpi_addr <= range->start && range->start - info->dlpi_addr < 0x1000)
        return 0;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *header = &info->dlpi_phdr[i];
        int is_relro = header->p_type == PT_GNU_RELRO;
        if (!is_relro && (header->p_type != PT_LOAD || !(header->p_flags & PF_W)))
            continue;
        uintptr_t start = (info->dlpi_addr + header->p_vaddr + 7) & ~7UL;
        uintptr_t end = info->dlpi_addr + header->p_vaddr + header->p_memsz;
        for (uintptr_t at = start; at + 8 <= end; at += 8) {
            uintptr_t value = *(uintptr_t *)at;
            range->words += value >= range->start && value < range->end;
        }
    }
    return 0;
}

static int find_library(struct dl_phdr_info *info, size_t size, void *data)
{
    (void)size;
    struct range *range = data;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *header = &info->dlpi_phdr[i];
        uintptr_t start = info->dlpi_addr + header->p_vaddr;
        if (header->p_type == PT_LOAD && (header->p_flags & PF_X) && (uintptr_t)attach_entry >= start
            && (uintptr_t)attach_entry < start + header->p_memsz)
            *range = (struct range){ start, start + header->p_memsz, 0 };
    }
    return 0;
}

/* Pointers to code of the library, apart from the two entries that this program keeps. */
static long leading_there(void)
{
    struct range range = { 0 };
    dl_iterate_phdr(find_library, &range);
    dl_iterate_phdr(count_words, &range);
    return range.words;
}

static int run_slots(void)
{
    long before = leading_there();
    show("attach", attach());
    show("more", leading_there() > before + 5);
    show("detach", detach());
    show("same", leading_there() == before);
    close(open("/dev/null", O_RDONLY));
    return 0;
}

static volatile int is_over;
static volatile long failures, rounds;

static void check(int is_right)
{
    if (!is_right)
        __atomic_add_fetch(&failures, 1, __ATOMIC_RELAXED);
}

static void *opens(void *unused)
{
    (void)unused;
    while (!is_over) {
        int fd = open("/dev/null", O_RDWR);
        check(fd >= 0);
        check(write(fd, "x", 1) == 1);
        check(close(fd) == 0);
        __atomic_add_fetch(&rounds, 1, __ATOMIC_RELAXED);
    }
    return 0;
}

static void *streams(void *unused)
{
    (void)unused;
    while (!is_over) {
        FILE *file = fopen("/dev/null", "w");
        check(file && fputs("x", file) >= 0);
        check(file && fclose(file) == 0);
        free(malloc(4096));
    }
    return 0;
}

static void *talks(void *unused)
{
    (void)unused;
    while (!is_over) {
        int fds[2];
        char byte = 'x';
        check(socketpair(AF_UNIX, SOCK_STREAM, 0, fds) == 0);
        check(send(fds[0], &byte, 1, 0) == 1);
        struct pollfd entry = { .fd = fds[1], .events = POLLIN };
        check(poll(&entry, 1, 1000) == 1);
        check(recv(fds[1], &byte, 1, 0) == 1);
        check(close(fds[0]) == 0 && close(fds[1]) == 0);
    }
    return 0;
}

static void *loads(void *unused)
{
    (void)unused;
    while (!is_over) {
        void *library = dlopen("libm.so.6", RTLD_NOW);
        check(library && dlsym(library, "cos"));
        check(library && dlclose(library) == 0);
    }
    return 0;
}

static void *forks(void *unused)
{
    (void)unused;
    while (!is_over) {
        pid_t pid = fork();
        if (pid == 0) {
            int fd = open("/dev/null", O_RDONLY);
            _exit(fd < 0 || close(fd) != 0);
        }
        int status;
        check(pid > 0 && waitpid(pid, &status, 0) == pid && status == 0);
        usleep(1000);
    }
    return 0;
}

static long resident(void)
{
    long pages = 0, all = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (!file || fscanf(file, "%ld %ld", &all, &pages) != 2)
        return -1;
    fclose(file);
    return all * 4096;
}

/* A hundred times, in a directory of its own each time, while five threads are in hooks. */
static int run_stress(int times)
{
    pthread_t threads[5];
    void *(*bodies[])(void *) = { opens, streams, talks, loads, forks };
    for (int i = 0; i < 5; i++)
        pthread_create(&threads[i], 0, bodies[i], 0);
    int answers = 0;
    long after_some = 0;
    for (int i = 0; i < times; i++) {
        char where[4096];
        snprintf(where, sizeof where, "%s/%d", dir, i);
        mkdir(where, 0700);
        answers += attach_in(where) != 0;
        usleep(3000);
        answers += detach() != 0;
        if (i == 9)
            after_some = resident();
    }
    long growth = resident() - after_some;
    is_over = 1;
    for (int i = 0; i < 5; i++)
        pthread_join(threads[i], 0);
    show("answers", answers);
    show("failures", failures);
    show("worked", rounds > 0);
    show("grown", growth > 100L << 20);
    return 0;
}

/* A stale number hits nothing while protected, and everything is given back. */
static int run_protect(void)
{
    int before = count_open();
    int old = open("/dev/null", O_RDWR);
    show("attach", attach());
    int stale = open("/dev/null", O_RDWR);
    close(stale);
    int other = open("/dev/zero", O_RDWR);
    show("another", other != stale);
    show("refused", write(stale, "x", 1) == -1 && errno == EBADF);
    for (int i = 0; i < 20; i++)
        close(open("/dev/null", O_RDONLY));
    show("kept", syscall(SYS_fcntl, stale, F_GETFD) != -1);
    show("detach", detach());
    show("mine", is_open(old) && is_open(other));
    show("left", count_open() - before - 2);
    show("write", write(other, "x", 1));
    show("again", attach());
    show("close", close(other) == 0 && close(old) == 0);
    show("detach", detach());
    show("left", count_open() - before);
    return 0;
}

/* A library that is loaded after the attach; with its own function or without asking for any. */
static int run_later(const char *how)
{
    show("attach", attach());
    void *library = dlopen(getenv("LATER"), RTLD_NOW);
    if (!library)
        return 3;
    int fd = -1;
    if (!strcmp(how, "dlsym")) {
        int (*leak)(void) = (int (*)(void))dlsym(library, "leak");
        fd = leak();
    } else {
        /* Its constructor left a pointer in the environment. */
        int (*leak)(void) = (int (*)(void))strtoul(getenv("LATER_LEAK"), 0, 16);
        for (int i = 0; i < 40; i++)
            close(open("/dev/null", O_RDONLY));
        fd = leak();
    }
    show("fd", fd);
    fflush(stdout);
    _exit(0);
}

/* Another library stands before `eventfd`. */
static int run_chain(void)
{
    show("attach", attach());
    for (int i = 0; i < 20; i++)
        close(eventfd(0, 0));
    show("fd", eventfd(0, 0));
    return 0;
}

/* The tracer holds a lock on the directory, and is killed. */
static int run_orphan(void)
{
    int ready[2];
    pipe(ready);
    pid_t tracer = fork();
    if (tracer == 0) {
        int lock = open(dir, O_RDONLY | O_DIRECTORY);
        flock(lock, LOCK_SH);
        write(ready[1], "x", 1);
        pause();
        _exit(0);
    }
    char byte;
    read(ready[0], &byte, 1);
    long before = leading_there();
    show("attach", attach());
    struct timespec start, now;
    clock_gettime(CLOCK_MONOTONIC, &start);
    int is_lost = 0;
    do {
        close(open("/dev/null", O_RDONLY));
        is_lost |= leading_there() == before;
        usleep(10000);
        clock_gettime(CLOCK_MONOTONIC, &now);
    } while (now.tv_sec - start.tv_sec < 5);
    show("alive", !is_lost);
    kill(tracer, SIGKILL);
    waitpid(tracer, 0, 0);
    for (int i = 0; i < 3000 && leading_there() != before; i++) {
        close(open("/dev/null", O_RDONLY));
        usleep(10000);
    }
    show("ended", leading_there() == before);
    results();
    show("again", attach());
    show("detach", detach());
    return 0;
}

static int hold_loader(struct dl_phdr_info *info, size_t size, void *held)
{
    (void)info, (void)size;
    write(*(int *)held, "x", 1);
    return pause();
}

static void *hold_forever(void *held)
{
    dl_iterate_phdr(hold_loader, held);
    return 0;
}

/* A thread holds the loader's lock when another forks: in the child it is never released. */
static int run_locked_fork(void)
{
    int ready[2];
    char byte;
    pthread_t thread;
    pipe(ready);
    show("attach", attach());
    pthread_create(&thread, 0, hold_forever, &ready[1]);
    read(ready[0], &byte, 1);
    pid_t pid = fork();
    if (pid == 0) {
        alarm(20);
        for (int i = 0; i < 30; i++) {
            for (int j = 0; j < 40; j++)
                close(open("/dev/null", O_RDONLY));
            usleep(10000);
        }
        int fd = open("/dev/null", O_RDONLY);
        show("own", fd >= 0);
        show("detach", detach());
        results();
        fflush(stdout);
        _exit(0);
    }
    int status = -1;
    waitpid(pid, &status, 0);
    show("status", status);
    fflush(stdout);
    _exit(0);
}

/* There is no room for the mapping of a later recording: what the program maps meanwhile is its own.
 * The second directory is on a full file system. */
static int run_full(void)
{
    const size_t room = 512UL << 20;
    int answers = 0, failures = 0;
    for (int i = 0; i < 4; i++)
        answers += attach() != 0 || detach() != 0;
    show("answers", answers);
    for (int i = 0; i < 4; i++)
        failures += attach_in(getenv("FULL")) == 3;
    show("failures", failures);
    /* Fills the gaps between the mappings from above, where the kernel looks for room first. */
    char *own[64];
    for (int i = 0; i < 64; i++) {
        own[i] = mmap(0, room / 64, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        for (size_t at = 0; at < room / 64; at += 65536)
            own[i][at] = 7;
    }
    answers = 0;
    for (int i = 0; i < 8; i++)
        answers += attach() != 0 || detach() != 0;
    show("answers", answers);
    int changed = 0;
    for (int i = 0; i < 64; i++)
        for (size_t at = 0; at < room / 64; at += 65536)
            changed += own[i][at] != 7;
    show("changed", changed);
    results();
    return 0;
}

/* A forked child is a program of its own: it can be left and entered, and sees what is loaded. */
static int run_child(void)
{
    long before = leading_there();
    show("attach", attach());
    pid_t pid = fork();
    if (pid == 0) {
        show("detach", detach());
        show("same", leading_there() == before);
        show("again", attach());
        void *library = dlopen(getenv("LATER"), RTLD_NOW);
        int (*leak)(void) = (int (*)(void))dlsym(library, "leak");
        show("fd", leak());
        show("pid", getpid());
        fflush(stdout);
        _exit(0);
    }
    int status = -1;
    waitpid(pid, &status, 0);
    show("status", status);
    show("detach", detach());
    return 0;
}

/* Stays, and does what it is told: `+` opens, `-` closes the last. */
static int run_wait(void)
{
    show("attach", attach());
    getchar();
    show("detach", detach());
    getchar();
    return 0;
}

int main(int count, char **words)
{
    /* Start clean: what the test runner left open is not ours. */
    close_range(3, ~0U, 0);
    if (count < 4)
        return 2;
    snprintf(dir, sizeof dir, "%s", words[2]);
    if (getenv("ATTACH_VARIABLES"))
        variables = getenv("ATTACH_VARIABLES");
    const char *mode = words[3];
    if (!strcmp(words[1], "memfd")) {
        /* As an injector does where the program cannot read the file. */
        static char bytes[1 << 20];
        int from = open(getenv("LIBRARY"), O_RDONLY);
        ssize_t size = read(from, bytes, sizeof bytes);
        close(from);
        int fd = memfd_create("fdguard", MFD_CLOEXEC);
        if (write(fd, bytes, (size_t)size) != size)
            return 3;
        char path[64];
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        load(path);
        close(fd);
    } else {
        load(words[1]);
    }
    if (!strcmp(mode, "results"))
        return run_results();
    if (!strcmp(mode, "coverage"))
        return run_coverage();
    if (!strcmp(mode, "table"))
        return run_table();
    if (!strcmp(mode, "fork"))
        return run_fork();
    if (!strcmp(mode, "exec"))
        return run_exec();
    if (!strcmp(mode, "cancel"))
        return run_cancel();
    if (!strcmp(mode, "slots"))
        return run_slots();
    if (!strcmp(mode, "stress"))
        return run_stress(100);
    if (!strcmp(mode, "protect"))
        return run_protect();
    if (!strcmp(mode, "later-dlsym"))
        return run_later("dlsym");
    if (!strcmp(mode, "later-silent"))
        return run_later("silent");
    if (!strcmp(mode, "chain"))
        return run_chain();
    if (!strcmp(mode, "orphan"))
        return run_orphan();
    if (!strcmp(mode, "locked-fork"))
        return run_locked_fork();
    if (!strcmp(mode, "full"))
        return run_full();
    if (!strcmp(mode, "child"))
        return run_child();
    if (!strcmp(mode, "wait"))
        return run_wait();
    return 2;
}
