//! The loop: look, draw, wait for a key until the next look. One thread.

use std::io;
use std::time::{Duration, Instant};

use fdguard_core::Pid;
use fdguard_core::host::HostView;
use ratatui::Terminal;
use ratatui::backend::Backend;

use super::app::{App, AppEvent, Effect, Holdings};
use super::end_signal::EndSignal;
use super::input::{self, Input};
use super::terminal::Screen;
use super::view;

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

/// How many keys of a burst are handled before the screen is drawn again: a paste must not freeze
/// the screen.
const BURST: usize = 64;

/// Nothing is scheduled while paused, but a wait must have an end.
const IDLE: Duration = Duration::from_secs(3600);

/// Shows the host until the user quits, and always restores the terminal.
pub fn run(source: &mut dyn HostSource, options: Options) -> io::Result<()> {
    let ended = EndSignal::listen()?;
    {
        let mut screen = Screen::enter()?;
        let mut app = App::new(options.interval, options.colour).showing(options.filter);
        watch(&mut screen.terminal, &mut app, source, |timeout| {
            poll(timeout, &ended)
        })?;
    }
    ended.follow()
}

fn poll(timeout: Duration, ended: &EndSignal) -> io::Result<Option<AppEvent>> {
    let input = input::next(timeout, ended)?;
    Ok(input.map(|input| match input {
        Input::Key(key) => AppEvent::Key(key),
        Input::Resize { width, height } => AppEvent::Resize { width, height },
    }))
}

/// The loop itself, on any screen and any source of keys.
pub(super) fn watch<B: Backend>(
    terminal: &mut Terminal<B>,
    app: &mut App,
    source: &mut dyn HostSource,
    mut poll: impl FnMut(Duration) -> io::Result<Option<AppEvent>>,
) -> io::Result<()> {
    let start = Instant::now();
    let mut due = start;
    let size = terminal.size().map_err(in_words)?;
    app.update(AppEvent::Resize {
        width: size.width,
        height: size.height,
    });
    loop {
        if !app.is_paused() && Instant::now() >= due {
            perform(Effect::Look, app, source, start);
            // Counted from the end, so that there is a pause even on a host where a look is slow.
            due = Instant::now() + app.interval;
        }
        terminal
            .draw(|frame| view::draw(frame, app))
            .map_err(in_words)?;
        let mut wait = if app.is_paused() {
            IDLE
        } else {
            due.saturating_duration_since(Instant::now())
        };
        let mut wanted = None;
        for _ in 0..BURST {
            let Some(event) = poll(wait)? else { break };
            wait = Duration::ZERO;
            match app.update(event) {
                Some(Effect::Quit) => return Ok(()),
                // Of many requested details in one burst only the last is of interest, and a look
                // at the host includes one.
                Some(effect) if wanted != Some(Effect::Look) => wanted = Some(effect),
                _ => {}
            }
        }
        if let Some(effect) = wanted {
            perform(effect, app, source, start);
        }
    }
}

/// Performs an effect, and those that follow from it.
fn perform(effect: Effect, app: &mut App, source: &mut dyn HostSource, start: Instant) {
    let mut next = Some(effect);
    while let Some(effect) = next {
        let event = match effect {
            Effect::Quit => return,
            Effect::Look => {
                let view = Box::new(source.look());
                let at = start.elapsed();
                AppEvent::Look { at, view }
            }
            Effect::Detail(pid) => AppEvent::Detail {
                pid,
                result: source.detail(pid).map(Box::new),
            },
        };
        next = app.update(event);
    }
}

fn in_words(error: impl std::error::Error) -> io::Error {
    io::Error::other(error.to_string())
}
