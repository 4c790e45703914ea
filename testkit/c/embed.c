/* A program that embeds Python: it loads the library that the first argument names long after its start, runs a file of
 * Python that leaves something open, and stays until its input ends. With a second argument "local" the library's names are
 * private; with "unload" it is closed afterwards (3.9 and 3.10 are gone then, later ones stay) and the program opens once more. */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static int opened(void)
{
    return open("/dev/null", O_RDONLY); /* LEAK native */
}

int main(int count, char **words)
{
    if (count < 4)
        return 2;
    int first = opened();
    int is_global = strcmp(words[2], "local") != 0;
    void *library = dlopen(words[1], RTLD_NOW | (is_global ? RTLD_GLOBAL : RTLD_LOCAL));
    if (library == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        return 3;
    }
    void (*begin)(int) = (void (*)(int))dlsym(library, "Py_InitializeEx");
    int (*run)(FILE *, const char *) = (int (*)(FILE *, const char *))dlsym(library, "PyRun_SimpleFile");
    int (*end)(void) = (int (*)(void))dlsym(library, "Py_FinalizeEx");
    if (!begin || !run || !end)
        return 4;
    begin(0);
    FILE *script = fopen(words[3], "r");
    int failed = script == NULL || run(script, words[3]);
    if (script)
        fclose(script);
    if (strcmp(words[2], "unload") == 0) {
        end();
        dlclose(library);
        opened();
    }
    printf("first %d failed %d\n", first, failed);
    return failed;
}
