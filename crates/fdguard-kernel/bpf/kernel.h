// What the programs use of the kernel: only the fields that they read. The loader finds their real
// offsets in the running kernel's type information.
#pragma once

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef int s32;
typedef long long s64;
typedef _Bool bool;

#define true 1
#define false 0
#define NULL ((void *)0)

#define SEC(name) __attribute__((section(name), used))
#define INLINE static __attribute__((always_inline)) inline
// The verifier examines such a function once, not at each call.
#define GLOBAL __attribute__((noinline))

// A map, as the loader reads it from the section "maps".
struct map_definition {
    u32 type;
    u32 key_size;
    u32 value_size;
    u32 entries;
    u32 flags;
};

enum map_type {
    MAP_HASH = 1,
    MAP_ARRAY = 2,
    MAP_PERCPU_ARRAY = 6,
    MAP_LRU_HASH = 9,
    MAP_RINGBUF = 27,
};

// The map allocates its entries when they are used.
#define MAP_ON_DEMAND 1

#define MAP(name, ...) struct map_definition name SEC("maps") = {__VA_ARGS__}

struct task_struct;
struct pt_regs;

enum { ANY = 0, NO_WAKEUP = 1, USER_STACK = 1 << 8 };

static void *(*const bpf_map_lookup_elem)(void *map, const void *key) = (void *)1;
static long (*const bpf_map_update_elem)(void *map, const void *key, const void *value,
                                         u64 flags) = (void *)2;
static long (*const bpf_map_delete_elem)(void *map, const void *key) = (void *)3;
static u64 (*const bpf_ktime_get_ns)(void) = (void *)5;
static u64 (*const bpf_get_current_pid_tgid)(void) = (void *)14;
static long (*const bpf_probe_read_user)(void *to, u32 size, const void *from) = (void *)112;
static long (*const bpf_probe_read_kernel)(void *to, u32 size, const void *from) = (void *)113;
static long (*const bpf_probe_read_kernel_str)(void *to, u32 size, const void *from) = (void *)115;
static void *(*const bpf_ringbuf_reserve)(void *ring, u64 size, u64 flags) = (void *)131;
static void (*const bpf_ringbuf_submit)(void *record, u64 flags) = (void *)132;
static void (*const bpf_ringbuf_discard)(void *record, u64 flags) = (void *)133;
static long (*const bpf_ringbuf_output)(void *ring, void *data, u64 size, u64 flags) = (void *)130;
static long (*const bpf_get_task_stack)(struct task_struct *task, void *buffer, u32 size,
                                        u64 flags) = (void *)141;
static struct task_struct *(*const bpf_get_current_task_btf)(void) = (void *)158;
static struct pt_regs *(*const bpf_task_pt_regs)(struct task_struct *task) = (void *)175;
static u64 (*const bpf_get_attach_cookie)(void *ctx) = (void *)174;
static long (*const bpf_find_vma)(struct task_struct *task, u64 address, void *callback,
                                  void *context, u64 flags) = (void *)180;
static long (*const bpf_loop)(u32 times, void *callback, void *context, u64 flags) = (void *)181;

// Whether the running kernel has a field.
#define FIELD_EXISTS(field) __builtin_preserve_field_info(field, 2)

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct pt_regs {
    unsigned long r14, bp, r10, r9, r8, ax, dx, si, di, orig_ax, ip, cs, sp, ss;
};

struct thread_info {
    u32 status;
};

typedef struct {
    int counter;
} atomic_t;

struct ns_common {
    u32 inum;
};

struct pid_namespace {
    struct ns_common ns;
};

struct upid {
    int nr;
    struct pid_namespace *ns;
};

struct pid {
    u32 level;
    struct upid numbers[1];
};

struct list_head {
    struct list_head *next;
};

struct file_lock_context {
    struct list_head flc_flock, flc_posix, flc_lease;
};

struct super_block {
    u32 s_dev;
    unsigned long s_magic;
};

struct inode {
    u16 i_mode;
    u32 i_nlink;
    unsigned long i_ino;
    u32 i_rdev;
    s64 i_size;
    struct super_block *i_sb;
    struct file_lock_context *i_flctx;
    void *i_private;
};

struct vfsmount {
    int mnt_flags;
};

struct qstr {
    const u8 *name;
};

struct dentry {
    struct dentry *d_parent;
    struct qstr d_name;
};

struct path {
    struct vfsmount *mnt;
    struct dentry *dentry;
};

struct file_operations {
    void *show_fdinfo;
};

struct file {
    u32 f_flags;
    s64 f_pos;
    struct inode *f_inode;
    struct file_operations *f_op;
    struct path f_path;
    void *private_data;
};

struct mm_struct {
    unsigned long start_code, end_code;
    struct file *exe_file;
};

struct fdtable {
    u32 max_fds;
    struct file **fd;
    unsigned long *open_fds;
};

struct files_struct {
    atomic_t count;
    struct fdtable *fdt;
};

struct rlimit {
    unsigned long rlim_cur;
};

struct signal_struct {
    atomic_t live;
    struct list_head thread_head;
    struct rlimit rlim[16];
};

struct thread_struct {
    unsigned long fsbase;
};

struct vm_area_struct {
    unsigned long vm_flags;
};

struct task_struct {
    struct thread_info thread_info;
    int pid;
    int tgid;
    struct task_struct *group_leader;
    struct pid *thread_pid;
    struct files_struct *files;
    struct mm_struct *mm;
    struct signal_struct *signal;
    struct list_head thread_node;
    u32 __state;
    void *stack;
    struct thread_struct thread;
};

#pragma clang attribute pop

// Reads a field through a pointer that is only a number. The verifier searches all types of the
// kernel by name at each access to a pointer in a task: a millisecond each.
#define READ(structure, address, field)                                                            \
    ({                                                                                             \
        __typeof__(((struct structure *)0)->field) read_value = 0;                                 \
        bpf_probe_read_kernel(&read_value, sizeof(read_value),                                     \
                              &((struct structure *)(address))->field);                            \
        read_value;                                                                                \
    })

// The place of a pid in the namespace at this depth. It is calculated from a number: the verifier
// does not let an unknown distance be added to a pointer.
INLINE bool read_number(struct task_struct *task, u32 level, struct upid *to)
{
    struct pid *pid = READ(task_struct, task, thread_pid);
    u64 first = (u64)&pid->numbers[0];
    u64 step = (u64)&pid->numbers[1] - first;
    return !bpf_probe_read_kernel(to, sizeof(*to), (void *)(first + step * level));
}

INLINE u32 namespace_of(const struct upid *number)
{
    u32 found = 0;
    bpf_probe_read_kernel(&found, sizeof(found), &number->ns->ns.inum);
    return found;
}
