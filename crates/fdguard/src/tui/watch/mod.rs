//! The view of `watch`: verdict, classes, limits and findings.
//!
//! [`WatchViewState`] is what the user chose and what was judged last. The caller decides when to
//! look, through [`WatchSource`].

mod class_row;
mod draw;
mod phrase;
mod sparkline;
mod state;

#[cfg(test)]
mod fixture;
#[cfg(test)]
mod tests;

use std::time::{Duration, Instant};

use crossterm::event::KeyEvent;
use fdguard_core::Gap;
use fdguard_core::rule::RuleSettings;
use fdguard_core::watch::Watch;
use ratatui::Frame;

pub use state::WatchViewState;

use super::app::{App, View, ViewEnd};
use super::input::EndSignal;
use super::screen::DrawTarget;
use super::theme::Theme;
use super::widget::HelpTable;
use fdguard_diagnose::watching::WatchProgress;

/// Supplies samples and keeps the watch.
pub trait WatchSource {
    /// Looks if it is time, and adds the result to the watch. Blocks at most until `deadline`, so
    /// that keys are handled; returns earlier if something happened.
    fn advance(&mut self, deadline: Instant) -> anyhow::Result<WatchProgress>;

    /// Everything seen so far.
    fn watch(&self) -> &Watch;
}

/// How the view behaves.
#[derive(Clone, Debug)]
pub struct WatchOptions {
    /// Whether to use colour.
    pub colour: bool,
    /// The settings of the rules.
    pub settings: RuleSettings,
    /// The length of the watch in seconds, if it is limited.
    pub ends_after: Option<f64>,
    /// The user's name for what is watched.
    pub name: String,
}

/// The time per frame for judging the processes that are not shown in full.
const JUDGING: Duration = Duration::from_millis(30);

/// Shows the watch until it ends or the user quits.
pub fn run(source: &mut dyn WatchSource, options: &WatchOptions) -> anyhow::Result<ViewEnd> {
    let signals = EndSignal::listen()?;
    App::new(WatchView::new(source, options), options.colour)
        .run(DrawTarget::Stdout, Some(&signals))
}

/// The state, and the watch that it shows.
struct WatchView<'a> {
    state: WatchViewState,
    source: &'a mut dyn WatchSource,
    settings: &'a RuleSettings,
    is_unjudged: bool,
}

impl<'a> WatchView<'a> {
    fn new(source: &'a mut dyn WatchSource, options: &'a WatchOptions) -> Self {
        Self {
            state: WatchViewState::new(options),
            source,
            settings: &options.settings,
            is_unjudged: true,
        }
    }
}

impl View for WatchView<'_> {
    const KEYS: HelpTable = &[
        ("↑ ↓ j k", "select a finding; it stays selected"),
        ("enter", "show the finding in full"),
        ("g", "show what could not be seen"),
        ("PgUp PgDn", "scroll the open pane"),
        ("tab", "next process; shift-tab the one before"),
        ("? q esc", "this help; close the pane, then quit"),
    ];

    fn advance(&mut self, deadline: Instant) -> anyhow::Result<WatchProgress> {
        let progress = self.source.advance(deadline)?;
        self.is_unjudged |= progress != WatchProgress::Waiting;
        Ok(progress)
    }

    /// Processes that were not judged in time appear in the next frame.
    fn refresh(&mut self) -> bool {
        if self.is_unjudged {
            let began = Instant::now();
            let has_time = || began.elapsed() < JUDGING;
            let watch = self.source.watch();
            self.is_unjudged = !self.state.judge(watch, self.settings, has_time);
        }
        self.is_unjudged
    }

    fn resize(&mut self, width: u16, height: u16) {
        self.state.size = (width, height);
    }

    fn press(&mut self, key: KeyEvent) -> bool {
        self.state.press(key, self.source.watch())
    }

    fn gaps(&self) -> &[Gap] {
        self.source.watch().gaps()
    }

    fn draw(&self, frame: &mut Frame<'_>, theme: &Theme) {
        draw::draw(frame, &self.state, self.source.watch(), theme);
    }
}
