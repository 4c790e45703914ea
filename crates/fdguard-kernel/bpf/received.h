// Descriptors that a call writes into the caller's memory.
#pragma once

#include "calls.h"
#include "opened.h"

enum { MOST_MESSAGES = 1024, MOST_CONTROLS = 64, MOST_RECEIVED = 253 };
enum { CLONE_FILES = 0x400, CLONE_PIDFD = 0x1000 };
enum { SOL_SOCKET = 1, SCM_RIGHTS = 1, SCM_PIDFD = 4, SO_PEERPIDFD = 77 };

struct control {
    u64 length;
    u32 level;
    u32 type;
};

struct message {
    u64 name;
    u64 name_length;
    u64 parts;
    u64 part_count;
    u64 control;
    u64 control_length;
    u64 flags;
};

INLINE void report_at(const struct work *work, u64 address)
{
    s32 fd = -1;
    if (bpf_probe_read_user(&fd, sizeof(fd), (void *)address) || fd < 0)
        return;
    report_opened(work, fd);
}

static long each_descriptor(u32 index, void *unused)
{
    struct work *work = workspace_of_processor();
    if (!work)
        return 1;
    report_at(work, work->descriptors + index * 4);
    return 0;
}

static long each_control(u32 index, void *unused)
{
    struct work *work = workspace_of_processor();
    struct control control = {};
    if (!work)
        return 1;
    u64 at = work->control;
    if (at + sizeof(control) > work->control_end)
        return 1;
    if (bpf_probe_read_user(&control, sizeof(control), (void *)at))
        return 1;
    if (control.length < sizeof(control))
        return 1;
    if (control.level == SOL_SOCKET &&
        (control.type == SCM_RIGHTS || control.type == SCM_PIDFD)) {
        u64 count = (control.length - sizeof(control)) / 4;
        work->descriptors = at + sizeof(control);
        bpf_loop(count < MOST_RECEIVED ? count : MOST_RECEIVED, each_descriptor, NULL, 0);
    }
    work->control = at + ((control.length + 7) & ~7ull);
    return 0;
}

INLINE void read_message(struct work *work, u64 at)
{
    struct message message = {};
    if (bpf_probe_read_user(&message, sizeof(message), (void *)at))
        return;
    // The kernel has written the length that it used.
    if (!message.control || message.control_length < sizeof(struct control))
        return;
    work->control = message.control;
    work->control_end = message.control + message.control_length;
    bpf_loop(MOST_CONTROLS, each_control, NULL, 0);
}

static long each_message(u32 index, void *unused)
{
    struct work *work = workspace_of_processor();
    // struct mmsghdr: the message, and its length.
    if (work)
        read_message(work, work->messages + (u64)index * (sizeof(struct message) + 8));
    return 0;
}

// Whether the call may have written descriptors, and where: its stack is taken only then.
INLINE bool writes_descriptors(struct pt_regs *regs, u32 call, u32 result)
{
    u64 arguments[2] = {};
    switch (call) {
    case CALL_getsockopt:
        return regs->si == SOL_SOCKET && regs->dx == SO_PEERPIDFD;
    case CALL_clone:
        // The child returns from it as well.
        return result && (regs->di & CLONE_PIDFD);
    case CALL_clone3:
        if (!result || bpf_probe_read_user(arguments, sizeof(arguments), (void *)regs->di))
            return false;
        return arguments[0] & CLONE_PIDFD;
    case CALL_recvmsg: {
        // Most messages have no control message.
        struct message message = {};
        if (bpf_probe_read_user(&message, sizeof(message), (void *)regs->si))
            return false;
        return message.control && message.control_length >= sizeof(struct control);
    }
    }
    return true;
}

// Reports what is in the caller's memory when these calls return.
GLOBAL int after_written(u32 result)
{
    struct work *work = workspace_of_processor();
    if (!work)
        return 0;
    struct pt_regs *regs = bpf_task_pt_regs(current());
    u64 pointer = 0;
    switch (work->call) {
    case CALL_pipe:
    case CALL_pipe2:
    case CALL_socketpair:
        pointer = work->call == CALL_socketpair ? regs->r10 : regs->di;
        report_at(work, pointer);
        report_at(work, pointer + 4);
        break;
    case CALL_recvmsg:
        read_message(work, regs->si);
        break;
    case CALL_recvmmsg:
        work->messages = regs->si;
        bpf_loop(result < MOST_MESSAGES ? result : MOST_MESSAGES, each_message, NULL, 0);
        break;
    case CALL_getsockopt:
        report_at(work, regs->r10);
        break;
    case CALL_clone:
        report_at(work, regs->dx);
        break;
    case CALL_clone3:
        if (!bpf_probe_read_user(&pointer, sizeof(pointer), (void *)(regs->di + 8)))
            report_at(work, pointer);
        break;
    }
    return 0;
}
