/* A running program that refers to every function of a list, in a table of pointers:
 *   exports LIBRARY DIR
 * It takes the injected library by itself and prints the names by what became of their pointers:
 * rebound, kept (a gap), not restored by the detach, or absent in this C library.
 * The list is the macro NAMES(X), which the compiler gets from a file. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <string.h>

#define DECLARE(name) extern char ref_##name[] __asm__(#name) __attribute__((weak));
NAMES(DECLARE)

#define ENTRY(name) { #name, ref_##name },
static struct {
    const char *name;
    void *volatile address;
} references[] = { NAMES(ENTRY) };

enum { COUNT = sizeof references / sizeof *references };

typedef int entry(const void *, size_t);

int main(int count, char **words)
{
    if (count < 3)
        return 2;
    void *library = dlopen(words[1], RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return 3;
    entry *attach = (entry *)dlsym(library, "fdguard_attach");
    entry *detach = (entry *)dlsym(library, "fdguard_detach");
    struct link_map *map;
    dlinfo(library, RTLD_DI_LINKMAP, &map);
    void *before[COUNT], *during[COUNT];
    for (int i = 0; i < COUNT; i++)
        before[i] = references[i].address;
    int attached = attach(words[2], strlen(words[2]) + 1);
    for (int i = 0; i < COUNT; i++)
        during[i] = references[i].address;
    int detached = detach(0, 0);
    printf("attach %d\ndetach %d\n", attached, detached);
    for (int i = 0; i < COUNT; i++) {
        const char *name = references[i].name;
        Dl_info info = { 0 };
        if (!before[i]) {
            printf("absent %s\n", name);
            continue;
        }
        dladdr(during[i], &info);
        int is_ours = info.dli_fbase == (void *)map->l_addr;
        printf("%s %s\n", is_ours ? "rebound" : "kept", name);
        if (references[i].address != before[i])
            printf("lasting %s\n", name);
    }
    return 0;
}
