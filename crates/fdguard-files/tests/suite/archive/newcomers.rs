//! A writer appears in the middle: everything is undone, and its lines are archived with the rest.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use fdguard_files::archive::{ArchiveObserver, ArchiveOutcome, ArchiveStep};
use rustix::fs::OFlags;

use super::{PATIENCE, Place, closing, one};

/// Opens the file for writing after a step, once.
#[derive(Debug)]
struct Newcomer {
    at: ArchiveStep,
    path: PathBuf,
    thread: Mutex<Option<JoinHandle<bool>>>,
}

impl ArchiveObserver for Newcomer {
    fn passed(&self, step: ArchiveStep, _: &Path) {
        let mut thread = self.thread.lock().unwrap();
        if step != self.at || thread.is_some() {
            return;
        }
        // A non-blocking open is refused, but breaks the lease all the same.
        let refused = OpenOptions::new()
            .append(true)
            .custom_flags(i32::try_from(OFlags::NONBLOCK.bits()).unwrap())
            .open(&self.path);
        assert_eq!(refused.unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
        let path = self.path.clone();
        let waiting = std::thread::spawn(move || {
            // The name may be gone before this thread runs.
            let Ok(mut file) = OpenOptions::new().append(true).open(path) else {
                return false;
            };
            file.write_all(b"newcomer\n").is_ok()
        });
        *thread = Some(waiting);
    }
}

fn disturbed(place: &Place, at: ArchiveStep, is_in_archive: bool) {
    let path = place.file("a.log", "first\n");
    let newcomer = Arc::new(Newcomer {
        at,
        path: if is_in_archive {
            place.to.path().join("a.log")
        } else {
            closing(&path)
        },
        thread: Mutex::new(None),
    });
    let mut archive = place.archive(PATIENCE);
    archive.observer = Some(newcomer.clone());
    let receipt = one(archive.run(std::slice::from_ref(&path)));
    let thread = newcomer.thread.lock().unwrap().take().unwrap();
    let came = thread.join().unwrap();
    assert_eq!(
        receipt.outcome,
        ArchiveOutcome::Archived,
        "{at:?}: {receipt:?}"
    );
    let text = place.archived("a.log");
    // A writer that came too late for the name wrote nothing; no writer lost a line.
    let wanted = if came { "first\nnewcomer\n" } else { "first\n" };
    assert_eq!(text, wanted, "{at:?}");
    place.assert_tidy();
}

#[test]
fn r50_who_comes_to_write_while_it_is_renamed_loses_nothing() {
    for at in [ArchiveStep::Proven, ArchiveStep::Read, ArchiveStep::Synced] {
        disturbed(&Place::same(), at, false);
    }
    disturbed(&Place::same(), ArchiveStep::Moved, true);
}

#[test]
fn r50_who_comes_to_write_while_it_is_copied_loses_nothing() {
    for at in [
        ArchiveStep::Proven,
        ArchiveStep::Begun,
        ArchiveStep::Copied,
        ArchiveStep::Moved,
        ArchiveStep::Recorded,
    ] {
        let Some(place) = Place::across() else { return };
        disturbed(&place, at, false);
    }
}
