// Copied stacks that are recognised without copying them again.
#pragma once

#include "work.h"

// Where a copied stack has return addresses, and which. Another stack with the same registers is the
// same if all of these are equal. User space knows the return addresses after it has unwound the
// stack. Until then, in a burst of the same call, every word that points to code is taken for one:
// among them are all return addresses.
struct template_key {
    u32 pid;
    u32 generation;
    u64 ip;
    u64 sp;
    u64 variant;
};

struct template_slot {
    u64 offset;
    u64 address;
};

struct template {
    u32 number;
    u32 count;
    // Up to the end of the last slot.
    u32 span;
    u32 unused;
    struct template_slot slots[TEMPLATE_SLOTS];
};

MAP(templates, .type = MAP_LRU_HASH, .key_size = sizeof(struct template_key),
    .value_size = sizeof(struct template), .entries = 1 << 12);
MAP(template_space, .type = MAP_PERCPU_ARRAY, .key_size = 4, .value_size = sizeof(struct template),
    .entries = 1);
MAP(stack_space, .type = MAP_PERCPU_ARRAY, .key_size = 4,
    .value_size = sizeof(struct stack_record), .entries = 1);
// How often stacks with these registers were copied.
MAP(copies, .type = MAP_LRU_HASH, .key_size = sizeof(struct template_key), .value_size = 4,
    .entries = 1 << 12);

INLINE struct stack_record *stack_space_of_processor(void)
{
    u32 zero = 0;
    return bpf_map_lookup_elem(&stack_space, &zero);
}

INLINE struct template *template_space_of_processor(void)
{
    u32 zero = 0;
    return bpf_map_lookup_elem(&template_space, &zero);
}

INLINE struct template_key template_key_of(const struct stack_record *stack)
{
    struct template_key key = {.pid = stack->pid, .generation = stack->generation,
                               .ip = stack->ip, .sp = stack->sp};
    return key;
}

static long compare_slot(u32 index, void *unused)
{
    struct stack_record *stack = stack_space_of_processor();
    struct template *template = template_space_of_processor();
    struct work *work = workspace_of_processor();
    if (!stack || !template || !work || index >= TEMPLATE_SLOTS)
        return 1;
    struct template_slot *slot = &template->slots[index];
    u64 address = 0;
    bpf_probe_read_user(&address, sizeof(address), (void *)(stack->sp + slot->offset));
    if (address == slot->address)
        return 0;
    work->is_different = 1;
    return 1;
}

// The same where the memory of the stack was read at once. Nothing is called for a slot.
INLINE bool has_slots(const struct template *known, const struct stack_record *stack, u32 count)
{
    for (u32 index = 0; index < TEMPLATE_SLOTS; index++) {
        if (index >= count)
            return true;
        const struct template_slot *slot = &known->slots[index];
        if (*(u64 *)(stack->memory + (slot->offset & (TEMPLATE_SPAN - 8))) != slot->address)
            return false;
    }
    return true;
}

// Whether the thread's stack has the same return addresses as the template. The memory is read at
// once where that is cheaper: each read costs as much as some hundred bytes.
INLINE bool is_like(struct work *work, const struct template *known, struct stack_record *stack)
{
    u32 near = known->span;
    if (near <= TEMPLATE_SPAN)
        return !bpf_probe_read_user(stack->memory, near, (void *)stack->sp) &&
               has_slots(known, stack, known->count);
    struct template *template = template_space_of_processor();
    u32 size = __builtin_offsetof(struct template, slots) + known->count * sizeof(known->slots[0]);
    // Only the slots that it has.
    if (!template || size > sizeof(*template) || bpf_probe_read_kernel(template, size, known))
        return false;
    work->is_different = 0;
    bpf_loop(template->count, compare_slot, NULL, 0);
    return !work->is_different;
}

// The number of a stack that was sent; 0 if it is not known.
INLINE u32 find_template(struct work *work, struct stack_record *stack)
{
    struct template_key key = template_key_of(stack);
    // Old verifiers lose count of a loop.
#pragma unroll
    for (u32 variant = 0; variant < TEMPLATE_VARIANTS; variant++) {
        key.variant = variant;
        struct template *template = bpf_map_lookup_elem(&templates, &key);
        if (!template)
            return 0;
        // Another template may take its place meanwhile.
        u32 number = *(volatile u32 *)&template->number;
        if (is_like(work, template, stack) && number == *(volatile u32 *)&template->number)
            return number;
    }
    return 0;
}

static long examine_mapping(struct task_struct *task, struct vm_area_struct *mapping, void *unused)
{
    enum { VM_EXEC = 4 };
    struct work *work = workspace_of_processor();
    if (work)
        work->is_code = (mapping->vm_flags & VM_EXEC) != 0;
    return 0;
}

static long examine_word(u32 index, void *unused)
{
    struct stack_record *stack = stack_space_of_processor();
    struct template *template = template_space_of_processor();
    struct work *work = workspace_of_processor();
    if (!stack || !template || !work || index >= STACK_MEMORY / 8)
        return 1;
    u64 value = ((u64 *)stack->memory)[index];
    // Small numbers, addresses of the kernel, and of the stack itself.
    if (value < 0x10000 || value >> 47 || value - (stack->sp & ~0xfffffull) < 0x800000)
        return 0;
    work->is_code = 0;
    bpf_find_vma(current(), value, examine_mapping, NULL, 0);
    if (!work->is_code)
        return 0;
    u32 count = template->count;
    if (count >= TEMPLATE_SLOTS) {
        template->count = 0;
        return 1;
    }
    template->slots[count].offset = index * 8;
    template->slots[count].address = value;
    template->count = count + 1;
    template->span = index * 8 + 8;
    return 0;
}

// Makes a template of the stack that was just copied, if the same was copied before.
GLOBAL int learn_template(u32 number)
{
    struct stack_record *stack = stack_space_of_processor();
    struct template *template = template_space_of_processor();
    if (!stack || !template)
        return 0;
    struct template_key key = template_key_of(stack);
    u32 first = 1;
    u32 *count = bpf_map_lookup_elem(&copies, &key);
    if (!count) {
        bpf_map_update_elem(&copies, &key, &first, ANY);
        return 0;
    }
    u32 before = __sync_fetch_and_add(count, 1);
    // Again and again, but not always: user space knows better soon.
    if (before & (before - 1))
        return 0;
    template->number = number;
    template->count = 0;
    bpf_loop(stack->memory_length / 8, examine_word, NULL, 0);
    if (!template->count)
        return 0;
#pragma unroll
    for (u32 variant = 0; variant < TEMPLATE_VARIANTS; variant++) {
        key.variant = variant;
        if (!bpf_map_lookup_elem(&templates, &key))
            break;
    }
    bpf_map_update_elem(&templates, &key, template, ANY);
    return 0;
}
