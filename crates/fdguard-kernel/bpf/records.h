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
    // A file was mapped as code.
    MAPPED,
    // A child process was started: the thread's last FORKED says which.
    STARTED,
    // A child that ended was waited for.
    REAPED,
};

struct record {
    u64 at;
    u64 table;
    u32 pid;
    u32 tid;
    u32 stack;
    u16 kind;
    u16 error;
    // The number, the first of a range, or the child. A child that was started or waited for has the
    // number that the process itself knows it by.
    u32 fd;
    // The system call, the last of a range, or whether a list of numbers came before.
    u32 call;
    // The open file, or another table.
    u64 file;
    // Of a close the first says whether an interpreter is cleaning up at its exit.
    u64 arguments[3];
};

// So many words of the bitmap are handled at a time.
#define WORDS 64
#define PER_CHUNK (WORDS * 64)

struct numbers {
    struct record head;
    u64 words[WORDS];
};

// So many directories of a file's name are reported, and so many bytes of each.
enum { NAMES = 12, NAME = 64 };

// The name has the file first and then its directories.
struct mapped {
    struct record head;
    u8 names[NAMES][NAME];
};

// How the stacks of a process are taken: src/stack_mode.rs has the same numbers.
enum mode {
    MODE_NONE = 0,
    MODE_FRAME_POINTERS = 1,
    MODE_COPIED = 2,
    MODE_PYTHON = 3,
};

enum {
    STACK_FRAMES = 64,
    STACK_MEMORY = 16384,
    STACK_CHUNK = 1024,
    // A template has at most so many slots; there are so many for stacks with the same registers.
    TEMPLATE_SLOTS = 64,
    TEMPLATE_VARIANTS = 4,
    TEMPLATE_SPAN = 4096,
    // So many Go programs can be probed at once.
    GO_PROGRAMS = 256,
};

enum stack_kind {
    STACK_OF_FRAMES = 1,
    STACK_OF_LANGUAGE,
    STACK_OF_MEMORY,
    // Not a stack, but a code object that stacks refer to.
    PYTHON_CODE,
};

struct language_frame {
    u64 code;
    // Covers the file, the name and the first line of the code object.
    u64 identity;
    // Bytes into the code; negative before the first instruction.
    s32 instruction;
    u32 unused;
};

// A stack in the ring of stacks.
struct stack_record {
    u32 number;
    u32 pid;
    u32 generation;
    u32 kind;
    u64 ip;
    u64 sp;
    u64 bp;
    u32 frame_count;
    u32 language_count;
    u32 creator_count;
    u32 memory_length;
    // The goroutine, and where it was created.
    u64 goroutine;
    u64 created_at;
    union {
        u64 frames[STACK_FRAMES];
        struct language_frame language[STACK_FRAMES];
    };
    u64 creator[STACK_FRAMES];
    u8 memory[STACK_MEMORY];
};

#define OFFSET_OF_MEMORY __builtin_offsetof(struct stack_record, memory)
