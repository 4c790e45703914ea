/* A C library whose first close of a file is interrupted after it released the number, as Linux may do on some file systems. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <sys/stat.h>

int close(int fd)
{
    static int is_done;
    int (*real)(int) = dlsym(RTLD_NEXT, "close");
    struct stat file;
    int is_file = fd > 2 && fstat(fd, &file) == 0 && S_ISREG(file.st_mode) && file.st_size == 0;
    int result = real(fd);
    if (is_file && !is_done) {
        is_done = 1;
        errno = EINTR;
        return -1;
    }
    return result;
}
