// Frames of CPython.
#pragma once

#include "work.h"

// Reads the interpreter's frames of the current thread into `language`, sets their count, and
// answers a hash of them; 0 if there are none.
INLINE u64 read_python_frames(const struct work *work, struct stack_record *stack)
{
    return 0;
}
