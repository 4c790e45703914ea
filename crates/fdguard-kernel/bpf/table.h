// The table of descriptors: what a number refers to, and comparing two states of the table.
#pragma once

#include "thread.h"

// The open file that a number refers to; 0 if none.
INLINE u64 file_at(struct task_struct *task, u32 fd)
{
    struct files_struct *files = task->files;
    if (!files)
        return 0;
    struct fdtable *table = files->fdt;
    if (fd >= table->max_fds)
        return 0;
    u64 file = 0;
    bpf_probe_read_kernel(&file, sizeof(file), table->fd + fd);
    return file;
}

struct words {
    u64 word[WORDS];
};

struct chunk_key {
    u32 tid;
    u32 chunk;
};

// The bitmaps of threads that are inside a call which may open anything.
MAP(before, .type = MAP_HASH, .key_size = sizeof(struct chunk_key),
    .value_size = sizeof(struct words), .entries = 1 << 16, .flags = MAP_ON_DEMAND);
MAP(scratch, .type = MAP_PERCPU_ARRAY, .key_size = 4, .value_size = sizeof(struct words),
    .entries = 1);

struct bitmap {
    const struct thread *thread;
    u64 words;
    u32 count;
    u32 call;
    u32 lost;
    // While one word is compared.
    u32 first;
    u64 changed;
    u64 now;
    u64 at;
};

INLINE u32 open_bitmap(struct bitmap *bitmap, struct task_struct *task)
{
    struct files_struct *files = task->files;
    if (!files)
        return 0;
    struct fdtable *table = files->fdt;
    bitmap->words = (u64)table->open_fds;
    bitmap->count = table->max_fds / 64;
    return (bitmap->count + WORDS - 1) / WORDS;
}

// Reads a part of the bitmap; what is beyond its end is 0.
INLINE void read_words(struct words *to, const struct bitmap *bitmap, u32 chunk)
{
    u32 length = (bitmap->count - chunk * WORDS) * 8;
    if (length > sizeof(*to))
        length = sizeof(*to);
    __builtin_memset(to, 0, sizeof(*to));
    bpf_probe_read_kernel(to, length, (void *)(bitmap->words + (u64)chunk * sizeof(*to)));
}

static long keep_chunk(u32 chunk, struct bitmap *bitmap)
{
    u32 zero = 0;
    struct words *words = bpf_map_lookup_elem(&scratch, &zero);
    if (!words)
        return 1;
    struct chunk_key key = {.tid = bitmap->thread->tid, .chunk = chunk};
    read_words(words, bitmap, chunk);
    if (bpf_map_update_elem(&before, &key, words, ANY))
        __sync_fetch_and_add(&lost_events, 1);
    return 0;
}

static long report_bit(u32 bit, struct bitmap *bitmap)
{
    if (!(bitmap->changed >> bit & 1))
        return 0;
    u32 fd = bitmap->first + bit;
    bool is_open = bitmap->now >> bit & 1;
    u64 file = is_open ? file_at(bpf_get_current_task_btf(), fd) : 0;
    if (is_open && !file)
        return 0;
    struct thread thread = *bitmap->thread;
    thread.task = bpf_get_current_task_btf();
    struct record *record = reserve(&thread, is_open ? OPENED : CLOSED);
    if (!record)
        return 0;
    record->at = bitmap->at;
    record->fd = fd;
    record->call = bitmap->call;
    record->file = file;
    submit(record);
    return 0;
}

static long compare_chunk(u32 chunk, struct bitmap *bitmap)
{
    u32 zero = 0;
    struct words *now = bpf_map_lookup_elem(&scratch, &zero);
    if (!now)
        return 1;
    struct chunk_key key = {.tid = bitmap->thread->tid, .chunk = chunk};
    struct words *then = bpf_map_lookup_elem(&before, &key);
    // The first part was not kept: nothing is known about the table before the call.
    if (!then && chunk == 0)
        return 1;
    read_words(now, bitmap, chunk);
    for (u32 index = 0; index < WORDS; index++) {
        u64 old = then ? then->word[index] : 0;
        if (old == now->word[index])
            continue;
        bitmap->changed = old ^ now->word[index];
        bitmap->now = now->word[index];
        bitmap->first = chunk * PER_CHUNK + index * 64;
        bpf_loop(64, report_bit, bitmap, 0);
    }
    bpf_map_delete_elem(&before, &key);
    return 0;
}

// Keeps the table as it is before a call.
INLINE void keep_table(const struct thread *thread)
{
    struct bitmap bitmap = {.thread = thread};
    u32 chunks = open_bitmap(&bitmap, thread->task);
    bpf_loop(chunks, keep_chunk, &bitmap, 0);
}

// Reports what is different after it. The time is that of the comparison: what another thread does
// to the same numbers after it is later.
INLINE void compare_table(const struct thread *thread, u32 call)
{
    struct bitmap bitmap = {.thread = thread, .call = call, .at = bpf_ktime_get_ns()};
    u32 chunks = open_bitmap(&bitmap, thread->task);
    bpf_loop(chunks, compare_chunk, &bitmap, 0);
}

static long list_chunk(u32 chunk, struct bitmap *bitmap)
{
    struct numbers *numbers = bpf_ringbuf_reserve(&events, sizeof(*numbers), 0);
    if (!numbers) {
        bitmap->lost = 1;
        return 1;
    }
    __builtin_memset(&numbers->head, 0, sizeof(numbers->head));
    numbers->head.pid = bitmap->thread->pid;
    numbers->head.tid = bitmap->thread->tid;
    numbers->head.kind = NUMBERS;
    numbers->head.fd = chunk * PER_CHUNK;
    read_words((struct words *)numbers->words, bitmap, chunk);
    bpf_ringbuf_submit(numbers, NO_WAKEUP);
    return 0;
}

// Lists every open number of a task that does not run, or is the current one; false if there was no
// room for it.
INLINE bool list_numbers(const struct thread *thread, struct task_struct *task)
{
    struct bitmap bitmap = {.thread = thread};
    u32 chunks = open_bitmap(&bitmap, task);
    bpf_loop(chunks, list_chunk, &bitmap, 0);
    return !bitmap.lost;
}
