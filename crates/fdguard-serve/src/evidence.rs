//! Evidence of a critical finding: `fdguard doctor` in a process of its own, once a day for each
//! service, one at a time. The bundles of earlier starts count.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};

use crate::background_queue::{BackgroundQueue, BackgroundWork};
use crate::limited_child::{self, GRACE};
use crate::service::ServiceKey;

/// Between two bundles of one service.
const PAUSE: SignedDuration = SignedDuration::from_hours(24);
/// Bundles that are kept.
const MOST: usize = 32;
/// How long the doctor watches.
const WATCHED: Duration = Duration::from_secs(10);
/// What the name of a bundle ends with.
const ENDING: &str = ".tar.zst";
/// The time in it.
const STAMP: &str = "%Y%m%dT%H%M%SZ";

/// Where bundles go, and what writes them.
#[derive(Clone, Debug)]
pub struct EvidenceOptions {
    /// The program: fdguard itself.
    pub program: PathBuf,
    /// The directory.
    pub dir: PathBuf,
}

/// Decides and remembers; the work is done by a thread for each bundle, one at a time.
#[derive(Debug)]
pub(crate) struct EvidenceKeeper {
    options: EvidenceOptions,
    /// By the beginning of the file name.
    kept: HashMap<String, Timestamp>,
    queue: BackgroundQueue<WantedEvidence>,
}

#[derive(Clone, Debug)]
struct WantedEvidence {
    options: EvidenceOptions,
    pid: u32,
    finding: u64,
    path: PathBuf,
}

impl BackgroundWork for WantedEvidence {
    type Outcome = KeptEvidence;

    fn run(self) -> KeptEvidence {
        let path = examine(&self.options, self.pid, &self.path).map(|()| self.path);
        let finding = self.finding;
        KeptEvidence { finding, path }
    }

    fn failed(self, why: String) -> KeptEvidence {
        KeptEvidence {
            finding: self.finding,
            path: Err(why),
        }
    }
}

/// A bundle, or why it is missing.
#[derive(Debug)]
pub(crate) struct KeptEvidence {
    pub(crate) finding: u64,
    pub(crate) path: Result<PathBuf, String>,
}

impl EvidenceKeeper {
    pub(crate) fn new(options: EvidenceOptions) -> Self {
        Self {
            kept: kept_before(&options.dir),
            options,
            queue: BackgroundQueue::new("fdguard-evidence"),
        }
    }

    /// Begins a bundle, if one is due; it waits while another is made.
    pub(crate) fn keep(&mut self, service: &ServiceKey, pid: u32, finding: u64, now: Timestamp) {
        // A clock that was set back must not forbid bundles for ever.
        self.kept
            .retain(|_, last| now.duration_since(*last).abs() < PAUSE);
        let name = name_of(service);
        if self.kept.contains_key(&name) {
            return;
        }
        let file = format!("{name}-{}{ENDING}", now.strftime(STAMP));
        let wanted = WantedEvidence {
            options: self.options.clone(),
            pid,
            finding,
            path: self.options.dir.join(file),
        };
        if self.queue.push(wanted) {
            self.kept.insert(name, now);
        }
    }

    /// A bundle that is done, or will not be.
    pub(crate) fn take(&mut self) -> Option<KeptEvidence> {
        self.queue.take()
    }
}

/// The latest bundle of each service, from the names of files.
fn kept_before(dir: &Path) -> HashMap<String, Timestamp> {
    let mut kept = HashMap::new();
    // Where nothing was kept, there is no directory.
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let file = entry.file_name();
        let parts = file.to_str().and_then(|file| file.strip_suffix(ENDING));
        let Some((name, stamp)) = parts.and_then(|stem| stem.rsplit_once('-')) else {
            continue;
        };
        let Some(at) = stamp_time(stamp) else {
            continue;
        };
        let latest = kept.entry(name.to_owned()).or_insert(at);
        *latest = at.max(*latest);
    }
    kept
}

fn stamp_time(stamp: &str) -> Option<Timestamp> {
    let time = DateTime::strptime(STAMP, stamp).ok()?;
    Some(time.to_zoned(TimeZone::UTC).ok()?.timestamp())
}

/// Names of services are untrusted: only letters and digits of them go into a file name.
pub(crate) fn name_of(service: &ServiceKey) -> String {
    let safe = |c: char| {
        if c.is_ascii_alphanumeric() || c == '.' {
            c
        } else {
            '-'
        }
    };
    let name: String = service.name.chars().take(60).map(safe).collect();
    let name = name.trim_start_matches(['.', '-']);
    format!("{}-{name}", service.kind.word())
}

fn examine(options: &EvidenceOptions, pid: u32, path: &Path) -> Result<(), String> {
    std::fs::create_dir_all(&options.dir).map_err(|error| error.to_string())?;
    // There will be one more.
    remove_oldest(&options.dir, |name| name.ends_with(ENDING), MOST - 1);
    let mut command = Command::new(&options.program);
    let length = format!("{}s", WATCHED.as_secs());
    command
        .args(["doctor", &pid.to_string(), "--for", &length, "-o"])
        .arg(path);
    let end = limited_child::run(&mut command, WATCHED + GRACE)
        .map_err(|why| format!("fdguard doctor: {why}"))?;
    match (path.is_file(), end.status.code()) {
        (true, _) => Ok(()),
        (false, code) => Err(format!(
            "fdguard doctor exited with {code:?} and wrote nothing"
        )),
    }
}

/// Removes the oldest of these files, so that at most so many remain.
pub(crate) fn remove_oldest(dir: &Path, is_one: impl Fn(&str) -> bool, most: usize) {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let mut files: Vec<(std::time::SystemTime, PathBuf)> = entries
        .filter(|entry| is_one(&entry.file_name().to_string_lossy()))
        .filter_map(|entry| Some((entry.metadata().ok()?.modified().ok()?, entry.path())))
        .collect();
    files.sort();
    let beyond = files.len().saturating_sub(most);
    for (_, path) in files.into_iter().take(beyond) {
        drop(std::fs::remove_file(path));
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;
    use std::path::Path;

    use jiff::{SignedDuration, Timestamp};

    use super::{EvidenceKeeper, EvidenceOptions, KeptEvidence, name_of};
    use crate::background_queue::WAITING;
    use crate::service::{ServiceKey, ServiceKind};

    fn service(name: &str) -> ServiceKey {
        ServiceKey::new(ServiceKind::Unit, name)
    }

    /// The program writes its arguments to the bundle, which is the last of them.
    fn options(dir: &Path) -> EvidenceOptions {
        let program = dir.join("doctor");
        let script = "#!/bin/sh\nfor last; do :; done\necho \"$@\" > \"$last\"\n";
        std::fs::write(&program, script).unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        EvidenceOptions {
            program,
            dir: dir.join("evidence"),
        }
    }

    fn next(keeper: &mut EvidenceKeeper) -> KeptEvidence {
        testkit::wait_for("a bundle", || keeper.take())
    }

    #[test]
    fn a_service_gets_one_bundle_a_day() {
        let dir = tempfile::tempdir().unwrap();
        let mut keeper = EvidenceKeeper::new(options(dir.path()));
        let web = service("web.service");
        let at = Timestamp::UNIX_EPOCH;
        keeper.keep(&web, 7, 1, at);
        let text = std::fs::read_to_string(next(&mut keeper).path.unwrap()).unwrap();
        assert!(text.starts_with("doctor 7 --for 10s -o "), "{text}");
        keeper.keep(&web, 7, 2, at + SignedDuration::from_hours(23));
        assert!(!keeper.queue.is_busy());
        keeper.keep(&web, 7, 3, at + SignedDuration::from_hours(25));
        assert_eq!(next(&mut keeper).finding, 3);
    }

    #[test]
    fn a_second_service_waits_for_the_first_and_too_many_are_named() {
        let dir = tempfile::tempdir().unwrap();
        let mut keeper = EvidenceKeeper::new(options(dir.path()));
        for n in 1..=WAITING + 2 {
            let id = u64::try_from(n).unwrap();
            keeper.keep(&service(&format!("s{n}")), 7, id, Timestamp::UNIX_EPOCH);
        }
        let refused = next(&mut keeper);
        assert_eq!(refused.finding, WAITING as u64 + 2);
        assert_eq!(refused.path.unwrap_err(), "8 others are waiting");
        for n in 1..=WAITING + 1 {
            let done = next(&mut keeper);
            assert_eq!(done.finding, n as u64);
            assert!(done.path.unwrap().is_file());
        }
        // It may try again.
        let last = service(&format!("s{}", WAITING + 2));
        keeper.keep(&last, 7, 99, Timestamp::UNIX_EPOCH);
        assert_eq!(next(&mut keeper).finding, 99);
    }

    #[test]
    fn a_bundle_of_an_earlier_start_counts() {
        let dir = tempfile::tempdir().unwrap();
        let at: Timestamp = "2026-11-18T09:30:00Z".parse().unwrap();
        let web = service("web-shop.service");
        let mut keeper = EvidenceKeeper::new(options(dir.path()));
        keeper.keep(&web, 7, 1, at);
        next(&mut keeper).path.unwrap();
        let strange = dir.path().join("evidence/unit-x-yesterday.tar.zst");
        std::fs::write(strange, "").unwrap();
        let mut keeper = EvidenceKeeper::new(options(dir.path()));
        keeper.keep(&web, 7, 2, at + SignedDuration::from_hours(23));
        assert!(!keeper.queue.is_busy(), "kept by the start before");
        keeper.keep(&service("other"), 7, 3, at);
        assert_eq!(next(&mut keeper).finding, 3);
        keeper.keep(&web, 7, 4, at + SignedDuration::from_hours(25));
        assert_eq!(next(&mut keeper).finding, 4);
    }

    #[test]
    fn a_name_cannot_leave_the_directory() {
        for name in ["../../etc/passwd", "a/b", "\n", ".hidden", "-rf"] {
            let file = name_of(&ServiceKey::new(ServiceKind::Command, name));
            assert!(!file.contains('/') && !file.contains('\n'), "{file}");
            assert!(file.starts_with("command-"), "{file}");
        }
    }
}
