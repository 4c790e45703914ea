//! The view of `trace`: the sites that grow now.
//!
//! [`TraceViewState`] is what the user chose. The caller supplies the looks, through
//! [`SiteFeed`].

mod draw;
mod state;

#[cfg(test)]
mod tests;

use std::time::Instant;

use crossterm::event::KeyEvent;
use fdguard_core::Gap;
use ratatui::Frame;

pub use state::TraceViewState;

use super::app::{App, View, ViewEnd};
use super::input::EndSignal;
use super::screen::DrawTarget;
use super::theme::Theme;
use super::widget::HelpTable;
use fdguard_diagnose::watching::WatchProgress;

/// A site as displayed; every text is safe for a terminal.
#[derive(Clone, Debug, PartialEq)]
pub struct SiteRow {
    /// The process.
    pub pid: u32,
    /// Its command.
    pub comm: String,
    /// How many are open.
    pub live: usize,
    /// Growth per second, over the last seconds.
    pub rate: Option<f64>,
    /// Whether it has been growing for a while.
    pub is_growing: bool,
    /// How many were opened, and how many of them closed.
    pub opened: u64,
    /// How many of them were closed.
    pub closed: u64,
    /// How long the oldest has been open, in seconds.
    pub oldest: f64,
    /// The most frequent class.
    pub class: String,
    /// Their target, if all have the same.
    pub target: Option<String>,
    /// `main.c:23 begin`.
    pub line: String,
    /// The stack, the innermost frame first.
    pub stack: Vec<String>,
}

/// The line above the rows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TraceHeadline {
    /// The program's name.
    pub name: String,
    /// Its pid.
    pub pid: u32,
    /// How many processes run.
    pub processes: usize,
    /// How many descriptors they hold; `None` if they could not be listed.
    pub descriptors: Option<u64>,
}

/// Supplies samples and keeps the sites.
pub trait SiteFeed {
    /// Looks if it is time. Blocks at most until `deadline`, so that keys are handled.
    fn advance(&mut self, deadline: Instant) -> anyhow::Result<WatchProgress>;

    /// The sites of the last look, the fastest growing first.
    fn rows(&self) -> &[SiteRow];

    /// The program that they belong to.
    fn headline(&self) -> TraceHeadline;
}

/// Shows the sites until the watch ends or the user quits.
pub fn run(source: &mut dyn SiteFeed, target: DrawTarget, colour: bool) -> anyhow::Result<ViewEnd> {
    // On the controlling terminal the source handles signals: they are for the program.
    let signals = match target {
        DrawTarget::Stdout => Some(EndSignal::listen()?),
        DrawTarget::Terminal => None,
    };
    App::new(TraceView::new(source), colour).run(target, signals.as_ref())
}

/// The state, and the sites that it shows.
struct TraceView<'a> {
    state: TraceViewState,
    source: &'a mut dyn SiteFeed,
}

impl<'a> TraceView<'a> {
    fn new(source: &'a mut dyn SiteFeed) -> Self {
        Self {
            state: TraceViewState::default(),
            source,
        }
    }
}

impl View for TraceView<'_> {
    const KEYS: HelpTable = &[
        ("↑ ↓ j k", "move; the cursor follows its site"),
        ("g G", "go to the first, the last site"),
        ("enter", "show the stack of the site"),
        ("PgUp PgDn", "scroll a page, or the open stack"),
        ("? q esc", "this help; close the stack, then quit"),
    ];
    const WORDS: HelpTable = &[
        ("↑", "has been growing for a while"),
        ("LIVE", "still open, of those that the line OPENED"),
        ("+/S", "growth per second, over the last seconds"),
    ];

    fn advance(&mut self, deadline: Instant) -> anyhow::Result<WatchProgress> {
        self.source.advance(deadline)
    }

    fn refresh(&mut self) -> bool {
        self.state.follow(self.source.rows());
        false
    }

    fn resize(&mut self, width: u16, height: u16) {
        self.state.size = (width, height);
    }

    fn press(&mut self, key: KeyEvent) -> bool {
        self.state.press(key, self.source.rows())
    }

    fn gaps(&self) -> &[Gap] {
        &[]
    }

    fn draw(&self, frame: &mut Frame<'_>, theme: &Theme) {
        let headline = self.source.headline();
        draw::draw(frame, &self.state, &headline, self.source.rows(), theme);
    }
}
