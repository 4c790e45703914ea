//! Traced processes: every open and close is known, and the lifetimes are judged.

use std::collections::BTreeSet;
use std::time::Duration;

use fdguard_core::event::OpenCall;
use fdguard_core::lifetimes::course::judge;
use fdguard_core::lifetimes::{PathCourse, ProcessLifetimes};

use crate::random::Random;

const PATH: u32 = 1;
const WORK: u32 = 2;

/// When each descriptor is opened, and when it is closed.
type Lives = Vec<(f64, Option<f64>)>;

/// What one process does.
#[derive(Default)]
struct Life {
    lives: Lives,
    /// When something else is opened and closed.
    work: Vec<f64>,
    /// When the interpreter starts closing what is left.
    finalized: Option<f64>,
    /// When it is judged.
    until: f64,
}

/// One kind of process.
struct Kind {
    name: &'static str,
    leaks: bool,
    make: fn(&mut Random) -> Life,
}

const KINDS: &[Kind] = &[
    kind("left open until the end", true, leak),
    kind("all closed in a tidy shutdown", true, tidy),
    kind("closed by the interpreter", true, finalized),
    kind("then idle", true, idle),
    kind("then idle, with a heartbeat", true, heartbeat),
    kind("one of many of the same line", true, among_many),
    kind("in a run of 1.5 to 5 s", true, short),
    kind("in bursts of requests", true, bursts),
    kind("a pool made at the start", false, pool),
    kind("a pool that fills under work", false, filling),
    kind("a cache that replaces its oldest", false, cache),
    kind("a saw-tooth", false, saw_tooth),
    kind("a merge of many files", false, merge),
    kind("requests that are served", false, served),
    kind("connections of all ages", false, ages),
];

const fn kind(name: &'static str, leaks: bool, make: fn(&mut Random) -> Life) -> Kind {
    Kind { name, leaks, make }
}

/// A table: how many of each kind were judged wrongly.
pub(crate) fn table(each: u32, seed: u64) -> String {
    let mut text = "| traced process | leaks | called leaking |\n| --- | --- | --- |\n".to_owned();
    for kind in KINDS {
        let mut random = Random::new(seed);
        let found = (0..each)
            .filter(|_| is_leaking(&(kind.make)(&mut random)))
            .count();
        let percent = 100.0 * f64::from(u32::try_from(found).unwrap_or(0)) / f64::from(each);
        let leaks = if kind.leaks { "yes" } else { "no" };
        text.push_str(&format!("| {} | {leaks} | {percent:.1} % |\n", kind.name));
    }
    text
}

fn is_leaking(life: &Life) -> bool {
    let ns = |seconds: f64| {
        u64::try_from(Duration::from_secs_f64(seconds.max(0.0)).as_nanos()).unwrap_or(u64::MAX)
    };
    let mut process = ProcessLifetimes::new(0, BTreeSet::new());
    let mut events: Vec<(f64, u32, u32)> = Vec::new();
    for (fd, (born, closed)) in (10_u32..).zip(&life.lives) {
        events.push((*born, fd, 0));
        events.extend(closed.map(|closed| (closed, fd, 1)));
    }
    events.extend(life.work.iter().map(|at| (*at, 5, 2)));
    events.retain(|(at, _, _)| *at <= life.until);
    events.sort_by(|a, b| a.0.total_cmp(&b.0));
    for (at, fd, what) in events {
        match what {
            0 => process.open(fd, PATH, ns(at), OpenCall::Open, 1),
            1 => process.close(fd, ns(at), life.finalized.is_some_and(|from| at >= from)),
            _ => {
                process.open(fd, WORK, ns(at), OpenCall::Open, 1);
                process.close(fd, ns(at + 0.001), false);
            }
        }
    }
    let mut histories = process.histories(ns(life.until));
    let history = histories.remove(&PATH).unwrap_or_default();
    judge(&history).course == PathCourse::Arrives
}

/// By the clock or by chance, with stalls of a busy machine after which it catches up.
fn births(random: &mut Random, from: f64, seconds: f64, count: u32) -> Vec<f64> {
    let step = seconds / f64::from(count);
    let by_chance = random.chance();
    let stalls: Vec<(f64, f64)> = (0..random.whole(0, 5))
        .map(|_| {
            let at = from + random.between(0.0, seconds);
            (at, random.between(0.05, 0.1 * seconds))
        })
        .collect();
    let mut at = from;
    let mut births = Vec::new();
    for _ in 0..count {
        at += if by_chance {
            random.exponential(step)
        } else {
            step
        };
        let stall = stalls
            .iter()
            .find(|(begin, long)| at >= *begin && at < begin + long);
        births.push(stall.map_or(at, |(begin, long)| begin + long));
    }
    births.sort_by(f64::total_cmp);
    births
}

fn busy(random: &mut Random, until: f64) -> Vec<f64> {
    let step = random.magnitude(0.005, 0.1);
    let mut at = 0.0;
    std::iter::from_fn(|| {
        at += random.exponential(step);
        (at < until).then_some(at)
    })
    .collect()
}

fn held(births: &[f64]) -> Lives {
    births.iter().map(|born| (*born, None)).collect()
}

fn last(births: &[f64]) -> f64 {
    births.last().copied().unwrap_or(0.0)
}

fn swept(births: &[f64], at: f64, step: f64) -> Lives {
    let ends = (0_u32..).map(|nth| at + f64::from(nth) * step);
    births
        .iter()
        .zip(ends)
        .map(|(born, end)| (*born, Some(end)))
        .collect()
}

fn drip(random: &mut Random) -> Vec<f64> {
    let seconds = random.between(6.0, 30.0);
    let count = random.whole(20, 200);
    let from = random.between(0.2, 3.0);
    births(random, from, seconds, count)
}

fn leak(random: &mut Random) -> Life {
    let births = drip(random);
    let until = last(&births) + random.between(0.0, 1.0);
    let work = if random.chance() {
        busy(random, until)
    } else {
        Vec::new()
    };
    Life {
        lives: held(&births),
        work,
        until,
        ..Life::default()
    }
}

fn tidy(random: &mut Random) -> Life {
    let births = drip(random);
    let at = last(&births) + random.between(0.05, 0.5);
    Life {
        lives: swept(&births, at, random.magnitude(0.00001, 0.003)),
        until: at + 1.0,
        ..Life::default()
    }
}

fn finalized(random: &mut Random) -> Life {
    let mut life = tidy(random);
    let first = life.lives.first().and_then(|(_, end)| *end);
    life.finalized = first;
    life
}

fn idle(random: &mut Random) -> Life {
    let mut life = leak(random);
    life.work.clear();
    life.until += random.between(1.0, 600.0);
    life
}

fn heartbeat(random: &mut Random) -> Life {
    let mut life = idle(random);
    let step = random.between(5.0, 30.0);
    let beats = life.until / step;
    life.work = (0..)
        .map(f64::from)
        .take_while(|nth| *nth < beats)
        .map(|nth| nth * step)
        .collect();
    // More beats than this would form a level of their own.
    life.until = life.until.min(last(&life.work) + 1.0).min(90.0);
    life
}

fn among_many(random: &mut Random) -> Life {
    let mut life = leak(random);
    let count = random.whole(200, 2000);
    let brief = births(random, 0.2, life.until, count);
    let lived = random.magnitude(0.001, 0.2);
    let brief = brief
        .into_iter()
        .map(|born| (born, Some(born + random.exponential(lived))));
    life.lives.extend(brief);
    life
}

fn short(random: &mut Random) -> Life {
    let seconds = random.between(1.4, 4.8);
    let count = random.whole(12, 60);
    let births = births(random, 0.1, seconds, count);
    Life {
        until: last(&births) + random.between(0.0, 0.3),
        lives: held(&births),
        ..Life::default()
    }
}

fn bursts(random: &mut Random) -> Life {
    let mut births = Vec::new();
    let mut at = 1.0;
    for _ in 0..random.whole(8, 20) {
        for _ in 0..random.whole(1, 8) {
            at += random.magnitude(0.001, 0.02);
            births.push(at);
        }
        at += random.between(0.3, 2.0);
    }
    Life {
        until: at,
        lives: held(&births),
        ..Life::default()
    }
}

fn pool(random: &mut Random) -> Life {
    let seconds = random.magnitude(0.001, 0.8);
    let from = random.between(0.1, 1.0);
    let count = random.whole(4, 100);
    let births = births(random, from, seconds, count);
    let until = last(&births) + random.between(1.5, 60.0);
    let work = if random.chance() {
        busy(random, until)
    } else {
        Vec::new()
    };
    Life {
        lives: held(&births),
        work,
        until,
        ..Life::default()
    }
}

fn filling(random: &mut Random) -> Life {
    let seconds = random.between(2.0, 8.0);
    let count = random.whole(10, 100);
    let births = births(random, 0.5, seconds, count);
    let until = last(&births) * random.between(2.0, 5.0);
    Life {
        lives: held(&births),
        work: busy(random, until),
        until,
        ..Life::default()
    }
}

fn cache(random: &mut Random) -> Life {
    let cap = usize::try_from(random.whole(10, 100)).unwrap_or(10);
    let count = u32::try_from(cap).unwrap_or(10) + random.whole(4, 300);
    let seconds = random.between(5.0, 30.0);
    let births = births(random, 0.5, seconds, count);
    let end = |at: usize| births.get(at + cap).copied();
    let mut lives: Lives = births
        .iter()
        .enumerate()
        .map(|(at, born)| (*born, end(at)))
        .collect();
    let until = last(&births) + 1.0;
    if random.chance() {
        for (_, end) in &mut lives {
            end.get_or_insert(until - 0.5);
        }
    }
    Life {
        lives,
        until,
        ..Life::default()
    }
}

fn saw_tooth(random: &mut Random) -> Life {
    let (period, count) = (random.between(1.0, 6.0), random.whole(10, 60));
    let teeth = random.whole(3, 8);
    let mut lives = Lives::new();
    for tooth in 0..teeth {
        let from = f64::from(tooth) * period;
        let births = births(random, from, 0.9 * period, count);
        let at = last(&births).max(from + 0.95 * period);
        lives.extend(swept(&births, at, 0.0001));
    }
    Life {
        lives,
        until: period * (f64::from(teeth) - random.unit()),
        ..Life::default()
    }
}

fn merge(random: &mut Random) -> Life {
    let seconds = random.magnitude(0.05, 2.5);
    let count = random.whole(20, 400);
    let births = births(random, 0.2, seconds, count);
    let at = last(&births) + random.between(0.1, 3.0);
    Life {
        lives: swept(&births, at, 0.0001),
        until: at + 0.5,
        ..Life::default()
    }
}

fn served(random: &mut Random) -> Life {
    let lived = random.magnitude(0.01, 1.0);
    let seconds = random.between(3.0, 20.0);
    let count = random.whole(50, 600);
    let births = births(random, 0.5, seconds, count);
    let until = last(&births) + random.between(0.0, 2.0);
    let lives = births
        .iter()
        .map(|born| (*born, Some(born + random.exponential(lived))));
    Life {
        lives: lives.collect(),
        until,
        ..Life::default()
    }
}

fn ages(random: &mut Random) -> Life {
    let mut life = served(random);
    let lived = random.between(1.0, 3.0);
    for (born, end) in &mut life.lives {
        *end = Some(*born + random.exponential(lived));
    }
    life.until = life.until.max(6.0 * lived);
    life.lives.retain(|(born, _)| *born <= life.until);
    life
}
