//! Kills an archive after each of its steps: the next one continues, and every line exists exactly
//! once.

use std::env;
use std::fs;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use fdguard_files::Archive;
use fdguard_files::archive::{ArchiveObserver, ArchiveOutcome, ArchiveStep};

use super::{Place, all_lines, listed};

const FILE: &str = "FDGUARD_TEST_ARCHIVE_FILE";
const TO: &str = "FDGUARD_TEST_ARCHIVE_TO";
const STEP: &str = "FDGUARD_TEST_ARCHIVE_STEP";

/// Ends its process in a way that cannot be caught or cleaned up.
#[derive(Debug)]
struct Killer(String);

impl ArchiveObserver for Killer {
    fn passed(&self, step: ArchiveStep, _: &Path) {
        if step.word() == self.0 {
            let own = rustix::process::getpid();
            rustix::process::kill_process(own, rustix::process::Signal::KILL).unwrap();
        }
    }
}

#[test]
#[ignore = "is the process that the tests below kill"]
fn victim() {
    let Some(file) = env::var_os(FILE) else {
        return testkit::skip("no role was given");
    };
    let mut archive = Archive::new(env::var_os(TO).unwrap());
    archive.observer = Some(Arc::new(Killer(env::var(STEP).unwrap())));
    let report = archive.run(&[PathBuf::from(file)]);
    assert!(report.success, "{report:?}");
}

/// Archives in another process, which is killed after a step; returns whether it got that far.
fn killed_after(step: ArchiveStep, path: &Path, place: &Place) -> bool {
    let output = Command::new(env::current_exe().unwrap())
        .args(["--ignored", "--exact", "suite::archive::crash::victim"])
        .env(FILE, path)
        .env(TO, place.to.path())
        .env(STEP, step.word())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    match output.status.signal() {
        Some(9) => true,
        _ => {
            assert!(output.status.success(), "{text}");
            assert!(text.contains("1 passed"), "{text}");
            false
        }
    }
}

fn lines(range: std::ops::Range<u32>) -> String {
    range.map(|n| format!("{{\"line\":{n:04}}}\n")).collect()
}

/// Kills after each step and archives again; returns the steps at which it was killed. `None`, and
/// a message, without such a place.
fn every_step(make: impl Fn() -> Option<Place>, has_successor: bool) -> Option<Vec<ArchiveStep>> {
    let mut reached = Vec::new();
    for step in ArchiveStep::ALL {
        let place = make()?;
        let path = place.file("a.jsonl", &lines(0..500));
        // A file with this name, time and content exists: it must not be mistaken for this
        // archive's copy.
        let mut wanted = lines(0..500);
        if !killed_after(step, &path, &place) {
            continue;
        }
        reached.push(step);
        if has_successor && !path.exists() {
            fs::write(&path, lines(500..600)).unwrap();
            wanted += &lines(500..600);
        }
        let report = place
            .archive(super::PATIENCE)
            .run(std::slice::from_ref(&path));
        assert!(report.success, "{step:?}: {report:?}");
        let found = all_lines(&[place.logs.path(), place.to.path()]);
        assert_eq!(found.join("\n") + "\n", wanted, "{step:?}");
        assert_eq!(listed(place.logs.path()), Vec::<String>::new(), "{step:?}");
        place.assert_tidy();
        // Repeating it changes nothing.
        let again = place.once(&path);
        assert_eq!(again.outcome, ArchiveOutcome::AlreadyArchived);
    }
    Some(reached)
}

#[test]
fn r50_killed_after_any_step_of_a_rename_every_line_is_there_once() {
    use ArchiveStep::{Claimed, Closing, Moved, Proven, Read, Recorded, Settled, Synced};
    let wanted = [
        Claimed, Closing, Proven, Read, Synced, Moved, Recorded, Settled,
    ];
    let reached = every_step(|| Some(Place::same()), false);
    assert_eq!(reached.unwrap(), wanted);
}

#[test]
fn r50_killed_after_any_step_of_a_copy_every_line_is_there_once() {
    use ArchiveStep::{Begun, Claimed, Closing, Copied, Moved, Proven, Recorded, Removed, Settled};
    let wanted = [
        Claimed, Closing, Proven, Begun, Copied, Moved, Recorded, Removed, Settled,
    ];
    if let Some(reached) = every_step(Place::across, false) {
        assert_eq!(reached, wanted);
    }
}

#[test]
fn r50_killed_and_the_name_taken_again_both_are_archived() {
    let renamed = every_step(|| Some(Place::same()), true);
    assert_eq!(renamed.unwrap().len(), 8);
    if let Some(copied) = every_step(Place::across, true) {
        assert_eq!(copied.len(), 9, "{copied:?}");
    }
}

#[test]
fn the_same_content_from_another_dir_is_no_copy_of_ours() {
    let Some(place) = Place::across() else { return };
    let path = place.file("a.jsonl", &lines(0..3));
    let same = place.to.path().join("a.jsonl");
    fs::write(&same, lines(0..3)).unwrap();
    fs::File::open(&same)
        .unwrap()
        .set_modified(std::time::SystemTime::UNIX_EPOCH)
        .unwrap();
    assert!(killed_after(ArchiveStep::Copied, &path, &place));
    let receipt = place.once(&path);
    assert_eq!(
        (receipt.outcome, receipt.recovered),
        (ArchiveOutcome::Archived, true)
    );
    assert_eq!(all_lines(&[place.to.path()]).len(), 6);
    place.assert_tidy();
}

#[test]
fn a_strangers_file_with_the_name_of_an_unfinished_copy_is_left_alone() {
    let Some(place) = Place::across() else { return };
    let path = place.file("a.log", "mine\n");
    let strange = place.to.path().join("a.log.tmp");
    fs::write(&strange, "theirs\n").unwrap();
    let receipt = place.once(&path);
    assert_eq!(receipt.outcome, ArchiveOutcome::Archived);
    assert_eq!(fs::read_to_string(strange).unwrap(), "theirs\n");
    assert_eq!(listed(place.to.path()), ["a.log", "a.log.tmp"]);
}
