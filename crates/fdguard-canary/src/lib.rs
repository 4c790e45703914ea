//! A canary for tests: did this test close every descriptor that it opened?
//!
//! ```no_run
//! let baseline = fdguard_canary::Baseline::take();
//! // what is tested
//! baseline.assert_restored();
//! ```
//!
//! Descriptors belong to the process, so each test needs a process of its own: run tests with
//! `cargo nextest run`. In a binary that runs several tests in threads, descriptors that another
//! test opens meanwhile cannot be distinguished from those that this test left open; the message
//! warns about it if there are more threads than before. Under `fdguard trace` or `fdguard check`
//! the message includes the lines that opened the remaining descriptors.

use std::collections::BTreeMap;
use std::fmt;

use fdguard_core::{Class, Fd, FdEntry, Gap, Text};
use fdguard_probe::{Options, Probe};

/// What this process held at one moment.
#[derive(Debug)]
pub struct Baseline {
    held: Result<BTreeMap<Fd, Identity>, String>,
    threads: Option<u64>,
}

/// Identifies a descriptor across two looks.
#[derive(Clone, Debug, PartialEq)]
struct Identity {
    class: Class,
    target: Text,
    file: Option<fdguard_core::FileId>,
}

/// One descriptor that is left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftOpen {
    /// Its number.
    pub fd: u32,
    /// What it is.
    pub class: String,
    /// What it points at.
    pub target: String,
    /// The line that opened it, under a tracer.
    pub line: Option<String>,
}

/// Why a baseline is not restored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotRestored {
    /// What is left.
    pub left: Vec<LeftOpen>,
    /// Why that cannot be trusted.
    pub doubt: Option<String>,
    /// Why the descriptors could not be read.
    pub unseen: Option<String>,
}

impl Baseline {
    /// Records what this process holds now.
    #[must_use]
    pub fn take() -> Self {
        Self {
            held: look(),
            threads: threads(),
        }
    }

    /// What was opened since and is still open.
    pub fn compare(&self) -> Result<(), NotRestored> {
        let unseen = |why: &String| NotRestored {
            left: Vec::new(),
            doubt: None,
            unseen: Some(why.clone()),
        };
        let before = self.held.as_ref().map_err(unseen)?;
        let now = look().map_err(|why| unseen(&why))?;
        let new: Vec<(Fd, Identity)> = now
            .into_iter()
            .filter(|(fd, identity)| before.get(fd) != Some(identity))
            .collect();
        if new.is_empty() {
            return Ok(());
        }
        let lines = lines(&new);
        let left = new.into_iter().map(|(fd, identity)| LeftOpen {
            fd,
            class: identity.class.to_string(),
            target: identity.target.to_lossy().into_owned(),
            line: lines.get(&fd).cloned(),
        });
        Err(NotRestored {
            left: left.collect(),
            doubt: doubt(self.threads, threads()),
            unseen: None,
        })
    }

    /// Panics if something that was opened since is still open.
    ///
    /// # Panics
    ///
    /// With class, target and, under a tracer, opening line of everything that is left; and if the
    /// descriptors could not be read.
    #[track_caller]
    pub fn assert_restored(&self) {
        if let Err(why) = self.compare() {
            panic!("{why}");
        }
    }
}

impl fmt::Display for NotRestored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(why) = &self.unseen {
            return write!(f, "could not list descriptors: {why}");
        }
        write!(f, "{} left open:", self.left.len())?;
        for one in &self.left {
            write!(f, "\n  {} {} {}", one.fd, one.class, one.target)?;
            if let Some(line) = &one.line {
                write!(f, ", opened at {line}")?;
            }
        }
        if self.left.iter().all(|one| one.line.is_none()) {
            write!(f, "\n  to find the lines, run: fdguard check -- THIS TEST")?;
        }
        if let Some(doubt) = &self.doubt {
            write!(f, "\n  {doubt}")?;
        }
        Ok(())
    }
}

impl std::error::Error for NotRestored {}

fn look() -> Result<BTreeMap<Fd, Identity>, String> {
    let probe = Probe::new().map_err(|error| error.to_string())?;
    let snapshot = probe.snapshot(std::process::id(), Options::default());
    let snapshot = snapshot.map_err(|error| error.to_string())?;
    let first = |gaps: &[Gap]| gaps.first().map(|gap| gap.why.clone());
    let Some(fds) = snapshot.fds else {
        return Err(first(&snapshot.gaps).unwrap_or_else(|| "no list of descriptors".to_owned()));
    };
    Ok(fds
        .into_iter()
        .map(|entry| (entry.fd, identity(entry)))
        .collect())
}

fn identity(entry: FdEntry) -> Identity {
    Identity {
        class: entry.class.family(),
        target: entry.target,
        file: entry.id,
    }
}

fn threads() -> Option<u64> {
    let listing = std::fs::read_dir("/proc/self/task").ok()?;
    Some(listing.count() as u64)
}

fn doubt(before: Option<u64>, now: Option<u64>) -> Option<String> {
    match (before, now) {
        (Some(before), Some(now)) if now > before => Some(format!(
            "unreliable: this process has {now} threads but had {before} at the baseline; descriptors opened by other tests in \
             this process look the same. Run each test in its own process with cargo nextest run, or use --test-threads=1"
        )),
        _ => None,
    }
}

/// The lines that opened these, from the table that a tracer's library writes.
#[cfg(feature = "lines")]
fn lines(new: &[(Fd, Identity)]) -> BTreeMap<Fd, String> {
    use fdguard_trace::{ProcessTables, Site, Symbols};

    let mut lines = BTreeMap::new();
    let Some(dir) = std::env::var_os("FDGUARD_TRACE_DIR") else {
        return lines;
    };
    let Ok(tables) = ProcessTables::from_dir(dir.as_ref()) else {
        return lines;
    };
    let Some(table) = tables.table_of(std::process::id()) else {
        return lines;
    };
    let mut symbols = Symbols::new();
    for site in Site::rank(&tables, table, new.iter().map(|(fd, _)| *fd), &mut symbols) {
        for open in &site.open {
            if let Some(culprit) = &site.culprit {
                lines.insert(open.fd, fdguard_core::proof::place(culprit));
            }
        }
    }
    lines
}

#[cfg(not(feature = "lines"))]
fn lines(_new: &[(Fd, Identity)]) -> BTreeMap<Fd, String> {
    BTreeMap::new()
}

#[cfg(test)]
mod tests {
    use super::{LeftOpen, NotRestored, doubt};

    #[test]
    fn more_threads_than_before_are_a_reason_to_doubt() {
        assert_eq!(doubt(Some(2), Some(2)), None);
        assert_eq!(doubt(Some(3), Some(2)), None);
        assert_eq!(doubt(None, Some(2)), None);
        let said = doubt(Some(2), Some(9)).unwrap();
        assert!(said.contains("9 threads but had 2"), "{said}");
        assert!(said.contains("cargo nextest run"), "{said}");
    }

    #[test]
    fn the_message_has_class_target_and_line() {
        let left = LeftOpen {
            fd: 7,
            class: "regular".to_owned(),
            target: "/srv/a.log".to_owned(),
            line: Some("a.rs:3 load".to_owned()),
        };
        let said = NotRestored {
            left: vec![left],
            doubt: None,
            unseen: None,
        };
        assert_eq!(
            said.to_string(),
            "1 left open:\n  7 regular /srv/a.log, opened at a.rs:3 load"
        );
    }
}
