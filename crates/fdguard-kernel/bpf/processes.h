// What /proc/PID has of a process beside its descriptors.
#pragma once
#include "sockets.h"

enum { ENDING = 4, KERNEL_THREAD = 0x200000, OPEN_FILES = 7 };
enum { GROUP = 2 };

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct rlimit___process {
    unsigned long rlim_cur, rlim_max;
};

struct signal_struct___process {
    int nr_threads;
    struct pid___handle *pids[4];
    struct rlimit___process rlim[16];
};

struct cred {
    kuid_t uid;
};

struct nsproxy {
    struct net *net_ns;
};

struct kernfs_node {
    u64 id;
};

struct cgroup {
    struct kernfs_node *kn;
};

struct css_set {
    struct cgroup *dfl_cgrp;
};

struct task_struct___process {
    char comm[16];
    struct task_struct___process *real_parent, *group_leader;
    struct pid___handle *thread_pid;
    struct signal_struct___process *signal;
    const struct cred *real_cred;
    struct nsproxy *nsproxy;
    struct css_set *cgroups;
    struct mm_struct *mm;
    struct files_struct___walk *files;
};

#pragma clang attribute pop

// The reader in Rust has the same offsets.
struct process_tail {
    u64 soft, hard;
    // Processes with the same two numbers are in the same cgroups.
    u64 cgroups, cgroup;
    // Those with the same five here run the same file by the same name.
    u64 exe_mount, exe_dentry, exe_ino;
    u32 exe_dev, netns;
    u32 ppid, pgid, ns_pid, threads, uid, table_size;
    char comm[16];
};

INLINE void read_executable(struct process_tail *to, struct task_struct___process *task)
{
    struct mm_struct *memory = NULL;
    struct file *file = NULL;
    struct inode *inode = NULL;
    struct super_block *super = NULL;
    to->exe_mount = to->exe_dentry = to->exe_ino = to->exe_dev = 0;
    COPY(memory, task->mm);
    COPY(file, memory->exe_file);
    if (!file)
        return;
    COPY(to->exe_mount, file->f_path.mnt);
    COPY(to->exe_dentry, file->f_path.dentry);
    COPY(inode, file->f_inode);
    COPY(to->exe_ino, inode->i_ino);
    COPY(super, inode->i_sb);
    COPY(to->exe_dev, super->s_dev);
}

INLINE void read_places(struct process_tail *to, struct task_struct___process *task)
{
    struct css_set *set = NULL;
    struct cgroup *group = NULL;
    struct kernfs_node *node = NULL;
    struct nsproxy *proxy = NULL, *proxy_after = NULL;
    struct net *net = NULL;
    to->cgroup = to->netns = 0;
    COPY(set, task->cgroups);
    COPY(group, set->dfl_cgrp);
    COPY(node, group->kn);
    COPY(to->cgroup, node->id);
    to->cgroups = (u64)set;
    COPY(proxy, task->nsproxy);
    COPY(net, proxy->net_ns);
    COPY(to->netns, net->ns.inum);
    COPY(proxy_after, task->nsproxy);
    if (proxy != proxy_after)
        to->netns = 0;
}

// The number of a pid in the namespace of this depth; 0 if it has none there.
INLINE u32 number_in(struct pid___handle *pid, const struct upid *ours, u32 level)
{
    struct upid number = {};
    u32 depth = 0;
    COPY(depth, pid->level);
    if (level > depth)
        return 0;
    u64 first = (u64)&pid->numbers[0];
    u64 step = (u64)&pid->numbers[1] - first;
    bpf_probe_read_kernel(&number, sizeof(number), (void *)(first + step * level));
    return number.ns == ours->ns ? number.nr : 0;
}

INLINE void read_relatives(struct process_tail *to, struct task_struct___process *task,
                           const struct upid *ours, u32 level)
{
    struct task_struct___process *parent = NULL, *leader = NULL;
    struct signal_struct___process *signal = NULL;
    struct pid___handle *pid = NULL;
    u32 depth = 0;
    COPY(parent, task->real_parent);
    COPY(leader, parent->group_leader);
    COPY(pid, leader->thread_pid);
    to->ppid = number_in(pid, ours, level);
    COPY(signal, task->signal);
    to->threads = 0;
    COPY(to->threads, signal->nr_threads);
    to->soft = to->hard = 0;
    COPY(to->soft, signal->rlim[OPEN_FILES].rlim_cur);
    COPY(to->hard, signal->rlim[OPEN_FILES].rlim_max);
    pid = NULL;
    COPY(pid, signal->pids[GROUP]);
    to->pgid = number_in(pid, ours, level);
    pid = NULL;
    COPY(pid, task->thread_pid);
    COPY(depth, pid->level);
    u64 first = (u64)&pid->numbers[0];
    u64 step = (u64)&pid->numbers[1] - first;
    struct upid own = {};
    bpf_probe_read_kernel(&own, sizeof(own), (void *)(first + step * depth));
    to->ns_pid = own.nr;
}

INLINE void describe_process(struct process_tail *to, struct task_struct___process *task,
                             const struct upid *ours, u32 level)
{
    const struct cred *cred = NULL;
    struct files_struct___walk *files = NULL;
    struct fdtable___walk *table = NULL;
    read_executable(to, task);
    read_places(to, task);
    read_relatives(to, task, ours, level);
    to->uid = ~0u;
    COPY(cred, task->real_cred);
    COPY(to->uid, cred->uid.val);
    to->table_size = 0;
    COPY(files, task->files);
    COPY(table, files->fdt);
    COPY(to->table_size, table->max_fds);
    bpf_probe_read_kernel(to->comm, sizeof(to->comm), &task->comm);
}
