// Reports what threads do to their tables of descriptors: opens by the results of system calls,
// closes when the call begins. In this order the events are right when another thread takes a
// number as soon as it is free.
#include "calls.h"
#include "children.h"
#include "code.h"
#include "in_use.h"
#include "kernel.h"
#include "opened.h"
#include "received.h"
#include "records.h"
#include "stack.h"
#include "table.h"
#include "work.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

enum { EBADF = 9, ENFILE = 23, EMFILE = 24 };
enum { CLOEXEC = 02000000, RLIMIT_NOFILE = 7 };
enum { RANGE_UNSHARE = 2, RANGE_CLOEXEC = 4 };

// Threads inside a call whose meaning depends on the state before it: the table, or the number that
// was free when its close began.
MAP(inside, .type = MAP_HASH, .key_size = 4, .value_size = 8, .entries = 8192,
    .flags = MAP_ON_DEMAND);
// Lets most calls skip the look-up.
u32 threads_inside;

INLINE void remember_inside(const struct work *work, u64 value)
{
    if (!bpf_map_update_elem(&inside, &work->tid, &value, ANY))
        __sync_fetch_and_add(&threads_inside, 1);
}

// What was remembered, once; 0 if nothing.
INLINE u64 forget_inside(const struct work *work)
{
    if (!threads_inside)
        return 0;
    u64 *value = bpf_map_lookup_elem(&inside, &work->tid);
    if (!value)
        return 0;
    u64 found = *value;
    if (!bpf_map_delete_elem(&inside, &work->tid))
        __sync_fetch_and_add(&threads_inside, -1);
    return found;
}

// Whether the call has the numbers and arguments of 32 bits (TS_COMPAT).
INLINE bool is_foreign(void)
{
    return current()->thread_info.status & 2;
}

INLINE void report_closed(const struct work *work, u32 fd, u64 file)
{
    struct record *record = reserve(work, CLOSED);
    if (!record)
        return;
    record->fd = fd;
    record->call = work->call;
    record->file = file;
    record->stack = work->stack;
    if (work->mode == MODE_PYTHON)
        record->arguments[0] = is_python_finalizing(work->pid);
    submit(record);
}

INLINE void report_failure(const struct work *work, u32 kind, u32 fd, u32 error)
{
    struct record *record = reserve(work, kind);
    if (!record)
        return;
    record->fd = fd;
    record->call = work->call;
    record->error = error;
    record->stack = work->stack;
    submit(record);
}

// Whether dup2 or dup3 will replace what its target refers to.
INLINE bool replaces(struct pt_regs *regs, u32 call)
{
    u32 from = regs->di, to = regs->si;
    if (from == to || (call == CALL_dup3 && (regs->dx & ~(u64)CLOEXEC)))
        return false;
    u64 signal = (u64)READ(task_struct, current(), signal);
    if (to >= READ(signal_struct, signal, rlim[RLIMIT_NOFILE].rlim_cur))
        return false;
    return file_at(from) != 0;
}

INLINE void report_range(const struct work *work, struct pt_regs *regs)
{
    struct record *record = reserve(work, CLOSED_RANGE);
    if (!record)
        return;
    record->fd = regs->di;
    record->call = regs->si;
    submit(record);
}

INLINE bool is_shared(const struct work *work)
{
    return READ(files_struct, work->table, count.counter) > 1;
}

INLINE void before_range(const struct work *work, struct pt_regs *regs)
{
    u32 flags = regs->dx;
    if ((u32)regs->di > (u32)regs->si || (flags & ~(RANGE_UNSHARE | RANGE_CLOEXEC)))
        return;
    if ((flags & RANGE_UNSHARE) && is_shared(work))
        remember_inside(work, work->table);
    else if (!(flags & RANGE_CLOEXEC))
        report_range(work, regs);
}

INLINE void report_unshared(struct work *work, u64 from)
{
    if (!from || from == work->table)
        return;
    bool listed = list_numbers(work, work->table);
    struct record *record = reserve(work, UNSHARED);
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
    if (call == CALL_ioctl && !may_open(regs->si))
        return 0;
    struct work *work = begin_work(true);
    if (!work)
        return 0;
    if (is_foreign()) {
        __sync_fetch_and_add(&foreign_calls, 1);
        return 0;
    }
    work->call = call;
    work->stack = 0;
    if (class & COMPARED) {
        keep_table();
    } else if (call == CALL_close) {
        u64 file = file_at(regs->di);
        if (file && is_shared(work) && has_other_users(file))
            report_users(regs->di);
        if (file)
            report_closed(work, regs->di, file);
        else
            remember_inside(work, 1);
    } else if (call == CALL_close_range) {
        before_range(work, regs);
    } else if (call == CALL_unshare) {
        if ((regs->di & CLONE_FILES) && is_shared(work))
            remember_inside(work, work->table);
    } else {
        u64 file = file_at(regs->si);
        if (file && replaces(regs, call))
            report_closed(work, regs->si, file);
    }
    return 0;
}

INLINE void after_failure(struct work *work, struct pt_regs *regs, u8 class, u32 error)
{
    u32 call = work->call;
    u32 kind = 0;
    if (call == CALL_close) {
        // With every other error the number is free, and was reported when the call began.
        u64 was_free = forget_inside(work);
        if (error == EBADF || was_free)
            kind = CLOSED;
    } else if (call == CALL_unshare || call == CALL_close_range) {
        forget_inside(work);
    } else if (error == EMFILE || error == ENFILE) {
        kind = REFUSED;
    } else if (error == EBADF && (class & USES)) {
        kind = BAD_USE;
    }
    if ((call == CALL_dup2 || call == CALL_dup3) && replaces(regs, call)) {
        // Reported as closed, and not replaced after all.
        work->stack = 0;
        report_opened(work, regs->si);
    }
    if (!kind)
        return;
    work->stack = kind == REFUSED ? 0 : take_stack();
    report_failure(work, kind, regs->di, error);
}

// Calls that only sometimes return a new descriptor.
INLINE bool returns_new(struct pt_regs *regs, u32 call)
{
    enum { F_DUPFD = 0, F_DUPFD_CLOEXEC = 1030, SET_FILTER = 1, NEW_LISTENER = 8 };
    switch (call) {
    case CALL_fcntl:
        return regs->si == F_DUPFD || regs->si == F_DUPFD_CLOEXEC;
    case CALL_signalfd:
    case CALL_signalfd4:
        return (s32)regs->di == -1;
    case CALL_landlock_create_ruleset:
        return regs->dx == 0;
    case CALL_seccomp:
        return regs->di == SET_FILTER && (regs->si & NEW_LISTENER);
    }
    return false;
}

INLINE bool is_sometimes_new(u32 call)
{
    return call == CALL_fcntl || call == CALL_signalfd || call == CALL_signalfd4 ||
           call == CALL_landlock_create_ruleset || call == CALL_seccomp;
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
    if (class & MAPS) {
        if (result > 0)
            after_map(regs, result);
        return 0;
    }
    if (!(class & (OPENS | AFTER | COMPARED | CHILDREN)) && (result != -EBADF || !class))
        return 0;
    // Nearly every close: it was reported when it began.
    if (call == CALL_close && result == 0 && !threads_inside)
        return 0;
    if (call == CALL_ioctl && result >= 0 && !may_open(regs->si))
        return 0;
    // Most failures are ordinary: a file that is not there, a connection that has not come yet.
    if (result < 0 && !(class & BEFORE) && result != -EBADF && result != -EMFILE &&
        result != -ENFILE)
        return 0;
    if (is_sometimes_new(call) && result >= 0 && !returns_new(regs, call))
        return 0;
    struct work *work = begin_work(true);
    if (!work || is_foreign())
        return 0;
    work->call = call;
    work->stack = 0;
    work->arguments[0] = regs->di;
    work->arguments[1] = regs->si;
    work->arguments[2] = regs->dx;
    if (result < 0) {
        after_failure(work, regs, class, -result);
        return 0;
    }
    if (call == CALL_close) {
        // It was free when the call began, and another thread took it meanwhile.
        if (forget_inside(work))
            report_closed(work, regs->di, 0);
        return 0;
    }
    if (call == CALL_unshare || call == CALL_close_range) {
        report_unshared(work, forget_inside(work));
        return 0;
    }
    if (class & CHILDREN)
        after_children(work, regs, result);
    if (!(class & (OPENS | AFTER | COMPARED)))
        return 0;
    if ((class & AFTER) && !(class & OPENS) && !is_sometimes_new(call) &&
        !writes_descriptors(regs, call, result))
        return 0;
    bool is_compared = class & COMPARED;
    if (!work->stack && (!is_compared || table_grew()))
        work->stack = take_stack();
    if (is_compared)
        compare_table(true);
    else if ((class & OPENS) || is_sometimes_new(call))
        report_opened(work, result);
    else
        after_written(result);
    return 0;
}

// A thread with a table of its own.
INLINE void after_thread(struct work *work, struct task_struct *child)
{
    u64 table = (u64)READ(task_struct, child, files);
    if (table == work->table)
        return;
    work->tid = namespace_level ? visible_number(child) : (u32)child->pid;
    bool listed = list_numbers(work, table);
    struct record *record = reserve(work, UNSHARED);
    if (!record)
        return;
    record->file = work->table;
    record->table = table;
    record->call = listed;
    submit(record);
}

SEC("tp_btf/sched_process_fork")
int after_fork(u64 *ctx)
{
    struct task_struct *child = (void *)ctx[1];
    struct work *work = begin_work(false);
    if (!work)
        return 0;
    if (child->tgid == current()->tgid) {
        after_thread(work, child);
        return 0;
    }
    u32 pid = namespace_level ? visible_number(child) : (u32)child->tgid;
    if (!pid)
        return 0;
    if (work->is_followed) {
        struct process process = {.mode = work->mode, .generation = work->generation};
        bpf_map_update_elem(&followed, &pid, &process, ANY);
    }
    after_python_fork(work->pid, pid);
    u64 table = (u64)READ(task_struct, child, files);
    bool listed = table != work->table && list_numbers(work, table);
    struct record *record = reserve(work, FORKED);
    if (!record)
        return 0;
    record->fd = pid;
    record->file = table;
    record->call = listed;
    submit(record);
    return 0;
}

SEC("tp_btf/sched_process_exec")
int after_exec(u64 *ctx)
{
    struct work *work = begin_work(false);
    if (!work)
        return 0;
    // Whatever its stacks were, the new program's may be different.
    struct process process = {
        .mode = first_mode, .generation = __sync_fetch_and_add(&next_generation, 1) + 1};
    bpf_map_update_elem(&followed, &work->pid, &process, ANY);
    bpf_map_delete_elem(&python_processes, &work->pid);
    if (!list_numbers(work, work->table)) {
        __sync_fetch_and_add(&lost_events, 1);
        return 0;
    }
    struct record *record = reserve(work, EXECUTED);
    if (!record)
        return 0;
    record->call = 1;
    submit(record);
    report_program();
    return 0;
}

SEC("tp_btf/sched_process_exit")
int before_end(u64 *ctx)
{
    struct work *work = begin_work(false);
    if (!work)
        return 0;
    forget_inside(work);
    u64 signal = (u64)READ(task_struct, current(), signal);
    if (READ(signal_struct, signal, live.counter))
        return 0;
    u32 pid = work->pid;
    bpf_map_delete_elem(&go_processes, &pid);
    // Two last threads may both see that they are; only one removes the process.
    if (work->is_followed && bpf_map_delete_elem(&followed, &work->pid))
        return 0;
    bpf_map_delete_elem(&python_processes, &work->pid);
    struct record *record = reserve(work, EXITED);
    if (record)
        submit(record);
    return 0;
}
