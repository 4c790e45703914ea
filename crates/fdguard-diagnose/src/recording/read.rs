//! Reads a recording, complete or truncated.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::io::{self, BufRead, BufReader, Read};

use fdguard_core::Gap;
use fdguard_core::recording::{RECORDING_SCHEMA, RecordingEntry, RecordingHeader};
use fdguard_core::units::counted;
use serde::Deserialize;

use super::frames::{Frames, is_zstd};
use crate::Error;

/// fdguard's own lines are far shorter; a file without newlines must not fill the memory.
const LONGEST: u64 = 64 << 20;

/// Further kinds are counted but not named.
const MOST_KINDS: usize = 4;

const HOW: &str = "create a recording with fdguard watch --record FILE";

/// The entries of a recording, as an iterator. A recording that stops in the middle is not an
/// error: the entries before are returned, and [`Replay::cut`] gives the reason.
pub struct Replay {
    source: Box<dyn BufRead>,
    header: RecordingHeader,
    /// Lines read so far.
    line: u64,
    cut: Option<String>,
    done: bool,
    /// Entries of unknown kinds.
    skipped: BTreeMap<String, u64>,
    /// The time of the latest entry of each process.
    latest: HashMap<u32, f64>,
    /// Entries with an earlier time than their predecessor.
    backwards: u64,
    /// Gaps to return after the last line.
    gaps: Vec<Gap>,
}

impl fmt::Debug for Replay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Replay")
            .field("header", &self.header)
            .field("line", &self.line)
            .field("cut", &self.cut)
            .finish_non_exhaustive()
    }
}

impl Replay {
    /// Reads the first line; the first bytes show whether it is compressed. Messages call the
    /// recording by this name.
    ///
    /// # Errors
    ///
    /// If it is not a recording that this version reads; never for one that stops in the middle.
    pub fn new(name: &str, mut source: Box<dyn Read>) -> Result<Self, Error> {
        let mut head = Vec::new();
        (&mut source)
            .take(4)
            .read_to_end(&mut head)
            .map_err(|error| Error::file(name, error))?;
        let compressed = is_zstd(&head);
        let whole = BufReader::new(io::Cursor::new(head).chain(source));
        let mut source: Box<dyn BufRead> = if compressed {
            Box::new(BufReader::new(Frames::new(whole)))
        } else {
            Box::new(whole)
        };
        let header = header(name, &mut source)?;
        Ok(Self {
            source,
            header,
            line: 1,
            cut: None,
            done: false,
            skipped: BTreeMap::new(),
            latest: HashMap::new(),
            backwards: 0,
            gaps: Vec::new(),
        })
    }

    /// Its first line.
    #[must_use]
    pub fn header(&self) -> &RecordingHeader {
        &self.header
    }

    /// Where and why it stops in the middle; `None` until a fault is found, so call it at the end.
    #[must_use]
    pub fn cut(&self) -> Option<String> {
        self.cut.clone()
    }

    /// The next line that is an entry; `None` at the end or at a fault.
    fn next_line(&mut self) -> Option<RecordingEntry> {
        loop {
            let line = match read_line(&mut self.source) {
                Ok(line) => line,
                Err(error) => return self.stop(&format!("after line {}: {error}", self.line)),
            };
            self.line += 1;
            let at = self.line;
            let (bytes, is_whole) = match &line {
                Line::Whole(bytes) if bytes.trim_ascii().is_empty() => continue,
                Line::Whole(bytes) => (bytes, true),
                Line::Open(bytes) => (bytes, false),
                Line::TooLong => return self.stop(&format!("line {at} is longer than 64 MiB")),
                Line::End => return None,
            };
            if let Ok(entry) = serde_json::from_slice::<RecordingEntry>(bytes) {
                return Some(self.in_order(entry));
            }
            match serde_json::from_slice::<serde_json::Value>(bytes) {
                Ok(value) if value.get("schema").is_some() => {
                    return self.stop(&format!("another recording begins at line {at}"));
                }
                Ok(value) => self.skip(&value),
                Err(_) if !is_whole => {
                    return self.stop(&format!("it ends in the middle of line {at}"));
                }
                Err(error) => return self.stop(&format!("line {at} is damaged: {error}")),
            }
        }
    }

    fn stop(&mut self, why: &str) -> Option<RecordingEntry> {
        self.cut = Some(why.to_owned());
        None
    }

    fn skip(&mut self, value: &serde_json::Value) {
        let first = value.as_object().and_then(|object| object.keys().next());
        let kind: String = first
            .map_or("unnamed", String::as_str)
            .chars()
            .take(40)
            .collect();
        let is_known = self.skipped.contains_key(&kind) || self.skipped.len() < MOST_KINDS;
        let kind = if is_known { kind } else { "others".to_owned() };
        *self.skipped.entry(kind).or_default() += 1;
    }

    /// Time does not go backwards: such an entry is kept, with the time of its predecessor.
    fn in_order(&mut self, mut entry: RecordingEntry) -> RecordingEntry {
        let (id, at) = match &mut entry {
            RecordingEntry::Process(appearance) => (appearance.id, &mut appearance.at),
            RecordingEntry::Look { id, look } => (*id, &mut look.at),
            RecordingEntry::Gone { id, at } => (*id, at),
            RecordingEntry::Gap(_) | RecordingEntry::End { .. } => return entry,
        };
        let latest = self.latest.entry(id).or_insert(*at);
        if *at < *latest {
            *at = *latest;
            self.backwards += 1;
        }
        *latest = *at;
        entry
    }

    /// Faults that did not end it.
    fn troubles(&self) -> Vec<Gap> {
        let mut gaps = Vec::new();
        let skipped: u64 = self.skipped.values().sum();
        if skipped > 0 {
            let kinds: Vec<&str> = self.skipped.keys().map(String::as_str).collect();
            gaps.push(Gap::new(
                format!(
                    "{} of the recording ({})",
                    counted(skipped, "entry"),
                    kinds.join(", ")
                ),
                "this version of fdguard does not support them",
                format!("read it with fdguard {} or later", self.header.version),
            ));
        }
        if self.backwards > 0 {
            gaps.push(Gap::new(
                format!(
                    "the timestamps of {} of the recording",
                    counted(self.backwards, "entry")
                ),
                "the recording's clock went backwards",
                "none: fdguard used the time of the preceding entry",
            ));
        }
        gaps
    }
}

impl Iterator for Replay {
    type Item = RecordingEntry;

    fn next(&mut self) -> Option<RecordingEntry> {
        if !self.done {
            if let Some(entry) = self.next_line() {
                return Some(entry);
            }
            self.done = true;
            self.gaps = self.troubles();
        }
        (!self.gaps.is_empty()).then(|| RecordingEntry::Gap(self.gaps.remove(0)))
    }
}

enum Line {
    /// With its line break.
    Whole(Vec<u8>),
    /// The last line, without a line break.
    Open(Vec<u8>),
    TooLong,
    End,
}

fn read_line(source: &mut dyn BufRead) -> io::Result<Line> {
    let mut line = Vec::new();
    source.take(LONGEST + 1).read_until(b'\n', &mut line)?;
    Ok(match line.last() {
        None => Line::End,
        Some(b'\n') => {
            line.pop();
            Line::Whole(line)
        }
        Some(_) if line.len() as u64 > LONGEST => Line::TooLong,
        Some(_) => Line::Open(line),
    })
}

#[derive(Deserialize)]
struct Schema {
    schema: String,
}

/// The first line, or a one-line reason why this is not a recording.
fn header(name: &str, source: &mut dyn BufRead) -> Result<RecordingHeader, Error> {
    let refused = |what: String, hint: &'static str| {
        let message = format!("{name} {what}");
        Err(Error::Input { message, hint })
    };
    let line = match read_line(source).map_err(|error| Error::file(name, error))? {
        Line::End => return refused("is empty".to_owned(), HOW),
        Line::Whole(line) | Line::Open(line) => line,
        Line::TooLong => {
            let what = "is not a recording: its first line is longer than 64 MiB";
            return refused(what.to_owned(), HOW);
        }
    };
    let Ok(Schema { schema }) = serde_json::from_slice(&line) else {
        let begun = format!("{{\"schema\":\"{RECORDING_SCHEMA}\"");
        let what = if line.starts_with(begun.as_bytes()) {
            "ends in the middle of its first line"
        } else {
            "is not a recording: its first line is not a recording header"
        };
        return refused(what.to_owned(), HOW);
    };
    if schema != RECORDING_SCHEMA {
        let (what, hint) = other(&schema);
        return refused(what, hint);
    }
    match serde_json::from_slice(&line) {
        Ok(header) => Ok(header),
        Err(error) => refused(format!("is a damaged recording: line 1: {error}"), HOW),
    }
}

/// Describes a document of another kind or version, with a hint.
fn other(schema: &str) -> (String, &'static str) {
    let version = |schema: &str| {
        schema
            .strip_prefix("fdguard.recording/")?
            .parse::<u64>()
            .ok()
    };
    let shown: String = schema.chars().take(60).collect();
    match (version(schema), version(RECORDING_SCHEMA)) {
        (Some(theirs), Some(ours)) => {
            let age = if theirs > ours {
                "a later"
            } else {
                "an earlier"
            };
            let what = format!(
                "is a recording of {age} fdguard ({shown}); this version reads {RECORDING_SCHEMA}"
            );
            (
                what,
                "read it with the version of fdguard that wrote it, or a later one",
            )
        }
        _ => {
            let hint = match shown.as_str() {
                "fdguard.snapshot/1" | "fdguard.snapshots/1" => {
                    "show a snapshot with fdguard snap --from FILE"
                }
                "fdguard.diagnosis/1" => "name the recording that the diagnosis was made from",
                _ => HOW,
            };
            (format!("is not a recording: its schema is {shown:?}"), hint)
        }
    }
}
