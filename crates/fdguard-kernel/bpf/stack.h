// Stacks of the calling thread.
#pragma once

#include "python.h"
#include "work.h"

// Its number; 0 if none was taken.
INLINE u32 take_stack(struct work *work, u64 *ctx, struct pt_regs *regs)
{
    u32 python = take_python_stack();
    if (python)
        return python;
    return 0;
}
