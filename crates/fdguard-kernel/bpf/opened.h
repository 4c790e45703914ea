// Reports an opened descriptor.
#pragma once

#include "table.h"

// With the call, the arguments and the stack of the work.
INLINE void report_opened(const struct work *work, u32 fd)
{
    // Another thread has closed it already, and has reported that.
    u64 file = file_at(fd);
    if (!file)
        return;
    struct record *record = reserve(work, OPENED);
    if (!record)
        return;
    record->fd = fd;
    record->call = work->call;
    record->file = file;
    record->stack = work->stack;
    record->arguments[0] = work->arguments[0];
    record->arguments[1] = work->arguments[1];
    record->arguments[2] = work->arguments[2];
    submit(record);
}
