//! The loop: let the source look, take keys, draw. One thread.

use std::io;
use std::time::{Duration, Instant};

use ratatui::Terminal;
use ratatui::backend::Backend;

use super::draw::draw;
use super::screen::TtyScreen;
use super::state::{Said, State};
use super::{Headline, Row};
use crate::tui::end_signal::EndSignal;
use crate::tui::input::{self, Input};
use crate::tui::terminal::Screen;
use crate::watching::WatchProgress;

/// Who looks, and remembers the sites.
pub trait TraceSource {
    /// Looks if it is time to. Blocks at most until `deadline`, so that keys are answered.
    fn advance(&mut self, deadline: Instant) -> anyhow::Result<WatchProgress>;

    /// The sites of the last look, those that grow most first.
    fn rows(&self) -> &[Row];

    /// What they belong to.
    fn headline(&self) -> Headline;
}

/// Why the view was left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The watch is over.
    Ended,
    /// The user left.
    Quit,
    /// The user pressed Ctrl-C, or a signal asked us to end.
    Interrupted,
}

/// Where it is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// On standard output.
    Stdout,
    /// On the terminal that we belong to: standard output is the program's.
    Terminal,
}

/// How long a key may wait while the source waits for its next look.
const STEP: Duration = Duration::from_millis(50);
/// Nobody reads more than ten screens a second.
const FRAME: Duration = Duration::from_millis(100);
/// A burst of keys is taken in before the screen is drawn again, but not without end.
const BURST: usize = 64;

/// Whether there is a terminal that we belong to.
#[must_use]
pub fn has_terminal() -> bool {
    super::screen::controlling().is_ok()
}

/// Shows the sites until the watch ends or the user leaves. The terminal is restored in any case.
pub fn run(source: &mut dyn TraceSource, place: Place, colour: bool) -> anyhow::Result<Outcome> {
    match place {
        Place::Stdout => {
            let ended = EndSignal::listen()?;
            let mut screen = Screen::enter()?;
            show(&mut screen.terminal, source, colour, || {
                input::next(Duration::ZERO, &ended)
            })
        }
        // Signals are heard by the source: they are for the program.
        Place::Terminal => {
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
) -> anyhow::Result<Outcome> {
    let mut state = State::new(colour);
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
            WatchProgress::Ended => return Ok(Outcome::Ended),
        }
        for _ in 0..BURST {
            let Some(input) = next()? else { break };
            is_new = true;
            match state.update(input, source.rows()) {
                Said::Stay => {}
                Said::Quit => return Ok(Outcome::Quit),
                Said::Interrupt => return Ok(Outcome::Interrupted),
            }
        }
    }
}

fn in_words(error: impl std::error::Error) -> io::Error {
    io::Error::other(error.to_string())
}
