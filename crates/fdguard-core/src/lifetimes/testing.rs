//! Histories for tests, in seconds.

use std::collections::BTreeSet;

use super::history::PathHistory;
use super::process::ProcessLifetimes;
use crate::event::OpenCall;

/// Nanoseconds.
pub(crate) fn ns(seconds: f64) -> u64 {
    u64::try_from(std::time::Duration::from_secs_f64(seconds).as_nanos()).unwrap_or(u64::MAX)
}

/// The events of a process: one call path under test, and others that keep it busy.
#[derive(Clone, Debug, Default)]
pub(crate) struct Story {
    /// When each was opened, and when it was closed.
    pub(crate) lives: Vec<(f64, Option<f64>)>,
    /// When something else was opened and closed.
    pub(crate) work: Vec<f64>,
    /// When the end began.
    pub(crate) ending: Option<f64>,
    /// After this time everything is closed by the interpreter.
    pub(crate) finalized: Option<f64>,
}

pub(crate) const PATH: u32 = 1;
const WORK: u32 = 2;

impl Story {
    pub(crate) fn of(lives: &[(f64, Option<f64>)]) -> Self {
        Self {
            lives: lives.to_vec(),
            ..Self::default()
        }
    }

    /// Something else is opened and closed every `step` seconds in this time.
    pub(crate) fn busy(mut self, from: f64, to: f64, step: f64) -> Self {
        let mut at = from;
        while at < to {
            self.work.push(at);
            at += step;
        }
        self
    }

    pub(crate) fn process(&self, until: f64) -> ProcessLifetimes {
        let mut process = ProcessLifetimes::new(0, BTreeSet::new());
        let mut events: Vec<(f64, u32, Option<bool>)> = Vec::new();
        for (fd, (born, closed)) in (10..).zip(&self.lives) {
            events.push((*born, fd, Some(true)));
            events.extend(closed.map(|closed| (closed, fd, Some(false))));
        }
        events.extend(self.work.iter().map(|at| (*at, 5, None)));
        events.retain(|(at, _, _)| *at <= until);
        events.sort_by(|a, b| a.0.total_cmp(&b.0));
        if let Some(ending) = self.ending {
            process.end_begins(ns(ending));
        }
        for (at, fd, what) in events {
            match what {
                Some(true) => process.open(fd, PATH, ns(at), OpenCall::Open, 1),
                Some(false) => {
                    let is_finalized = self.finalized.is_some_and(|from| at >= from);
                    process.close(fd, ns(at), is_finalized);
                }
                None => {
                    process.open(fd, WORK, ns(at), OpenCall::Open, 1);
                    process.close(fd, ns(at + 0.001), false);
                }
            }
        }
        process
    }

    pub(crate) fn history(&self, until: f64) -> PathHistory {
        let process = self.process(until);
        process
            .histories(ns(until))
            .remove(&PATH)
            .unwrap_or_default()
    }
}

/// `count` times, `step` seconds apart.
pub(crate) fn every(step: f64, from: f64, count: u32) -> Vec<f64> {
    (0..count).map(|at| from + f64::from(at) * step).collect()
}

/// They are never closed.
pub(crate) fn held(births: &[f64]) -> Vec<(f64, Option<f64>)> {
    births.iter().map(|born| (*born, None)).collect()
}

/// All are closed from then on, 0.01 s apart.
pub(crate) fn swept(births: &[f64], at: f64) -> Vec<(f64, Option<f64>)> {
    let ends = (0..).map(|nth| at + f64::from(nth) * 0.01);
    let lives = births.iter().zip(ends);
    lives.map(|(born, end)| (*born, Some(end))).collect()
}

/// Each is closed when `cap` younger ones have arrived.
pub(crate) fn cache(births: &[f64], cap: usize) -> Vec<(f64, Option<f64>)> {
    let end = |at: usize| births.get(at + cap).copied();
    let lives = births.iter().enumerate();
    lives.map(|(at, born)| (*born, end(at))).collect()
}
