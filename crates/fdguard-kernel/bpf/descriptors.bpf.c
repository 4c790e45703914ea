// Writes a record for each descriptor that a reader comes to: what fdinfo, the link and the tables
// of sockets would show. It changes nothing.
#include "sockets.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

enum { CLOSE_ON_EXEC = 02000000, FORMAT = 0170000, CHARACTER_DEVICE = 0020000 };
enum { SOCKFS = 0x534f434b, PIPEFS = 0x50495045, PIDFS = 0x50494446, ANONYMOUS = 0x09041934 };
// Space for a path with its terminating zero; a longer one is marked.
enum { PATH = 1024 };

// fdinfo has more than the record; or the record is not consistent or not complete.
enum { MORE = 1, UNSURE = 2 };

// What follows the head.
enum { NOTHING, SOME_PATH, EVENTFD, TIMERFD, SIGNALFD, PIDFD, INET, UNIX, NETLINK };

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
        s32 process;
        struct inet_tail inet;
        struct unix_tail unix_socket;
        struct netlink_tail netlink;
    };
};

#define HEAD __builtin_offsetof(struct record, path)

// One reader at a time: the loader sees to it.
struct record record;

// The numbers that the reader wants.
struct {
    u32 first, end;
} range = {0, ~0u};

// Of the last record: most have the same process.
struct {
    struct task_struct___walk *task;
    u64 started;
    u32 pid, unused;
} last;

// How deep in the tree of pid namespaces a task is.
INLINE u32 level_of(struct task_struct *task)
{
    struct pid *pid = NULL;
    u32 level = 0;
    COPY(pid, task->thread_pid);
    COPY(level, pid->level);
    return level;
}

// The pid of a process handle in the reader's namespace: 0 if it has none there, -1 if it is gone.
INLINE s32 process_of(struct pid___handle *pid)
{
    void *task = NULL;
    COPY(task, pid->tasks[0].first);
    if (!task)
        return -1;
    struct task_struct *reader = bpf_get_current_task_btf();
    u32 level = level_of(reader), depth = 0;
    struct upid number = {}, ours = {};
    COPY(depth, pid->level);
    if (level > depth || !read_number(reader, level, &ours))
        return 0;
    u64 first = (u64)&pid->numbers[0];
    u64 step = (u64)&pid->numbers[1] - first;
    bpf_probe_read_kernel(&number, sizeof(number), (void *)(first + step * level));
    return number.ns == ours.ns ? number.nr : 0;
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
    u64 mount = inner - FIELD_OFFSET(((struct mount *)0)->mnt);
    u64 place = mount + FIELD_OFFSET(((struct mount *)0)->mnt_id);
    bpf_probe_read_kernel(&number, sizeof(number), (void *)place);
    return number;
}

// The pid in the reader's namespace; 0 if it cannot be read.
INLINE u32 pid_of(struct task_struct___walk *task, u64 started)
{
    struct upid number = {};
    if (task == last.task && started == last.started)
        return last.pid;
    if (!read_number((struct task_struct *)task, level_of(bpf_get_current_task_btf()), &number))
        return 0;
    last.task = task;
    last.started = started;
    last.pid = number.nr;
    return number.nr;
}

INLINE void read_inode(struct record *to, struct inode *inode)
{
    to->ino = inode->i_ino;
    to->mode = inode->i_mode;
    to->links = inode->i_nlink;
    to->size = inode->i_size;
    to->rdev = inode->i_rdev;
    to->magic = inode->i_sb->s_magic;
    // A lock of any process now: all anonymous inodes are one, so an earlier lock proves nothing.
    struct file_lock_context *locks = inode->i_flctx;
    if (locks && (locks->flc_flock.next != &locks->flc_flock ||
                  locks->flc_posix.next != &locks->flc_posix ||
                  locks->flc_lease.next != &locks->flc_lease))
        to->marks |= MORE;
}

INLINE u32 read_socket(struct record *to, struct file *file)
{
    struct socket *socket = bpf_sock_from_file(file);
    struct sock *sk = socket ? socket->sk : NULL;
    bool is_sure = true;
    u32 length = 0;
    if (!sk)
        return 0;
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
    if (!length || !is_sure) {
        to->kind = NOTHING;
        return 0;
    }
    return length;
}

INLINE u32 read_eventfd(struct record *to, struct eventfd_ctx *from)
{
    COPY(to->eventfd.count, from->count);
    COPY(to->eventfd.flags, from->flags);
    COPY(to->eventfd.id, from->id);
    to->kind = EVENTFD;
    return sizeof(to->eventfd);
}

// 0 for alarms, which the kernel keeps elsewhere.
INLINE u32 read_timerfd(struct record *to, struct timerfd_ctx *from)
{
    struct hrtimer_clock_base *base = NULL;
    s64 expires = 0, offset = 0;
    u32 clock = 0;
    COPY(clock, from->clockid);
    if (clock != 0 && clock != 1 && clock != 7)
        return 0;
    COPY(expires, from->t.tmr.node.expires);
    COPY(base, from->t.tmr.base);
    COPY(offset, base->offset);
    s64 remaining = expires - (s64)bpf_ktime_get_ns() - offset;
    to->timerfd.remaining = remaining < 0 ? 0 : remaining;
    to->timerfd.clock = clock;
    COPY(to->timerfd.interval, from->tintv);
    COPY(to->timerfd.ticks, from->ticks);
    to->kind = TIMERFD;
    return sizeof(to->timerfd);
}

// A kind of anonymous inode, by its name. 0 if fdinfo must be read.
INLINE u32 read_anonymous(struct record *to, struct file *file)
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
    if (name.word[0] == *(u64 *)"[eventfd" && FIELD_EXISTS(((struct eventfd_ctx *)0)->id))
        return read_eventfd(to, file->private_data);
    if (name.word[0] == *(u64 *)"[timerfd" && FIELD_EXISTS(((struct timerfd_ctx *)0)->clockid))
        return read_timerfd(to, file->private_data);
    if (name.word[0] == *(u64 *)"[signalf" && FIELD_EXISTS(((struct signalfd_ctx *)0)->sigmask)) {
        struct signalfd_ctx *from = file->private_data;
        COPY(to->signals, from->sigmask);
        to->kind = SIGNALFD;
        return sizeof(to->signals);
    }
    return 0;
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

// What fdinfo shows beyond the lines that every descriptor has. 0 if it must be read.
INLINE u32 read_more(struct record *to, struct file *file, struct inode *inode)
{
    if (to->marks)
        return 0;
    if (to->magic == ANONYMOUS)
        return read_anonymous(to, file);
    if (to->magic == PIDFS && FIELD_EXISTS(((struct pid___handle *)0)->tasks)) {
        to->process = process_of(inode->i_private);
        to->kind = PIDFD;
        return sizeof(u64);
    }
    return 0;
}

// The rest of the record, by the kind of file.
INLINE u32 read_tail(struct record *to, struct file *file, struct inode *inode,
                     struct file_operations *operations)
{
    if (to->magic == SOCKFS)
        return read_socket(to, file);
    if (to->magic == PIPEFS)
        return 0;
    if (operations->show_fdinfo && !read_terminal(to, file)) {
        u32 length = read_more(to, file, inode);
        if (length)
            return length;
        to->marks |= MORE;
    }
    long length = bpf_d_path(&file->f_path, to->path, PATH);
    if (length <= 0 || length > PATH) {
        to->marks |= UNSURE;
        return 0;
    }
    to->kind = SOME_PATH;
    return length;
}

SEC("iter/task_file")
int write_descriptor(struct bpf_iter__task_file *ctx)
{
    struct task_struct___walk *task = ctx->task;
    struct file *file = ctx->file;
    struct record *to = &record;
    if (!file || !task || ctx->fd < range.first || ctx->fd >= range.end)
        return 0;
    // A thread may have its own table: /proc/PID shows the first thread's.
    if (task->pid != task->tgid)
        return 0;
    struct inode *inode = file->f_inode;
    struct file_operations *operations = file->f_op;
    struct files_struct___walk *files = task->files;
    HERE(inode);
    HERE(operations);
    HERE(files);
    to->marks = 0;
    to->kind = NOTHING;
    to->netns = 0;
    to->terminal = 0;
    to->fd = ctx->fd;
    to->file = (u64)file;
    to->started = task->start_boottime;
    to->pid = pid_of(task, to->started);
    if (!to->pid)
        to->marks |= UNSURE;
    to->pos = file->f_pos;
    read_slot(to, files, file);
    to->mnt = mount_of(file);
    read_inode(to, inode);
    u32 length = read_tail(to, file, inode, operations);
    if (length > PATH)
        return 0;
    to->length = HEAD + length;
    bpf_seq_write(ctx->meta->seq, to, HEAD + length);
    return 0;
}
