//! How long an archive takes after the last writer closes, without the time spent waiting for the
//! disk.

use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use fdguard_files::archive::{Archive, ArchiveObserver, ArchiveOutcome, ArchiveStep};

use crate::{Fails, figures};

const ROUNDS: usize = 25;
/// How long the archive waits before the writer closes the file.
const HELD: Duration = Duration::from_millis(30);
/// Steps whose time depends on the disk.
const OF_THE_DISK: [ArchiveStep; 3] = [
    ArchiveStep::Synced,
    ArchiveStep::Recorded,
    ArchiveStep::Settled,
];

/// A file with a writer that the archive waits for.
pub(crate) async fn after_the_last_writer() -> Fails {
    let dir = tempfile::tempdir()?;
    let place = dir.path().to_owned();
    tokio::task::spawn_blocking(move || rounds(&place)).await?
}

fn rounds(dir: &Path) -> Fails {
    let (mut whole, mut without_disk) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        let path = dir.join(format!("{round}.jsonl"));
        let mut writer = File::create(&path)?;
        writer.write_all(&b"{\"line\": 1}\n".repeat(100))?;
        let (told, steps) = mpsc::channel();
        let mut archive = Archive::new(dir.join("archive"));
        archive.observer = Some(Arc::new(Steps(told)));
        let archiver = std::thread::spawn(move || archive.run(&[path]));
        std::thread::sleep(HELD);
        let closed = Instant::now();
        drop(writer);
        let report = archiver.join().map_err(|_panic| "the archive panicked")?;
        if report
            .files
            .iter()
            .any(|file| file.outcome != ArchiveOutcome::Archived)
        {
            return Err(format!("not archived: {report:?}").into());
        }
        let steps: Vec<_> = steps.iter().collect();
        let end = steps.last().map_or(closed, |(_, at)| *at);
        let pairs = steps.windows(2).filter_map(|pair| match pair {
            [(_, from), (step, to)] if OF_THE_DISK.contains(step) => Some(*to - *from),
            _ => None,
        });
        let disk: Duration = pairs.sum();
        whole.push(end - closed);
        without_disk.push((end - closed).saturating_sub(disk));
    }
    figures::times("archive_ms", &without_disk);
    figures::times("archive_with_disk_ms", &whole);
    Ok(())
}

/// Writes down when each step was done.
#[derive(Debug)]
struct Steps(mpsc::Sender<(ArchiveStep, Instant)>);

impl ArchiveObserver for Steps {
    fn passed(&self, step: ArchiveStep, _source: &Path) {
        // An error means that the receiver is gone: the round has failed.
        let _told = self.0.send((step, Instant::now()));
    }
}
