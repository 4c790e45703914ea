// Goroutines: which one makes a call, and who created it. A library often opens on a goroutine of
// its own, whose stack does not lead to the program's line; the stack of its `go` statement does.
//
// The stack of the creator is read when the goroutine is created, at an instruction of Go's runtime
// (src/goroutine.rs says which). Each goroutine keeps the stacks of its last three creators by their
// hashes, so that a program that creates goroutines for ever needs no more room.
//
// User space removes the probe where no open needs it, and attaches it again when one does (decision
// 112). Meanwhile the runtime uses the memory of ended goroutines for new ones, of which nothing is
// known: the epoch tells them apart.
#pragma once

#include "work.h"

// Where Go keeps what is read here, in bytes; it depends on the version of Go.
struct go_layout {
    // Of the process: another program may have its number.
    u32 generation;
    // In a goroutine: its machine thread, where it stopped, and the frame pointer there.
    u32 thread;
    u32 stopped;
    u32 stopped_bp;
    // Its number, and the address of the `go` statement; 0 if unknown.
    u32 id;
    u32 created_at;
    // In a machine thread: the goroutine that runs on it.
    u32 running;
    // Which of go_programs it is.
    u32 program;
};

// A program whose new goroutines are seen, now or at times.
struct go_program {
    struct go_layout layout;
    // Odd while the probe is attached; the next number after each change.
    u32 epoch;
    u32 unused;
    // How many goroutines were seen to be created.
    u64 created;
};

struct goroutine_key {
    u32 pid;
    u32 generation;
    u64 address;
};

enum { CREATORS = 3, CREATOR_FRAMES = 20 };

// The hashes of the creators' stacks, the nearest first; 0 for none.
struct creators {
    u64 stacks[CREATORS];
    // The goroutine's number, once it has opened something: at its creation it has none.
    u64 id;
    u64 epoch;
};

// Zeros follow the last frame.
struct creator_stack {
    u64 frames[CREATOR_FRAMES];
};

// The layouts by the number that the attached instruction has, and by process.
MAP(go_programs, .type = MAP_ARRAY, .key_size = 4, .value_size = sizeof(struct go_program),
    .entries = GO_PROGRAMS);
MAP(go_processes, .type = MAP_HASH, .key_size = 4, .value_size = sizeof(struct go_layout),
    .entries = 8192, .flags = MAP_ON_DEMAND);
MAP(goroutines, .type = MAP_LRU_HASH, .key_size = sizeof(struct goroutine_key),
    .value_size = sizeof(struct creators), .entries = 1 << 16);
// The key has a hash where the one of a goroutine has an address.
MAP(creator_stacks, .type = MAP_LRU_HASH, .key_size = sizeof(struct goroutine_key),
    .value_size = sizeof(struct creator_stack), .entries = 1 << 13);

INLINE u64 user_word(u64 address)
{
    u64 word = 0;
    if (bpf_probe_read_user(&word, sizeof(word), (void *)address))
        return 0;
    return word;
}

INLINE u64 mix(u64 hash, u64 value)
{
    hash = (hash ^ value) * 0x9e3779b97f4a7c15ull;
    return hash ^ hash >> 29;
}

// The goroutine that runs on the thread of `g`, which may be the scheduler's; 0 if `g` is none.
INLINE u64 running_goroutine(const struct go_layout *layout, u64 g)
{
    u64 thread = g ? user_word(g + layout->thread) : 0;
    u64 running = thread ? user_word(thread + layout->running) : 0;
    if (!running || user_word(running + layout->thread) != thread)
        return 0;
    // The first word of a machine thread is the scheduler's goroutine.
    return g == running || g == user_word(thread) ? running : 0;
}

// Follows the frame pointers of a goroutine that stopped, and answers a hash; 0 without frames.
INLINE u64 read_creator(struct creator_stack *stack, u64 bp)
{
    struct {
        u64 bp;
        u64 address;
    } frame;
    u64 hash = 1;
    for (u32 index = 0; index < CREATOR_FRAMES; index++) {
        stack->frames[index] = 0;
        if (!bp || bpf_probe_read_user(&frame, sizeof(frame), (void *)bp) || !frame.address) {
            bp = 0;
            continue;
        }
        stack->frames[index] = frame.address;
        hash = mix(hash, frame.address);
        // Stacks grow downwards: callers are above.
        bp = frame.bp > bp ? frame.bp : 0;
    }
    return stack->frames[0] ? hash : 0;
}

// The runtime has just set up a new goroutine, on the scheduler's stack of the creator's thread.
SEC("uprobe/go")
int after_go_statement(struct pt_regs *regs)
{
    struct process *process = followed_process();
    u32 number = bpf_get_attach_cookie(regs);
    struct go_program *program = bpf_map_lookup_elem(&go_programs, &number);
    if (!process || !program)
        return 0;
    struct go_layout *layout = &program->layout;
    __sync_fetch_and_add(&program->created, 1);
    struct goroutine_key key = {.pid = followed_number(), .generation = process->generation};
    u32 pid = key.pid;
    struct go_layout *known = bpf_map_lookup_elem(&go_processes, &pid);
    if (!known || known->generation != key.generation) {
        struct go_layout own = *layout;
        own.generation = key.generation;
        bpf_map_update_elem(&go_processes, &pid, &own, ANY);
        process->mode = MODE_FRAME_POINTERS;
    }
    struct creators creators = {.epoch = program->epoch};
    u64 creator = running_goroutine(layout, regs->r14);
    u64 created = regs->ax - layout->stopped;
    if (creator) {
        struct creator_stack stack;
        u64 hash = read_creator(&stack, user_word(creator + layout->stopped_bp));
        creators.stacks[0] = hash;
        key.address = hash;
        if (hash && !bpf_map_lookup_elem(&creator_stacks, &key))
            bpf_map_update_elem(&creator_stacks, &key, &stack, ANY);
        key.address = creator;
        struct creators *older = bpf_map_lookup_elem(&goroutines, &key);
        if (older && older->epoch == creators.epoch) {
            creators.stacks[1] = older->stacks[0];
            creators.stacks[2] = older->stacks[1];
        }
    }
    key.address = created;
    bpf_map_update_elem(&goroutines, &key, &creators, ANY);
    return 0;
}

// Whether these are the creators of the goroutine with this number, not of an ended one that had
// the same memory.
INLINE bool are_creators_of(struct creators *creators, const struct go_layout *layout, u64 id)
{
    if (creators->id)
        return creators->id == id;
    u32 number = layout->program;
    struct go_program *program = bpf_map_lookup_elem(&go_programs, &number);
    if (!program || !(program->epoch & 1) || creators->epoch != program->epoch)
        return false;
    creators->id = id;
    return true;
}

// Adds the goroutine of a call and its creators to a stack, and answers a hash of them.
INLINE u64 read_goroutine(const struct work *work, struct stack_record *stack, u64 g)
{
    u32 pid = work->pid;
    struct go_layout *layout = bpf_map_lookup_elem(&go_processes, &pid);
    if (!layout || layout->generation != work->generation)
        return 0;
    u64 goroutine = running_goroutine(layout, g);
    if (!goroutine)
        return 0;
    if (layout->id)
        stack->goroutine = user_word(goroutine + layout->id);
    if (layout->created_at)
        stack->created_at = user_word(goroutine + layout->created_at);
    u64 hash = mix(1, stack->created_at);
    struct goroutine_key key = {
        .pid = work->pid, .generation = work->generation, .address = goroutine};
    struct creators *creators = bpf_map_lookup_elem(&goroutines, &key);
    if (!creators || !are_creators_of(creators, layout, stack->goroutine))
        return hash;
    // As many words for each, whatever its length: the verifier follows every length of a loop.
    u32 count = 0;
#pragma unroll
    for (u32 level = 0; level < CREATORS; level++) {
        key.address = creators->stacks[level];
        struct creator_stack *creator = bpf_map_lookup_elem(&creator_stacks, &key);
        if (!key.address || !creator)
            break;
        hash = mix(hash, key.address);
        bpf_probe_read_kernel(&stack->creator[level * CREATOR_FRAMES], sizeof(creator->frames),
                              creator->frames);
        count = (level + 1) * CREATOR_FRAMES;
    }
    stack->creator_count = count;
    return hash;
}
