//! The loop: let the source look, handle keys, draw. One thread.

use std::io;
use std::time::{Duration, Instant};

use fdguard_core::rule::RuleSettings;
use fdguard_core::watch::Watch;
use fdguard_diagnose::watching::WatchProgress;
use ratatui::Terminal;
use ratatui::backend::Backend;

use super::draw::draw;
use super::state::WatchViewState;
use crate::tui::end_signal::EndSignal;
use crate::tui::input::{self, Input};
use crate::tui::terminal::Screen;

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

/// Why the view ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchViewEnd {
    /// The watch is over.
    Ended,
    /// The user quit, or a termination signal arrived.
    Quit,
}

/// How long a key may wait while the source waits for its next look.
const STEP: Duration = Duration::from_millis(50);

/// More than ten screens a second cannot be read.
const FRAME: Duration = Duration::from_millis(100);

/// The time per frame for judging the processes that are not shown in full.
const JUDGING: Duration = Duration::from_millis(30);

/// How many keys of a burst are handled before the screen is drawn again: a paste must not freeze
/// the screen.
const BURST: usize = 64;

/// Shows the watch until it ends or the user quits, and always restores the terminal. After that a
/// termination signal ends only the view: the caller reports the findings and returns.
pub fn run(source: &mut dyn WatchSource, options: &WatchOptions) -> anyhow::Result<WatchViewEnd> {
    let ended = EndSignal::listen()?;
    let mut screen = Screen::enter()?;
    show(&mut screen.terminal, source, options, || {
        input::next(Duration::ZERO, &ended)
    })
}

/// The loop itself, on any screen and any source of keys.
pub(super) fn show<B: Backend>(
    terminal: &mut Terminal<B>,
    source: &mut dyn WatchSource,
    options: &WatchOptions,
    mut next: impl FnMut() -> io::Result<Option<Input>>,
) -> anyhow::Result<WatchViewEnd> {
    let mut state = WatchViewState::new(options);
    let size = terminal.size().map_err(in_words)?;
    let size = Input::Resize {
        width: size.width,
        height: size.height,
    };
    state.update(size, source.watch());
    let mut drawn: Option<Instant> = None;
    let (mut is_new, mut is_unjudged) = (true, true);
    loop {
        if is_new && drawn.is_none_or(|at| at.elapsed() >= FRAME) {
            if is_unjudged {
                let began = Instant::now();
                let has_time = || began.elapsed() < JUDGING;
                is_unjudged = !state.judge(source.watch(), &options.settings, has_time);
            }
            terminal
                .draw(|frame| draw(frame, &state, source.watch()))
                .map_err(in_words)?;
            drawn = Some(Instant::now());
            // Processes that were not judged in time appear in the next frame.
            is_new = is_unjudged;
        }
        match source.advance(Instant::now() + STEP)? {
            WatchProgress::Waiting => {}
            WatchProgress::Looked | WatchProgress::Signalled => {
                (is_new, is_unjudged) = (true, true)
            }
            WatchProgress::Ended => return Ok(WatchViewEnd::Ended),
        }
        for _ in 0..BURST {
            let Some(input) = next()? else { break };
            is_new = true;
            if state.update(input, source.watch()) {
                return Ok(WatchViewEnd::Quit);
            }
        }
    }
}

fn in_words(error: impl std::error::Error) -> io::Error {
    io::Error::other(error.to_string())
}
