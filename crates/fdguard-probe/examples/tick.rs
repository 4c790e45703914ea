//! The cost of watching one process: `tick PID TICKS SECONDS_BETWEEN`.
//!
//! Prints one line: ticks, how many of them listed the table, how many descriptors were examined,
//! and the processor time, all after the first tick, which sees everything for the first time.
#![expect(
    clippy::print_stdout,
    reason = "its one line is what this program is for"
)]

use std::time::{Duration, Instant};

use fdguard_probe::{Probe, ProcessWatcher};
use rustix::time::{ClockId, clock_gettime};

fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(
        time.tv_sec.unsigned_abs(),
        u32::try_from(time.tv_nsec).unwrap_or(0),
    )
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [pid, ticks, between] = words.as_slice() else {
        return Err("usage: tick PID TICKS SECONDS_BETWEEN".into());
    };
    let (ticks, between): (u32, f64) = (ticks.parse()?, between.parse()?);
    let probe = Probe::new()?;
    let mut watcher = ProcessWatcher::new(&probe, pid.parse()?)?;
    let first = watcher.tick()?;
    let (wall, cpu) = (Instant::now(), processor_time());
    let (mut listed, mut looked) = (0, 0);
    for _ in 0..ticks {
        if between > 0.0 {
            std::thread::sleep(Duration::from_secs_f64(between));
        }
        let tick = watcher.tick()?;
        listed += u32::from(tick.listed);
        looked += tick.opened.len();
    }
    let cpu = processor_time() - cpu;
    let share = 100.0 * cpu.as_secs_f64() / wall.elapsed().as_secs_f64();
    let per_tick = cpu.as_secs_f64() * 1e6 / f64::from(ticks.max(1));
    println!(
        "first={} ticks={ticks} listed={listed} looked_at={looked} cpu_us_per_tick={per_tick:.2} cpu_percent={share:.3}",
        first.opened.len()
    );
    Ok(())
}
