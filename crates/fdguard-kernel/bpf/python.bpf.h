// The frames of CPython, walked in the thread that makes the call.
//
// User space says where an interpreter keeps what is read (decision 101). The thread state must
// name this thread, and every code object must have the interpreter's type of code objects: what
// fails is not Python, or has another layout, and yields no frames.
//
// A code object is copied when a frame of it is first seen: it may be gone, with its process, when
// user space reads the record.
#pragma once

#include "table.h"
#include "template.h"
#include "work.h"

// Entries from C and frames that are being created are skipped.
#define PYTHON_STEPS (3 * STACK_FRAMES)
#define PYTHON_OBJECT 256
#define PYTHON_FILE 2048
#define PYTHON_NAME 1024
#define PYTHON_LINES 16384

enum { OWNED_BY_GENERATOR = 1, OWNED_BY_C_STACK = 3 };

// glibc on x86-64 keeps the values of a thread in blocks of 32 pairs (sequence, value). The first
// block is in struct pthread, and 32 pointers to blocks follow it. The thread state that is found so
// must name the thread.
enum { FIRST_BLOCK = 0x310, THREAD_BLOCKS = 0x510, BLOCK_KEYS = 32, THREAD_KEYS = 1024 };

// As PythonLayout::to_bytes has it. In python_files the addresses are the file's own.
struct python_layout {
    u64 runtime;
    u64 code_type;
    // Of the executable segment: its address, and its offset in the file.
    u64 segment_address;
    u64 segment_offset;
    u16 minor;
    u16 runtime_finalizing;
    u16 runtime_thread_key;
    u16 thread_frame;
    u16 thread_id;
    u16 cframe_current;
    u16 frame_span;
    u16 frame_code;
    u16 frame_back;
    u16 frame_instruction;
    u16 frame_owner;
    u16 object_type;
    u16 code_size;
    u16 code_filename;
    u16 code_name;
    u16 code_first_line;
    u16 code_first_traceable;
    u16 code_start;
    u16 code_lines;
    u16 unicode_length;
    u16 unicode_state;
    u16 unicode_ascii;
    u16 unicode_compact;
    u16 state_kind_shift;
    u16 state_is_compact;
    u16 state_is_ascii;
    u16 bytes_length;
    u16 bytes_start;
    // Written here, not by user space.
    u32 known_key;
    u32 unused;
};

struct python_file_key {
    u64 inode;
    u64 device;
};

struct python_code_key {
    u64 code;
    u64 identity;
    u32 pid;
    u32 generation;
};

// A code object and what it refers to, as in memory.
struct python_code {
    // As a stack_record begins, with the version instead of the number.
    u32 minor;
    u32 pid;
    u32 generation;
    u32 kind;
    u64 code;
    u64 identity;
    // PYTHON_LINES if the table was not copied.
    u64 lines_size;
    u8 object[PYTHON_OBJECT];
    u8 file[PYTHON_FILE];
    u8 name[PYTHON_NAME];
    u8 lines[PYTHON_LINES];
};

struct python_walk {
    struct python_layout layout;
    u64 next;
    u64 hash;
    u64 count;
    u8 thread[256];
    u8 frame[256];
    u8 object[256];
    struct python_code code;
};

MAP(python_processes, .type = MAP_HASH, .key_size = 4, .value_size = sizeof(struct python_layout),
    .entries = 8192, .flags = MAP_ON_DEMAND);
MAP(python_files, .type = MAP_HASH, .key_size = sizeof(struct python_file_key),
    .value_size = sizeof(struct python_layout), .entries = 256, .flags = MAP_ON_DEMAND);
MAP(python_codes, .type = MAP_LRU_HASH, .key_size = sizeof(struct python_code_key),
    .value_size = 4, .entries = 32768);
MAP(python_walks, .type = MAP_PERCPU_ARRAY, .key_size = 4, .value_size = sizeof(struct python_walk),
    .entries = 1);

// Fields of what was copied; the masks show the verifier that they are inside.
#define PYTHON_WORD(buffer, at) (*(u64 *)&(buffer)[(at) & 0xf8])
#define PYTHON_INT(buffer, at) (*(s32 *)&(buffer)[(at) & 0xfc])
#define PYTHON_BYTE(buffer, at) ((buffer)[(at) & 0xff])

INLINE struct python_walk *walk_of_processor(void)
{
    u32 zero = 0;
    return bpf_map_lookup_elem(&python_walks, &zero);
}

INLINE u64 python_mix(u64 hash, u64 word)
{
    hash = (hash ^ word) * 0x9e3779b97f4a7c15ull;
    return hash ^ hash >> 29;
}

// The key under which the interpreter keeps thread states, plus 1; 0 if there is none yet. It is
// remembered while it leads to thread states.
INLINE u32 python_thread_key(struct python_layout *layout)
{
    if (layout->known_key)
        return layout->known_key;
    struct {
        s32 is_initialized;
        u32 key;
    } tss = {};
    u64 place = layout->runtime + layout->runtime_thread_key;
    bpf_probe_read_user(&tss, sizeof(tss), (void *)place);
    if (tss.is_initialized != 1 || tss.key >= THREAD_KEYS)
        return 0;
    layout->known_key = tss.key + 1;
    return layout->known_key;
}

// The value of this thread for a key; 0 if it has none.
INLINE u64 thread_value(u64 self, u32 key)
{
    u64 value = 0, block = self + FIRST_BLOCK;
    if (key >= BLOCK_KEYS)
        bpf_probe_read_user(&block, sizeof(block),
                            (void *)(self + THREAD_BLOCKS + key / BLOCK_KEYS * 8));
    bpf_probe_read_user(&value, sizeof(value), (void *)(block + key % BLOCK_KEYS * 16 + 8));
    return value;
}

// Finds the thread state of this thread by the interpreter's key, as PyGILState_GetThisThreadState
// does. False if the thread runs no Python.
INLINE bool find_python_thread(struct python_walk *walk, struct python_layout *layout)
{
    const struct python_layout *at = &walk->layout;
    u64 self = current()->thread.fsbase;
    u32 key = python_thread_key(layout);
    u64 thread = key ? thread_value(self, key - 1) : 0;
    if (!thread || bpf_probe_read_user(walk->thread, (at->thread_id + 8) & 0xff, (void *)thread) ||
        PYTHON_WORD(walk->thread, at->thread_id) != self) {
        layout->known_key = 0;
        return false;
    }
    // Who finalizes the interpreter frees the states of the other threads.
    u64 finalizing = 0;
    if (bpf_probe_read_user(&finalizing, sizeof(finalizing),
                            (void *)(at->runtime + at->runtime_finalizing)))
        return false;
    return finalizing == 0 || finalizing == thread;
}

// Whether the interpreter of a process is cleaning up at its exit: what it closes now was left open.
INLINE bool is_python_finalizing(u32 pid)
{
    struct python_layout *layout = bpf_map_lookup_elem(&python_processes, &pid);
    u64 finalizing = 0;
    if (!layout)
        return false;
    bpf_probe_read_user(&finalizing, sizeof(finalizing),
                        (void *)(layout->runtime + layout->runtime_finalizing));
    return finalizing != 0;
}

// Bytes into the code.
INLINE s64 python_instruction(const struct python_walk *walk, u64 code)
{
    const struct python_layout *at = &walk->layout;
    if (at->minor <= 10) {
        s64 last = PYTHON_INT(walk->frame, at->frame_instruction);
        return at->minor == 10 ? last * 2 : last;
    }
    return PYTHON_WORD(walk->frame, at->frame_instruction) - (code + at->code_start);
}

INLINE u64 python_identity(const struct python_walk *walk)
{
    const struct python_layout *at = &walk->layout;
    u64 identity = python_mix(0, PYTHON_WORD(walk->object, at->code_filename));
    identity = python_mix(identity, PYTHON_WORD(walk->object, at->code_name));
    return python_mix(identity, (u32)PYTHON_INT(walk->object, at->code_first_line));
}

static long walk_python_frame(u32 index, void *unused)
{
    struct python_walk *walk = walk_of_processor();
    struct stack_record *stack = stack_space_of_processor();
    if (!walk || !stack || !walk->next || walk->next & 7 || walk->count >= STACK_FRAMES)
        return 1;
    const struct python_layout *at = &walk->layout;
    if (bpf_probe_read_user(walk->frame, at->frame_span & 0xff, (void *)walk->next))
        return 1;
    walk->next = PYTHON_WORD(walk->frame, at->frame_back);
    u8 owner = at->minor <= 10 ? OWNED_BY_GENERATOR : PYTHON_BYTE(walk->frame, at->frame_owner);
    if (owner >= OWNED_BY_C_STACK)
        return owner > OWNED_BY_C_STACK;
    u64 code = PYTHON_WORD(walk->frame, at->frame_code);
    if (bpf_probe_read_user(walk->object, at->code_size & 0xff, (void *)code))
        return 1;
    if (PYTHON_WORD(walk->object, at->object_type) != at->code_type)
        return 1;
    s64 instruction = python_instruction(walk, code);
    if (instruction < -2 || instruction > 1 << 30)
        return 1;
    if (owner != OWNED_BY_GENERATOR &&
        instruction < 2 * (s64)PYTHON_INT(walk->object, at->code_first_traceable))
        return 0;
    struct language_frame *frame = &stack->language[walk->count & (STACK_FRAMES - 1)];
    frame->code = code;
    frame->identity = python_identity(walk);
    frame->instruction = instruction;
    frame->unused = 0;
    walk->hash = python_mix(python_mix(walk->hash, code ^ frame->identity), instruction);
    walk->count++;
    return 0;
}

// Walks the calling thread. False if it has no frame.
INLINE bool walk_python(struct python_walk *walk, struct python_layout *layout)
{
    walk->layout = *layout;
    if (!find_python_thread(walk, layout))
        return false;
    u64 next = PYTHON_WORD(walk->thread, walk->layout.thread_frame);
    // In 3.11 and 3.12 the frame is found through the C stack.
    if (walk->layout.minor == 11 || walk->layout.minor == 12) {
        u64 place = next + walk->layout.cframe_current;
        if (bpf_probe_read_user(&next, sizeof(next), (void *)place))
            return false;
    }
    walk->next = next;
    walk->count = 0;
    walk->hash = 1;
    bpf_loop(PYTHON_STEPS, walk_python_frame, NULL, 0);
    return walk->count > 0;
}

// Copies a string object: how it begins, and its characters. Zeros if that is not possible.
INLINE void copy_python_string(const struct python_layout *at, u8 *to, u32 most, u64 string)
{
    if (!bpf_probe_read_user(to, at->unicode_ascii & 0x3f, (void *)string)) {
        u64 length = PYTHON_WORD(to, at->unicode_length);
        u32 state = PYTHON_INT(to, at->unicode_state);
        u64 size = state & at->state_is_ascii ? at->unicode_ascii : at->unicode_compact;
        size += (length & 0xffff) * (state >> (at->state_kind_shift & 31) & 7);
        if (length <= most && size <= most && state & at->state_is_compact &&
            !bpf_probe_read_user(to, size, (void *)string))
            return;
    }
    __builtin_memset(to, 0, 64);
}

static long send_python_code(u32 index, void *unused)
{
    struct python_walk *walk = walk_of_processor();
    struct work *work = workspace_of_processor();
    struct stack_record *stack = stack_space_of_processor();
    if (!walk || !work || !stack || index >= walk->count)
        return 1;
    const struct python_layout *at = &walk->layout;
    const struct language_frame *frame = &stack->language[index & (STACK_FRAMES - 1)];
    struct python_code_key key = {.code = frame->code, .identity = frame->identity,
                                  .pid = work->pid, .generation = work->generation};
    if (bpf_map_lookup_elem(&python_codes, &key))
        return 0;
    struct python_code *code = &walk->code;
    code->minor = at->minor;
    code->pid = work->pid;
    code->generation = work->generation;
    code->kind = PYTHON_CODE;
    code->code = frame->code;
    code->identity = frame->identity;
    if (bpf_probe_read_user(code->object, at->code_size & 0xff, (void *)frame->code))
        return 0;
    copy_python_string(at, code->file, PYTHON_FILE, PYTHON_WORD(code->object, at->code_filename));
    copy_python_string(at, code->name, PYTHON_NAME, PYTHON_WORD(code->object, at->code_name));
    u64 lines = PYTHON_WORD(code->object, at->code_lines);
    u64 size = PYTHON_LINES;
    bpf_probe_read_user(&size, sizeof(size), (void *)(lines + at->bytes_length));
    code->lines_size = PYTHON_LINES;
    u32 copied = 0;
    if (size < PYTHON_LINES) {
        copied = size & (PYTHON_LINES - 1);
        if (bpf_probe_read_user(code->lines, copied, (void *)(lines + at->bytes_start)))
            copied = 0;
        else
            code->lines_size = copied;
    }
    u32 one = 1;
    u32 length = __builtin_offsetof(struct python_code, lines) + (copied & (PYTHON_LINES - 1));
    if (!bpf_ringbuf_output(&stacks, code, length, NO_WAKEUP))
        bpf_map_update_elem(&python_codes, &key, &one, ANY);
    return 0;
}

// Reads the interpreter's frames of the current thread into `language`, sets their count, and
// answers a hash of them; 0 if there are none.
INLINE u64 read_python_frames(const struct work *work, struct stack_record *stack)
{
    struct python_layout *layout = bpf_map_lookup_elem(&python_processes, &work->pid);
    struct python_walk *walk = walk_of_processor();
    if (!layout || !walk || !walk_python(walk, layout))
        return 0;
    stack->language_count = walk->count;
    return walk->hash;
}

// Sends the code objects of these frames, as far as they were not sent.
INLINE void send_python_codes(void)
{
    bpf_loop(STACK_FRAMES, send_python_code, NULL, 0);
}

INLINE struct python_file_key python_key_of(u64 file)
{
    u64 inode = (u64)READ(file, file, f_inode);
    struct python_file_key key = {
        .inode = READ(inode, inode, i_ino),
        .device = READ(super_block, READ(inode, inode, i_sb), s_dev),
    };
    return key;
}

// Takes a process for Python that has mapped a file which is known to be. The mapping begins in the
// file's segment of code: at this offset, or with the segment if the program was executed.
INLINE void recognise_python(u32 pid, u64 file, u64 start, u64 offset, u32 is_program)
{
    struct python_file_key key = python_key_of(file);
    struct python_layout *known = bpf_map_lookup_elem(&python_files, &key);
    if (!known)
        return;
    struct python_layout layout = *known;
    u64 bias = (start & ~4095ull) - layout.segment_address;
    if (!is_program)
        bias -= offset - layout.segment_offset;
    layout.runtime += bias;
    layout.code_type += bias;
    bpf_map_update_elem(&python_processes, &pid, &layout, ANY);
    struct process *process = bpf_map_lookup_elem(&followed, &pid);
    struct process changed = {
        .mode = MODE_PYTHON, .generation = process ? process->generation : 0};
    bpf_map_update_elem(&followed, &pid, &changed, ANY);
}

// A child has its parent's memory.
INLINE void after_python_fork(u32 parent, u32 child)
{
    struct python_layout *layout = bpf_map_lookup_elem(&python_processes, &parent);
    if (layout)
        bpf_map_update_elem(&python_processes, &child, layout, ANY);
}
