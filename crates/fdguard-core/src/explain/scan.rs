//! Finds symptoms in a log that comes in pieces, in one pass.

use aho_corasick::{AhoCorasick, AhoCorasickKind};
use bstr::ByteSlice as _;

use super::tally::Tallies;
use super::{Explanation, LinePattern, WallName};
use crate::Text;
use crate::located::{ConfigMistake, ValueSource};
use crate::playbook::Playbook;

/// Longer lines are not meant for people; the rest of such a line is ignored.
pub const LONGEST_LINE: usize = 64 << 10;
/// How much of a line is shown as an example.
const EXAMPLE: usize = 300;

/// Reads a log piece by piece.
#[derive(Debug)]
pub struct LogScanner<'a> {
    playbook: &'a Playbook,
    /// Finds the longest part of every pattern at once.
    anchors: AhoCorasick,
    /// The pattern that each anchor belongs to, with the index of its symptom; in the order of the
    /// table.
    patterns: Vec<(usize, &'a LinePattern)>,
    /// Which patterns the current line may match.
    suspected: Suspected,
    /// The current line in lower case.
    lower: Vec<u8>,
    tallies: Tallies<'a>,
    lines: u64,
    /// The beginning of a line whose end has not arrived yet.
    carried: Vec<u8>,
    is_open: bool,
}

impl<'a> LogScanner<'a> {
    /// A scanner for the symptoms of this playbook.
    ///
    /// # Errors
    ///
    /// When there are more patterns than the matcher supports.
    pub fn new(playbook: &'a Playbook) -> Result<Self, ConfigMistake> {
        let symptoms = playbook.symptoms();
        let patterns: Vec<(usize, &LinePattern)> = symptoms
            .iter()
            .enumerate()
            .flat_map(|(index, symptom)| symptom.patterns.iter().map(move |one| (index, one)))
            .collect();
        let anchors = AhoCorasick::builder()
            .ascii_case_insensitive(true)
            .kind(Some(AhoCorasickKind::DFA))
            .build(patterns.iter().map(|(_, pattern)| pattern.anchor()))
            .map_err(|error| {
                let message = format!("too many patterns: {error}");
                ConfigMistake::new(ValueSource::Default, "", message)
            })?;
        Ok(Self {
            playbook,
            anchors,
            suspected: Suspected::of(patterns.len()),
            patterns,
            lower: Vec::new(),
            tallies: Tallies::new(symptoms),
            lines: 0,
            carried: Vec::new(),
            is_open: false,
        })
    }

    /// Takes the next piece; pieces may begin and end anywhere.
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

    /// Takes one line, without its newline.
    pub fn line(&mut self, line: &[u8]) {
        self.lines += 1;
        let line = &line[..line.len().min(LONGEST_LINE)];
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if let Some((index, at)) = self.recognise(line) {
            self.tallies.add(index, self.lines, || example(line, at));
        }
    }

    /// Ends the log. `near` are limits that the process in question is known to have reached.
    #[must_use]
    pub fn finish(mut self, near: &[WallName]) -> Explanation {
        if self.is_open {
            self.end_line();
        }
        let (counted, doubtful) = self.tallies.finish(near);
        Explanation::new(self.lines, self.playbook.symptoms(), counted, doubtful)
    }

    /// Whole lines. Only lines with an anchor are examined; the others are only counted.
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

    /// The first symptom of the table that matches this line, and where the match begins.
    fn recognise(&mut self, line: &[u8]) -> Option<(usize, usize)> {
        for anchor in self.anchors.find_overlapping_iter(line) {
            self.suspected.add(anchor.pattern().as_usize());
        }
        let suspects = self.suspected.take()?;
        self.lower.clear();
        self.lower.extend_from_slice(line);
        self.lower.make_ascii_lowercase();
        let lower = self.lower.as_slice();
        if has(self.playbook.ignore(), lower) {
            return None;
        }
        suspects.iter().find_map(|suspect| {
            let (index, pattern) = self.patterns.get(*suspect)?;
            let at = pattern.find_in_lower(lower)?;
            let unless = &self.playbook.symptoms().get(*index)?.unless;
            (!has(unless, lower)).then_some((*index, at))
        })
    }
}

/// A set of patterns that costs nothing while it is empty.
#[derive(Debug)]
struct Suspected {
    is_in: Vec<bool>,
    list: Vec<usize>,
}

impl Suspected {
    fn of(count: usize) -> Self {
        Self {
            is_in: vec![false; count],
            list: Vec::new(),
        }
    }

    fn add(&mut self, pattern: usize) {
        if !std::mem::replace(&mut self.is_in[pattern], true) {
            self.list.push(pattern);
        }
    }

    /// Empties the set and returns its content, in the order of the table.
    fn take(&mut self) -> Option<Vec<usize>> {
        if self.list.is_empty() {
            return None;
        }
        let mut list = std::mem::take(&mut self.list);
        for pattern in &list {
            self.is_in[*pattern] = false;
        }
        list.sort_unstable();
        Some(list)
    }
}

fn has(patterns: &[LinePattern], lower: &[u8]) -> bool {
    let mut patterns = patterns.iter();
    patterns.any(|pattern| pattern.find_in_lower(lower).is_some())
}

fn line_ends(bytes: &[u8]) -> u64 {
    bytes.iter().filter(|byte| **byte == b'\n').count() as u64
}

/// The part of a line around the match. Characters are not split.
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
