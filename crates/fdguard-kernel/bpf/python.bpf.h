/* The frames of CPython, walked in the thread that made the call.
 *
 * User space says where an interpreter keeps what is read (struct python_layout, decision 101). The
 * thread state must name this thread, and every code object must have the interpreter's type of
 * code: what fails is not Python, or not this layout, and yields no frames.
 *
 * A code object is copied when a frame of it is first seen: it may be gone, with its process, when
 * user space reads the record.
 */
#ifndef FDGUARD_PYTHON_BPF_H
#define FDGUARD_PYTHON_BPF_H

#define PYTHON_FRAMES 64
/* Entries from C and frames in the making are skipped. */
#define PYTHON_STEPS (3 * PYTHON_FRAMES)
#define PYTHON_OBJECT 256
#define PYTHON_FILE 2048
#define PYTHON_NAME 1024
#define PYTHON_LINES 16384

/* glibc on x86-64: struct pthread keeps 32 pointers to blocks of 32 pairs (sequence, value). It has
 * not moved since 2004; the thread state that is found must name the thread. */
#define GLIBC_SPECIFIC 0x510
#define GLIBC_BLOCK 32
#define GLIBC_KEYS 1024

#define OWNED_BY_GENERATOR 1
#define OWNED_BY_C_STACK 3

/* As PythonLayout of src/python.rs. In python_files addresses are those of the file. */
struct python_layout {
	u64 runtime;
	u64 code_type;
	/* Of the executable segment: its address and its offset in the file. */
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
};

struct python_frame {
	u64 code;
	/* Covers the file, the name and the first line of the code object. */
	u64 identity;
	/* Bytes into the code; negative before the first instruction. */
	s32 instruction;
	u32 unused;
};

struct python_file_key {
	u64 ino;
	u64 device;
};

struct python_code_key {
	u64 code;
	u64 identity;
	u64 tgid;
};

/* A code object and what it refers to, as in memory. */
struct python_code {
	struct event_head head;
	u64 code;
	u64 identity;
	u32 lines_size;
	u32 unused;
	u8 object[PYTHON_OBJECT];
	u8 file[PYTHON_FILE];
	u8 name[PYTHON_NAME];
	u8 lines[PYTHON_LINES];
};

struct python_scratch {
	struct python_layout layout;
	u64 next;
	u64 hash;
	u32 count;
	u32 pid;
	u64 tgid;
	u8 thread[512];
	u8 frame[256];
	u8 object[256];
	struct python_frame frames[PYTHON_FRAMES];
	struct python_code code;
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, u32);
	__type(value, struct python_layout);
} python_processes SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 256);
	__type(key, struct python_file_key);
	__type(value, struct python_layout);
} python_files SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 32768);
	__type(key, struct python_code_key);
	__type(value, u8);
} python_codes SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct python_scratch);
} python_scratches SEC(".maps");

static __always_inline u64 python_mix(u64 hash, u64 word)
{
	hash = (hash ^ word) * 0x9e3779b97f4a7c15ull;
	return hash ^ (hash >> 29);
}

/* Fields of what was copied; the masks show the verifier that they are inside. */
#define PYTHON_WORD(buffer, at) (*(u64 *)&(buffer)[(at) & 0xf8])
#define PYTHON_INT(buffer, at) (*(s32 *)&(buffer)[(at) & 0xfc])
#define PYTHON_BYTE(buffer, at) ((buffer)[(at) & 0xff])

/* The thread state of this thread: by the interpreter's key, as PyGILState_GetThisThreadState does
 * it. 0 if it runs no Python. */
static __always_inline u64 python_thread(struct python_scratch *s)
{
	struct python_layout *at = &s->layout;
	struct task_struct *task = bpf_get_current_task_btf();
	u64 self = BPF_CORE_READ(task, thread.fsbase);
	u64 block = 0, thread = 0, finalizing = 0;
	struct { s32 is_initialized; u32 key; } tss = {};

	if (bpf_probe_read_user(&tss, sizeof(tss), (void *)(at->runtime + at->runtime_thread_key)))
		return 0;
	if (tss.is_initialized != 1 || tss.key >= GLIBC_KEYS)
		return 0;
	if (bpf_probe_read_user(&block, sizeof(block),
				(void *)(self + GLIBC_SPECIFIC + tss.key / GLIBC_BLOCK * 8)) || !block)
		return 0;
	if (bpf_probe_read_user(&thread, sizeof(thread),
				(void *)(block + tss.key % GLIBC_BLOCK * 16 + 8)) || !thread)
		return 0;
	if (bpf_probe_read_user(s->thread, ((at->thread_id + 8) & 0x1ff), (void *)thread))
		return 0;
	if (PYTHON_WORD(s->thread, at->thread_id) != self)
		return 0;
	/* Whoever finalizes the interpreter frees the states of the other threads. */
	if (bpf_probe_read_user(&finalizing, sizeof(finalizing),
				(void *)(at->runtime + at->runtime_finalizing)))
		return 0;
	return finalizing == 0 || finalizing == thread ? thread : 0;
}

/* Where the instruction is, in bytes into the code. */
static __always_inline s64 python_instruction(struct python_scratch *s, u64 code)
{
	struct python_layout *at = &s->layout;

	if (at->minor <= 10) {
		s64 last = PYTHON_INT(s->frame, at->frame_instruction);

		return at->minor == 10 ? last * 2 : last;
	}
	return PYTHON_WORD(s->frame, at->frame_instruction) - (code + at->code_start);
}

/* One frame: 0 to go on, 1 at the end. */
static long python_step(u32 index, struct python_scratch **context)
{
	struct python_scratch *s = *context;
	struct python_layout *at = &s->layout;
	struct python_frame *frame;
	u64 code, identity;
	s64 instruction;
	u8 owner;
	u32 count = s->count;

	if (!s->next || s->next & 7 || count >= PYTHON_FRAMES)
		return 1;
	if (bpf_probe_read_user(s->frame, at->frame_span & 0xff, (void *)s->next))
		return 1;
	s->next = PYTHON_WORD(s->frame, at->frame_back);
	owner = at->minor <= 10 ? OWNED_BY_GENERATOR : PYTHON_BYTE(s->frame, at->frame_owner);
	if (owner == OWNED_BY_C_STACK)
		return 0;
	if (owner > OWNED_BY_C_STACK)
		return 1;
	code = PYTHON_WORD(s->frame, at->frame_code);
	if (bpf_probe_read_user(s->object, at->code_size & 0xff, (void *)code))
		return 1;
	if (PYTHON_WORD(s->object, at->object_type) != at->code_type)
		return 1;
	instruction = python_instruction(s, code);
	if (instruction < -2 || instruction > (1 << 30))
		return 1;
	if (owner != OWNED_BY_GENERATOR &&
	    instruction < 2 * (s64)PYTHON_INT(s->object, at->code_first_traceable))
		return 0;
	identity = python_mix(0, PYTHON_WORD(s->object, at->code_filename));
	identity = python_mix(identity, PYTHON_WORD(s->object, at->code_name));
	identity = python_mix(identity, (u32)PYTHON_INT(s->object, at->code_first_line));
	frame = &s->frames[count & (PYTHON_FRAMES - 1)];
	frame->code = code;
	frame->identity = identity;
	frame->instruction = instruction;
	frame->unused = 0;
	s->hash = python_mix(python_mix(s->hash, code ^ identity), instruction);
	s->count = count + 1;
	return 0;
}

/* Walks the calling thread. The frames and their hash are in what it returns; NULL if there is no
 * frame. */
static __always_inline struct python_scratch *python_walk(u32 tgid)
{
	struct python_layout *layout = bpf_map_lookup_elem(&python_processes, &tgid);
	struct python_scratch *s;
	u32 zero = 0;
	u64 next;

	if (!layout)
		return NULL;
	s = bpf_map_lookup_elem(&python_scratches, &zero);
	if (!s)
		return NULL;
	s->layout = *layout;
	s->count = 0;
	s->hash = tgid;
	if (!python_thread(s))
		return NULL;
	next = PYTHON_WORD(s->thread, s->layout.thread_frame);
	if ((s->layout.minor == 11 || s->layout.minor == 12) &&
	    bpf_probe_read_user(&next, sizeof(next), (void *)(next + s->layout.cframe_current)))
		return NULL;
	s->next = next;
	bpf_loop(PYTHON_STEPS, python_step, &s, 0);
	return s->count ? s : NULL;
}

/* Copies a string object: how it begins and its characters. The rest of the place is zero. */
static __always_inline void python_string(struct python_scratch *s, u8 *into, u32 most, u64 string)
{
	struct python_layout *at = &s->layout;
	u64 length, size;
	u32 state, kind;

	__builtin_memset(into, 0, 64);
	if (bpf_probe_read_user(into, at->unicode_ascii & 0x3f, (void *)string))
		return;
	length = PYTHON_WORD(into, at->unicode_length);
	state = PYTHON_INT(into, at->unicode_state);
	kind = state >> at->state_kind_shift & 7;
	if (!(state & at->state_is_compact) || length > most)
		return;
	size = (state & at->state_is_ascii ? at->unicode_ascii : at->unicode_compact) + length * kind;
	if (size > most)
		return;
	bpf_probe_read_user(into, size, (void *)string);
}

/* Sends the code object of one frame, unless it was sent. */
static long python_send(u32 index, struct python_scratch **context)
{
	struct python_scratch *s = *context;
	struct python_layout *at = &s->layout;
	struct python_frame *frame;
	struct python_code_key key = {};
	struct python_code *code = &s->code;
	u64 lines, size = 0;
	u8 one = 1;

	if (index >= s->count)
		return 1;
	frame = &s->frames[index & (PYTHON_FRAMES - 1)];
	key.code = frame->code;
	key.identity = frame->identity;
	key.tgid = s->tgid;
	if (bpf_map_lookup_elem(&python_codes, &key))
		return 0;
	code->code = frame->code;
	code->identity = frame->identity;
	if (bpf_probe_read_user(code->object, at->code_size & 0xff, (void *)frame->code))
		return 0;
	python_string(s, code->file, PYTHON_FILE, PYTHON_WORD(code->object, at->code_filename));
	python_string(s, code->name, PYTHON_NAME, PYTHON_WORD(code->object, at->code_name));
	lines = PYTHON_WORD(code->object, at->code_lines);
	code->lines_size = PYTHON_LINES;
	if (!bpf_probe_read_user(&size, sizeof(size), (void *)(lines + at->bytes_length)) &&
	    size < PYTHON_LINES) {
		size &= PYTHON_LINES - 1;
		if (!bpf_probe_read_user(code->lines, size, (void *)(lines + at->bytes_start)))
			code->lines_size = size;
	}
	/* The size of the whole place says that nothing was copied. */
	size = code->lines_size & (PYTHON_LINES - 1);
	if (python_output(code, __builtin_offsetof(struct python_code, lines) + size) == 0)
		bpf_map_update_elem(&python_codes, &key, &one, BPF_ANY);
	return 0;
}

/* Sends the code objects of the frames that were walked. */
static __always_inline void python_send_codes(struct python_scratch *s, u32 tgid)
{
	s->tgid = tgid;
	bpf_loop(PYTHON_FRAMES, python_send, &s, 0);
}

/* A child has its parent's memory. */
static __always_inline void python_fork(u32 parent, u32 child)
{
	struct python_layout *layout = bpf_map_lookup_elem(&python_processes, &parent);

	if (layout && parent != child)
		bpf_map_update_elem(&python_processes, &child, layout, BPF_ANY);
}

/* Whether a file that was mapped or executed is an interpreter. `start` is where its executable
 * segment begins. */
static __always_inline void python_mapped(u32 tgid, struct file *file, u64 start)
{
	struct inode *inode = BPF_CORE_READ(file, f_inode);
	struct python_file_key key = {
		.ino = BPF_CORE_READ(inode, i_ino),
		.device = BPF_CORE_READ(inode, i_sb, s_dev),
	};
	struct python_layout *known = bpf_map_lookup_elem(&python_files, &key);
	struct python_layout layout;
	u64 bias;

	if (!known)
		return;
	layout = *known;
	bias = start - layout.segment_address;
	layout.runtime += bias;
	layout.code_type += bias;
	bpf_map_update_elem(&python_processes, &tgid, &layout, BPF_ANY);
}

#endif
