//! A reused pid never mixes two processes.

use std::fs;

use fdguard_probe::{Error, Options, Probe, ProcessWatcher, Radar};
use testkit::{Victim, is_root, skip};

const STEER: &str = "/proc/sys/kernel/ns_last_pid";

/// Starts victims until one has this pid.
fn start_as(pid: u32, name: &str, arg: &str) -> Option<Victim> {
    for _ in 0..50 {
        fs::write(STEER, (pid - 1).to_string()).ok()?;
        let victim = Victim::of(name).arg(arg).start();
        if victim.pid() == pid {
            return Some(victim);
        }
        victim.finish();
    }
    None
}

/// Time since boot, in the kernel's ticks for process starts.
fn ticks() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    time.tv_sec.unsigned_abs() * 100 + time.tv_nsec.unsigned_abs() / 10_000_000
}

#[test]
fn r25_a_reused_number_is_another_process_to_radar_and_watcher() {
    if !is_root() || fs::metadata(STEER).is_err() {
        return skip("needs root and a kernel that lets us choose process numbers");
    }
    let probe = Probe::new().unwrap();
    let mut radar = Radar::new();
    let first = Victim::of("exiter").arg("40").start();
    let pid = first.pid();
    let row = |radar: &mut Radar| {
        let view = radar.scan(&probe).unwrap();
        view.rows.into_iter().find(|row| row.pid == pid)
    };
    let before = row(&mut radar).unwrap();
    let mut watcher = ProcessWatcher::new(&probe, pid).unwrap();
    watcher.tick().unwrap();
    let seen = probe.snapshot(pid, Options::default()).unwrap();
    first.finish();
    // Two processes with one pid and one start, in the kernel's ticks of 10 ms, cannot be
    // distinguished: the next tick must have begun.
    let began = before.key().unwrap().start_ticks;
    while ticks() <= began {
        std::thread::yield_now();
    }
    let Some(second) = start_as(pid, "parent", "10") else {
        return skip("the number was taken by somebody else each time");
    };
    let after = row(&mut radar).unwrap();
    assert_eq!(after.comm.as_str(), Some("parent"));
    assert_eq!(after.count, Some(second.listed().len() as u64));
    assert_ne!(after.key(), before.key());
    assert_eq!(after.ppid, Some(std::process::id()));

    assert!(matches!(watcher.tick(), Err(Error::Vanished(_))));
    let again = probe.snapshot(pid, Options::default()).unwrap();
    assert_ne!(again.process.key(), seen.process.key());
    let delta = fdguard_core::delta::delta(&seen, &again).unwrap();
    assert_eq!(delta.same_process, Some(false));
    second.finish();
}
