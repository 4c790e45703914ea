// Finds threads that are inside a call on a descriptor which is being closed.
//
// Nothing is noted when a call begins: the threads of the process are examined when a close meets an
// open file that has another user. A thread that sleeps keeps the registers of its call on its stack.
#pragma once

#include "calls.h"
#include "opened.h"
#include "stack.h"

enum { MOST_THREADS = 1024, KERNEL_STACK = 16384, USER_CODE = 0x33, INTERRUPTIBLE = 1 };

// References to an open file were counted differently before Linux 6.13.
struct file___counted {
    struct {
        long counter;
    } f_count;
} __attribute__((preserve_access_index));

struct file___referenced {
    struct {
        struct {
            long counter;
        } refcnt;
    } f_ref;
} __attribute__((preserve_access_index));

// The whole of the registers, at the end of a kernel stack.
struct registers {
    u64 preserved[6];
    u64 callee[4];
    u64 ax;
    u64 cx;
    u64 dx;
    u64 si;
    u64 di;
    u64 call;
    u64 ip;
    u64 cs;
    u64 flags;
    u64 sp;
    u64 ss;
};

// Whether more than the table refers to an open file: a duplicate, or a call.
INLINE bool has_other_users(u64 file)
{
    struct file___referenced *referenced = (void *)file;
    struct file___counted *counted = (void *)file;
    if (FIELD_EXISTS(referenced->f_ref))
        return READ(file___referenced, file, f_ref.refcnt.counter) > 0;
    if (FIELD_EXISTS(counted->f_count))
        return READ(file___counted, file, f_count.counter) > 1;
    return false;
}

static long examine_thread(u32 index, void *unused)
{
    struct work *work = workspace_of_processor();
    if (!work || work->next_thread == work->last_thread)
        return 1;
    u64 distance = (u64)&((struct task_struct *)0)->thread_node;
    u64 task = work->next_thread - distance;
    work->next_thread = (u64)READ(list_head, work->next_thread, next);
    struct registers registers = {};
    // Not one that runs, or waits for a page.
    if ((READ(task_struct, task, __state) & 3) != INTERRUPTIBLE)
        return 0;
    u64 stack = (u64)READ(task_struct, task, stack);
    u64 at = stack + KERNEL_STACK - sizeof(registers);
    if (bpf_probe_read_kernel(&registers, sizeof(registers), (void *)at))
        return 0;
    // The instruction that enters the kernel copies ip to cx: it is a call, not a fault.
    if (registers.cs != USER_CODE || registers.cx != registers.ip || registers.call >= CALLS)
        return 0;
    if ((u32)registers.di != work->first || !(classes[registers.call & (CALLS - 1)] & USES))
        return 0;
    if (!work->stack)
        work->stack = take_stack();
    struct record *record = reserve(work, CLOSED_IN_USE);
    if (!record)
        return 1;
    record->fd = work->first;
    record->call = registers.call;
    record->stack = work->stack;
    record->file = namespace_level ? visible_number((void *)task) : READ(task_struct, task, pid);
    submit(record);
    return 0;
}

// Reports each thread of the process that is inside a call on this number. The stack of the close is
// in the work then.
GLOBAL int report_users(u32 fd)
{
    struct work *work = workspace_of_processor();
    if (!work)
        return 0;
    u64 signal = (u64)READ(task_struct, current(), signal);
    work->last_thread = (u64)&((struct signal_struct *)signal)->thread_head;
    work->next_thread = (u64)READ(signal_struct, signal, thread_head.next);
    work->first = fd;
    bpf_loop(MOST_THREADS, examine_thread, NULL, 0);
    return 0;
}
