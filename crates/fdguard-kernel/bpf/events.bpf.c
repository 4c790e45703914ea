// Reports what threads do to their tables of descriptors: opens by the results of system calls,
// closes when the call begins. In this order the events are right when another thread takes a
// number as soon as it is free.
#include "calls.h"
#include "kernel.h"
#include "records.h"
#include "stack.h"
#include "table.h"
#include "thread.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

enum { EBADF = 9, ENFILE = 23, EMFILE = 24 };
enum { CLOEXEC = 02000000, RLIMIT_NOFILE = 7 };
enum { RANGE_UNSHARE = 2, RANGE_CLOEXEC = 4, CLONE_FILES = 0x400, CLONE_PIDFD = 0x1000 };

// Threads inside a call whose meaning depends on the state before it: the table, or the number that
// was free when its close began.
MAP(inside, .type = MAP_HASH, .key_size = 4, .value_size = 8, .entries = 8192,
    .flags = MAP_ON_DEMAND);
// Lets most calls skip the look-up.
u32 threads_inside;

INLINE void remember_inside(const struct thread *thread, u64 value)
{
    if (!bpf_map_update_elem(&inside, &thread->tid, &value, ANY))
        __sync_fetch_and_add(&threads_inside, 1);
}

// What was remembered, once; 0 if nothing.
INLINE u64 forget_inside(const struct thread *thread)
{
    if (!threads_inside)
        return 0;
    u64 *value = bpf_map_lookup_elem(&inside, &thread->tid);
    if (!value)
        return 0;
    u64 found = *value;
    if (!bpf_map_delete_elem(&inside, &thread->tid))
        __sync_fetch_and_add(&threads_inside, -1);
    return found;
}

INLINE bool is_foreign(struct task_struct *task)
{
    // TS_COMPAT: the call has the numbers and arguments of 32 bits.
    return task->thread_info.status & 2;
}

INLINE void report_closed(const struct thread *thread, u32 fd, u32 call, u64 file)
{
    struct record *record = reserve(thread, CLOSED);
    if (!record)
        return;
    record->fd = fd;
    record->call = call;
    record->file = file;
    submit(record);
}

INLINE void report_failure(struct thread *thread, u64 *ctx, struct pt_regs *regs, u32 kind, u32 call,
                           u32 fd, u32 error)
{
    u32 stack = kind == REFUSED ? 0 : take_stack(thread, ctx, regs);
    struct record *record = reserve(thread, kind);
    if (!record)
        return;
    record->fd = fd;
    record->call = call;
    record->error = error;
    record->stack = stack;
    submit(record);
}

INLINE void report_opened(const struct thread *thread, struct pt_regs *regs, u32 fd, u32 call,
                          u32 stack)
{
    // Another thread has closed it already, and has reported that.
    u64 file = file_at(thread->task, fd);
    if (!file)
        return;
    struct record *record = reserve(thread, OPENED);
    if (!record)
        return;
    record->fd = fd;
    record->call = call;
    record->file = file;
    record->stack = stack;
    record->arguments[0] = regs->di;
    record->arguments[1] = regs->si;
    record->arguments[2] = regs->dx;
    submit(record);
}

// Whether dup2 or dup3 will replace what its target refers to.
INLINE bool replaces(const struct thread *thread, struct pt_regs *regs, u32 call)
{
    u32 from = regs->di, to = regs->si;
    if (from == to || (call == CALL_dup3 && (regs->dx & ~(u64)CLOEXEC)))
        return false;
    if (to >= thread->task->signal->rlim[RLIMIT_NOFILE].rlim_cur)
        return false;
    return file_at(thread->task, from) != 0;
}

INLINE bool is_range(struct pt_regs *regs)
{
    return (u32)regs->di <= (u32)regs->si && !((u32)regs->dx & ~(RANGE_UNSHARE | RANGE_CLOEXEC));
}

INLINE void report_range(const struct thread *thread, struct pt_regs *regs)
{
    struct record *record = reserve(thread, CLOSED_RANGE);
    if (!record)
        return;
    record->fd = regs->di;
    record->call = regs->si;
    submit(record);
}

INLINE void before_range(const struct thread *thread, struct pt_regs *regs)
{
    if (!is_range(regs))
        return;
    struct files_struct *files = thread->task->files;
    if ((regs->dx & RANGE_UNSHARE) && files->count.counter > 1)
        remember_inside(thread, (u64)files);
    else if (!(regs->dx & RANGE_CLOEXEC))
        report_range(thread, regs);
}

INLINE void report_unshared(const struct thread *thread, u64 from)
{
    if (!from || from == (u64)thread->task->files)
        return;
    bool listed = list_numbers(thread, thread->task);
    struct record *record = reserve(thread, UNSHARED);
    if (!record)
        return;
    record->file = from;
    record->call = listed;
    submit(record);
}

// ioctls of terminals and of interfaces are frequent, and open nothing but these.
INLINE bool may_open(u32 request)
{
    enum { TIOCGPTPEER = 0x5441, SIOCGSKNS = 0x894c };
    u32 group = request >> 8 & 0xff;
    if (request >> 16)
        return true;
    if (group == 0x54)
        return request == TIOCGPTPEER;
    return group != 0x89 || request == SIOCGSKNS || (request & 0xf0) == 0xe0;
}

SEC("tp_btf/sys_enter")
int before_call(u64 *ctx)
{
    struct pt_regs *regs = (void *)ctx[0];
    u64 call = ctx[1];
    if (call >= CALLS)
        return 0;
    u8 class = classes[call & (CALLS - 1)];
    if (!(class & (BEFORE | COMPARED)))
        return 0;
    struct thread thread;
    if (!find_thread(&thread))
        return 0;
    if (is_foreign(thread.task)) {
        __sync_fetch_and_add(&foreign_calls, 1);
        return 0;
    }
    if (class & COMPARED) {
        if (call != CALL_ioctl || may_open(regs->si))
            keep_table(&thread);
        return 0;
    }
    if (call == CALL_close) {
        u32 fd = regs->di;
        u64 file = file_at(thread.task, fd);
        if (file)
            report_closed(&thread, fd, call, file);
        else
            remember_inside(&thread, 1);
    } else if (call == CALL_close_range) {
        before_range(&thread, regs);
    } else if (call == CALL_unshare) {
        if ((regs->di & CLONE_FILES) && thread.task->files->count.counter > 1)
            remember_inside(&thread, (u64)thread.task->files);
    } else {
        u32 fd = regs->si;
        u64 file = file_at(thread.task, fd);
        if (file && replaces(&thread, regs, call))
            report_closed(&thread, fd, call, file);
    }
    return 0;
}

#include "received.h"

INLINE void after_failure(struct thread *thread, u64 *ctx, struct pt_regs *regs, u8 class, u32 call,
                          u32 error)
{
    if (call == CALL_close) {
        // Every other error of close is reported for a number that is free.
        u64 was_free = forget_inside(thread);
        if (error == EBADF || was_free)
            report_failure(thread, ctx, regs, CLOSED, call, regs->di, error);
        return;
    }
    if (call == CALL_unshare || call == CALL_close_range) {
        forget_inside(thread);
        return;
    }
    if (call == CALL_dup2 || call == CALL_dup3) {
        // Reported as closed, and not replaced after all.
        if (replaces(thread, regs, call))
            report_opened(thread, regs, regs->si, call, 0);
    }
    if (error == EMFILE || error == ENFILE)
        report_failure(thread, ctx, regs, REFUSED, call, 0, error);
    else if (error == EBADF && (class & USES))
        report_failure(thread, ctx, regs, BAD_USE, call, regs->di, error);
}

INLINE void after_other(struct thread *thread, u64 *ctx, struct pt_regs *regs, u32 call, u32 result)
{
    enum { F_DUPFD = 0, F_DUPFD_CLOEXEC = 1030, SET_FILTER = 1, NEW_LISTENER = 8 };
    bool opened = false;
    switch (call) {
    case CALL_close:
        // It was free when the call began, and another thread took it meanwhile.
        if (forget_inside(thread))
            report_closed(thread, regs->di, call, 0);
        return;
    case CALL_unshare:
        report_unshared(thread, forget_inside(thread));
        return;
    case CALL_close_range: {
        u64 from = forget_inside(thread);
        if (!from)
            return;
        report_unshared(thread, from);
        return;
    }
    case CALL_fcntl:
        opened = regs->si == F_DUPFD || regs->si == F_DUPFD_CLOEXEC;
        break;
    case CALL_signalfd:
    case CALL_signalfd4:
        opened = (s32)regs->di == -1;
        break;
    case CALL_landlock_create_ruleset:
        opened = regs->dx == 0;
        break;
    case CALL_seccomp:
        opened = regs->di == SET_FILTER && (regs->si & NEW_LISTENER);
        break;
    default:
        after_written(thread, ctx, regs, call, result);
        return;
    }
    if (opened)
        report_opened(thread, regs, result, call, take_stack(thread, ctx, regs));
}

SEC("tp_btf/sys_exit")
int after_call(u64 *ctx)
{
    struct pt_regs *regs = (void *)ctx[0];
    s64 result = ctx[1];
    u64 call = regs->orig_ax;
    if (call >= CALLS)
        return 0;
    u8 class = classes[call & (CALLS - 1)];
    if (!(class & (OPENS | AFTER | COMPARED)) && (result != -EBADF || !class))
        return 0;
    struct thread thread;
    if (!find_thread(&thread) || is_foreign(thread.task))
        return 0;
    if (class & COMPARED)
        compare_table(&thread, call);
    if (result < 0)
        after_failure(&thread, ctx, regs, class, call, -result);
    else if (class & OPENS)
        report_opened(&thread, regs, result, call, take_stack(&thread, ctx, regs));
    else if (class & AFTER)
        after_other(&thread, ctx, regs, call, result);
    return 0;
}

SEC("tp_btf/sched_process_fork")
int after_fork(u64 *ctx)
{
    struct task_struct *child = (void *)ctx[1];
    struct thread thread;
    if (!find_thread(&thread))
        return 0;
    bool shared = child->files == thread.task->files;
    if (child->tgid == thread.task->tgid) {
        if (shared)
            return 0;
        // A thread with a table of its own.
        struct thread new = thread;
        new.tid = namespace_level ? visible_number(child) : (u32)child->pid;
        bool listed = list_numbers(&new, child);
        struct record *record = reserve(&new, UNSHARED);
        if (!record)
            return 0;
        record->file = record->table;
        record->table = (u64)child->files;
        record->call = listed;
        submit(record);
        return 0;
    }
    u32 pid = namespace_level ? visible_number(child) : (u32)child->tgid;
    if (!pid)
        return 0;
    if (thread.process) {
        struct process process = *thread.process;
        bpf_map_update_elem(&followed, &pid, &process, ANY);
    }
    bool listed = !shared && list_numbers(&thread, child);
    struct record *record = reserve(&thread, FORKED);
    if (!record)
        return 0;
    record->fd = pid;
    record->file = (u64)child->files;
    record->call = listed;
    submit(record);
    return 0;
}

SEC("tp_btf/sched_process_exec")
int after_exec(u64 *ctx)
{
    struct thread thread;
    if (!find_thread(&thread))
        return 0;
    // Whatever its stacks were, the new program's may be different.
    if (thread.process)
        thread.process->mode = first_mode;
    if (!list_numbers(&thread, thread.task)) {
        __sync_fetch_and_add(&lost_events, 1);
        return 0;
    }
    struct record *record = reserve(&thread, EXECUTED);
    if (!record)
        return 0;
    record->call = 1;
    submit(record);
    return 0;
}

SEC("tp_btf/sched_process_exit")
int before_end(u64 *ctx)
{
    struct thread thread;
    if (!find_thread(&thread))
        return 0;
    forget_inside(&thread);
    if (thread.task->signal->live.counter)
        return 0;
    // Two last threads may both see that they are; only one removes the process.
    if (thread.process && bpf_map_delete_elem(&followed, &thread.pid))
        return 0;
    struct record *record = reserve(&thread, EXITED);
    if (record)
        submit(record);
    return 0;
}
