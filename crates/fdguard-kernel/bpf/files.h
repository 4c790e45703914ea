// What the walk over descriptor tables uses of the kernel: only the fields that it reads.
#pragma once
#include "kernel.h"

static long (*const bpf_seq_write)(void *seq, const void *data, u32 size) = (void *)127;
static long (*const bpf_d_path)(void *path, char *to, u32 size) = (void *)147;
static struct socket *(*const bpf_sock_from_file)(void *file) = (void *)162;

// The distance of a field from the start of its structure.
#define FIELD_OFFSET(field) __builtin_preserve_field_info(field, 0)
// Copies a field where the verifier cannot follow; a value that cannot be read stays as it is.
#define COPY(to, from) bpf_probe_read_kernel(&(to), sizeof(to), &(from))

// Keeps the load of a pointer where it is. The verifier searches all of the kernel's types at each
// load of a pointer from what it trusts, so there should be few of them, outside of branches.
#define HERE(pointer) asm volatile("" : "+r"(pointer))

// Makes the compiler read memory again. What a program reads from its own variables, the verifier
// does not know: so it follows what comes next once, and not for each way that led there.
#define FORGET() asm volatile("" ::: "memory")

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct fdtable___walk {
    u32 max_fds;
    struct file **fd;
    unsigned long *close_on_exec;
};

struct files_struct___walk {
    struct fdtable___walk *fdt;
};

struct task_struct___walk {
    u32 flags;
    int pid;
    int tgid;
    u64 start_boottime;
    struct files_struct___walk *files;
};

struct mount {
    struct vfsmount mnt;
    int mnt_id;
};

struct bpf_iter_meta {
    struct seq_file *seq;
    // Which walk this is: each has another number.
    u64 session_id;
};

struct bpf_iter__task_file {
    struct bpf_iter_meta *meta;
    struct task_struct___walk *task;
    u32 fd;
    struct file *file;
};

// How many refer to an open file: one less than the number since Linux 6.13, the number before.
struct file___references {
    struct {
        struct {
            s64 counter;
        } refcnt;
    } f_ref;
    struct {
        s64 counter;
    } f_count;
};

struct eventfd_ctx {
    u64 count;
    u32 flags;
    int id;
};

struct signalfd_ctx {
    u64 sigmask;
};

struct timerqueue_node {
    s64 expires;
};

struct hrtimer_clock_base {
    s64 offset;
};

struct hrtimer {
    struct timerqueue_node node;
    struct hrtimer_clock_base *base;
};

struct timerfd_ctx {
    union {
        struct hrtimer tmr;
    } t;
    s64 tintv;
    u64 ticks;
    int clockid;
};

struct hlist_head {
    void *first;
};

struct pid___handle {
    u32 level;
    struct hlist_head tasks[1];
    struct upid numbers[1];
};

struct tty_operations {
    void *show_fdinfo;
};

struct tty_struct {
    int index;
    const struct tty_operations *ops;
};

struct tty_file_private {
    struct tty_struct *tty;
};

#pragma clang attribute pop
