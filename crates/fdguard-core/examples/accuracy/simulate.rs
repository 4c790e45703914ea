//! A simulated process, and the looks that a watch takes at it.

use fdguard_core::Class;
use fdguard_core::timeline::{Look, LookChange, Sighting};

use super::random::Random;
use super::source::{Running, Source, Table, number};

/// Sources with the class and the target of what they open.
pub(crate) type Sources = Vec<(Source, Class, String)>;

/// The process. It lives in units of time, of which a watch has twenty.
#[derive(Debug)]
pub(crate) struct Process {
    random: Random,
    sources: Vec<Running>,
    table: Table,
    /// What the last look saw, by number.
    shown: Vec<Option<u64>>,
    now: f64,
}

/// Steps of the process between two looks: what happens is not in step with the looks.
const PARTS: u32 = 3;

impl Process {
    pub(crate) fn new(seed: u64, sources: Sources) -> Self {
        let sources = sources.into_iter().enumerate();
        Self {
            random: Random::new(seed),
            sources: sources.map(|(index, it)| Running::new(index, it)).collect(),
            table: Table::default(),
            shown: Vec::new(),
            now: 0.0,
        }
    }

    /// Lets the process run for a while before the first look.
    pub(crate) fn run_unseen(&mut self, units: f64) {
        for _ in 0..20 {
            self.step(units / 20.0);
        }
    }

    /// Runs for `units` and looks. `seconds` is the length of a unit.
    pub(crate) fn look(&mut self, units: f64, seconds: f64) -> Look {
        for _ in 0..PARTS {
            self.step(units / f64::from(PARTS));
        }
        let change = self.change();
        Look {
            at: self.now * seconds,
            count: Some(self.table.count() as u64),
            table: (!change.is_empty()).then_some(change),
            ..Look::default()
        }
    }

    /// How many were leaked so far.
    pub(crate) fn lost(&self) -> usize {
        self.sources.iter().map(|source| source.lost().0).sum()
    }

    /// How many times it leaked so far.
    pub(crate) fn leaks(&self) -> usize {
        self.sources.iter().map(|source| source.lost().1).sum()
    }

    fn change(&mut self) -> LookChange {
        let mut change = LookChange::default();
        self.shown.resize(self.table.open.len(), None);
        let pairs = self.shown.iter_mut().zip(&self.table.open);
        for (fd, (shown, open)) in pairs.enumerate() {
            let serial = open.map(|(serial, _)| serial);
            if *shown == serial {
                continue;
            }
            if shown.is_some() {
                change.closed.push(number(fd));
            }
            if let Some((_, source)) = open {
                let source = &self.sources[*source];
                change.opened.push(Sighting {
                    fd: number(fd),
                    class: source.class.clone(),
                    target: source.target.as_str().into(),
                    group: None,
                });
            }
            *shown = serial;
        }
        change
    }

    fn step(&mut self, dt: f64) {
        self.now += dt;
        for source in &mut self.sources {
            source.advance(&mut self.table, &mut self.random, self.now, dt);
        }
    }
}
