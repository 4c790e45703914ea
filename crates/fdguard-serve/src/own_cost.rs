//! What this process costs: processor time, descriptors, memory.

use std::time::Duration;

use fdguard_proc::{stat, statm};
use rustix::param::{clock_ticks_per_second, page_size};
use rustix::time::{ClockId, clock_gettime};

use crate::overview::OwnCost;

/// Processor time of all threads so far.
pub(crate) fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    let nanos = u32::try_from(time.tv_nsec).unwrap_or(0);
    Duration::new(time.tv_sec.unsigned_abs(), nanos)
}

/// Time since the machine started, its sleep included.
pub(crate) fn time_awake_and_asleep() -> Duration {
    let time = clock_gettime(ClockId::Boottime);
    let nanos = u32::try_from(time.tv_nsec).unwrap_or(0);
    Duration::new(time.tv_sec.unsigned_abs(), nanos)
}

/// Descriptors, memory, and the time of commands that were started.
pub(crate) fn measure(cost: &mut OwnCost) {
    let size = std::fs::metadata("/proc/self/fd").map(|stat| stat.len());
    // Before Linux 6.2 the size of the directory is 0.
    let listed = || Some(std::fs::read_dir("/proc/self/fd").ok()?.count() as u64);
    cost.open_fds = size.ok().filter(|size| *size > 0).or_else(listed);
    let statm = std::fs::read("/proc/self/statm").ok();
    cost.resident_bytes = statm.and_then(|text| statm::resident(&text, page_size()));
    let stat = std::fs::read("/proc/self/stat").ok();
    let ticks = stat.and_then(|text| stat::children_ticks(&text));
    cost.children_cpu_seconds = ticks.map(|ticks| ticks as f64 / clock_ticks_per_second() as f64);
}
