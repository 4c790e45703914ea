//! `fdguard inspect --watch`: reports when a database is damaged, and which process held it.

use std::io::Write;
use std::os::fd::AsFd as _;
use std::path::Path;
use std::time::{Duration, Instant};

use fdguard_core::hazard::Hazard;
use fdguard_core::units::{counted, duration};
use fdguard_core::{Gap, Text};
use fdguard_files::holding::Holding;
use fdguard_files::watch::{FileChange, FileEvent};
use fdguard_files::{FileFinding, FileWatch};
use fdguard_probe::Probe;
use fdguard_process::signals::Signals;
use jiff::Timestamp;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::Serialize;

use super::{text_of, trace};
use crate::cli::InspectArgs;
use crate::exit;
use crate::output::OutputStream;
use crate::report::trace::hazard;
use crate::terminal::{sanitize, sanitize_str};

/// How long to sleep when no look is scheduled.
const LONG: Duration = Duration::from_secs(3600);

pub(super) fn run(args: &InspectArgs) -> anyhow::Result<u8> {
    let probe = Probe::new()?;
    let stop = Signals::listen_for_end()?;
    let mut watch = FileWatch::start(&args.files)?;
    let mut teller = Teller {
        out: OutputStream::open(args.output.as_deref())?,
        json: args.json,
        bad: 0,
        gone: 0,
    };
    teller.begin(&watch)?;
    let began = Instant::now();
    let end = args.length.map(|length| began + length);
    loop {
        for event in watch.poll()? {
            teller.tell(&probe, &event)?;
        }
        let due = [watch.due(), end].into_iter().flatten().min();
        let left = due.map_or(LONG, |due| due.saturating_duration_since(Instant::now()));
        if end.is_some_and(|end| Instant::now() >= end) || wait(&watch, &stop, left) {
            break;
        }
    }
    teller.end(&watch, began.elapsed())?;
    let is_found = teller.bad + teller.gone > 0;
    teller.out.finish()?;
    Ok(if is_found {
        exit::FINDINGS
    } else {
        exit::CLEAN
    })
}

/// Waits for a kernel event, a signal or the timeout; returns whether it was a signal.
fn wait(watch: &FileWatch, stop: &Signals, longest: Duration) -> bool {
    let told = watch.as_fd();
    let mut fds = [
        PollFd::new(&told, PollFlags::IN),
        PollFd::new(stop, PollFlags::IN),
    ];
    let timeout = Timespec::try_from(longest).unwrap_or(Timespec {
        tv_sec: 3600,
        tv_nsec: 0,
    });
    // If interrupted by a signal, it checks again immediately.
    let _ = poll(&mut fds, Some(&timeout));
    !fds[1].revents().is_empty()
}

struct Teller {
    out: OutputStream,
    json: bool,
    bad: u64,
    gone: u64,
}

/// One event as JSON.
#[derive(Debug, Serialize)]
struct Line<'a> {
    schema: &'static str,
    at: Timestamp,
    event: &'static str,
    path: Text,
    findings: &'a [FileFinding],
    holders: &'a Holding,
    /// From a trace of a holder: the line that wrote.
    hazards: &'a [Hazard],
    gaps: &'a [Gap],
}

#[derive(Debug, Serialize)]
struct First {
    schema: &'static str,
    at: Timestamp,
    event: &'static str,
    databases: usize,
}

#[derive(Debug, Serialize)]
struct Last {
    schema: &'static str,
    at: Timestamp,
    event: &'static str,
    databases: usize,
    looks: u64,
    went_bad: u64,
    deleted_or_replaced: u64,
    seconds: f64,
}

/// Maximum number of hazards shown to people.
const MOST_HAZARDS: usize = 4;

const SCHEMA: &str = "fdguard.inspection-event/1";

impl Teller {
    fn tell(&mut self, probe: &Probe, event: &FileEvent) -> anyhow::Result<()> {
        let at = Timestamp::now();
        let (word, findings): (_, &[FileFinding]) = match &event.change {
            FileChange::Bad(findings) => ("bad", findings),
            FileChange::Sound => ("sound", &[]),
            FileChange::Deleted => ("deleted", &[]),
            FileChange::Replaced => ("replaced", &[]),
            FileChange::Appeared => ("appeared", &[]),
        };
        self.bad += u64::from(word == "bad");
        self.gone += u64::from(matches!(word, "deleted" | "replaced"));
        let asks = matches!(word, "bad" | "deleted" | "replaced");
        let holders = if asks {
            Holding::find_holders(probe, &event.path, true)?
        } else {
            Holding::default()
        };
        let hazards = if word == "bad" {
            trace::hazards(&holders)
        } else {
            Vec::new()
        };
        if self.json {
            let line = Line {
                schema: SCHEMA,
                at,
                event: word,
                path: text_of(&event.path),
                findings,
                holders: &holders,
                hazards: &hazards,
                gaps: &holders.gaps,
            };
            serde_json::to_writer(&mut self.out, &line)?;
            self.out.write_all(b"\n")?;
        } else {
            let line = line(at, word, &event.path, findings, &holders);
            writeln!(self.out, "{}", sanitize_str(&line))?;
            // An actual stray write explains the damage; without one, a possible one might.
            let wrote = |one: &&Hazard| one.rule == "recycled-write";
            let has_writer = hazards.iter().any(|one| wrote(&one));
            let told = hazards.iter().filter(|one| !has_writer || wrote(one));
            for one in told.take(MOST_HAZARDS) {
                writeln!(self.out, "  {}", sanitize_str(&hazard_line(one)))?;
            }
        }
        Ok(self.out.flush()?)
    }

    fn begin(&mut self, watch: &FileWatch) -> anyhow::Result<()> {
        let first = First {
            schema: SCHEMA,
            at: Timestamp::now(),
            event: "begin",
            databases: watch.databases(),
        };
        if self.json {
            serde_json::to_writer(&mut self.out, &first)?;
            self.out.write_all(b"\n")?;
        } else {
            writeln!(
                self.out,
                "watching {}",
                counted(first.databases, "database")
            )?;
        }
        Ok(self.out.flush()?)
    }

    fn end(&mut self, watch: &FileWatch, took: Duration) -> anyhow::Result<()> {
        let last = Last {
            schema: SCHEMA,
            at: Timestamp::now(),
            event: "end",
            databases: watch.databases(),
            looks: watch.looks(),
            went_bad: self.bad,
            deleted_or_replaced: self.gone,
            seconds: (took.as_secs_f64() * 1000.0).round() / 1000.0,
        };
        if self.json {
            serde_json::to_writer(&mut self.out, &last)?;
            self.out.write_all(b"\n")?;
        } else {
            writeln!(
                self.out,
                "watched {} for {}, {} checks: {} went bad, {} deleted or replaced",
                counted(last.databases, "database"),
                duration(last.seconds),
                last.looks,
                last.went_bad,
                last.deleted_or_replaced
            )?;
        }
        Ok(self.out.flush()?)
    }
}

fn line(
    at: Timestamp,
    word: &str,
    path: &Path,
    findings: &[FileFinding],
    holders: &Holding,
) -> String {
    let name = sanitize(&text_of(path));
    let what = match (word, findings.first()) {
        ("bad", Some(first)) => format!("went bad: {}", first.message),
        ("deleted", _) => "was deleted".to_owned(),
        ("replaced", _) => "was replaced by another file".to_owned(),
        ("sound", _) => "is intact again".to_owned(),
        _ => "appeared".to_owned(),
    };
    let names: Vec<String> = holders
        .processes
        .iter()
        .map(fdguard_files::holding::HoldingProcess::name)
        .collect();
    let held = match (names.is_empty(), word) {
        (true, "bad") => "; no visible process holds it".to_owned(),
        (true, _) => String::new(),
        (false, "bad") => format!("; held by {}", names.join(", ")),
        (false, _) => format!("; {} still uses the old file", names.join(", ")),
    };
    format!("{at:.3} {name} {what}{held}")
}

/// `recycled-write in pid 12: …; closed by a.py:5 stop (thread 7); used by …`.
fn hazard_line(one: &Hazard) -> String {
    let parties: Vec<String> = hazard::parties(one)
        .into_iter()
        .map(|(what, party)| format!("{what} {}", hazard::who(party)))
        .collect();
    format!(
        "{} in pid {}: {}; {}",
        one.rule,
        one.pid,
        one.message,
        parties.join("; ")
    )
}
