// What the programs write into the ring: src/decode.rs reads the same layout.
#pragma once

#include "kernel.h"

enum kind {
    OPENED = 1,
    CLOSED,
    CLOSED_RANGE,
    REFUSED,
    BAD_USE,
    CLOSED_IN_USE,
    FORKED,
    EXECUTED,
    EXITED,
    // The thread has a table of its own from now on.
    UNSHARED,
    // A part of the numbers that are open: it belongs to the thread's next event.
    NUMBERS,
};

struct record {
    u64 at;
    u64 table;
    u32 pid;
    u32 tid;
    u32 stack;
    u16 kind;
    u16 error;
    // The number, the first of a range, or the child.
    u32 fd;
    // The system call, the last of a range, or whether a list of numbers came before.
    u32 call;
    // The open file, or another table.
    u64 file;
    u64 arguments[3];
};

// So many words of the bitmap are handled at a time.
#define WORDS 64
#define PER_CHUNK (WORDS * 64)

struct numbers {
    struct record head;
    u64 words[WORDS];
};
