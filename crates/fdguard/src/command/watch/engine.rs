//! The running watch and its recorder.

use std::path::Path;
use std::time::Instant;

use fdguard_core::diagnosis::WatchEnd;
use fdguard_core::recording::RecordingEntry;
use fdguard_core::watch::Watch;
use fdguard_diagnose::recording::Recorder;
use fdguard_diagnose::watching::{LiveWatch, WatchProgress};

use crate::exit;
use crate::tui::watch::WatchSource;

/// A watch and its recording.
pub(super) struct Engine<'p> {
    pub(super) live: LiveWatch<'p>,
    recorder: Option<Recorder>,
}

impl<'p> Engine<'p> {
    pub(super) fn start(live: LiveWatch<'p>, record: Option<&Path>) -> anyhow::Result<Self> {
        let recorder = record
            .map(|path| Recorder::create(path, live.watch().header()))
            .transpose()?;
        Ok(Self { live, recorder })
    }

    /// Waits for the next look, and returns its entries.
    pub(super) fn step(
        &mut self,
        deadline: Instant,
    ) -> anyhow::Result<(WatchProgress, Vec<RecordingEntry>)> {
        let progress = self.live.advance(deadline)?;
        let entries = self.live.take_entries();
        self.record(&entries);
        Ok((progress, entries))
    }

    /// Ends the watch before its time.
    pub(super) fn stop(&mut self, ended: WatchEnd) -> anyhow::Result<()> {
        self.live.stop(ended)?;
        let entries = self.live.take_entries();
        self.record(&entries);
        Ok(())
    }

    /// A full disk must not end the watch: the recorder stops, and fdguard warns once.
    fn record(&mut self, entries: &[RecordingEntry]) {
        let Some(recorder) = &mut self.recorder else {
            return;
        };
        let mut written = entries.iter().try_for_each(|entry| recorder.write(entry));
        if written.is_ok() {
            written = recorder.flush_due(Instant::now());
        }
        if let Err(error) = written {
            exit::warn(&anyhow::Error::new(error).context("recording stopped"));
        }
    }

    /// Writes the rest of the recording.
    pub(super) fn finish(self) {
        if let Some(Err(error)) = self.recorder.map(Recorder::finish) {
            exit::warn(&anyhow::Error::new(error).context("cannot finish the recording"));
        }
    }
}

impl WatchSource for Engine<'_> {
    fn advance(&mut self, deadline: Instant) -> anyhow::Result<WatchProgress> {
        self.step(deadline).map(|(progress, _)| progress)
    }

    fn watch(&self) -> &Watch {
        self.live.watch()
    }
}
