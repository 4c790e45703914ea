// Stacks of the calling thread.
#pragma once

#include "work.h"

// Its number; 0 if none was taken.
INLINE u32 take_stack(struct work *work, u64 *ctx, struct pt_regs *regs)
{
    return 0;
}
