/* Becomes another program, by each function that there is for it. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static int spawn(const char *mode, char *path, char **words)
{
    pid_t child;
    int status = 0;
    int failed = strcmp(mode, "posix_spawn") == 0
                     ? posix_spawn(&child, path, NULL, NULL, words, environ)
                     : posix_spawnp(&child, path, NULL, NULL, words, environ);
    if (failed || waitpid(child, &status, 0) < 0)
        return 3;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

int main(int argc, char **argv)
{
    if (argc < 3)
        return 2;
    const char *mode = argv[1];
    char *path = argv[2];
    char *words[] = { path, "a", "b", "c", "d", "e", "f", NULL };
    if (strncmp(mode, "posix_spawn", 11) == 0)
        return spawn(mode, path, words);
    if (strcmp(mode, "execl") == 0)
        execl(path, path, "a", "b", "c", "d", "e", "f", (char *)NULL);
    if (strcmp(mode, "execlp") == 0)
        execlp(path, path, "a", "b", "c", "d", "e", "f", (char *)NULL);
    if (strcmp(mode, "execle") == 0)
        execle(path, path, "a", "b", "c", "d", "e", "f", (char *)NULL, environ);
    if (strcmp(mode, "execv") == 0)
        execv(path, words);
    if (strcmp(mode, "execve") == 0)
        execve(path, words, environ);
    if (strcmp(mode, "execvp") == 0)
        execvp(path, words);
    if (strcmp(mode, "execvpe") == 0)
        execvpe(path, words, environ);
    if (strcmp(mode, "fexecve") == 0)
        fexecve(open(path, O_RDONLY | O_CLOEXEC), words, environ);
    perror(mode);
    return 4;
}
