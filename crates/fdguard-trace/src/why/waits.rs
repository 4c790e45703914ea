//! Which threads of a process wait, in which call, and how long they have.

use std::collections::BTreeMap;
use std::fs::read;
use std::path::Path;

use fdguard_proc::sched::last_run;
use fdguard_proc::status::ProcStatus;
use fdguard_proc::syscall::ThreadCall;
use fdguard_why::ThreadWait;

/// By the number that the program knows. Empty where the calls have other numbers, or the kernel
/// does not tell.
pub(super) fn collect(pid: u32) -> BTreeMap<u64, ThreadWait> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task"));
    if !cfg!(target_arch = "x86_64") {
        return BTreeMap::new();
    }
    let tasks = tasks.into_iter().flatten().flatten();
    tasks.filter_map(|task| wait(&task.path())).collect()
}

/// The numbers of all threads, as the program knows them.
pub(super) fn numbers(pid: u32) -> Vec<u64> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task"));
    let tasks = tasks.into_iter().flatten().flatten();
    let number = |task: &Path| ProcStatus::parse(&read(task.join("status")).ok()?).ns_pid;
    let numbers = tasks.filter_map(|task| number(&task.path()));
    numbers.map(u64::from).collect()
}

/// The number and the wait of a thread. `None` if it runs, or the kernel does not tell.
fn wait(task: &Path) -> Option<(u64, ThreadWait)> {
    let file = |name: &str| read(task.join(name)).ok();
    let Some(ThreadCall::Waiting { number, .. }) = ThreadCall::parse(&file("syscall")?) else {
        return None;
    };
    let then = last_run(&file("sched")?)?;
    // Reading it is what the thread that reads does now.
    let now = last_run(&read("/proc/thread-self/sched").ok()?)?;
    let wait = ThreadWait::new(number, now.checked_sub(then)?)?;
    // In its own namespace, which is the number that Python knows.
    let inner = ProcStatus::parse(&file("status")?).ns_pid?;
    Some((u64::from(inner), wait))
}
