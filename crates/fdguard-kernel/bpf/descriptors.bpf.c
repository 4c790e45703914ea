// Writes a record for each descriptor that a reader comes to: what fdinfo, the link and the tables
// of sockets would show; and, if it is wanted, one for each process. It changes nothing.
#include "epolls.h"
#include "processes.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

enum { CLOSE_ON_EXEC = 02000000, FORMAT = 0170000, CHARACTER_DEVICE = 0020000 };
enum { SOCKFS = 0x534f434b, PIPEFS = 0x50495045, PIDFS = 0x50494446, ANONYMOUS = 0x09041934 };
// Space for a path with its terminating zero; a longer one is marked.
enum { PATH = 1024 };

// fdinfo has more than the record; or the record is not consistent or not complete; or something
// beside this number refers to the open file.
enum { MORE = 1, UNSURE = 2, SHARED = 4 };

// What follows the head.
enum {
    NOTHING,
    SOME_PATH,
    EVENTFD,
    TIMERFD,
    SIGNALFD,
    PIDFD,
    INET,
    UNIX,
    NETLINK,
    EPOLL,
    // No descriptor, but the process whose descriptors follow.
    PROCESS,
    // The end of those of a process that was alive after the last of them.
    COMPLETE,
};

struct eventfd_tail {
    u64 count;
    u32 flags, id;
};

struct timerfd_tail {
    s64 remaining, interval;
    u64 ticks;
    u32 clock, unused;
};

// The reader in Rust has the same offsets.
struct record {
    u32 length, pid;
    u64 started;
    u32 fd, flags;
    s64 pos;
    u64 ino, magic, size;
    u32 mnt, links, rdev;
    u16 mode, marks;
    // The open file: descriptors that share it have the same number here.
    u64 file;
    u32 kind, netns;
    // For the master of a pseudo-terminal: its number and 1.
    u32 terminal, unused;
    union {
        char path[PATH];
        struct eventfd_tail eventfd;
        struct timerfd_tail timerfd;
        u64 signals;
        s32 handle;
        struct inet_tail inet;
        struct unix_tail unix_socket;
        struct netlink_tail netlink;
        struct epoll_tail epoll;
        struct process_tail process;
    };
};

#define HEAD __builtin_offsetof(struct record, path)

// One reader at a time: the loader sees to it.
struct record record, edge;

// What the reader wants: processes whose pid has these low bits, and whether it wants to know the
// processes, too.
struct {
    u32 mask, rest, processes;
    // Whether the last mount is known. The reader clears it before each of its reads: mounts come
    // and go.
    u32 has_mount;
} wanted SEC(".data");

// Whether it can describe processes: the verifier does not examine what cannot be reached.
const volatile u32 describes_processes = 1;

// The process of the last record, in this walk.
struct {
    struct task_struct___walk *task;
    u64 started, session;
    u32 pid, is_open;
} last;

// Whether the record that is being made is the first of its process, and whether that has a record
// of its own. In memory, so that the verifier does not follow each combination.
struct {
    u32 is_new, is_process;
} now;

// The mount of the last descriptor, and its number.
struct {
    u64 address;
    u32 number, unused;
} last_mount;

// The reader's pid namespace.
struct {
    struct upid number;
    u32 level, unused;
} reader;

// How deep in the tree of pid namespaces a task is.
INLINE u32 level_of(struct task_struct *task)
{
    struct pid *pid = NULL;
    u32 level = 0;
    COPY(pid, task->thread_pid);
    COPY(level, pid->level);
    return level;
}

// A walk begins, or another one was read meanwhile.
INLINE void begin_walk(u64 session)
{
    struct task_struct *task = bpf_get_current_task_btf();
    last.session = session;
    last.task = NULL;
    last.is_open = 0;
    reader.level = level_of(task);
    reader.number.ns = NULL;
    read_number(task, reader.level, &reader.number);
}

// The pid of a process handle in the reader's namespace: 0 if it has none there, -1 if it is gone.
INLINE s32 process_of(struct pid___handle *pid)
{
    void *task = NULL;
    COPY(task, pid->tasks[0].first);
    return task ? number_in(pid, &reader.number, reader.level) : -1;
}

// The slot in the table: the flags with close-on-exec, which belongs to the slot, and whether the
// file is still there.
INLINE void read_slot(struct record *to, struct files_struct___walk *files, struct file *file)
{
    struct fdtable___walk *table = files->fdt;
    u32 fd = to->fd, flags = file->f_flags & ~CLOSE_ON_EXEC;
    struct file *now = NULL;
    u64 bits = 0;
    if (fd < table->max_fds) {
        bpf_probe_read_kernel(&bits, sizeof(bits), table->close_on_exec + fd / 64);
        bpf_probe_read_kernel(&now, sizeof(now), table->fd + fd);
    }
    if (bits >> (fd & 63) & 1)
        flags |= CLOSE_ON_EXEC;
    to->flags = flags;
    if (now != file)
        to->marks |= UNSURE;
}

// The number of the mount that the file was opened on: it surrounds what the path refers to.
INLINE u32 mount_of(struct file *file)
{
    u64 inner = 0;
    u32 number = 0;
    COPY(inner, file->f_path.mnt);
    if (wanted.has_mount && inner == last_mount.address)
        return last_mount.number;
    u64 mount = inner - FIELD_OFFSET(((struct mount *)0)->mnt);
    u64 place = mount + FIELD_OFFSET(((struct mount *)0)->mnt_id);
    bpf_probe_read_kernel(&number, sizeof(number), (void *)place);
    last_mount.address = inner;
    last_mount.number = number;
    wanted.has_mount = true;
    return number;
}

// The pid in the reader's namespace; 0 if it cannot be read.
INLINE u32 pid_of(struct task_struct___walk *task)
{
    struct upid number = {};
    return read_number((struct task_struct *)task, reader.level, &number) ? number.nr : 0;
}

INLINE void read_inode(struct record *to, struct inode *inode)
{
    to->ino = inode->i_ino;
    to->mode = inode->i_mode;
    to->links = inode->i_nlink;
    to->size = inode->i_size;
    to->rdev = inode->i_rdev;
    to->magic = inode->i_sb->s_magic;
    // Their locks are not shown.
    if (to->magic == SOCKFS || to->magic == PIPEFS)
        return;
    // A lock of any process now: all anonymous inodes are one, so an earlier lock proves nothing.
    struct file_lock_context *locks = inode->i_flctx;
    if (locks && (locks->flc_flock.next != &locks->flc_flock ||
                  locks->flc_posix.next != &locks->flc_posix ||
                  locks->flc_lease.next != &locks->flc_lease))
        to->marks |= MORE;
}

INLINE void read_socket(struct record *to, struct file *file)
{
    struct socket *socket = bpf_sock_from_file(file);
    struct sock *sk = socket ? socket->sk : NULL;
    bool is_sure = true;
    u32 length = 0;
    if (!sk)
        return;
    to->netns = sk->__sk_common.skc_net.net->ns.inum;
    switch (sk->__sk_common.skc_family) {
    case AF_INET:
    case AF_INET6:
        length = describe_inet(&to->inet, sk);
        to->kind = INET;
        break;
    case AF_UNIX:
        if (FIELD_EXISTS(((struct unix_sock *)0)->peer)) {
            length = describe_unix(&to->unix_socket, sk, &is_sure);
            to->kind = UNIX;
        }
        break;
    case AF_NETLINK:
        if (FIELD_EXISTS(((struct netlink_sock *)0)->groups)) {
            length = describe_netlink(&to->netlink, sk, &is_sure);
            to->kind = NETLINK;
        }
        break;
    }
    if (!length || !is_sure)
        to->kind = NOTHING;
    else
        to->length = length;
}

INLINE void read_eventfd(struct record *to, struct eventfd_ctx *from)
{
    u64 start = FIELD_OFFSET(from->count);
    if (FIELD_OFFSET(from->flags) == start + 8 && FIELD_OFFSET(from->id) == start + 12) {
        // A copy takes as long for four bytes as for some hundred.
        bpf_probe_read_kernel(&to->eventfd, sizeof(to->eventfd), &from->count);
    } else {
        COPY(to->eventfd.count, from->count);
        COPY(to->eventfd.flags, from->flags);
        COPY(to->eventfd.id, from->id);
    }
    to->kind = EVENTFD;
    to->length = sizeof(to->eventfd);
}

// Not of alarms, which the kernel keeps elsewhere.
INLINE void read_timerfd(struct record *to, struct timerfd_ctx *from)
{
    struct hrtimer_clock_base *base = NULL;
    s64 expires = 0, offset = 0;
    u32 clock = 0;
    COPY(clock, from->clockid);
    if (clock != 0 && clock != 1 && clock != 7)
        return;
    COPY(expires, from->t.tmr.node.expires);
    COPY(base, from->t.tmr.base);
    COPY(offset, base->offset);
    s64 remaining = expires - (s64)bpf_ktime_get_ns() - offset;
    to->timerfd.remaining = remaining < 0 ? 0 : remaining;
    to->timerfd.clock = clock;
    COPY(to->timerfd.interval, from->tintv);
    COPY(to->timerfd.ticks, from->ticks);
    to->kind = TIMERFD;
    to->length = sizeof(to->timerfd);
}

// A kind of anonymous inode, by its name.
INLINE void read_anonymous(struct record *to, struct file *file)
{
    union {
        char text[16];
        u64 word[2];
    } name = {};
    // No two names have the same first eight letters.
    struct dentry *dentry = NULL;
    const unsigned char *text = NULL;
    COPY(dentry, file->f_path.dentry);
    COPY(text, dentry->d_name.name);
    bpf_probe_read_kernel(&name, 8, text);
    if (name.word[0] == *(u64 *)"[eventpo" && FIELD_EXISTS(((struct eventpoll *)0)->rbr)) {
        // As a number: only those may be passed to a function of its own.
        u64 address = 0;
        COPY(address, file->private_data);
        u32 length = describe_epoll(&to->epoll, address);
        if (length) {
            to->kind = EPOLL;
            to->length = length;
        }
    } else if (name.word[0] == *(u64 *)"[eventfd" && FIELD_EXISTS(((struct eventfd_ctx *)0)->id)) {
        read_eventfd(to, file->private_data);
    } else if (name.word[0] == *(u64 *)"[timerfd" &&
               FIELD_EXISTS(((struct timerfd_ctx *)0)->clockid)) {
        read_timerfd(to, file->private_data);
    } else if (name.word[0] == *(u64 *)"[signalf" &&
               FIELD_EXISTS(((struct signalfd_ctx *)0)->sigmask)) {
        struct signalfd_ctx *from = file->private_data;
        COPY(to->signals, from->sigmask);
        to->kind = SIGNALFD;
        to->length = sizeof(to->signals);
    }
}

// Whether fdinfo shows nothing of a pseudo-terminal but the number of a master.
INLINE bool read_terminal(struct record *to, struct file *file)
{
    u32 major = to->rdev >> 20;
    bool is_master = to->rdev == (5 << 20 | 2);
    if ((to->mode & FORMAT) != CHARACTER_DEVICE || !(is_master || (major >= 136 && major <= 143)))
        return false;
    struct tty_file_private *private = file->private_data;
    struct tty_struct *tty = NULL;
    const struct tty_operations *operations = NULL;
    void *show = NULL;
    u32 index = 0;
    COPY(tty, private->tty);
    if (!tty)
        return false;
    COPY(operations, tty->ops);
    COPY(show, operations->show_fdinfo);
    if (!is_master || !show)
        return !is_master && !show;
    COPY(index, tty->index);
    to->terminal = index + 1;
    return true;
}

// What fdinfo shows beyond the lines that every descriptor has. If the kind stays unknown, fdinfo
// must be read.
INLINE void read_more(struct record *to, struct file *file, struct inode *inode)
{
    if (to->marks)
        return;
    if (to->magic == ANONYMOUS) {
        read_anonymous(to, file);
    } else if (to->magic == PIDFS && FIELD_EXISTS(((struct pid___handle *)0)->tasks)) {
        to->handle = process_of(inode->i_private);
        to->kind = PIDFD;
        to->length = sizeof(u64);
    }
}

// The rest of the record, by the kind of file.
INLINE void read_tail(struct record *to, struct file *file, struct inode *inode,
                      struct file_operations *operations)
{
    if (to->magic == SOCKFS) {
        read_socket(to, file);
        return;
    }
    if (to->magic == PIPEFS)
        return;
    if (operations->show_fdinfo && !read_terminal(to, file)) {
        read_more(to, file, inode);
        FORGET();
        if (to->kind != NOTHING)
            return;
        to->marks |= MORE;
    }
    long length = bpf_d_path(&file->f_path, to->path, PATH);
    if (length <= 0 || length > PATH) {
        to->marks |= UNSURE;
        return;
    }
    to->kind = SOME_PATH;
    to->length = length;
}

// Whether the record of the last process's end is written. There is none if the process has ended,
// or may have: then some of its descriptors may be missing.
INLINE bool write_end(struct seq_file *seq)
{
    u64 started = 0;
    u32 flags = ENDING;
    if (!last.is_open)
        return true;
    COPY(started, last.task->start_boottime);
    COPY(flags, last.task->flags);
    if (started != last.started || flags & ENDING)
        return true;
    edge.kind = COMPLETE;
    edge.pid = last.pid;
    edge.started = last.started;
    edge.length = HEAD;
    return !bpf_seq_write(seq, &edge, HEAD);
}

INLINE bool write_process(struct seq_file *seq, struct task_struct___walk *task, u32 pid)
{
    u32 length = HEAD + sizeof(edge.process);
    edge.kind = PROCESS;
    edge.pid = pid;
    edge.started = task->start_boottime;
    edge.length = length;
    describe_process(&edge.process, (void *)task, &reader.number, reader.level);
    return !bpf_seq_write(seq, &edge, length);
}

// Whether more than the number and this walk refer to the open file.
INLINE bool is_shared(struct file *file)
{
    struct file___references *from = (void *)file;
    if (FIELD_EXISTS(from->f_ref))
        return from->f_ref.refcnt.counter > 1;
    return !FIELD_EXISTS(from->f_count) || from->f_count.counter > 2;
}

INLINE void read_descriptor(struct record *to, struct task_struct___walk *task, struct file *file)
{
    struct inode *inode = file->f_inode;
    struct file_operations *operations = file->f_op;
    struct files_struct___walk *files = task->files;
    HERE(inode);
    HERE(operations);
    HERE(files);
    to->kind = NOTHING;
    to->length = 0;
    to->netns = 0;
    to->terminal = 0;
    to->file = (u64)file;
    to->pos = file->f_pos;
    read_slot(to, files, file);
    to->mnt = mount_of(file);
    read_inode(to, inode);
    read_tail(to, file, inode, operations);
}

SEC("iter/task_file")
int write_descriptor(struct bpf_iter__task_file *ctx)
{
    struct task_struct___walk *task = ctx->task;
    struct file *file = ctx->file;
    struct seq_file *seq = ctx->meta->seq;
    struct record *to = &record;
    if (ctx->meta->session_id != last.session)
        begin_walk(ctx->meta->session_id);
    if (!file || !task) {
        if (write_end(seq))
            last.is_open = 0;
        return 0;
    }
    // A thread may have its own table: /proc/PID shows the first thread's.
    if (task->pid != task->tgid || (task->tgid & wanted.mask) != wanted.rest)
        return 0;
    to->started = task->start_boottime;
    bool is_new = task != last.task || to->started != last.started;
    bool is_process =
        describes_processes && wanted.processes && !(task->flags & KERNEL_THREAD);
    to->pid = is_new ? pid_of(task) : last.pid;
    if (is_new && !(write_end(seq) && (!is_process || write_process(seq, task, to->pid))))
        return 0;
    now.is_new = is_new;
    now.is_process = is_process;
    FORGET();
    to->marks = to->pid ? 0 : UNSURE;
    to->fd = ctx->fd;
    read_descriptor(to, task, file);
    FORGET();
    u32 length = to->length;
    if (length > PATH)
        return 0;
    if (is_shared(file))
        to->marks |= SHARED;
    to->length = HEAD + length;
    // If there is no room, the kernel discards the records of this call, and calls again.
    if (bpf_seq_write(seq, to, HEAD + length) || !now.is_new)
        return 0;
    last.task = task;
    last.started = to->started;
    last.pid = to->pid;
    last.is_open = now.is_process;
    return 0;
}
