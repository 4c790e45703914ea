// Files that are mapped as code. User space reads the list of a process when it needs it, but one
// that lives for milliseconds is gone by then.
#pragma once

#include "python.bpf.h"
#include "table.h"
#include "work.h"

// Reports a file from `start` to `end`. For a program that was executed, `start` is where its first
// segment of code begins; otherwise `offset` says which part of the file it is.
GLOBAL u32 report_mapped(u64 file, u64 start, u64 end, u64 offset, u32 is_program)
{
    struct work *work = workspace_of_processor();
    if (!work || !file)
        return 0;
    recognise_python(work->pid, file, start, offset, is_program);
    struct mapped *mapped = bpf_ringbuf_reserve(&events, sizeof(*mapped), 0);
    // Without room for it the list of the process has to do.
    if (!mapped)
        return 0;
    __builtin_memset(mapped, 0, sizeof(*mapped));
    struct record *head = &mapped->head;
    head->at = bpf_ktime_get_ns();
    head->table = work->table;
    head->pid = work->pid;
    head->tid = work->tid;
    head->kind = MAPPED;
    head->call = is_program;
    u64 inode = (u64)READ(file, file, f_inode);
    head->file = READ(inode, inode, i_ino);
    head->arguments[0] = start;
    head->arguments[1] = end;
    head->arguments[2] = offset;
    u64 entry = (u64)READ(file, file, f_path.dentry);
    for (u32 index = 0; index < NAMES; index++) {
        u64 name = (u64)READ(dentry, entry, d_name.name);
        u64 parent = (u64)READ(dentry, entry, d_parent);
        if (parent == entry)
            break;
        bpf_probe_read_kernel_str(mapped->names[index], NAME, (void *)name);
        entry = parent;
    }
    bpf_ringbuf_submit(mapped, NO_WAKEUP);
    return 1;
}

// After mmap: reports a file that was mapped as code.
INLINE void after_map(struct pt_regs *regs, u64 start)
{
    enum { EXECUTABLE = 4, WITHOUT_FILE = 0x20 };
    if (!(regs->dx & EXECUTABLE) || (regs->r10 & WITHOUT_FILE))
        return;
    struct work *work = begin_work(false);
    if (!work)
        return;
    u64 file = file_at(regs->r8);
    report_mapped(file, start, start + regs->si, regs->r9, 0);
}

// After exec: reports the program.
INLINE void report_program(void)
{
    u64 memory = (u64)READ(task_struct, current(), mm);
    u64 file = (u64)READ(mm_struct, memory, exe_file);
    report_mapped(file, READ(mm_struct, memory, start_code), READ(mm_struct, memory, end_code), 0,
                  1);
}
