// Stacks of the calling thread, each sent once.
#pragma once

#include "goroutine.h"
#include "python.bpf.h"
#include "template.h"
#include "work.h"

// A stack that was sent: by a hash of its frames.
struct stack_key {
    u32 pid;
    u32 generation;
    u64 hash;
};

MAP(stack_numbers, .type = MAP_LRU_HASH, .key_size = sizeof(struct stack_key), .value_size = 4,
    .entries = 1 << 14);

MAP(stacks, .type = MAP_RINGBUF, .entries = 1 << 24);
u32 next_stack;

// Sends the stack in the processor's space; 0 if there is no room.
INLINE u32 send_stack(struct stack_record *stack, u64 size)
{
    stack->number = __sync_fetch_and_add(&next_stack, 1) + 1;
    if (!bpf_ringbuf_output(&stacks, stack, size, NO_WAKEUP))
        return stack->number;
    __sync_fetch_and_add(&lost_stacks, 1);
    return 0;
}

// Sends it unless one with the same frames was sent before.
INLINE u32 send_once(const struct work *work, struct stack_record *stack, u64 hash, u64 size)
{
    struct stack_key key = {.pid = work->pid, .generation = work->generation, .hash = hash};
    u32 *known = bpf_map_lookup_elem(&stack_numbers, &key);
    if (known)
        return *known;
    u32 number = send_stack(stack, size);
    if (number)
        bpf_map_update_elem(&stack_numbers, &key, &number, ANY);
    return number;
}

static long mix_frame(u32 index, void *unused)
{
    struct stack_record *stack = stack_space_of_processor();
    struct work *work = workspace_of_processor();
    if (!stack || !work || index >= STACK_FRAMES)
        return 1;
    work->hash = mix(work->hash, stack->frames[index]);
    return 0;
}

INLINE u32 send_frames(struct work *work, struct stack_record *stack)
{
    long size = bpf_get_task_stack(current(), stack->frames, sizeof(stack->frames), USER_STACK);
    if (size <= 0)
        return 0;
    work->hash = read_goroutine(work, stack, bpf_task_pt_regs(current())->r14);
    bpf_loop((u64)size / 8, mix_frame, NULL, 0);
    stack->kind = STACK_OF_FRAMES;
    stack->frame_count = (u64)size / 8;
    return send_once(work, stack, work->hash, OFFSET_OF_MEMORY);
}

static long copy_chunk(u32 index, void *unused)
{
    struct stack_record *stack = stack_space_of_processor();
    if (!stack)
        return 1;
    u64 length = stack->memory_length;
    if (length > STACK_MEMORY - STACK_CHUNK)
        return 1;
    if (bpf_probe_read_user(stack->memory + length, STACK_CHUNK, (void *)(stack->sp + length)))
        return 1;
    stack->memory_length = length + STACK_CHUNK;
    return 0;
}

// Copies the memory from the stack pointer on, until it cannot be read. The parts end where pages
// may end.
INLINE u32 copy_memory(struct stack_record *stack)
{
    u32 length = STACK_CHUNK - (stack->sp & (STACK_CHUNK - 1));
    if (bpf_probe_read_user(stack->memory, length, (void *)stack->sp))
        return 0;
    stack->memory_length = length;
    bpf_loop(STACK_MEMORY / STACK_CHUNK - 1, copy_chunk, NULL, 0);
    return stack->memory_length;
}

INLINE u32 send_copied(struct work *work, struct stack_record *stack)
{
    u32 number = find_template(work, stack);
    if (number)
        return number;
    u32 length = copy_memory(stack);
    if (!length || length > STACK_MEMORY)
        return 0;
    stack->kind = STACK_OF_MEMORY;
    number = send_stack(stack, OFFSET_OF_MEMORY + length);
    if (number)
        learn_template(number);
    return number;
}

// The number of the current thread's stack; 0 if none was taken.
GLOBAL u32 take_stack(void)
{
    struct work *work = workspace_of_processor();
    struct stack_record *stack = stack_space_of_processor();
    if (!work || !stack || work->mode == MODE_NONE)
        return 0;
    struct pt_regs *regs = bpf_task_pt_regs(current());
    stack->pid = work->pid;
    stack->generation = work->generation;
    stack->ip = regs->ip;
    stack->sp = regs->sp;
    stack->bp = regs->bp;
    stack->frame_count = 0;
    stack->language_count = 0;
    stack->creator_count = 0;
    stack->memory_length = 0;
    stack->goroutine = 0;
    stack->created_at = 0;
    if (work->mode == MODE_FRAME_POINTERS)
        return send_frames(work, stack);
    if (work->mode == MODE_PYTHON) {
        u64 hash = read_python_frames(work, stack);
        stack->kind = STACK_OF_LANGUAGE;
        if (hash)
            return send_once(work, stack, hash, OFFSET_OF_MEMORY);
    }
    return send_copied(work, stack);
}
