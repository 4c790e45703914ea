//! A made-up process: sources of descriptors that open and close, and the looks that a watch would take.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use fdguard_core::timeline::{Change, Look, Sighting};
use fdguard_core::{Class, Fd};

/// A small generator of random numbers (`SplitMix64`): the same seed gives the same process for ever.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// From 0 up to 1.
    pub fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    pub fn between(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.unit()
    }

    /// Evenly by order of magnitude.
    pub fn magnitude(&mut self, low: f64, high: f64) -> f64 {
        self.between(low.ln(), high.ln()).exp()
    }

    pub fn below(&mut self, end: usize) -> usize {
        (self.next() % end.max(1) as u64) as usize
    }

    fn exponential(&mut self, mean: f64) -> f64 {
        -mean * (1.0 - self.unit()).ln()
    }

    fn poisson(&mut self, mean: f64) -> u32 {
        let (mut count, mut left) = (0, mean);
        loop {
            left -= self.exponential(1.0);
            if left < 0.0 {
                return count;
            }
            count += 1;
        }
    }
}

/// Something that opens descriptors, and closes them or does not.
#[derive(Clone, Debug)]
pub enum Source {
    /// Opens `batch` at a time, `rate` descriptors a second, from `from` on, and never closes; by the
    /// clock, or by chance.
    Leak {
        rate: f64,
        batch: u32,
        from: f64,
        regular: bool,
    },
    /// About `level` at any time, each for `life` seconds on average.
    Tide { level: f64, life: f64 },
    /// The same with a load that rises from nothing to `level` at the end of `over` seconds.
    Ramp { level: f64, life: f64, over: f64 },
    /// The same with a load that comes in waves.
    Wave { level: f64, life: f64, period: f64 },
    /// Opens until `cap`, in `fill` seconds, then keeps them.
    Pool { cap: u32, fill: f64 },
    /// Opens for ever, closes the oldest above `cap`.
    Lru { cap: usize, rate: f64 },
    /// Opens one for each of `keys` when it is first asked for, at random.
    Cache { keys: usize, rate: f64 },
    /// Opens and closes nothing until a collection every `period` seconds closes them all.
    SawTooth { rate: f64, period: f64 },
    /// `size` more from `from` to `until`.
    Burst { size: u32, from: f64, until: f64 },
    /// Replaces one by another every `period` seconds.
    Rotation { period: f64 },
    /// Every connection that ends is replaced at once: `level` of them, with lives of `life`.
    KeepAlive { level: u32, life: f64 },
}

/// Where a source stands.
#[derive(Clone, Debug)]
struct Running {
    source: Source,
    class: Class,
    target: String,
    /// What it holds, oldest first.
    held: VecDeque<Fd>,
    /// When something it holds is closed.
    closes: Vec<(f64, Fd)>,
    keys: BTreeSet<usize>,
    owed: f64,
    next: f64,
}

/// The process.
#[derive(Debug)]
pub struct Process {
    random: Random,
    sources: Vec<Running>,
    open: BTreeMap<Fd, (u64, usize)>,
    shown: BTreeMap<Fd, u64>,
    serial: u64,
    now: f64,
}

impl Process {
    pub fn new(seed: u64, sources: Vec<(Source, Class, &str)>) -> Self {
        let sources = sources.into_iter().map(|(source, class, target)| Running {
            source,
            class,
            target: target.to_owned(),
            held: VecDeque::new(),
            closes: Vec::new(),
            keys: BTreeSet::new(),
            owed: 0.0,
            next: 0.0,
        });
        Self {
            random: Random::new(seed),
            sources: sources.collect(),
            open: BTreeMap::new(),
            shown: BTreeMap::new(),
            serial: 0,
            now: 0.0,
        }
    }

    /// Lets the process run for a while before anybody looks.
    pub fn run_unseen(&mut self, seconds: f64) {
        let end = self.now + seconds;
        while self.now < end {
            self.step(0.1);
        }
    }

    /// Runs for `every` seconds and looks.
    pub fn look(&mut self, every: f64) -> Look {
        let parts = (every / 0.1).ceil().clamp(1.0, 50.0);
        for _ in 0..parts as u32 {
            self.step(every / parts);
        }
        let change = self.change();
        Look {
            at: self.now,
            count: Some(self.open.len() as u64),
            table: (!change.is_empty()).then_some(change),
            ..Look::default()
        }
    }

    fn change(&mut self) -> Change {
        let mut change = Change::default();
        for (fd, serial) in &self.shown {
            if self.open.get(fd).is_none_or(|(now, _)| now != serial) {
                change.closed.push(*fd);
            }
        }
        for (fd, (serial, source)) in &self.open {
            if self.shown.get(fd) != Some(serial) {
                let source = &self.sources[*source];
                change.opened.push(Sighting {
                    fd: *fd,
                    class: source.class.clone(),
                    target: source.target.as_str().into(),
                    group: None,
                });
            }
        }
        self.shown = self
            .open
            .iter()
            .map(|(fd, (serial, _))| (*fd, *serial))
            .collect();
        change
    }

    fn step(&mut self, dt: f64) {
        self.now += dt;
        for index in 0..self.sources.len() {
            let mut running = self.sources[index].clone();
            self.advance(&mut running, index, dt);
            self.sources[index] = running;
        }
    }

    fn open(&mut self, running: &mut Running, index: usize) -> Fd {
        let free = (0..).find(|fd| !self.open.contains_key(fd)).unwrap_or(0);
        self.serial += 1;
        self.open.insert(free, (self.serial, index));
        running.held.push_back(free);
        free
    }

    fn close(&mut self, running: &mut Running, fd: Fd) {
        self.open.remove(&fd);
        running.held.retain(|held| *held != fd);
    }

    fn end_due(&mut self, running: &mut Running) -> u32 {
        let due: Vec<Fd> = running
            .closes
            .iter()
            .filter(|(at, _)| *at <= self.now)
            .map(|(_, fd)| *fd)
            .collect();
        running.closes.retain(|(at, _)| *at > self.now);
        for fd in &due {
            self.close(running, *fd);
        }
        due.len() as u32
    }

    fn arrive(&mut self, running: &mut Running, index: usize, mean: f64, life: f64) {
        self.end_due(running);
        for _ in 0..self.random.poisson(mean) {
            let ends = self.now + self.random.exponential(life);
            let fd = self.open(running, index);
            running.closes.push((ends, fd));
        }
    }

    fn advance(&mut self, running: &mut Running, index: usize, dt: f64) {
        let now = self.now;
        match running.source.clone() {
            Source::Leak {
                rate,
                batch,
                from,
                regular,
            } if now >= from => {
                let mean = rate * dt / f64::from(batch);
                running.owed += if regular {
                    mean
                } else {
                    f64::from(self.random.poisson(mean))
                };
                while running.owed >= 1.0 {
                    running.owed -= 1.0;
                    for _ in 0..batch {
                        self.open(running, index);
                    }
                }
            }
            Source::Leak { .. } => {}
            Source::Tide { level, life } => {
                self.arrive(running, index, level * dt / life, life);
            }
            Source::Ramp { level, life, over } => {
                let level = level * (now / over).min(1.0);
                self.arrive(running, index, level * dt / life, life);
            }
            Source::Wave {
                level,
                life,
                period,
            } => {
                let level = level * (1.0 + (std::f64::consts::TAU * now / period).sin()) / 2.0;
                self.arrive(running, index, level * dt / life, life);
            }
            Source::Pool { cap, fill } => {
                let want = (f64::from(cap) * (now / fill).min(1.0)) as usize;
                while running.held.len() < want {
                    self.open(running, index);
                }
            }
            Source::Lru { cap, rate } => {
                running.owed += rate * dt;
                while running.owed >= 1.0 {
                    running.owed -= 1.0;
                    self.open(running, index);
                    if running.held.len() > cap
                        && let Some(oldest) = running.held.front().copied()
                    {
                        self.close(running, oldest);
                    }
                }
            }
            other => self.advance_rest(running, index, dt, &other),
        }
    }

    fn advance_rest(&mut self, running: &mut Running, index: usize, dt: f64, source: &Source) {
        let now = self.now;
        match *source {
            Source::Cache { keys, rate } => {
                for _ in 0..self.random.poisson(rate * dt) {
                    let key = self.random.below(keys);
                    if running.keys.insert(key) {
                        self.open(running, index);
                    }
                }
            }
            Source::SawTooth { rate, period } => {
                if now >= running.next {
                    running.next = now + period * self.random.between(0.8, 1.2);
                    while let Some(fd) = running.held.front().copied() {
                        self.close(running, fd);
                    }
                }
                for _ in 0..self.random.poisson(rate * dt) {
                    self.open(running, index);
                }
            }
            Source::Burst { size, from, until } => {
                let want = if now >= from && now < until { size } else { 0 };
                while (running.held.len() as u32) < want {
                    self.open(running, index);
                }
                while running.held.len() as u32 > want {
                    if let Some(fd) = running.held.front().copied() {
                        self.close(running, fd);
                    }
                }
            }
            Source::Rotation { period } => {
                if now >= running.next {
                    running.next = now + period;
                    if let Some(fd) = running.held.front().copied() {
                        self.close(running, fd);
                    }
                    self.open(running, index);
                }
            }
            Source::KeepAlive { level, life } => {
                let ended = self.end_due(running);
                let missing = if running.held.is_empty() {
                    level
                } else {
                    ended
                };
                for _ in 0..missing {
                    let ends = now + self.random.exponential(life);
                    let fd = self.open(running, index);
                    running.closes.push((ends, fd));
                }
            }
            _ => {}
        }
    }
}
