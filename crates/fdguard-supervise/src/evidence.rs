//! The evidence of a breach: the report of `fdguard doctor` about the process, in a bundle for the
//! issue.
//!
//! fdguard runs its own executable for it, as a child with a deadline: the supervisor stays small,
//! and a failure there does not delay a restart.

use std::ffi::OsString;
use std::fs::{self, DirBuilder};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use rustix::process::geteuid;

use crate::child::{Bounded, Helper, HelperEnd};
use crate::poll::{Interest, Readiness};

/// The most bundles that are kept; older ones are removed.
pub const KEPT: usize = 10;
/// The longest watch: the default of `doctor`.
const LONGEST_WATCH: Duration = Duration::from_secs(15);
/// The share of the available time for the watch; the rest is for reading and writing.
const WATCHED: f64 = 0.5;
const PREFIX: &str = "evidence-";
const SUFFIX: &str = ".tar.zst";

/// Where evidence goes and which program writes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EvidenceSettings {
    /// The directory of the bundles.
    pub dir: PathBuf,
    /// fdguard's own executable.
    pub program: PathBuf,
    /// How many bundles are kept.
    pub kept: usize,
}

impl EvidenceSettings {
    /// With `/proc/self/exe`, which is the running file, whatever has its name now.
    #[must_use]
    pub fn new(dir: PathBuf) -> Self {
        Self {
            dir,
            program: PathBuf::from("/proc/self/exe"),
            kept: KEPT,
        }
    }
}

/// `$XDG_STATE_HOME/fdguard/evidence`, else `~/.local/state/fdguard/evidence`, else a directory of
/// this user among the temporary files; with the variable that determined it. Relative values of
/// the variables are ignored, as their specification requires.
#[must_use]
pub fn default_dir(variable: impl Fn(&str) -> Option<OsString>) -> (&'static str, PathBuf) {
    let absolute = |name: &'static str| {
        let path = variable(name).map(PathBuf::from);
        Some((name, path.filter(|path| path.is_absolute())?))
    };
    if let Some((name, state)) = absolute("XDG_STATE_HOME") {
        return (name, state.join("fdguard/evidence"));
    }
    if let Some((name, home)) = absolute("HOME") {
        return (name, home.join(".local/state/fdguard/evidence"));
    }
    let (name, temporary) = absolute("TMPDIR").unwrap_or(("TMPDIR", PathBuf::from("/tmp")));
    let own = format!("fdguard-evidence-{}", geteuid().as_raw());
    (name, temporary.join(own))
}

/// In a world-writable directory, another user may have created the directory, or a link in its
/// place.
fn refuse_strangers(dir: &Path) -> std::io::Result<()> {
    const SHARED: u32 = 0o1002;
    let mode = |path: &Path| fs::metadata(path).map(|found| found.mode());
    let is_shared = dir
        .parent()
        .is_some_and(|parent| mode(parent).is_ok_and(|mode| mode & SHARED == SHARED));
    let found = fs::symlink_metadata(dir)?;
    if is_shared && !(found.is_dir() && found.uid() == geteuid().as_raw()) {
        return Err(std::io::Error::other(
            "the directory belongs to another user",
        ));
    }
    Ok(())
}

/// A bundle that is being written. If dropped before it is complete, it leaves no partial file.
#[derive(Debug)]
pub struct EvidenceJob {
    /// Absent only during the drop.
    writer: Option<Bounded>,
    place: PathBuf,
    is_whole: bool,
}

impl EvidenceJob {
    /// Starts writing a bundle about this process. The caller holds `null`: see
    /// [`crate::drain::null`].
    pub fn start(
        settings: &EvidenceSettings,
        (service, pid): (&str, u32),
        null: &OwnedFd,
        now: Instant,
        within: Duration,
    ) -> Result<Self, String> {
        let dir = &settings.dir;
        let said = |error: std::io::Error| format!("{}: {error}", dir.display());
        // Other users must not see what a process holds.
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(dir)
            .map_err(said)?;
        refuse_strangers(dir).map_err(said)?;
        prune(dir, settings.kept.saturating_sub(1)).map_err(said)?;
        let place = dir.join(name(service, pid, Timestamp::now()));
        let helper = Helper::new(command(&settings.program, pid, &place, within));
        let writer = Bounded::start(helper, null, now, within)
            .map_err(|error| format!("fdguard doctor: {error}"))?;
        Ok(Self {
            writer: Some(writer),
            place,
            is_whole: false,
        })
    }

    /// Registers its descriptors and deadline.
    pub fn wants<'f>(&'f self, wants: &mut Interest<'f>) {
        if let Some(writer) = &self.writer {
            writer.wants(wants);
        }
    }

    /// Returns the path of the bundle, or why there is none; once.
    pub fn poll(&mut self, now: Instant, ready: &Readiness) -> Option<Result<String, String>> {
        let writer = self.writer.as_mut()?;
        let ended = writer.poll(now, ready)?;
        // 1 means findings, which are expected here.
        self.is_whole = matches!(ended, HelperEnd::Code(0 | 1)) && self.place.exists();
        Some(if self.is_whole {
            Ok(self.place.display().to_string())
        } else {
            Err(format!("fdguard doctor {}", writer.account(ended)))
        })
    }
}

impl Drop for EvidenceJob {
    fn drop(&mut self) {
        // End the writer first, otherwise the file may come back.
        self.writer = None;
        if !self.is_whole {
            // A partial bundle proves nothing; there may be none.
            let _absent = fs::remove_file(&self.place);
        }
    }
}

fn command(program: &Path, pid: u32, place: &Path, within: Duration) -> Vec<OsString> {
    let watch = within
        .mul_f64(WATCHED)
        .min(LONGEST_WATCH)
        .max(Duration::from_millis(500));
    vec![
        program.into(),
        "doctor".into(),
        pid.to_string().into(),
        "--for".into(),
        format!("{}ms", watch.as_millis()).into(),
        "-o".into(),
        place.into(),
    ]
}

/// Names sort by time. A service name must not act as a path.
fn name(service: &str, pid: u32, at: Timestamp) -> String {
    let safe = |letter: char| {
        if letter.is_ascii_alphanumeric() || letter == '-' {
            letter
        } else {
            '_'
        }
    };
    let service: String = service.chars().take(40).map(safe).collect();
    let at = at.strftime("%Y%m%dT%H%M%S.%3fZ");
    format!("{PREFIX}{at}-{service}-{pid}{SUFFIX}")
}

/// Removes the oldest bundles until this many are left. Other files are left alone.
fn prune(dir: &Path, kept: usize) -> std::io::Result<()> {
    let mut bundles = Vec::new();
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str());
        let ours = name.is_some_and(|name| name.starts_with(PREFIX) && name.ends_with(SUFFIX));
        if ours && !path.is_dir() {
            bundles.push(path);
        }
    }
    bundles.sort();
    let surplus = bundles.len().saturating_sub(kept);
    bundles[..surplus].iter().try_for_each(fs::remove_file)
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;
    use std::path::{Path, PathBuf};
    use std::time::{Duration, Instant};

    use jiff::Timestamp;

    use super::{EvidenceJob, EvidenceSettings, KEPT, default_dir, name, prune};
    use crate::drain::null;
    use crate::poll::Interest;

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn the_dir_follows_the_users_settings() {
        let given = |values: &[(&str, &str)]| {
            let values: Vec<(String, OsString)> = values
                .iter()
                .map(|(name, value)| ((*name).to_owned(), value.into()))
                .collect();
            default_dir(|name| {
                let found = values.iter().find(|(one, _)| one == name);
                found.map(|(_, value)| value.clone())
            })
        };
        let state = [("XDG_STATE_HOME", "/var/state"), ("HOME", "/root")];
        let said = |name, path: &str| (name, PathBuf::from(path));
        assert_eq!(
            given(&state),
            said("XDG_STATE_HOME", "/var/state/fdguard/evidence")
        );
        assert_eq!(
            given(&state[1..]),
            said("HOME", "/root/.local/state/fdguard/evidence")
        );
        let own = format!("fdguard-evidence-{}", rustix::process::geteuid().as_raw());
        let (name, path) = given(&[("XDG_STATE_HOME", "relative"), ("TMPDIR", "/var/tmp")]);
        assert_eq!((name, path), ("TMPDIR", Path::new("/var/tmp").join(&own)));
        assert_eq!(given(&[]), ("TMPDIR", Path::new("/tmp").join(own)));
    }

    #[test]
    fn a_link_that_somebody_laid_where_everybody_may_is_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let (shared, target) = (dir.path().join("shared"), dir.path().join("target"));
        for one in [&shared, &target] {
            fs::create_dir(one).unwrap();
        }
        fs::set_permissions(&shared, fs::Permissions::from_mode(0o1777)).unwrap();
        std::os::unix::fs::symlink(&target, shared.join("evidence")).unwrap();
        let settings = EvidenceSettings::new(shared.join("evidence"));
        let said = run(&settings, 1, LONG).unwrap_err();
        assert!(
            said.ends_with("the directory belongs to another user"),
            "{said}"
        );
        assert_eq!(fs::read_dir(&target).unwrap().count(), 0);
    }

    #[test]
    fn names_sort_by_time_and_hold_no_path() {
        let at = |second: i64| Timestamp::from_second(1_700_000_000 + second).unwrap();
        let first = name("../web server", 7, at(0));
        assert_eq!(
            first,
            "evidence-20231114T221320.000Z-___web_server-7.tar.zst"
        );
        assert!(first < name("a", 1, at(1)));
    }

    #[test]
    fn the_oldest_go_first_and_other_files_stay() {
        let dir = tempfile::tempdir().unwrap();
        for at in 0..13 {
            fs::write(
                dir.path().join(format!("evidence-2026{at:02}-a-1.tar.zst")),
                "",
            )
            .unwrap();
        }
        for other in ["notes.txt", "evidence-mine.txt", "evidence.tar.zst"] {
            fs::write(dir.path().join(other), "").unwrap();
        }
        prune(dir.path(), KEPT - 1).unwrap();
        let mut left: Vec<String> = fs::read_dir(dir.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        left.sort();
        assert_eq!(left.len(), KEPT - 1 + 3);
        assert_eq!(left[0], "evidence-202604-a-1.tar.zst");
    }

    /// A program with this text.
    fn script(dir: &Path, text: &str) -> PathBuf {
        let program = dir.join("fdguard");
        fs::write(&program, format!("#!/bin/sh\n{text}\n")).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        program
    }

    /// Runs this script instead of the command.
    fn written(
        script: &str,
        within: Duration,
    ) -> (Result<String, String>, PathBuf, tempfile::TempDir) {
        let dir = tempfile::tempdir().unwrap();
        let settings = EvidenceSettings {
            program: self::script(dir.path(), script),
            ..EvidenceSettings::new(dir.path().join("a/b"))
        };
        let outcome = run(&settings, std::process::id(), within);
        (outcome, settings.dir, dir)
    }

    fn run(settings: &EvidenceSettings, pid: u32, within: Duration) -> Result<String, String> {
        let null = null().unwrap();
        let mut evidence =
            EvidenceJob::start(settings, ("web", pid), &null, Instant::now(), within)?;
        loop {
            let mut wants = Interest::default();
            evidence.wants(&mut wants);
            let ready = wants.wait().unwrap();
            if let Some(outcome) = evidence.poll(Instant::now(), &ready) {
                return outcome;
            }
        }
    }

    #[test]
    fn findings_are_evidence_and_the_dir_is_private() {
        let script = "test \"$1 $3 $4 $5\" = 'doctor --for 15000ms -o' && echo $2 > $6; exit 1";
        let (outcome, dir, _held) = written(script, LONG);
        let place = outcome.unwrap();
        let pid = fs::read_to_string(&place).unwrap();
        assert_eq!(pid.trim(), std::process::id().to_string());
        let mode = fs::metadata(dir).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
    }

    #[test]
    fn what_goes_wrong_is_told_and_leaves_no_half_bundle() {
        let (outcome, dir, _held) =
            written("echo half > $6; echo no such process >&2; exit 3", LONG);
        let said = outcome.unwrap_err();
        assert_eq!(said, "fdguard doctor exited with status 3: no such process");
        assert_eq!(fs::read_dir(dir).unwrap().count(), 0);
        let (outcome, dir, _held) =
            written("echo half > $6; sleep 600", Duration::from_millis(600));
        assert_eq!(
            outcome.unwrap_err(),
            "fdguard doctor did not finish within 600ms"
        );
        assert_eq!(fs::read_dir(dir).unwrap().count(), 0);
        let (outcome, _, _held) = written("exit 0", LONG);
        assert!(outcome.is_err(), "no bundle is no success");
    }

    #[test]
    fn evidence_that_is_given_up_leaves_no_half_bundle() {
        let dir = tempfile::tempdir().unwrap();
        let program = script(dir.path(), "echo half > $6; echo begun >&2; exec sleep 600");
        let settings = EvidenceSettings {
            program,
            ..EvidenceSettings::new(dir.path().join("evidence"))
        };
        let null = null().unwrap();
        let of = ("web", std::process::id());
        let mut evidence = EvidenceJob::start(&settings, of, &null, Instant::now(), LONG).unwrap();
        let bundles = || fs::read_dir(&settings.dir).unwrap().count();
        while bundles() == 0 {
            let mut wants = Interest::default();
            evidence.wants(&mut wants);
            let ready = wants.wait().unwrap();
            assert_eq!(evidence.poll(Instant::now(), &ready), None);
        }
        drop(evidence);
        assert_eq!(bundles(), 0);
    }

    #[test]
    fn a_dir_that_cannot_be_made_and_a_program_that_is_not_there_are_told() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("file"), "").unwrap();
        let blocked = EvidenceSettings::new(dir.path().join("file/evidence"));
        assert!(
            run(&blocked, 1, LONG)
                .unwrap_err()
                .contains("file/evidence")
        );
        let absent = EvidenceSettings {
            program: dir.path().join("absent"),
            ..EvidenceSettings::new(dir.path().join("evidence"))
        };
        assert!(
            run(&absent, 1, LONG)
                .unwrap_err()
                .starts_with("fdguard doctor: ")
        );
    }
}
