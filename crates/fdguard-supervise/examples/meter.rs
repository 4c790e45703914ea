//! The cost of the meter: examines a process for a while, as the supervisor does, and prints the
//! share of a core, the memory, and the time of the slowest look. `cargo run --release -p
//! fdguard-supervise --example meter -- PID SECONDS [BUDGET…]`

#![expect(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a measurement for people, not part of the command"
)]

use std::time::{Duration, Instant};

use fdguard_probe::Probe;
use fdguard_supervise::budget::{self, BudgetHistory, BudgetSetting, judge};
use fdguard_supervise::meter::Meter;
use fdguard_supervise::poll::Interest;
use fdguard_supervise::trim;
use rustix::time::{ClockId, clock_gettime};

/// Processor time of this process so far.
fn used() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

fn main() {
    let mut words = std::env::args().skip(1);
    let pid: u32 = words.next().unwrap().parse().unwrap();
    let length = Duration::from_secs(words.next().unwrap().parse().unwrap());
    let given: Vec<BudgetSetting> = words.map(|word| word.parse().unwrap()).collect();
    let budgets = budget::effective(&given);
    let probe = Probe::new().unwrap();
    let start = Instant::now();
    let mut meter = Meter::new(&probe, &budgets, start);
    let mut memory = BudgetHistory::default();
    let (mut looks, mut slowest) = (0, Duration::ZERO);
    println!("given back: {:?}", trim::give_back());
    let before = used();
    while start.elapsed() < length {
        let now = Instant::now();
        if let Some(reading) = meter.poll(now, &[pid]) {
            looks += 1;
            for news in judge(&budgets, &reading, &mut memory) {
                println!("{:.1} s: {news:?}", start.elapsed().as_secs_f64());
            }
            slowest = slowest.max(now.elapsed());
        }
        let mut wants = Interest::default();
        meter.wants(&mut wants);
        let _ready = wants.wait().unwrap();
    }
    let cpu = used() - before;
    let seconds = start.elapsed().as_secs_f64();
    println!(
        "{looks} looks in {seconds:.0} s; {:.3} % of a core, {:.0} µs a look, the slowest {slowest:?}",
        cpu / seconds * 100.0,
        cpu * 1e6 / f64::from(looks)
    );
    println!(
        "resident: {} KiB; leaks: {:?}",
        trim::resident().unwrap_or_default() / 1024,
        meter.leaks()
    );
}
