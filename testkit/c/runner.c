/* A program that is already running when fdguard attaches. It does what its input says, one letter
 * a line, and answers each with a line:
 *   o  opens a file and keeps it         h  opens a file and closes it
 *   c  closes the last that it keeps     d  closes a number twice
 *   f  forks a child that opens three and stays until the program ends
 *   e  executes itself again             r  opens one of the same kind as before the start
 *   g  makes `pipe` go through code of its own, as tools that replace functions do
 *   q  tells the injected library to leave, as another fdguard would
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
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

/* A static program has none. */
#pragma weak _DYNAMIC

static int replace(struct dl_phdr_info *info, size_t size, void *code) {
    const Elf64_Rela *table = 0;
    const Elf64_Sym *symbols = 0;
    const char *names = 0;
    size_t bytes = 0;
    (void)size;
    if (_DYNAMIC == 0) return 1;
    for (const Elf64_Dyn *entry = _DYNAMIC; entry->d_tag != DT_NULL; entry++) {
        if (entry->d_tag == DT_JMPREL) table = (void *)entry->d_un.d_ptr;
        if (entry->d_tag == DT_SYMTAB) symbols = (void *)entry->d_un.d_ptr;
        if (entry->d_tag == DT_STRTAB) names = (void *)entry->d_un.d_ptr;
        if (entry->d_tag == DT_PLTRELSZ) bytes = entry->d_un.d_val;
    }
    for (size_t i = 0; i < bytes / sizeof *table; i++) {
        char *word = (char *)info->dlpi_addr + table[i].r_offset;
        if (strcmp(names + symbols[ELF64_R_SYM(table[i].r_info)].st_name, "pipe") != 0) continue;
        mprotect((void *)((size_t)word & ~4095ul), 4096, PROT_READ | PROT_WRITE);
        memcpy(word, &code, sizeof code);
        return 1;
    }
    return -1;
}

/* `mov rax, pipe; jmp rax` */
static int detour(void) {
    unsigned char code[12] = { 0x48, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xe0 };
    void *real = dlsym(RTLD_NEXT, "pipe");
    void *page = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memcpy(code + 2, &real, sizeof real);
    memcpy(page, code, sizeof code);
    mprotect(page, 4096, PROT_READ | PROT_EXEC);
    return dl_iterate_phdr(replace, page); /* the program is the first */
}

static int is_library(struct dl_phdr_info *info, size_t size, void *name) {
    (void)size;
    if (strncmp(info->dlpi_name, "/proc/self/", 11) != 0) return 0;
    strcpy(name, info->dlpi_name);
    return 1;
}

static int quit_library(void) {
    char name[4096] = "";
    dl_iterate_phdr(is_library, name);
    void *library = dlopen(name, RTLD_NOW | RTLD_NOLOAD);
    int (*leave)(const void *, size_t) = 0;
    if (library) *(void **)&leave = dlsym(library, "fdguard_detach");
    return leave ? leave(0, 0) : -1;
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
    case 'g':
        printf("replaced %d\n", detour());
        break;
    case 'q':
        printf("left %d\n", quit_library());
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
