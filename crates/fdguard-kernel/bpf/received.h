// Descriptors that a call writes into the caller's memory.
#pragma once

#include "stack.h"

enum { MOST_MESSAGES = 1024, MOST_CONTROLS = 64, MOST_RECEIVED = 253 };
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

// A walk over received messages, their control messages, and the descriptors in those.
struct received {
    struct thread *thread;
    u64 messages;
    u64 control;
    u64 end;
    u64 descriptors;
    u32 call;
    u32 stack;
    u64 arguments[3];
};

INLINE void report_at(const struct received *received, u64 address)
{
    s32 fd = -1;
    if (bpf_probe_read_user(&fd, sizeof(fd), (void *)address) || fd < 0)
        return;
    struct thread thread = *received->thread;
    thread.task = bpf_get_current_task_btf();
    u64 file = file_at(thread.task, fd);
    if (!file)
        return;
    struct record *record = reserve(&thread, OPENED);
    if (!record)
        return;
    record->fd = fd;
    record->call = received->call;
    record->file = file;
    record->stack = received->stack;
    record->arguments[0] = received->arguments[0];
    record->arguments[1] = received->arguments[1];
    record->arguments[2] = received->arguments[2];
    submit(record);
}

static long each_descriptor(u32 index, struct received *received)
{
    report_at(received, received->descriptors + index * 4);
    return 0;
}

static long each_control(u32 index, struct received *received)
{
    struct control control = {};
    u64 at = received->control;
    if (at + sizeof(control) > received->end)
        return 1;
    if (bpf_probe_read_user(&control, sizeof(control), (void *)at))
        return 1;
    if (control.length < sizeof(control))
        return 1;
    u64 count = (control.length - sizeof(control)) / 4;
    if (control.level == SOL_SOCKET &&
        (control.type == SCM_RIGHTS || control.type == SCM_PIDFD)) {
        if (count > MOST_RECEIVED)
            count = MOST_RECEIVED;
        received->descriptors = at + sizeof(control);
        bpf_loop(count, each_descriptor, received, 0);
    }
    received->control = at + ((control.length + 7) & ~7ull);
    return 0;
}

INLINE void read_message(struct received *received, u64 at)
{
    struct message message = {};
    if (bpf_probe_read_user(&message, sizeof(message), (void *)at))
        return;
    // The kernel has written the length that it used.
    if (!message.control || message.control_length < sizeof(struct control))
        return;
    received->control = message.control;
    received->end = message.control + message.control_length;
    bpf_loop(MOST_CONTROLS, each_control, received, 0);
}

static long each_message(u32 index, struct received *received)
{
    // struct mmsghdr: the message, and its length.
    read_message(received, received->messages + (u64)index * (sizeof(struct message) + 8));
    return 0;
}

// Two descriptors in an array.
INLINE void report_pair(struct received *received, u64 address)
{
    report_at(received, address);
    report_at(received, address + 4);
}

// Reports what is in the caller's memory when these calls return.
INLINE void after_written(struct thread *thread, u64 *ctx, struct pt_regs *regs, u32 call,
                          u32 result)
{
    struct received received = {.thread = thread, .call = call};
    received.arguments[0] = regs->di;
    received.arguments[1] = regs->si;
    received.arguments[2] = regs->dx;
    switch (call) {
    case CALL_pipe:
    case CALL_pipe2:
        received.stack = take_stack(thread, ctx, regs);
        report_pair(&received, regs->di);
        break;
    case CALL_socketpair:
        received.stack = take_stack(thread, ctx, regs);
        report_pair(&received, regs->r10);
        break;
    case CALL_recvmsg:
        read_message(&received, regs->si);
        break;
    case CALL_recvmmsg:
        received.messages = regs->si;
        if (result > MOST_MESSAGES)
            result = MOST_MESSAGES;
        bpf_loop(result, each_message, &received, 0);
        break;
    case CALL_getsockopt:
        if (regs->si == SOL_SOCKET && regs->dx == SO_PEERPIDFD) {
            received.stack = take_stack(thread, ctx, regs);
            report_at(&received, regs->r10);
        }
        break;
    case CALL_clone:
        // The child returns from it as well.
        if (result && (regs->di & CLONE_PIDFD)) {
            received.stack = take_stack(thread, ctx, regs);
            report_at(&received, regs->dx);
        }
        break;
    case CALL_clone3: {
        u64 arguments[2] = {};
        if (!result || bpf_probe_read_user(arguments, sizeof(arguments), (void *)regs->di))
            break;
        if (arguments[0] & CLONE_PIDFD) {
            received.stack = take_stack(thread, ctx, regs);
            report_at(&received, arguments[1]);
        }
        break;
    }
    }
}
