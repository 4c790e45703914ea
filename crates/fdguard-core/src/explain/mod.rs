//! Symptoms: which lines of a log mean that descriptors ran out, and which mean another limit.
//!
//! `EMFILE` is seldom reported as such. The disguises are data (`data/symptoms.toml`); this module
//! finds them in a stream of any length, with memory that does not depend on it.

use serde::Serialize;

use crate::Text;
use crate::located::ConfigMistake;
use crate::playbook::Playbook;
use crate::wall::{self, Wall};

mod pattern;
mod scan;
mod symptom;
mod tally;
#[cfg(test)]
mod tests;

pub use pattern::LinePattern;
pub use scan::{LONGEST_LINE, LogScanner};
pub use symptom::{Certainty, Symptom, WallName};
pub use tally::NEAR;
use tally::Tally;

/// Schema name of an explanation.
pub const EXPLANATION_SCHEMA: &str = "fdguard.explanation/1";

/// What a log reveals.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Explanation {
    /// How many lines there were.
    pub lines_read: u64,
    /// The verdict.
    pub verdict: LogVerdict,
    /// The symptoms that count, the surest and most frequent first.
    pub symptoms: Vec<SymptomMatch>,
    /// The symptoms that do not count, with the reason.
    pub not_counted: Vec<UncountedSymptom>,
}

/// The verdict on a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum LogVerdict {
    /// Descriptors ran out, or a number was too high for `select()`.
    Descriptors,
    /// Another limit was reached: watchers, terminals, processes.
    OtherWall,
    /// No line that counts.
    Nothing,
    /// No line at all.
    Empty,
}

/// A symptom and its lines.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SymptomMatch {
    /// The symptom.
    pub id: String,
    /// Which limit was reached.
    pub wall: WallName,
    /// How far one such line can be trusted.
    pub certainty: Certainty,
    /// What it means.
    pub meaning: String,
    /// What to do next.
    pub next: String,
    /// How many lines.
    pub count: u64,
    /// The first, from 1.
    pub first_line: u64,
    /// The last.
    pub last_line: u64,
    /// The first of them, or the part of it around the match.
    pub example: Text,
}

/// A symptom whose lines do not count.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct UncountedSymptom {
    /// The symptom and its lines.
    #[serde(flatten)]
    pub found: SymptomMatch,
    /// Why not.
    pub why: String,
}

/// Explains lines. [`LogScanner`] does the same for input in pieces.
///
/// # Errors
///
/// When the playbook has more patterns than the matcher supports.
pub fn explain(
    playbook: &Playbook,
    lines: impl IntoIterator<Item: AsRef<[u8]>>,
    near: &[WallName],
) -> Result<Explanation, ConfigMistake> {
    let mut scanner = LogScanner::new(playbook)?;
    for line in lines {
        scanner.line(line.as_ref());
    }
    Ok(scanner.finish(near))
}

/// The limits that a process has reached: a doubtful line about them is then credible.
#[must_use]
pub fn near(walls: &[Wall]) -> Vec<WallName> {
    use WallName::{InotifyInstances, InotifyWatches, Ptys, Select1024, SoftLimit};
    let all = [
        SoftLimit,
        WallName::SystemFiles,
        Select1024,
        InotifyInstances,
        InotifyWatches,
        Ptys,
        WallName::Tasks,
    ];
    let is_near = |name: &WallName| {
        let mut of_that_name = walls.iter().filter(|wall| wall.name == name.name());
        let share = of_that_name.find_map(Wall::percent);
        share.is_some_and(|percent| percent >= wall::CRITICAL_FROM)
    };
    all.into_iter().filter(is_near).collect()
}

impl Explanation {
    fn new(
        lines_read: u64,
        symptoms: &[Symptom],
        counted: Vec<Option<Tally>>,
        doubtful: Vec<Option<Tally>>,
    ) -> Self {
        let found = |tallies: Vec<Option<Tally>>| {
            let rows = symptoms.iter().zip(tallies);
            rows.filter_map(|(symptom, tally)| Some((symptom, SymptomMatch::new(symptom, tally?))))
        };
        let mut counted: Vec<SymptomMatch> = found(counted).map(|(_, found)| found).collect();
        counted.sort_by(|a, b| {
            let by_certainty = b.certainty.cmp(&a.certainty);
            by_certainty.then(b.count.cmp(&a.count))
        });
        let not_counted = found(doubtful).map(|(symptom, found)| UncountedSymptom {
            why: why_not(symptom, &found),
            found,
        });
        Self {
            lines_read,
            verdict: verdict(lines_read, &counted),
            not_counted: not_counted.collect(),
            symptoms: counted,
        }
    }
}

impl SymptomMatch {
    fn new(symptom: &Symptom, tally: Tally) -> Self {
        Self {
            id: symptom.id.clone(),
            wall: symptom.wall,
            certainty: symptom.certainty,
            meaning: symptom.meaning.clone(),
            next: symptom.next.clone(),
            count: tally.count,
            first_line: tally.first,
            last_line: tally.last,
            example: tally.example,
        }
    }
}

fn verdict(lines: u64, found: &[SymptomMatch]) -> LogVerdict {
    if lines == 0 {
        LogVerdict::Empty
    } else if found.is_empty() {
        LogVerdict::Nothing
    } else if found.iter().any(|found| found.wall.is_of_descriptors()) {
        LogVerdict::Descriptors
    } else {
        LogVerdict::OtherWall
    }
}

fn why_not(symptom: &Symptom, found: &SymptomMatch) -> String {
    if symptom.wall == WallName::None {
        "not a kernel limit".to_owned()
    } else if found.count < symptom.at_least {
        format!("fewer than {} lines", symptom.at_least)
    } else {
        format!("no certain line within {NEAR} lines")
    }
}
