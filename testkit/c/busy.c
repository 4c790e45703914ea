// Opens and closes as fast as it can, until it is killed.
#include <fcntl.h>
#include <unistd.h>

int main(void) {
    for (;;) {
        close(open("/dev/null", O_RDONLY));
    }
}
