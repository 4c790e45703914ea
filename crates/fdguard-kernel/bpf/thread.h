// The thread that makes the call: who it is, and whether it is followed.
#pragma once

#include "kernel.h"
#include "records.h"

// Set by the loader.
const volatile u32 whole_host;
const volatile u32 own_pid;
// The depth and the number of fdguard's pid namespace.
const volatile u32 namespace_level;
const volatile u32 namespace_number;
const volatile u32 first_mode;

struct process {
    // How stacks are taken.
    u32 mode;
    u32 unused;
};

MAP(followed, .type = MAP_HASH, .key_size = 4, .value_size = sizeof(struct process),
    .entries = 32768, .flags = MAP_ON_DEMAND);
MAP(events, .type = MAP_RINGBUF, .entries = 1 << 23);

u64 lost_events;
u64 lost_stacks;
u64 foreign_calls;

struct thread {
    struct task_struct *task;
    struct process *process;
    u32 pid;
    u32 tid;
};

// The number that fdguard knows this thread or process by; 0 outside of its namespace.
INLINE u32 visible_number(struct task_struct *task)
{
    struct upid number = {};
    if (task->thread_pid->level < namespace_level)
        return 0;
    if (!read_number(task, namespace_level, &number))
        return 0;
    return namespace_of(&number) == namespace_number ? number.nr : 0;
}

// Whether it is reported.
INLINE bool find_thread(struct thread *thread)
{
    thread->task = bpf_get_current_task_btf();
    if (namespace_level == 0) {
        u64 both = bpf_get_current_pid_tgid();
        thread->pid = both >> 32;
        thread->tid = both;
    } else {
        thread->pid = visible_number(thread->task->group_leader);
        thread->tid = visible_number(thread->task);
    }
    thread->process = bpf_map_lookup_elem(&followed, &thread->pid);
    if (thread->process)
        return true;
    return whole_host && thread->pid != own_pid && thread->pid != 0;
}

INLINE struct record *reserve(const struct thread *thread, u32 kind)
{
    struct record *record = bpf_ringbuf_reserve(&events, sizeof(*record), 0);
    if (!record) {
        __sync_fetch_and_add(&lost_events, 1);
        return NULL;
    }
    record->at = bpf_ktime_get_ns();
    record->table = (u64)thread->task->files;
    record->pid = thread->pid;
    record->tid = thread->tid;
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
