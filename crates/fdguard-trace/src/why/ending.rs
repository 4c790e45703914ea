//! The end of a copy. It is ended from outside, so that the program does not wait while the kernel
//! gives its memory back; then the program itself must take note of it, or an entry of its process
//! table stays.

use std::thread;
use std::time::{Duration, Instant};

use fdguard_attach::Target;
use fdguard_proc::stat::ProcStat;
use fdguard_wire::END_WALK;
use rustix::process::{Pid, Signal, kill_process};

use super::is_running;
use crate::pid_namespace::PidNames;
use crate::trace_dir;

/// How long the kernel may take to end a copy.
const LONGEST: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_millis(1);
/// How often the program is asked: a copy that could not be ended from outside ends meanwhile.
const TRIES: u32 = 200;
/// As the library returns it.
const EAGAIN: i32 = 11;

/// Ends a copy, whose pid the program sees as `inside`. `request` follows its pid. Returns how long
/// the program was stopped.
pub(super) fn end(pid: u32, target: &Target, inside: u32, request: &[u8]) -> Duration {
    // It is a child that was not waited for, so its number is still its own; unless another
    // fdguard's question has removed it.
    let outside = PidNames::of(pid).outside(inside);
    let outside = outside.filter(|copy| parent(*copy) == Some(pid));
    let number = outside.and_then(|pid| Pid::from_raw(pid.try_into().ok()?));
    if let Some((number, outside)) = number.zip(outside) {
        // Where that is not allowed, the program does it below.
        if kill_process(number, Signal::KILL).is_ok() {
            let began = Instant::now();
            while is_running(outside) && began.elapsed() < LONGEST {
                thread::sleep(LOOK);
            }
        }
    }
    let request = [&inside.to_le_bytes(), request].concat();
    let mut stop = Duration::ZERO;
    let mut failures = 0;
    for attempt in 0..TRIES {
        match target.call(trace_dir::library(), END_WALK, &request) {
            Ok(call) => {
                stop = stop.max(call.stop);
                if call.returned != -EAGAIN {
                    break;
                }
            }
            Err(_) if failures >= 3 => break,
            Err(_) => failures += 1,
        }
        thread::sleep(LOOK * attempt.min(50));
    }
    stop
}

fn parent(pid: u32) -> Option<u32> {
    let stat = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
    Some(ProcStat::parse(&stat)?.ppid)
}
