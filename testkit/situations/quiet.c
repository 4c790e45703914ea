/* Programs that hold descriptors on purpose, or for a while, and leak none: quiet SHAPE SECONDS_MS.
   Each prints OPENED and HELD: how many descriptors it opened, and how many it holds when it ends. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { TURN_MS = 20, SOME = 20 };

static int opened;

static void turn_over(void) {
    struct timespec time = {0, TURN_MS * 1000000};
    nanosleep(&time, NULL);
}

static int open_one(void) {
    int file = open("/etc/passwd", O_RDONLY);
    if (file < 0)
        exit(9);
    opened++;
    return file;
}

static void touch(int file) {
    char bytes[64];
    if (pread(file, bytes, sizeof bytes, 0) < 0)
        exit(9);
}

/* Held from the start to the end, never touched. */
static int pool_unused(long turns) {
    for (int i = 0; i < SOME; i++)
        open_one();
    for (long turn = 0; turn < turns; turn++)
        turn_over();
    return SOME;
}

static int pool_used(long turns) {
    int pool[SOME];
    for (int i = 0; i < SOME; i++)
        pool[i] = open_one();
    for (long turn = 0; turn < turns; turn++) {
        touch(pool[turn % SOME]);
        turn_over();
    }
    return SOME;
}

/* Connections to itself, made at the start, used in turn. */
static int pool_connections(long turns) {
    int pool[SOME][2];
    for (int i = 0; i < SOME; i++) {
        if (socketpair(AF_UNIX, SOCK_STREAM, 0, pool[i]) < 0)
            exit(9);
        opened += 2;
    }
    for (long turn = 0; turn < turns; turn++) {
        char byte = 'x';
        int *pair = pool[turn % SOME];
        if (write(pair[0], &byte, 1) != 1 || read(pair[1], &byte, 1) != 1)
            exit(9);
        turn_over();
    }
    return 2 * SOME;
}

/* Fills in the first quarter, then only hits. */
static int cache_hits(long turns) {
    int cache[SOME], used = 0;
    for (long turn = 0; turn < turns; turn++) {
        if (used < SOME && turn < turns / 4)
            cache[used++] = open_one();
        touch(cache[turn % used]);
        turn_over();
    }
    return used;
}

/* Full after SOME turns; from then on the oldest is closed for each new one. */
static int cache_evictions(long turns) {
    int cache[SOME], held = 0;
    for (long turn = 0; turn < turns; turn++) {
        if (turn >= SOME)
            close(cache[turn % SOME]);
        else
            held++;
        cache[turn % SOME] = open_one();
        turn_over();
    }
    return held;
}

static int burst(long turns) {
    int files[60];
    for (long turn = 0; turn < turns; turn++) {
        close(open_one());
        if (turn == turns / 2)
            for (int i = 0; i < 60; i++)
                files[i] = open_one();
        if (turn == turns / 2 + turns / 10)
            for (int i = 0; i < 60; i++)
                close(files[i]);
        turn_over();
    }
    return 0;
}

/* Five teeth: as a garbage collector does that comes now and then. */
static int sawtooth(long turns) {
    int files[1024], used = 0;
    long tooth = turns / 5;
    for (long turn = 0; turn < turns; turn++) {
        files[used++] = open_one();
        if (turn % tooth == tooth - 1)
            while (used > 0)
                close(files[--used]);
        turn_over();
    }
    while (used > 0)
        close(files[--used]);
    return 0;
}

/* Two hundred files, opened over the whole run, then all closed; and the end. */
static int merge(long turns) {
    int files[200];
    for (int i = 0; i < 200; i++) {
        files[i] = open_one();
        if (turns > 0 && i % (200 / turns > 0 ? 200 / turns : 1) == 0)
            turn_over();
    }
    for (int i = 0; i < 200; i++) {
        touch(files[i]);
        close(files[i]);
    }
    return 0;
}

static const struct {
    const char *name;
    int (*run)(long turns);
} SHAPES[] = {
    {"pool-unused", pool_unused},         {"pool-used", pool_used},
    {"pool-connections", pool_connections}, {"cache-hits", cache_hits},
    {"cache-evictions", cache_evictions}, {"burst", burst},
    {"sawtooth", sawtooth},               {"merge", merge},
};

int main(int count, char **words) {
    if (count != 3)
        return 9;
    for (size_t i = 0; i < sizeof SHAPES / sizeof *SHAPES; i++)
        if (!strcmp(words[1], SHAPES[i].name)) {
            int held = SHAPES[i].run(atol(words[2]) / TURN_MS);
            printf("OPENED %d HELD %d\n", opened, held);
            fflush(stdout);
            return 0;
        }
    return 9;
}
