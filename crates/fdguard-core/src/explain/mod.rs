//! Symptom translation: which lines of a log mean that descriptors ran out, and which mean another wall.
//!
//! `EMFILE` is seldom reported as such. The disguises are data (`data/symptoms.toml`); this module finds
//! them in a stream of any length, with memory that does not depend on it.

use aho_corasick::{AhoCorasick, AhoCorasickKind};
use bstr::ByteSlice as _;
use serde::Serialize;

use crate::Text;
use crate::playbook::{Playbook, PlaybookError};
use crate::wall::{self, Wall};

mod pattern;
mod symptom;
mod tally;
#[cfg(test)]
mod tests;

pub use pattern::Pattern;
pub use symptom::{Certainty, Symptom, WallName};
pub use tally::NEAR;
use tally::{Tallies, Tally};

/// Schema name of an explanation.
pub const EXPLANATION_SCHEMA: &str = "fdguard.explanation/1";

/// What is longer is no line for people; the rest of it is not looked at.
pub const LONGEST_LINE: usize = 64 << 10;
/// How much of a line is shown as an example.
const EXAMPLE: usize = 300;

/// What a log says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Explanation {
    /// How many lines there were.
    pub lines_read: u64,
    /// In one word.
    pub verdict: Verdict,
    /// What counts, the surest and most frequent first.
    pub symptoms: Vec<Found>,
    /// What was seen and does not count, with the reason.
    pub not_counted: Vec<NotCounted>,
}

/// What a log says, in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Descriptors ran out, or a number was too high for `select()`.
    Descriptors,
    /// Something else did: watchers, terminals, processes.
    OtherWall,
    /// No line that counts.
    Nothing,
    /// No line at all.
    Empty,
}

/// A symptom and its lines.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Found {
    /// The symptom.
    pub id: String,
    /// Which wall was hit.
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
    /// The first of them, or what is around the telling part of it.
    pub example: Text,
}

/// A symptom whose lines do not count.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NotCounted {
    /// The symptom and its lines.
    #[serde(flatten)]
    pub found: Found,
    /// Why not.
    pub why: String,
}

/// Explains lines. [`Scanner`] does the same for what comes in pieces.
///
/// # Errors
///
/// When the playbook has more patterns than can be looked for.
pub fn explain(
    playbook: &Playbook,
    lines: impl IntoIterator<Item: AsRef<[u8]>>,
    near: &[WallName],
) -> Result<Explanation, PlaybookError> {
    let mut scanner = Scanner::new(playbook)?;
    for line in lines {
        scanner.line(line.as_ref());
    }
    Ok(scanner.finish(near))
}

/// The walls that a process is at: there a doubtful line about them is credible.
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

/// Reads a log piece by piece.
#[derive(Debug)]
pub struct Scanner<'a> {
    playbook: &'a Playbook,
    /// Finds the longest part of every pattern at once.
    anchors: AhoCorasick,
    /// The symptom that each anchor belongs to.
    owners: Vec<usize>,
    /// Which symptoms the present line may be.
    suspected: Vec<bool>,
    tallies: Tallies<'a>,
    lines: u64,
    /// The beginning of a line whose end has not come yet.
    carried: Vec<u8>,
    is_open: bool,
}

impl<'a> Scanner<'a> {
    /// One that knows these symptoms.
    ///
    /// # Errors
    ///
    /// When there are more patterns than can be looked for.
    pub fn new(playbook: &'a Playbook) -> Result<Self, PlaybookError> {
        let symptoms = playbook.symptoms();
        let (mut anchors, mut owners) = (Vec::new(), Vec::new());
        for (index, symptom) in symptoms.iter().enumerate() {
            for pattern in &symptom.patterns {
                anchors.push(pattern.anchor());
                owners.push(index);
            }
        }
        let anchors = AhoCorasick::builder()
            .ascii_case_insensitive(true)
            .kind(Some(AhoCorasickKind::DFA))
            .build(&anchors)
            .map_err(|error| PlaybookError {
                line: None,
                entry: None,
                message: format!("too many patterns: {error}"),
            })?;
        Ok(Self {
            playbook,
            anchors,
            owners,
            suspected: vec![false; symptoms.len()],
            tallies: Tallies::new(symptoms),
            lines: 0,
            carried: Vec::new(),
            is_open: false,
        })
    }

    /// Takes the next piece, wherever it begins and ends.
    pub fn feed(&mut self, mut piece: &[u8]) {
        if self.is_open {
            let Some(end) = piece.find_byte(b'\n') else {
                return self.carry(piece);
            };
            self.carry(&piece[..end]);
            self.end_line();
            piece = &piece[end + 1..];
        }
        let whole = piece.rfind_byte(b'\n').map_or(0, |at| at + 1);
        self.block(&piece[..whole]);
        self.carry(&piece[whole..]);
    }

    /// Takes one line, without its end.
    pub fn line(&mut self, line: &[u8]) {
        self.lines += 1;
        let line = &line[..line.len().min(LONGEST_LINE)];
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if let Some((index, at)) = self.recognise(line) {
            self.tallies.add(index, self.lines, || example(line, at));
        }
    }

    /// The end of the log. `near` are walls that the process in question is known to be at.
    #[must_use]
    pub fn finish(mut self, near: &[WallName]) -> Explanation {
        if self.is_open {
            self.end_line();
        }
        let symptoms = self.playbook.symptoms();
        let (counted, doubtful) = self.tallies.finish(near);
        let found = |tallies: Vec<Option<Tally>>| {
            let rows = symptoms.iter().zip(tallies);
            rows.filter_map(|(symptom, tally)| Some((symptom, Found::new(symptom, tally?))))
        };
        let mut list: Vec<Found> = found(counted).map(|(_, found)| found).collect();
        list.sort_by(|a, b| {
            let by_certainty = b.certainty.cmp(&a.certainty);
            by_certainty.then(b.count.cmp(&a.count))
        });
        let not_counted = found(doubtful).map(|(symptom, found)| NotCounted {
            why: why_not(symptom, &found),
            found,
        });
        Explanation {
            lines_read: self.lines,
            verdict: verdict(self.lines, &list),
            not_counted: not_counted.collect(),
            symptoms: list,
        }
    }

    /// Whole lines. Only those with an anchor are taken apart; of the others the ends are counted.
    fn block(&mut self, mut block: &[u8]) {
        while let Some(anchor) = self.anchors.find(block) {
            let start = block[..anchor.start()].rfind_byte(b'\n');
            let start = start.map_or(0, |at| at + 1);
            let end = block[anchor.end()..].find_byte(b'\n');
            let end = end.map_or(block.len(), |at| anchor.end() + at);
            self.lines += line_ends(&block[..start]);
            self.line(&block[start..end]);
            block = block.get(end + 1..).unwrap_or_default();
        }
        self.lines += line_ends(block);
    }

    fn carry(&mut self, piece: &[u8]) {
        let room = LONGEST_LINE.saturating_sub(self.carried.len());
        self.carried
            .extend_from_slice(&piece[..piece.len().min(room)]);
        self.is_open |= !piece.is_empty();
    }

    fn end_line(&mut self) {
        let mut line = std::mem::take(&mut self.carried);
        self.line(&line);
        line.clear();
        self.carried = line;
        self.is_open = false;
    }

    /// The first symptom of the table that this line is, and where its telling part begins.
    fn recognise(&mut self, line: &[u8]) -> Option<(usize, usize)> {
        self.suspected.fill(false);
        let mut any = false;
        for anchor in self.anchors.find_overlapping_iter(line) {
            self.suspected[self.owners[anchor.pattern().as_usize()]] = true;
            any = true;
        }
        if !any || has(self.playbook.ignore(), line) {
            return None;
        }
        let symptoms = self.playbook.symptoms().iter().enumerate();
        let mut suspects = symptoms.filter(|(index, _)| self.suspected[*index]);
        suspects.find_map(|(index, symptom)| {
            let mut places = symptom.patterns.iter().filter_map(|one| one.find(line));
            let at = places.next()?;
            (!has(&symptom.unless, line)).then_some((index, at))
        })
    }
}

impl Found {
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

fn has(patterns: &[Pattern], line: &[u8]) -> bool {
    patterns.iter().any(|pattern| pattern.find(line).is_some())
}

fn line_ends(bytes: &[u8]) -> u64 {
    bytes.iter().filter(|byte| **byte == b'\n').count() as u64
}

fn verdict(lines: u64, found: &[Found]) -> Verdict {
    if lines == 0 {
        Verdict::Empty
    } else if found.is_empty() {
        Verdict::Nothing
    } else if found.iter().any(|found| found.wall.is_of_descriptors()) {
        Verdict::Descriptors
    } else {
        Verdict::OtherWall
    }
}

fn why_not(symptom: &Symptom, found: &Found) -> String {
    if symptom.wall == WallName::None {
        "no wall of the kernel".to_owned()
    } else if found.count < symptom.at_least {
        format!("fewer than {} lines", symptom.at_least)
    } else {
        format!("no sure line within {NEAR} lines of it")
    }
}

/// What is around the telling part of a line. Characters are not cut in two.
fn example(line: &[u8], at: usize) -> Text {
    if line.len() <= EXAMPLE {
        return Text::from(line);
    }
    let is_inside = |index: usize| line.get(index).is_some_and(|byte| byte & 0xc0 == 0x80);
    let mut start = at.saturating_sub(EXAMPLE / 3).min(line.len() - EXAMPLE);
    let mut end = start + EXAMPLE;
    while is_inside(start) && start < at {
        start += 1;
    }
    while is_inside(end) && end > at {
        end -= 1;
    }
    Text::from(&line[start..end])
}
