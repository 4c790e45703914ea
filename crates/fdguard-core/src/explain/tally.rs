//! What counts and what does not: a doubtful line counts only near a sure one, which may come
//! later.

use std::collections::VecDeque;

use super::{Certainty, Symptom, WallName};
use crate::Text;

/// Two lines at most this many lines apart are near each other.
pub const NEAR: u64 = 100;

/// The lines of one symptom.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Tally {
    pub(super) count: u64,
    pub(super) first: u64,
    pub(super) last: u64,
    pub(super) example: Text,
}

impl Tally {
    fn one(line: u64, example: Text) -> Self {
        Self {
            count: 1,
            first: line,
            last: line,
            example,
        }
    }

    fn join(&mut self, other: Self) {
        self.count += other.count;
        self.last = self.last.max(other.last);
        if other.first < self.first {
            self.first = other.first;
            self.example = other.example;
        }
    }
}

/// Tallies by the index of the symptom.
type ByIndex = Vec<Option<Tally>>;

/// Sorts lines as they arrive. Holds at most [`NEAR`] undecided ones, however long the log is.
#[derive(Debug)]
pub(super) struct Tallies<'a> {
    symptoms: &'a [Symptom],
    counted: ByIndex,
    doubtful: ByIndex,
    undecided: VecDeque<(usize, Tally)>,
    /// The last certain line about each limit.
    sure: Vec<(WallName, u64)>,
}

impl<'a> Tallies<'a> {
    pub(super) fn new(symptoms: &'a [Symptom]) -> Self {
        Self {
            symptoms,
            counted: vec![None; symptoms.len()],
            doubtful: vec![None; symptoms.len()],
            undecided: VecDeque::new(),
            sure: Vec::new(),
        }
    }

    /// Takes a line that matches this symptom. Lines arrive in order.
    pub(super) fn add(&mut self, index: usize, line: u64, example: impl FnOnce() -> Text) {
        let Some(symptom) = self.symptoms.get(index) else {
            return;
        };
        self.settle(line);
        if symptom.wall == WallName::None {
            bump(&mut self.doubtful, index, line, example);
        } else if symptom.certainty > Certainty::Possible {
            bump(&mut self.counted, index, line, example);
            self.vouch(symptom.wall, line);
        } else if self.is_vouched_for(symptom.wall, line) {
            bump(&mut self.counted, index, line, example);
        } else {
            let tally = Tally::one(line, example());
            self.undecided.push_back((index, tally));
        }
    }

    /// Ends the count: what counted and what did not. Limits that the process is known to have
    /// reached make all lines about them credible.
    pub(super) fn finish(mut self, near: &[WallName]) -> (ByIndex, ByIndex) {
        self.settle(u64::MAX);
        for (index, symptom) in self.symptoms.iter().enumerate() {
            let vouched = near
                .iter()
                .any(|wall| symptom.wall.is_vouched_for_by(*wall));
            if vouched && let Some(tally) = self.doubtful[index].take() {
                join(&mut self.counted, index, tally);
            }
            let too_few = |tally: &mut Tally| tally.count < symptom.at_least;
            if let Some(tally) = self.counted[index].take_if(too_few) {
                join(&mut self.doubtful, index, tally);
            }
        }
        (self.counted, self.doubtful)
    }

    fn vouch(&mut self, wall: WallName, line: u64) {
        match self.sure.iter_mut().find(|(known, _)| *known == wall) {
            Some((_, last)) => *last = line,
            None => self.sure.push((wall, line)),
        }
        for _ in 0..self.undecided.len() {
            let Some((index, tally)) = self.undecided.pop_front() else {
                break;
            };
            if self.symptoms[index].wall.is_vouched_for_by(wall) {
                join(&mut self.counted, index, tally);
            } else {
                self.undecided.push_back((index, tally));
            }
        }
    }

    fn is_vouched_for(&self, wall: WallName, line: u64) -> bool {
        self.sure
            .iter()
            .any(|(sure, last)| wall.is_vouched_for_by(*sure) && line - last <= NEAR)
    }

    /// Lines that have no sure line near them by this line stay doubtful.
    fn settle(&mut self, line: u64) {
        let is_far = |(_, tally): &(usize, Tally)| line.saturating_sub(tally.first) > NEAR;
        while self.undecided.front().is_some_and(is_far) {
            if let Some((index, tally)) = self.undecided.pop_front() {
                join(&mut self.doubtful, index, tally);
            }
        }
    }
}

fn bump(tallies: &mut ByIndex, index: usize, line: u64, example: impl FnOnce() -> Text) {
    match &mut tallies[index] {
        Some(tally) => {
            tally.count += 1;
            tally.last = line;
        }
        empty => *empty = Some(Tally::one(line, example())),
    }
}

fn join(tallies: &mut ByIndex, index: usize, tally: Tally) {
    match &mut tallies[index] {
        Some(known) => known.join(tally),
        empty => *empty = Some(tally),
    }
}
