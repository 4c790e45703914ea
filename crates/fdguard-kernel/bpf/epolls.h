// What an epoll instance has registered, as its fdinfo lists it.
#pragma once
#include "files.h"

// More of them are left to fdinfo: the verifier follows every step.
enum { EPOLL_ITEMS = 20, EPOLL_STEPS = 3 * EPOLL_ITEMS };

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct rb_node {
    unsigned long __rb_parent_color;
    struct rb_node *rb_right;
    struct rb_node *rb_left;
};

struct rb_root_cached {
    struct rb_node *rb_leftmost;
};

struct epoll_filefd {
    struct file *file;
    int fd;
};

struct epitem {
    struct rb_node rbn;
    struct epoll_filefd ffd;
};

struct eventpoll {
    struct rb_root_cached rbr;
};

#pragma clang attribute pop

struct epoll_item {
    u32 fd, unused;
    u64 ino;
};

struct epoll_tail {
    u32 count, unused;
    struct epoll_item items[EPOLL_ITEMS];
};

// What is next at a node: its left side, itself, or its parent.
enum { LEFT, ITSELF, PARENT };

// Where in the tree the walk is. It is in memory, and not in registers, so that the verifier knows
// nothing of it and need not follow every combination.
struct {
    struct rb_node *node;
    u32 next, count;
    bool has_changed;
    // What the node refers to, and the item that it is a part of.
    u64 parent, right, left;
    struct {
        struct file *file;
        u32 fd, unused;
    } now;
    // The open files that the first walk met.
    u64 files[EPOLL_ITEMS];
} in_tree;

// The registrations of the last epoll instance. One reader at a time: the loader sees to it.
struct epoll_tail epoll_items;

// The first time an item is kept, the second time it is compared. False if there is no room.
INLINE bool take_item(struct rb_node *node, bool is_second)
{
    struct epitem *from = (void *)((u64)node - FIELD_OFFSET(((struct epitem *)0)->rbn));
    struct inode *inode = NULL;
    u32 index = in_tree.count;
    if (index >= EPOLL_ITEMS)
        return false;
    in_tree.count = index + 1;
    bpf_probe_read_kernel(&in_tree.now, 12, &from->ffd);
    if (is_second) {
        if (in_tree.files[index] != (u64)in_tree.now.file ||
            epoll_items.items[index].fd != in_tree.now.fd)
            in_tree.has_changed = true;
        return true;
    }
    in_tree.files[index] = (u64)in_tree.now.file;
    epoll_items.items[index].fd = in_tree.now.fd;
    COPY(inode, in_tree.now.file->f_inode);
    COPY(epoll_items.items[index].ino, inode->i_ino);
    return true;
}

// One step in the order of the tree. False at the end, or if there is no room. The verifier
// examines it once, and not at each step.
GLOBAL int step_in_tree(u32 is_second)
{
    struct rb_node *node = in_tree.node, *child = NULL, *parent = NULL;
    bpf_probe_read_kernel(&in_tree.parent, 24, node);
    if (in_tree.next == LEFT && in_tree.left) {
        in_tree.node = (struct rb_node *)in_tree.left;
        return true;
    }
    if (in_tree.next != PARENT) {
        if (!take_item(node, is_second))
            return false;
        if (in_tree.right) {
            in_tree.node = (struct rb_node *)in_tree.right;
            in_tree.next = LEFT;
            return true;
        }
    }
    // The low bits have the node's colour.
    parent = (struct rb_node *)(in_tree.parent & ~3ul);
    in_tree.node = parent;
    if (parent)
        COPY(child, parent->rb_right);
    in_tree.next = child == node ? PARENT : ITSELF;
    return parent != NULL;
}

// Whether the whole tree was walked.
GLOBAL int walk_tree(u64 address, u32 is_second)
{
    struct eventpoll *from = (void *)address;
    in_tree.node = NULL;
    in_tree.next = ITSELF;
    in_tree.count = 0;
    COPY(in_tree.node, from->rbr.rb_leftmost);
    if (!in_tree.node)
        return true;
    for (int i = 0; i < EPOLL_STEPS; i++)
        if (!step_in_tree(is_second))
            break;
    return !in_tree.node;
}

// Reads what is registered; false if fdinfo must be read. The tree belongs to a lock that a program
// cannot take, so it is walked twice: what changed meanwhile is left to fdinfo.
GLOBAL int read_epoll(u64 address)
{
    in_tree.has_changed = false;
    if (!walk_tree(address, false))
        return false;
    epoll_items.count = in_tree.count;
    return walk_tree(address, true) && !in_tree.has_changed && in_tree.count == epoll_items.count;
}

// How many bytes of the tail are used; 0 if fdinfo must be read.
INLINE u32 describe_epoll(struct epoll_tail *tail, u64 address)
{
    struct rb_node *node = NULL;
    struct epoll_filefd *file = NULL;
    // They are copied as a whole.
    if (FIELD_OFFSET(node->rb_right) != 8 || FIELD_OFFSET(node->rb_left) != 16 ||
        FIELD_OFFSET(file->fd) != FIELD_OFFSET(file->file) + 8)
        return 0;
    if (!read_epoll(address))
        return 0;
    u32 count = epoll_items.count;
    if (count > EPOLL_ITEMS)
        return 0;
    __builtin_memcpy(tail, &epoll_items, sizeof(*tail));
    return sizeof(*tail) - (EPOLL_ITEMS - count) * sizeof(struct epoll_item);
}
