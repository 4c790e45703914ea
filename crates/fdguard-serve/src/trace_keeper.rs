//! The optional action: a trace of a process whose leak is confirmed, for services that the
//! operator named. `fdguard trace` runs in a process of its own, one at a time, once a day for each
//! service.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use crate::background_queue::{BackgroundQueue, BackgroundWork};
use crate::evidence::{name_of, remove_oldest};
use crate::limited_child::{self, GRACE};
use crate::service::ServiceKey;

/// Between two traces of one service.
const PAUSE: SignedDuration = SignedDuration::from_hours(24);
/// Lines that a finding shows.
const MOST_LINES: usize = 10;
/// Files of traces that are kept: three for each.
const MOST_FILES: usize = 3 * 32;
/// What the name of a file with the time of a service's last trace ends with.
const TIME: &str = "traced";
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
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
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

/// Decides and remembers; the work is done by a thread for each trace, one at a time.
#[derive(Debug)]
pub(crate) struct TraceKeeper {
    options: TraceOptions,
    /// By the beginning of the file name. The traces of earlier starts count.
    traced: HashMap<String, Timestamp>,
    queue: BackgroundQueue<WantedTrace>,
}

#[derive(Clone, Debug)]
struct WantedTrace {
    options: TraceOptions,
    pid: u32,
    finding: u64,
    stem: PathBuf,
}

impl BackgroundWork for WantedTrace {
    type Outcome = KeptTrace;

    fn run(self) -> KeptTrace {
        match trace(&self.options, self.pid, &self.stem) {
            Ok(note) => KeptTrace {
                finding: self.finding,
                note,
            },
            Err(why) => self.failed(why),
        }
    }

    fn failed(self, why: String) -> KeptTrace {
        let note = TraceNote {
            lines: Vec::new(),
            folded: false,
            error: Some(why),
            stem: self.stem,
        };
        KeptTrace {
            finding: self.finding,
            note,
        }
    }
}

impl TraceKeeper {
    pub(crate) fn new(options: TraceOptions) -> Self {
        Self {
            traced: traced_before(&options.dir),
            options,
            queue: BackgroundQueue::new("fdguard-trace"),
        }
    }

    fn is_due(&self, service: &ServiceKey) -> bool {
        let with_kind = service.to_string();
        let mut named = self.options.services.iter();
        let is_allowed = named.any(|name| *name == service.name || *name == with_kind);
        is_allowed && !self.traced.contains_key(&name_of(service))
    }

    /// Begins a trace, if this service may be traced and was not lately; it waits while another
    /// one is made. Returns whether there will be one.
    pub(crate) fn begin(
        &mut self,
        service: &ServiceKey,
        pid: u32,
        finding: u64,
        now: Timestamp,
    ) -> bool {
        // A clock that was set back must not forbid traces for ever.
        self.traced
            .retain(|_, last| now.duration_since(*last).abs() < PAUSE);
        if !self.is_due(service) {
            return false;
        }
        let wanted = WantedTrace {
            options: self.options.clone(),
            pid,
            finding,
            stem: self.options.dir.join(format!("pid-{pid}")),
        };
        if !self.queue.push(wanted) {
            return false;
        }
        let name = name_of(service);
        note_time(&self.options.dir, &name, now);
        self.traced.insert(name, now);
        true
    }

    /// A trace that is done, or will not be made.
    pub(crate) fn take(&mut self) -> Option<KeptTrace> {
        self.queue.take()
    }
}

/// Writes down when a service was traced, for the next start.
fn note_time(dir: &Path, name: &str, now: Timestamp) {
    // On a full disk the next start may trace again.
    drop(std::fs::create_dir_all(dir));
    drop(std::fs::write(
        dir.join(format!("{name}.{TIME}")),
        now.to_string(),
    ));
}

/// When services were traced last, by earlier starts.
fn traced_before(dir: &Path) -> HashMap<String, Timestamp> {
    let mut traced = HashMap::new();
    // Where nothing was traced, there is no directory.
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        let name = path.file_stem().and_then(|name| name.to_str());
        let is_time = path.extension().is_some_and(|ending| ending == TIME);
        let text = std::fs::read_to_string(&path).ok().filter(|_| is_time);
        let time = text.and_then(|text| text.trim().parse().ok());
        traced.extend(name.map(str::to_owned).zip(time));
    }
    traced
}

fn trace(options: &TraceOptions, pid: u32, stem: &Path) -> Result<TraceNote, String> {
    std::fs::create_dir_all(&options.dir).map_err(|error| error.to_string())?;
    let file = |ending: &str| stem.with_extension(ending);
    remove_oldest(&options.dir, |name| name.starts_with("pid-"), MOST_FILES);
    let mut command = Command::new(&options.program);
    command
        .args(["trace", &pid.to_string(), "--json", "--for"])
        .arg(format!("{}ms", options.length.as_millis()))
        .arg("-o")
        .arg(file("json"))
        .arg("--folded")
        .arg(file("folded"))
        .arg("--pprof")
        .arg(file("pb.gz"));
    let end = limited_child::run(&mut command, options.length + GRACE)
        .map_err(|why| format!("fdguard trace: {why}"))?;
    if !matches!(end.status.code(), Some(0 | 1)) {
        let mut lines = end.messages.lines();
        let last = lines.rfind(|line| !line.starts_with("hint:"));
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
    use std::os::unix::fs::PermissionsExt as _;
    use std::path::Path;
    use std::time::Duration;

    use jiff::Timestamp;

    use super::{KeptTrace, TraceKeeper, TraceOptions, lines};
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

    /// The program writes a document without lines where it is told to.
    fn options(dir: &Path) -> TraceOptions {
        let program = dir.join("trace");
        let script = "#!/bin/sh\nwhile [ \"$1\" != -o ]; do shift; done\n\
                      echo '{\"sites\":[]}' > \"$2\"\n";
        std::fs::write(&program, script).unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        TraceOptions {
            program,
            dir: dir.join("traces"),
            services: vec!["web".to_owned(), "unit db.service".to_owned()],
            length: Duration::from_secs(1),
        }
    }

    fn next(keeper: &mut TraceKeeper) -> KeptTrace {
        testkit::wait_for("a trace", || keeper.take())
    }

    fn hours(hours: i64) -> Timestamp {
        Timestamp::UNIX_EPOCH + jiff::SignedDuration::from_hours(hours)
    }

    fn web() -> ServiceKey {
        ServiceKey::new(ServiceKind::Command, "web")
    }

    fn db() -> ServiceKey {
        ServiceKey::new(ServiceKind::Unit, "db.service")
    }

    #[test]
    fn only_named_services_are_traced() {
        let dir = tempfile::tempdir().unwrap();
        let keeper = TraceKeeper::new(options(dir.path()));
        assert!(!keeper.is_due(&ServiceKey::new(ServiceKind::Command, "other")));
        assert!(!keeper.is_due(&ServiceKey::new(ServiceKind::Command, "db.service")));
        assert!(keeper.is_due(&db()) && keeper.is_due(&web()));
    }

    #[test]
    fn a_second_service_waits_for_the_first() {
        let dir = tempfile::tempdir().unwrap();
        let mut keeper = TraceKeeper::new(options(dir.path()));
        assert!(keeper.begin(&web(), 7, 1, hours(0)));
        assert!(keeper.begin(&db(), 8, 2, hours(0)));
        for finding in [1, 2] {
            let done = next(&mut keeper);
            assert_eq!((done.finding, done.note.error), (finding, None));
        }
    }

    #[test]
    fn a_service_is_traced_once_a_day_whatever_is_started_again() {
        let dir = tempfile::tempdir().unwrap();
        let mut keeper = TraceKeeper::new(options(dir.path()));
        assert!(keeper.begin(&web(), 7, 1, hours(0)));
        next(&mut keeper);
        assert!(!keeper.begin(&web(), 7, 2, hours(23)));
        let mut keeper = TraceKeeper::new(options(dir.path()));
        assert!(!keeper.begin(&web(), 7, 3, hours(23)), "the start before");
        assert!(keeper.begin(&web(), 7, 4, hours(25)));
        assert_eq!(next(&mut keeper).finding, 4);
    }

    #[test]
    fn a_failed_trace_says_why() {
        let dir = tempfile::tempdir().unwrap();
        let mut options = options(dir.path());
        let script = "#!/bin/sh\necho 'fdguard: no such process' >&2\nexit 3\n";
        std::fs::write(&options.program, script).unwrap();
        let mut keeper = TraceKeeper::new(options.clone());
        assert!(keeper.begin(&web(), 7, 1, hours(0)));
        let why = next(&mut keeper).note.error;
        assert_eq!(why.as_deref(), Some("fdguard: no such process"));
        options.program = dir.path().join("missing");
        let mut keeper = TraceKeeper::new(options);
        assert!(keeper.begin(&db(), 7, 2, hours(0)));
        assert!(next(&mut keeper).note.error.is_some());
    }
}
