//! Recordings on disk: a watch is recorded as it happens, and read back to be judged again.
//!
//! The lines are values of [`fdguard_core::recording`]. This module writes them to a file,
//! compressed or not, and recovers as much as possible from a truncated file.

mod frames;
mod read;
mod write;

#[cfg(test)]
mod tests;

use fdguard_core::Gap;
use fdguard_core::diagnosis::WatchEnd;
use fdguard_core::recording::RecordingEntry;
use fdguard_core::watch::Watch;

pub use read::Replay;
pub use write::Recorder;

/// Reads a whole recording into a watch; also returns where and why it was cut short, if it was.
///
/// A recording without an end entry ends at the time of its last entry.
#[must_use]
pub fn play(replay: Replay) -> (Watch, Option<String>) {
    play_to(replay, |_, _| {})
}

/// The same, with a callback for each entry after the watch has processed it.
#[must_use]
pub fn play_to(
    mut replay: Replay,
    mut audience: impl FnMut(&Watch, &RecordingEntry),
) -> (Watch, Option<String>) {
    let mut watch = Watch::new(replay.header().clone());
    for entry in &mut replay {
        watch.record(&entry);
        audience(&watch, &entry);
    }
    let cut = replay.cut();
    if let Some(why) = &cut {
        watch.record(&RecordingEntry::Gap(Gap::new(
            "the end of the recording",
            why.clone(),
            "none: data that is missing or damaged cannot be recovered",
        )));
    }
    if watch.ended().is_none() {
        let ended = match cut {
            Some(_) => WatchEnd::RecordingCut,
            None => WatchEnd::RecordingEnded,
        };
        watch.record(&RecordingEntry::End {
            ended,
            ended_at: watch.wall_time(),
        });
    }
    (watch, cut)
}
