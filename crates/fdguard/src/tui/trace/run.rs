//! The loop: let the source look, handle keys, draw. One thread.

use std::io;
use std::time::{Duration, Instant};

use fdguard_diagnose::watching::WatchProgress;
use ratatui::Terminal;
use ratatui::backend::Backend;

use super::draw::draw;
use super::screen::TtyScreen;
use super::state::{KeyAction, TraceViewState};
use super::{SiteRow, TraceHeadline};
use crate::tui::end_signal::EndSignal;
use crate::tui::input::{self, Input};
use crate::tui::terminal::Screen;

/// Supplies samples and keeps the sites.
pub trait TraceSource {
    /// Looks if it is time. Blocks at most until `deadline`, so that keys are handled.
    fn advance(&mut self, deadline: Instant) -> anyhow::Result<WatchProgress>;

    /// The sites of the last look, the fastest growing first.
    fn rows(&self) -> &[SiteRow];

    /// The program that they belong to.
    fn headline(&self) -> TraceHeadline;
}

/// Why the view ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TraceViewOutcome {
    /// The watch is over.
    Ended,
    /// The user quit.
    Quit,
    /// The user pressed Ctrl-C, or a termination signal arrived.
    Interrupted,
}

/// Where to draw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DrawTarget {
    /// On standard output.
    Stdout,
    /// Use the controlling terminal: standard output belongs to the program.
    Terminal,
}

/// How long a key may wait while the source waits for its next look.
const STEP: Duration = Duration::from_millis(50);
/// More than ten screens a second cannot be read.
const FRAME: Duration = Duration::from_millis(100);
/// How many keys of a burst are handled before the screen is drawn again.
const BURST: usize = 64;

/// Whether there is a controlling terminal.
#[must_use]
pub fn has_terminal() -> bool {
    super::screen::controlling().is_ok()
}

/// Shows the sites until the watch ends or the user quits, and always restores the terminal.
pub fn run(
    source: &mut dyn TraceSource,
    place: DrawTarget,
    colour: bool,
) -> anyhow::Result<TraceViewOutcome> {
    match place {
        DrawTarget::Stdout => {
            let ended = EndSignal::listen()?;
            let mut screen = Screen::enter()?;
            show(&mut screen.terminal, source, colour, || {
                input::next(Duration::ZERO, &ended)
            })
        }
        // The source handles signals: they are for the program.
        DrawTarget::Terminal => {
            let mut screen = TtyScreen::enter()?;
            show(&mut screen.terminal, source, colour, || {
                input::next_alone(Duration::ZERO)
            })
        }
    }
}

/// The loop itself, on any screen and any source of keys.
pub(super) fn show<B: Backend>(
    terminal: &mut Terminal<B>,
    source: &mut dyn TraceSource,
    colour: bool,
    mut next: impl FnMut() -> io::Result<Option<Input>>,
) -> anyhow::Result<TraceViewOutcome> {
    let mut state = TraceViewState::new(colour);
    let mut drawn: Option<Instant> = None;
    let mut is_new = true;
    loop {
        if is_new && drawn.is_none_or(|at| at.elapsed() >= FRAME) {
            state.follow(source.rows());
            let headline = source.headline();
            terminal
                .draw(|frame| draw(frame, &state, &headline, source.rows()))
                .map_err(in_words)?;
            drawn = Some(Instant::now());
            is_new = false;
        }
        match source.advance(Instant::now() + STEP)? {
            WatchProgress::Waiting => {}
            WatchProgress::Looked | WatchProgress::Signalled => is_new = true,
            WatchProgress::Ended => return Ok(TraceViewOutcome::Ended),
        }
        for _ in 0..BURST {
            let Some(input) = next()? else { break };
            is_new = true;
            match state.update(input, source.rows()) {
                KeyAction::Stay => {}
                KeyAction::Quit => return Ok(TraceViewOutcome::Quit),
                KeyAction::Interrupt => return Ok(TraceViewOutcome::Interrupted),
            }
        }
    }
}

fn in_words(error: impl std::error::Error) -> io::Error {
    io::Error::other(error.to_string())
}
