//! What a timeline and its judgement cost: time and memory over a simulated month.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use fdguard_core::timeline::{Look, LookChange, Sighting};
use fdguard_core::{Class, Fd, Timeline, judge};

const HELD: u32 = 10_000;
const TARGETS: u32 = 128;
const MONTH: u32 = 30 * 24 * 3600;

/// Watches a month at one look a second: ten thousand descriptors, two of them replaced each
/// second.
pub(crate) fn month() -> String {
    let before = resident();
    let mut timeline = Timeline::new();
    timeline.observe(&look(0, (0..HELD).map(sighting).collect(), Vec::new()));
    let begin = Instant::now();
    let mut judged = Vec::new();
    for tick in 1..=MONTH {
        let numbers = [2 * tick, 2 * tick + 1].map(|at| at.wrapping_mul(7_919) % HELD);
        let opened = numbers.map(sighting).into();
        timeline.observe(&look(tick, opened, numbers.into()));
        if tick % (MONTH / 20) == 0 {
            judged.push(time(|| judge::judge(&timeline).len()));
        }
    }
    let busy = begin.elapsed() / MONTH;
    let quiet = time(|| {
        for tick in 1..=10_000 {
            timeline.observe(&look(MONTH + tick, Vec::new(), Vec::new()));
        }
        10_000
    }) / 10_000;
    judged.sort();
    let usual = judged.get(judged.len() / 2).copied().unwrap_or_default();
    let slowest = judged.last().copied().unwrap_or_default();
    let grown = resident().zip(before).map(|(after, before)| after - before);
    let mut text = String::new();
    let _ = writeln!(
        text,
        "a look with two closed and opened: {busy:?}; a quiet look: {quiet:?}; a judgement of {} groups: {usual:?}, {slowest:?} at most; memory: {} KiB more than at the start",
        timeline.groups().count(),
        grown.map_or_else(|| "unknown".to_owned(), |bytes| (bytes / 1024).to_string()),
    );
    text
}

fn time(act: impl FnOnce() -> usize) -> Duration {
    let begin = Instant::now();
    let did = act();
    std::hint::black_box(did);
    begin.elapsed()
}

/// Resident memory of this process in bytes, where the kernel reports it.
fn resident() -> Option<u64> {
    fdguard_proc::statm::resident(&std::fs::read("/proc/self/statm").ok()?, 4096)
}

fn sighting(fd: Fd) -> Sighting {
    let target = format!("/srv/data/of/some/length/{}/part-{fd}", fd % TARGETS);
    let group = format!("/srv/data/of/some/length/{}/part-*", fd % TARGETS);
    Sighting {
        fd,
        class: Class::Regular,
        target: target.as_str().into(),
        group: Some(group.as_str().into()),
    }
}

fn look(tick: u32, opened: Vec<Sighting>, closed: Vec<Fd>) -> Look {
    let change = LookChange {
        opened,
        closed,
        changed: Vec::new(),
    };
    Look {
        at: f64::from(tick),
        count: Some(u64::from(HELD)),
        table: (!change.is_empty()).then_some(change),
        ..Look::default()
    }
}
