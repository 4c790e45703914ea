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
} in_tree;

INLINE void read_item(struct epoll_item *to, struct rb_node *node)
{
    struct epitem *from = (void *)((u64)node - FIELD_OFFSET(((struct epitem *)0)->rbn));
    struct file *file = NULL;
    struct inode *inode = NULL;
    COPY(to->fd, from->ffd.fd);
    COPY(file, from->ffd.file);
    COPY(inode, file->f_inode);
    COPY(to->ino, inode->i_ino);
}

// The first time an item is kept, the second time it is compared. False if there is no room.
INLINE bool take_item(struct epoll_tail *tail, struct rb_node *node, bool is_second)
{
    struct epoll_item item = {};
    u32 index = in_tree.count;
    if (index >= EPOLL_ITEMS)
        return false;
    read_item(&item, node);
    if (!is_second) {
        tail->items[index].fd = item.fd;
        tail->items[index].ino = item.ino;
    } else if (tail->items[index].fd != item.fd || tail->items[index].ino != item.ino) {
        in_tree.has_changed = true;
    }
    in_tree.count = index + 1;
    return true;
}

// The registrations of the last epoll instance. One reader at a time: the loader sees to it.
struct epoll_tail epoll_items;

// One step in the order of the tree. False at the end, or if there is no room. The verifier
// examines it once, and not at each step.
GLOBAL int step_in_tree(u32 is_second)
{
    struct rb_node *node = in_tree.node, *child = NULL, *parent = NULL;
    unsigned long word = 0;
    if (in_tree.next == LEFT) {
        COPY(child, node->rb_left);
        if (child) {
            in_tree.node = child;
            return true;
        }
    }
    if (in_tree.next != PARENT) {
        if (!take_item(&epoll_items, node, is_second))
            return false;
        child = NULL;
        COPY(child, node->rb_right);
        if (child) {
            in_tree.node = child;
            in_tree.next = LEFT;
            return true;
        }
    }
    // The low bits have the node's colour.
    COPY(word, node->__rb_parent_color);
    parent = (struct rb_node *)(word & ~3ul);
    in_tree.node = parent;
    child = NULL;
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
    if (!read_epoll(address))
        return 0;
    u32 count = epoll_items.count;
    if (count > EPOLL_ITEMS)
        return 0;
    __builtin_memcpy(tail, &epoll_items, sizeof(*tail));
    return sizeof(*tail) - (EPOLL_ITEMS - count) * sizeof(struct epoll_item);
}
