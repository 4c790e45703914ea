// The work on one call: who makes it, and what the steps pass to each other.
//
// It is in a map, one for each processor: programs are not interrupted by others of their kind, and
// the verifier, which follows every value on the stack, would take seconds instead of milliseconds.
#pragma once

#include "kernel.h"
#include "records.h"

// Set by the loader.
const volatile u32 whole_host;
const volatile u32 own_pid;
// The depth and the number of fdguard's pid namespace.
const volatile u32 namespace_level;
const volatile u32 namespace_number;
// How stacks are taken of a program that nothing is known about.
const volatile u32 first_mode;

struct process {
    // How stacks are taken.
    u32 mode;
    // Differs after each exec: the same addresses are other functions then.
    u32 generation;
};

// Parts of the table.
struct words {
    u64 word[WORDS];
};

struct work {
    // The thread that makes the call, and how its stacks are taken.
    u32 pid;
    u32 tid;
    u32 mode;
    u32 generation;
    u32 is_followed;
    u32 call;
    u32 stack;
    u64 table;
    u64 arguments[3];
    // A walk over the bitmap of a table.
    u64 bitmap;
    u32 word_count;
    u32 chunk;
    u32 first;
    u32 is_incomplete;
    u32 is_reported;
    u32 has_grown;
    u32 is_code;
    u32 is_different;
    u64 changed;
    u64 hash;
    u64 now;
    u64 at;
    struct words words;
    // A walk over received messages, their control messages, and the descriptors in those.
    u64 messages;
    u64 control;
    u64 control_end;
    u64 descriptors;
    // A walk over the threads of a process.
    u64 next_thread;
    u64 last_thread;
};

MAP(workspace, .type = MAP_PERCPU_ARRAY, .key_size = 4, .value_size = sizeof(struct work),
    .entries = 1);
MAP(followed, .type = MAP_HASH, .key_size = 4, .value_size = sizeof(struct process),
    .entries = 32768, .flags = MAP_ON_DEMAND);
MAP(events, .type = MAP_RINGBUF, .entries = 1 << 23);
MAP(stacks, .type = MAP_RINGBUF, .entries = 1 << 24);

u32 next_generation;
u64 lost_events;
u64 lost_stacks;
u64 foreign_calls;

// Never null; the verifier wants to be told.
INLINE struct work *workspace_of_processor(void)
{
    u32 zero = 0;
    return bpf_map_lookup_elem(&workspace, &zero);
}

INLINE struct task_struct *current(void)
{
    return bpf_get_current_task_btf();
}

// The number that fdguard knows this thread or process by; 0 outside of its namespace.
INLINE u32 visible_number(struct task_struct *task)
{
    struct upid number = {};
    u64 pid = (u64)READ(task_struct, task, thread_pid);
    if (READ(pid, pid, level) < namespace_level)
        return 0;
    if (!read_number(task, namespace_level, &number))
        return 0;
    return namespace_of(&number) == namespace_number ? number.nr : 0;
}

// The number of the current process.
INLINE u32 followed_number(void)
{
    if (namespace_level == 0)
        return bpf_get_current_pid_tgid() >> 32;
    return visible_number(current()->group_leader);
}

// The current process, if it is one of those that were named; for programs that may be interrupted
// by others and have no workspace.
INLINE struct process *followed_process(void)
{
    u32 pid = followed_number();
    return bpf_map_lookup_elem(&followed, &pid);
}

// The work on the current thread's call; null if the thread is not reported.
INLINE struct work *begin_work(bool is_frequent)
{
    u32 pid, tid;
    if (namespace_level == 0) {
        u64 both = bpf_get_current_pid_tgid();
        pid = both >> 32;
        tid = both;
    } else {
        pid = visible_number(current()->group_leader);
        tid = visible_number(current());
    }
    struct process *process = bpf_map_lookup_elem(&followed, &pid);
    if (!process && (!whole_host || pid == own_pid || pid == 0))
        return NULL;
    struct work *work = workspace_of_processor();
    if (!work)
        return NULL;
    work->pid = pid;
    work->tid = tid;
    if (is_frequent)
        work->table = (u64)current()->files;
    else
        work->table = (u64)READ(task_struct, current(), files);
    work->is_followed = process != NULL;
    work->mode = process ? process->mode : first_mode;
    work->generation = process ? process->generation : 0;
    return work;
}

INLINE struct record *reserve(const struct work *work, u32 kind)
{
    struct record *record = bpf_ringbuf_reserve(&events, sizeof(*record), 0);
    if (!record) {
        __sync_fetch_and_add(&lost_events, 1);
        return NULL;
    }
    record->at = bpf_ktime_get_ns();
    record->table = work->table;
    record->pid = work->pid;
    record->tid = work->tid;
    record->stack = 0;
    record->kind = kind;
    record->error = 0;
    record->fd = 0;
    record->call = 0;
    record->file = 0;
    record->arguments[0] = 0;
    record->arguments[1] = 0;
    record->arguments[2] = 0;
    return record;
}

INLINE void submit(struct record *record)
{
    bpf_ringbuf_submit(record, NO_WAKEUP);
}
