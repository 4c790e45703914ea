// Stacks of the calling thread.
#pragma once

#include "thread.h"

// Its number; 0 if none was taken.
INLINE u32 take_stack(struct thread *thread, u64 *ctx, struct pt_regs *regs)
{
    return 0;
}
