//! The optional action: a trace of a process whose leak is confirmed, for services that the
//! operator named. `fdguard trace` runs in a process of its own, one at a time, once a day for each
//! service.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde::Serialize;

use crate::service::ServiceKey;

/// Between two traces of one service.
const PAUSE: SignedDuration = SignedDuration::from_hours(24);
/// Lines that a finding shows.
const MOST_LINES: usize = 10;
/// The largest document that is read back.
const MOST_BYTES: u64 = 32 << 20;

/// Which services may be traced, and how.
#[derive(Clone, Debug)]
pub struct TraceOptions {
    /// The program: fdguard itself.
    pub program: PathBuf,
    /// Where traces are kept.
    pub dir: PathBuf,
    /// Names of services, with or without their kind.
    pub services: Vec<String>,
    /// How long a trace lasts.
    pub length: Duration,
}

/// What a trace adds to a finding.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TraceNote {
    /// The lines that opened what is still open, most first.
    pub lines: Vec<TracedLine>,
    /// Whether stacks are kept, for the flame graph.
    pub folded: bool,
    /// Why the trace failed.
    pub error: Option<String>,
    /// The files without their ending.
    #[serde(skip)]
    pub stem: PathBuf,
}

/// One line of code.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TracedLine {
    /// `function (file:line)`.
    pub place: String,
    /// Descriptors opened there that are still open.
    pub open: u64,
}

/// A trace that is done.
#[derive(Debug)]
pub(crate) struct KeptTrace {
    pub(crate) finding: u64,
    pub(crate) note: TraceNote,
}

/// Decides and remembers.
#[derive(Debug)]
pub(crate) struct TraceKeeper {
    options: TraceOptions,
    traced: HashMap<ServiceKey, Timestamp>,
    is_busy: bool,
    done: (Sender<KeptTrace>, Receiver<KeptTrace>),
}

impl TraceKeeper {
    pub(crate) fn new(options: TraceOptions) -> Self {
        Self {
            options,
            traced: HashMap::new(),
            is_busy: false,
            done: channel(),
        }
    }

    fn is_due(&self, service: &ServiceKey, now: Timestamp) -> bool {
        let with_kind = service.to_string();
        let mut named = self.options.services.iter();
        let is_allowed = named.any(|name| *name == service.name || *name == with_kind);
        let last = self.traced.get(service);
        let is_rested = last.is_none_or(|last| now.duration_since(*last) >= PAUSE);
        is_allowed && is_rested && !self.is_busy
    }

    /// Begins a trace, if this service may be traced and was not lately. Returns whether it did.
    pub(crate) fn begin(
        &mut self,
        service: &ServiceKey,
        pid: u32,
        finding: u64,
        now: Timestamp,
    ) -> bool {
        if !self.is_due(service, now) {
            return false;
        }
        self.traced.insert(service.clone(), now);
        let (options, done) = (self.options.clone(), self.done.0.clone());
        let work = move || {
            let stem = options.dir.join(format!("pid-{pid}"));
            let note = trace(&options, pid, &stem).unwrap_or_else(|why| TraceNote {
                lines: Vec::new(),
                folded: false,
                error: Some(why),
                stem,
            });
            // The loop may have ended.
            drop(done.send(KeptTrace { finding, note }));
        };
        let thread = std::thread::Builder::new().name("fdguard-trace".to_owned());
        self.is_busy = thread.stack_size(256 << 10).spawn(work).is_ok();
        self.is_busy
    }

    /// A trace that is done.
    pub(crate) fn take(&mut self) -> Option<KeptTrace> {
        let done = self.done.1.try_recv().ok()?;
        self.is_busy = false;
        Some(done)
    }
}

fn trace(options: &TraceOptions, pid: u32, stem: &Path) -> Result<TraceNote, String> {
    std::fs::create_dir_all(&options.dir).map_err(|error| error.to_string())?;
    let file = |ending: &str| stem.with_extension(ending);
    let ended = Command::new(&options.program)
        .args(["trace", &pid.to_string(), "--json", "--for"])
        .arg(format!("{}ms", options.length.as_millis()))
        .arg("-o")
        .arg(file("json"))
        .arg("--folded")
        .arg(file("folded"))
        .arg("--pprof")
        .arg(file("pb.gz"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .output();
    let ended = ended.map_err(|error| error.to_string())?;
    if !matches!(ended.status.code(), Some(0 | 1)) {
        let text = String::from_utf8_lossy(&ended.stderr);
        let last = text.lines().rfind(|line| !line.starts_with("hint:"));
        return Err(last.unwrap_or("fdguard trace failed").to_owned());
    }
    let size = std::fs::metadata(file("json"))
        .map_err(|error| error.to_string())?
        .len();
    if size > MOST_BYTES {
        return Err(format!("the trace has {size} bytes, which is too much"));
    }
    let text = std::fs::read(file("json")).map_err(|error| error.to_string())?;
    let lines = lines(&text)?;
    let folded = file("folded").is_file();
    Ok(TraceNote {
        lines,
        folded,
        error: None,
        stem: stem.to_owned(),
    })
}

/// The lines of a trace's document.
fn lines(document: &[u8]) -> Result<Vec<TracedLine>, String> {
    let document: serde_json::Value =
        serde_json::from_slice(document).map_err(|error| error.to_string())?;
    let sites = document["sites"]
        .as_array()
        .ok_or("the trace has no sites")?;
    let mut lines: Vec<TracedLine> = sites
        .iter()
        .filter_map(|site| {
            let open = site["live"].as_u64().filter(|open| *open > 0)?;
            Some(TracedLine {
                place: place(&site["culprit"])?,
                open,
            })
        })
        .collect();
    lines.sort_by(|a, b| b.open.cmp(&a.open).then_with(|| a.place.cmp(&b.place)));
    lines.truncate(MOST_LINES);
    Ok(lines)
}

/// `function (file:line)`, or what of it is known.
fn place(frame: &serde_json::Value) -> Option<String> {
    let text = |name: &str| frame[name].as_str().map(str::to_owned);
    let file = text("file").map(|file| match frame["line"].as_u64() {
        Some(line) => format!("{file}:{line}"),
        None => file,
    });
    match (text("function"), file) {
        (Some(function), Some(file)) => Some(format!("{function} ({file})")),
        (function, file) => function.or(file),
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::time::Duration;

    use jiff::Timestamp;

    use super::{TraceKeeper, TraceOptions, lines};
    use crate::service::{ServiceKey, ServiceKind};

    #[test]
    fn lines_come_from_sites_that_have_something_open() {
        let document = br#"{"sites":[
            {"culprit":{"file":"/a.py","line":4,"function":"open_one"},"live":3},
            {"culprit":{"file":"/b.py","line":9,"function":"load"},"live":7},
            {"culprit":{"file":null,"line":null,"function":"main"},"live":1},
            {"culprit":null,"live":5},
            {"culprit":{"file":"/c.py","line":1,"function":"x"},"live":0}]}"#;
        let found = lines(document).unwrap();
        let found: Vec<_> = found
            .iter()
            .map(|one| (one.place.as_str(), one.open))
            .collect();
        assert_eq!(
            found,
            [
                ("load (/b.py:9)", 7),
                ("open_one (/a.py:4)", 3),
                ("main", 1)
            ]
        );
        assert!(lines(b"{}").is_err());
        assert!(lines(b"x").is_err());
    }

    #[test]
    fn only_named_services_are_traced_and_only_once_a_day() {
        let mut keeper = TraceKeeper::new(TraceOptions {
            program: PathBuf::from("/bin/false"),
            dir: std::env::temp_dir(),
            services: vec!["web".to_owned(), "unit db.service".to_owned()],
            length: Duration::from_secs(1),
        });
        let now = Timestamp::UNIX_EPOCH;
        let web = ServiceKey::new(ServiceKind::Command, "web");
        assert!(!keeper.is_due(&ServiceKey::new(ServiceKind::Command, "other"), now));
        assert!(!keeper.is_due(&ServiceKey::new(ServiceKind::Command, "db.service"), now));
        assert!(keeper.is_due(&ServiceKey::new(ServiceKind::Unit, "db.service"), now));
        keeper.traced.insert(web.clone(), now);
        assert!(!keeper.is_due(&web, now + jiff::SignedDuration::from_hours(23)));
        assert!(keeper.is_due(&web, now + jiff::SignedDuration::from_hours(25)));
    }
}
