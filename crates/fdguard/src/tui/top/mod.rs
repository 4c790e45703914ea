//! The view of `top`: processes that are near a limit or growing.
//!
//! [`TopState`] is the state: no thread, no clock, no terminal.

mod draw;
#[cfg(test)]
pub(crate) mod fixture;
mod list;
mod order;
mod state;

#[cfg(test)]
mod tests;

use std::time::{Duration, Instant};

use crossterm::event::KeyEvent;
use fdguard_core::host::HostView;
use fdguard_core::{Gap, Pid};
use ratatui::Frame;

pub use order::Sort;
pub use state::{Effect, Holdings, TopState};

use super::app::{App, View};
use super::input::EndSignal;
use super::screen::DrawTarget;
use super::theme::Theme;
use super::widget::HelpTable;
use fdguard_diagnose::watching::WatchProgress;

/// Supplies the processes.
pub trait HostSource {
    /// Samples every process.
    fn look(&mut self) -> HostView;

    /// Takes a snapshot of one process, or returns why it cannot be read.
    fn detail(&mut self, pid: Pid) -> Result<Holdings, String>;
}

/// How the view behaves.
#[derive(Clone, Debug)]
pub struct Options {
    /// Time from the end of one look to the next.
    pub interval: Duration,
    /// Whether to use colour.
    pub colour: bool,
    /// The initial filter.
    pub filter: String,
}

/// Nothing is scheduled while paused, but a wait must have an end.
const IDLE: Duration = Duration::from_secs(3600);

/// Shows the host until the user quits.
pub fn run(source: &mut dyn HostSource, options: Options) -> anyhow::Result<()> {
    let signals = EndSignal::listen()?;
    let state = TopState::new(options.interval).showing(options.filter);
    App::new(TopView::new(state, source), options.colour)
        .run(DrawTarget::Stdout, Some(&signals))?;
    Ok(signals.follow()?)
}

/// The state, and the host that it shows.
pub(super) struct TopView<'a> {
    pub(super) state: TopState,
    source: &'a mut dyn HostSource,
    start: Instant,
    due: Instant,
    wanted: Option<Effect>,
}

impl<'a> TopView<'a> {
    pub(super) fn new(state: TopState, source: &'a mut dyn HostSource) -> Self {
        let start = Instant::now();
        Self {
            state,
            source,
            start,
            due: start,
            wanted: None,
        }
    }

    /// Performs an effect, and those that follow from it.
    fn perform(&mut self, effect: Effect) {
        let mut next = Some(effect);
        while let Some(effect) = next {
            next = match effect {
                Effect::Quit => None,
                Effect::Look => {
                    let view = self.source.look();
                    self.state.observe(self.start.elapsed(), view)
                }
                Effect::Detail(pid) => {
                    let result = self.source.detail(pid);
                    self.state.fill_pane(pid, result);
                    None
                }
            };
        }
    }
}

impl View for TopView<'_> {
    const KEYS: HelpTable = &[
        ("↑ ↓ j k", "move; the cursor follows its process"),
        ("PgUp PgDn", "scroll a page, or the open detail pane"),
        ("g G", "go to the first, the last process"),
        ("enter d", "show open classes, targets and lints"),
        ("/", "filter by command or pid; enter applies, esc clears"),
        ("s S", "next sort order; reverse it"),
        (
            "w p c + l",
            "sort by headroom, %soft, count, growth, time left",
        ),
        ("t", "tree: TREE sums a process and its descendants"),
        ("space r", "pause; refresh now"),
        ("? q esc", "this help; quit (ctrl-c anywhere)"),
    ];
    const WORDS: HelpTable = &[
        ("!  !!", "above 70 %, at least 90 % of the nearest limit"),
        ("PEAK", "range of the highest fd ever used"),
        ("GROWN", "change since this view started"),
        ("HEADROOM", "descriptors left to the soft limit"),
        ("ETA", "time to that limit at the current rate"),
        ("?  -", "unknown; not growing"),
    ];

    fn advance(&mut self, _deadline: Instant) -> anyhow::Result<WatchProgress> {
        let is_due = !self.state.is_paused() && Instant::now() >= self.due;
        let wanted = self.wanted.take();
        let Some(effect) = is_due.then_some(Effect::Look).or(wanted) else {
            return Ok(WatchProgress::Waiting);
        };
        self.perform(effect);
        if is_due {
            // Counted from the end, so that there is a pause even on a host where a look is slow.
            self.due = Instant::now() + self.state.interval;
        }
        Ok(WatchProgress::Looked)
    }

    fn patience(&self) -> Duration {
        match self.state.is_paused() {
            _ if self.wanted.is_some() => Duration::ZERO,
            true => IDLE,
            false => self.due.saturating_duration_since(Instant::now()),
        }
    }

    fn resize(&mut self, width: u16, height: u16) {
        self.state.resize(width, height);
    }

    fn press(&mut self, key: KeyEvent) -> bool {
        match self.state.press(key) {
            Some(Effect::Quit) => return true,
            // Of many requested details in one burst only the last is of interest, and a look at
            // the host includes one.
            Some(effect) if self.wanted != Some(Effect::Look) => self.wanted = Some(effect),
            _ => {}
        }
        false
    }

    fn is_typing(&self) -> bool {
        self.state.editing
    }

    fn gaps(&self) -> &[Gap] {
        &self.state.view.gaps
    }

    fn draw(&self, frame: &mut Frame<'_>, theme: &Theme) {
        draw::draw(frame, &self.state, theme);
    }
}
