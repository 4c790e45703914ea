// Run once by the loader, in its own context: where fdguard is among the pid namespaces.
#include "kernel.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

struct place {
    u32 level;
    u32 number;
} found_place;

SEC("raw_tp/find_place")
int find_place(u64 *ctx)
{
    struct task_struct *task = bpf_get_current_task_btf();
    struct upid last = {};
    u32 level = task->thread_pid->level;
    read_number(task, level, &last);
    found_place.number = namespace_of(&last);
    found_place.level = level;
    return 0;
}
