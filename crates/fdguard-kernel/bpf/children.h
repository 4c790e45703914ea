// Children that are started and waited for. A fork is reported where it happens, for its table; this
// is for the line that started the child, and whether it is waited for.
#pragma once

#include "calls.h"
#include "stack.h"
#include "work.h"

enum { CLONE_THREAD = 0x10000, WAIT_UNTRACED = 2, WAIT_CONTINUED = 8 };
enum { WAIT_NOT_REAPED = 0x01000000 };

// struct siginfo, as waitid writes it.
struct child_info {
    s32 signal;
    s32 error;
    s32 code;
    s32 padding;
    u32 pid;
};

INLINE void report_child(const struct work *work, u32 kind, u32 child)
{
    struct record *record = reserve(work, kind);
    if (!record)
        return;
    record->fd = child;
    record->stack = work->stack;
    submit(record);
}

// Whether the call has started a process, not a thread. The child returns from it as well, with 0.
INLINE bool starts_child(struct pt_regs *regs, u32 call, s64 result)
{
    u64 flags = 0, first = regs->di;
    // One load for both, or the compiler makes one of this and of the other's.
    asm volatile("" : "+r"(first));
    if (result <= 0)
        return false;
    if (call == CALL_clone3) {
        bpf_probe_read_user(&flags, sizeof(flags), (void *)first);
        return !(flags & CLONE_THREAD);
    }
    return call == CALL_fork || call == CALL_vfork ||
           (call == CALL_clone && !(first & CLONE_THREAD));
}

// The child that has ended and was waited for; 0 if there is none.
INLINE u32 waited_child(struct pt_regs *regs, u32 call, s64 result)
{
    if (call == CALL_wait4) {
        u32 status = 0;
        if (result <= 0 || !(regs->dx & (WAIT_UNTRACED | WAIT_CONTINUED)))
            return result > 0 ? result : 0;
        // It may have been stopped, or continued: the low byte is 0x7f, all are ones.
        if (!regs->si || bpf_probe_read_user(&status, sizeof(status), (void *)regs->si))
            return 0;
        return (status & 0x7f) == 0x7f ? 0 : result;
    }
    struct child_info info = {};
    if (call != CALL_waitid || result || (regs->r10 & WAIT_NOT_REAPED) || !regs->dx ||
        bpf_probe_read_user(&info, sizeof(info), (void *)regs->dx))
        return 0;
    // CLD_EXITED, CLD_KILLED and CLD_DUMPED.
    return info.code >= 1 && info.code <= 3 ? info.pid : 0;
}

// After clone, fork, vfork, wait4 and waitid.
INLINE void after_children(struct work *work, struct pt_regs *regs, s64 result)
{
    u32 call = work->call;
    if (starts_child(regs, call, result)) {
        work->stack = take_stack();
        report_child(work, STARTED, result);
        return;
    }
    u32 child = waited_child(regs, call, result);
    if (child)
        report_child(work, REAPED, child);
}
