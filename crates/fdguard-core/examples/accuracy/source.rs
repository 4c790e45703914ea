//! What opens descriptors, and closes them or does not. Time is in units: a watch has twenty.

use std::collections::{BTreeSet, VecDeque};
use std::f64::consts::TAU;

use fdguard_core::{Class, Fd};

use super::random::{Random, floor};

/// When a leak happens.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Pace {
    /// By the clock.
    Regular,
    /// By chance.
    Poisson,
    /// By the clock during the first half of each period of this length.
    Paused(f64),
}

/// Something that opens descriptors, and closes them or does not.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Source {
    /// Opens `batch` at a time, `rate` descriptors a unit, from `from` until `until`, and never
    /// closes.
    Leak {
        rate: f64,
        batch: u32,
        from: f64,
        until: f64,
        pace: Pace,
    },
    /// About `level` at any time, each for `life` on average.
    Tide { level: f64, life: f64 },
    /// The same with a load that rises from nothing to `level` at `over`.
    Ramp { level: f64, life: f64, over: f64 },
    /// The same with a load that comes in waves.
    Wave { level: f64, life: f64, period: f64 },
    /// Opens up to `cap` by `fill`, then keeps them; all are closed at `drop`, and it fills again.
    Pool { cap: u32, fill: f64, drop: f64 },
    /// Opens by chance until there are `cap`.
    Threads { cap: u32, rate: f64 },
    /// Serves a demand that comes in waves from `min` to `max`, closes what was idle for `idle`.
    IdlePool {
        min: u32,
        max: u32,
        idle: f64,
        period: f64,
    },
    /// Opens without end, closes the oldest above `cap`.
    Lru { cap: u32, rate: f64 },
    /// Opens one for each of `keys` when it is first requested, at random.
    Cache { keys: u32, rate: f64 },
    /// The same with keys that are requested less the higher they are (Zipf).
    Popular { keys: u32, rate: f64 },
    /// Opens and closes nothing until a collection every `period` closes them all.
    SawTooth { rate: f64, period: f64 },
    /// `size` more from `from` to `until`.
    Burst { size: u32, from: f64, until: f64 },
    /// Opens `size` every `period` and closes them `stay` later.
    Batches { size: u32, period: f64, stay: f64 },
    /// Replaces one by another every `period`.
    Rotation { period: f64 },
    /// Every connection that ends is replaced at once: `level` of them, with lives of `life`.
    KeepAlive { level: u32, life: f64 },
}

/// Descriptors of the process, as its sources see them.
#[derive(Debug, Default)]
pub(crate) struct Table {
    /// By number: the serial number of what it is, and the source that opened it.
    pub(crate) open: Vec<Option<(u64, usize)>>,
    free: BTreeSet<usize>,
    serial: u64,
}

impl Table {
    fn open(&mut self, source: usize) -> usize {
        let fd = self.free.pop_first().unwrap_or(self.open.len());
        if fd == self.open.len() {
            self.open.push(None);
        }
        self.serial += 1;
        self.open[fd] = Some((self.serial, source));
        fd
    }

    fn close(&mut self, fd: usize) {
        self.open[fd] = None;
        self.free.insert(fd);
    }

    pub(crate) fn count(&self) -> usize {
        self.open.len() - self.free.len()
    }
}

/// A number as the kernel gives it.
pub(crate) fn number(fd: usize) -> Fd {
    Fd::try_from(fd).unwrap_or_default()
}

/// The state of a running source.
#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) source: Source,
    pub(crate) class: Class,
    pub(crate) target: String,
    index: usize,
    /// What it holds, oldest first, and when that is closed or was last needed.
    held: VecDeque<(f64, usize)>,
    keys: BTreeSet<u32>,
    owed: f64,
    next: f64,
}

impl Running {
    pub(crate) fn new(index: usize, (source, class, target): (Source, Class, String)) -> Self {
        Self {
            source,
            class,
            target,
            index,
            held: VecDeque::new(),
            keys: BTreeSet::new(),
            owed: 0.0,
            next: 0.0,
        }
    }

    /// What it leaked, and how many times.
    pub(crate) fn lost(&self) -> (usize, usize) {
        match self.source {
            Source::Leak { batch, .. } => (self.held.len(), self.held.len() / batch as usize),
            _ => (0, 0),
        }
    }

    /// Lets it run for `dt` until `now`.
    pub(crate) fn advance(&mut self, table: &mut Table, random: &mut Random, now: f64, dt: f64) {
        match self.source {
            Source::Leak {
                rate,
                batch,
                from,
                until,
                pace,
            } => {
                if now >= from && now < until {
                    self.owed += leaked(pace, rate * dt / f64::from(batch), now, random);
                }
                self.pay(table, batch);
            }
            Source::Tide { level, life } => self.arrive(table, random, level, life, (now, dt)),
            Source::Ramp { level, life, over } => {
                let level = level * (now / over).min(1.0);
                self.arrive(table, random, level, life, (now, dt));
            }
            Source::Wave {
                level,
                life,
                period,
            } => {
                let level = level * wave(now, period);
                self.arrive(table, random, level, life, (now, dt));
            }
            Source::Lru { cap, rate } => {
                self.owed += rate * dt;
                self.pay(table, 1);
                self.shrink(table, cap as usize);
            }
            Source::Threads { cap, rate } => {
                let room = (cap as usize).saturating_sub(self.held.len());
                let wanted = random.poisson(rate * dt) as usize;
                self.grow(table, self.held.len() + wanted.min(room));
            }
            Source::Cache { keys, rate } => {
                for _ in 0..random.poisson(rate * dt) {
                    self.keys.insert(random.whole(1, keys));
                }
                self.grow(table, self.keys.len());
            }
            Source::Popular { keys, rate } => {
                for _ in 0..random.poisson(rate * dt) {
                    let key = f64::from(keys).powf(random.unit());
                    self.keys.insert(floor(key));
                }
                self.grow(table, self.keys.len());
            }
            _ => self.advance_level(table, random, now, dt),
        }
    }

    /// Those that want a certain number at a certain time.
    fn advance_level(&mut self, table: &mut Table, random: &mut Random, now: f64, dt: f64) {
        match self.source {
            Source::Pool { cap, fill, drop } => {
                let since = if now < drop { now } else { now - drop };
                if now >= drop && now - dt < drop {
                    self.shrink(table, 0);
                }
                self.grow(
                    table,
                    floor(f64::from(cap) * (since / fill).min(1.0)) as usize,
                );
            }
            Source::SawTooth { rate, period } => {
                if now >= self.next {
                    self.next = now + period * random.between(0.8, 1.2);
                    self.shrink(table, 0);
                }
                let more = random.poisson(rate * dt) as usize;
                self.grow(table, self.held.len() + more);
            }
            Source::Burst { size, from, until } => {
                let want = if now >= from && now < until { size } else { 0 };
                self.grow(table, want as usize);
                self.shrink(table, want as usize);
            }
            Source::Batches { size, period, stay } => {
                let want = if now % period < stay { size } else { 0 };
                self.grow(table, want as usize);
                self.shrink(table, want as usize);
            }
            Source::Rotation { period } if now >= self.next => {
                self.next = now + period;
                self.shrink(table, 0);
                self.grow(table, 1);
            }
            Source::KeepAlive { level, life } => {
                self.end_due(table, now);
                while self.held.len() < level as usize {
                    let ends = now + random.exponential(life);
                    self.held.push_back((ends, table.open(self.index)));
                }
            }
            Source::IdlePool {
                min,
                max,
                idle,
                period,
            } => {
                let demand = f64::from(max) * wave(now, period) * random.between(0.9, 1.1);
                self.serve(
                    table,
                    (floor(demand) as usize, max as usize, min as usize),
                    now,
                    idle,
                );
            }
            _ => {}
        }
    }

    /// Opens what is owed, `batch` at a time.
    fn pay(&mut self, table: &mut Table, batch: u32) {
        while self.owed >= 1.0 {
            self.owed -= 1.0;
            self.grow(table, self.held.len() + batch as usize);
        }
    }

    fn grow(&mut self, table: &mut Table, want: usize) {
        while self.held.len() < want {
            self.held.push_back((f64::INFINITY, table.open(self.index)));
        }
    }

    /// Closes the oldest.
    fn shrink(&mut self, table: &mut Table, want: usize) {
        while self.held.len() > want {
            if let Some((_, fd)) = self.held.pop_front() {
                table.close(fd);
            }
        }
    }

    fn end_due(&mut self, table: &mut Table, now: f64) {
        self.held.retain(|(ends, fd)| {
            if *ends <= now {
                table.close(*fd);
            }
            *ends > now
        });
    }

    fn arrive(
        &mut self,
        table: &mut Table,
        random: &mut Random,
        level: f64,
        life: f64,
        at: (f64, f64),
    ) {
        let (now, dt) = at;
        self.end_due(table, now);
        for _ in 0..random.poisson(level * dt / life) {
            let lives = random.exponential(life);
            // A descriptor closed within the step was never visible.
            if lives > dt * random.unit() {
                self.held.push_back((now + lives, table.open(self.index)));
            }
        }
    }

    fn serve(
        &mut self,
        table: &mut Table,
        (demand, max, min): (usize, usize, usize),
        now: f64,
        idle: f64,
    ) {
        self.grow(table, demand.clamp(min, max));
        for slot in self.held.iter_mut().take(demand) {
            slot.0 = now;
        }
        // The last ones were needed least.
        while self.held.len() > min
            && let Some((needed, fd)) = self.held.back().copied()
            && (needed.is_infinite() || now - needed > idle)
        {
            self.held.pop_back();
            table.close(fd);
        }
    }
}

fn leaked(pace: Pace, mean: f64, now: f64, random: &mut Random) -> f64 {
    match pace {
        Pace::Regular => mean,
        Pace::Poisson => f64::from(random.poisson(mean)),
        Pace::Paused(period) if now % period < period / 2.0 => 2.0 * mean,
        Pace::Paused(_) => 0.0,
    }
}

/// Between 0 and 1, up and down.
fn wave(now: f64, period: f64) -> f64 {
    f64::midpoint(1.0, (TAU * now / period).sin())
}
