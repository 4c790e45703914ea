//! Evidence of a critical finding: `fdguard doctor` in a process of its own, once a day for each
//! service.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};

use jiff::{SignedDuration, Timestamp};

use crate::service::ServiceKey;

/// Between two bundles of one service.
const PAUSE: SignedDuration = SignedDuration::from_hours(24);
/// Bundles that are kept.
const MOST: usize = 32;
/// How long the doctor watches.
const WATCHED: &str = "10s";

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
    kept: HashMap<ServiceKey, Timestamp>,
    is_busy: bool,
    done: (Sender<KeptEvidence>, Receiver<KeptEvidence>),
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
            options,
            kept: HashMap::new(),
            is_busy: false,
            done: channel(),
        }
    }

    /// Whether a bundle is due for a service.
    fn is_due(&self, service: &ServiceKey, now: Timestamp) -> bool {
        let last = self.kept.get(service);
        !self.is_busy && last.is_none_or(|last| now.duration_since(*last) >= PAUSE)
    }

    /// Begins a bundle, if one is due.
    pub(crate) fn keep(&mut self, service: &ServiceKey, pid: u32, finding: u64, now: Timestamp) {
        if !self.is_due(service, now) {
            return;
        }
        self.kept.insert(service.clone(), now);
        self.kept
            .retain(|_, last| now.duration_since(*last) < PAUSE);
        let path = self.options.dir.join(file_name(service, now));
        let (options, done) = (self.options.clone(), self.done.0.clone());
        let work = move || {
            let path = examine(&options, pid, &path).map(|()| path);
            // The loop may have ended.
            drop(done.send(KeptEvidence { finding, path }));
        };
        let thread = std::thread::Builder::new().name("fdguard-evidence".to_owned());
        self.is_busy = thread.stack_size(256 << 10).spawn(work).is_ok();
    }

    /// A bundle that is done.
    pub(crate) fn take(&mut self) -> Option<KeptEvidence> {
        let done = self.done.1.try_recv().ok()?;
        self.is_busy = false;
        Some(done)
    }
}

/// Names of services are untrusted: only letters and digits of them go into a file name.
fn file_name(service: &ServiceKey, now: Timestamp) -> String {
    let safe = |c: char| {
        if c.is_ascii_alphanumeric() || c == '.' {
            c
        } else {
            '-'
        }
    };
    let name: String = service.name.chars().take(60).map(safe).collect();
    let name = name.trim_start_matches(['.', '-']);
    format!(
        "{}-{name}-{}.tar.zst",
        service.kind.word(),
        now.strftime("%Y%m%dT%H%M%SZ")
    )
}

fn examine(options: &EvidenceOptions, pid: u32, path: &Path) -> Result<(), String> {
    std::fs::create_dir_all(&options.dir).map_err(|error| error.to_string())?;
    remove_oldest(&options.dir);
    let ended = Command::new(&options.program)
        .args(["doctor", &pid.to_string(), "--for", WATCHED, "-o"])
        .arg(path)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    let status = ended.map_err(|error| error.to_string())?;
    match (path.is_file(), status.code()) {
        (true, _) => Ok(()),
        (false, code) => Err(format!(
            "fdguard doctor exited with {code:?} and wrote nothing"
        )),
    }
}

fn remove_oldest(dir: &Path) {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let mut bundles: Vec<(std::time::SystemTime, PathBuf)> = entries
        .filter(|entry| entry.path().to_string_lossy().ends_with(".tar.zst"))
        .filter_map(|entry| Some((entry.metadata().ok()?.modified().ok()?, entry.path())))
        .collect();
    bundles.sort();
    let beyond = (bundles.len() + 1).saturating_sub(MOST);
    for (_, path) in bundles.into_iter().take(beyond) {
        drop(std::fs::remove_file(path));
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use jiff::{SignedDuration, Timestamp};

    use super::{EvidenceKeeper, EvidenceOptions, file_name};
    use crate::service::{ServiceKey, ServiceKind};

    #[test]
    fn a_service_gets_one_bundle_a_day() {
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join("doctor");
        // Writes its arguments to the bundle, which is the last of them.
        std::fs::write(
            &program,
            "#!/bin/sh\nfor last; do :; done\necho \"$@\" > \"$last\"\n",
        )
        .unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        let mut keeper = EvidenceKeeper::new(EvidenceOptions {
            program,
            dir: dir.path().join("evidence"),
        });
        let web = ServiceKey::new(ServiceKind::Unit, "web.service");
        let mut bundle = |at: Timestamp, finding| {
            keeper.keep(&web, 7, finding, at);
            if !keeper.is_busy {
                return None;
            }
            Some(testkit::wait_for("a bundle", || keeper.take()))
        };
        let at = Timestamp::UNIX_EPOCH;
        let first = bundle(at, 1).unwrap();
        let text = std::fs::read_to_string(first.path.unwrap()).unwrap();
        assert!(text.starts_with("doctor 7 --for 10s -o "), "{text}");
        assert!(bundle(at + SignedDuration::from_hours(23), 2).is_none());
        let next = bundle(at + SignedDuration::from_hours(25), 3).unwrap();
        assert_eq!(next.finding, 3);
    }

    #[test]
    fn a_name_cannot_leave_the_directory() {
        let at = Timestamp::UNIX_EPOCH;
        for name in ["../../etc/passwd", "a/b", "\n", ".hidden", "-rf"] {
            let file = file_name(&ServiceKey::new(ServiceKind::Command, name), at);
            assert!(!file.contains('/') && !file.contains('\n'), "{file}");
            assert!(file.starts_with("command-") && file.ends_with("-19700101T000000Z.tar.zst"));
        }
    }
}
