// The table of descriptors: what a number refers to, and comparing two states of the table.
#pragma once

#include "work.h"

// The open file that a number of the current task refers to; 0 if none.
GLOBAL u64 file_at(u32 fd)
{
    struct files_struct *files = current()->files;
    if (!files)
        return 0;
    struct fdtable *table = files->fdt;
    if (fd >= table->max_fds)
        return 0;
    u64 file = 0;
    bpf_probe_read_kernel(&file, sizeof(file), table->fd + fd);
    return file;
}

struct chunk_key {
    u32 tid;
    u32 chunk;
};

// The bitmaps of threads that are inside a call which may open anything.
MAP(before, .type = MAP_HASH, .key_size = sizeof(struct chunk_key),
    .value_size = sizeof(struct words), .entries = 1 << 16, .flags = MAP_ON_DEMAND);

// Begins a walk over the bitmap of a table, and answers in how many parts it is.
INLINE u32 open_bitmap(struct work *work, u64 files)
{
    work->is_incomplete = 0;
    work->word_count = 0;
    if (!files)
        return 0;
    u64 table = (u64)READ(files_struct, files, fdt);
    work->bitmap = (u64)READ(fdtable, table, open_fds);
    work->word_count = READ(fdtable, table, max_fds) / 64;
    return (work->word_count + WORDS - 1) / WORDS;
}

// Reads a part of the bitmap; what is beyond its end is 0.
INLINE void read_words(struct words *to, const struct work *work, u32 chunk)
{
    u32 length = (work->word_count - chunk * WORDS) * 8;
    if (length > sizeof(*to))
        length = sizeof(*to);
    __builtin_memset(to, 0, sizeof(*to));
    bpf_probe_read_kernel(to, length, (void *)(work->bitmap + (u64)chunk * sizeof(*to)));
}

static long keep_chunk(u32 chunk, void *unused)
{
    struct work *work = workspace_of_processor();
    if (!work)
        return 1;
    struct chunk_key key = {.tid = work->tid, .chunk = chunk};
    read_words(&work->words, work, chunk);
    if (bpf_map_update_elem(&before, &key, &work->words, ANY))
        __sync_fetch_and_add(&lost_events, 1);
    return 0;
}

static long report_bit(u32 bit, void *unused)
{
    struct work *work = workspace_of_processor();
    if (!work || !(work->changed >> (bit & 63) & 1))
        return 0;
    u32 fd = work->first + bit;
    bool is_open = work->now >> (bit & 63) & 1;
    work->has_grown |= is_open;
    if (!work->is_reported)
        return 0;
    u64 file = is_open ? file_at(fd) : 0;
    if (is_open && !file)
        return 0;
    struct record *record = reserve(work, is_open ? OPENED : CLOSED);
    if (!record)
        return 0;
    record->at = work->at;
    record->fd = fd;
    record->call = work->call;
    record->file = file;
    record->stack = is_open ? work->stack : 0;
    submit(record);
    return 0;
}

static long compare_word(u32 index, void *unused)
{
    struct work *work = workspace_of_processor();
    if (!work || index >= WORDS)
        return 1;
    struct chunk_key key = {.tid = work->tid, .chunk = work->chunk};
    struct words *then = bpf_map_lookup_elem(&before, &key);
    u64 old = then ? then->word[index] : 0;
    work->now = work->words.word[index];
    work->changed = old ^ work->now;
    work->first = work->chunk * PER_CHUNK + index * 64;
    if (work->changed)
        bpf_loop(64, report_bit, NULL, 0);
    return 0;
}

static long compare_chunk(u32 chunk, void *unused)
{
    struct work *work = workspace_of_processor();
    if (!work)
        return 1;
    struct chunk_key key = {.tid = work->tid, .chunk = chunk};
    // The first part was not kept: nothing is known about the table before the call.
    if (chunk == 0 && !bpf_map_lookup_elem(&before, &key))
        return 1;
    read_words(&work->words, work, chunk);
    work->chunk = chunk;
    u32 words = work->word_count - chunk * WORDS;
    bpf_loop(words < WORDS ? words : WORDS, compare_word, NULL, 0);
    if (work->is_reported)
        bpf_map_delete_elem(&before, &key);
    return 0;
}

// Keeps the table as it is before a call.
GLOBAL int keep_table(void)
{
    struct work *work = workspace_of_processor();
    if (!work)
        return 0;
    u32 chunks = open_bitmap(work, work->table);
    bpf_loop(chunks, keep_chunk, NULL, 0);
    return 0;
}

// Compares it with the table after the call, and answers whether something was opened. If it is
// reported, the time is that of the comparison: what another thread does to the same numbers after
// it is later.
GLOBAL int compare_table(u32 is_reported)
{
    struct work *work = workspace_of_processor();
    if (!work)
        return 0;
    work->is_reported = is_reported;
    work->has_grown = 0;
    u32 chunks = open_bitmap(work, work->table);
    work->at = bpf_ktime_get_ns();
    bpf_loop(chunks, compare_chunk, NULL, 0);
    return work->has_grown;
}

// Whether the call has opened something: only then is its stack of interest.
INLINE bool table_grew(void)
{
    return compare_table(false);
}

static long list_chunk(u32 chunk, void *unused)
{
    struct work *work = workspace_of_processor();
    if (!work)
        return 1;
    struct numbers *numbers = bpf_ringbuf_reserve(&events, sizeof(*numbers), 0);
    if (!numbers) {
        work->is_incomplete = 1;
        return 1;
    }
    __builtin_memset(&numbers->head, 0, sizeof(numbers->head));
    numbers->head.pid = work->pid;
    numbers->head.tid = work->tid;
    numbers->head.kind = NUMBERS;
    numbers->head.fd = chunk * PER_CHUNK;
    read_words((struct words *)numbers->words, work, chunk);
    bpf_ringbuf_submit(numbers, NO_WAKEUP);
    return 0;
}

GLOBAL int list_chunks(u32 chunks)
{
    bpf_loop(chunks, list_chunk, NULL, 0);
    return 0;
}

// Lists every open number of a table that does not change now; false if there was no room for it.
INLINE bool list_numbers(struct work *work, u64 files)
{
    list_chunks(open_bitmap(work, files));
    return !work->is_incomplete;
}
