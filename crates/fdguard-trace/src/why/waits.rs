//! Which threads of a process wait, in which call, and how long they have.

use std::collections::BTreeMap;
use std::fs::read_to_string;

use fdguard_why::{ThreadWait, inner_thread_number};

/// By the number that the program knows. Empty where the calls have other numbers, or the kernel
/// does not tell.
pub(super) fn read(pid: u32) -> BTreeMap<u64, ThreadWait> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task"));
    if !cfg!(target_arch = "x86_64") {
        return BTreeMap::new();
    }
    let tasks = tasks.into_iter().flatten().flatten();
    tasks
        .filter_map(|task| {
            let text = |name: &str| read_to_string(task.path().join(name)).ok();
            let syscall = text("syscall")?;
            let sched = text("sched")?;
            // Reading it is what the thread that reads does now.
            let own = read_to_string("/proc/thread-self/sched").ok()?;
            let wait = ThreadWait::read(&syscall, &sched, &own)?;
            Some((inner_thread_number(&text("status")?)?, wait))
        })
        .collect()
}
