/* Says with how many arguments it was started, and whether a library is to be loaded into it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv)
{
    const char *list = getenv("LD_PRELOAD");
    const char *last = argc > 1 ? argv[argc - 1] : "";
    printf("%d %s %s\n", argc, last, list && strstr(list, "fdguard") ? "with" : "without");
    return 0;
}
