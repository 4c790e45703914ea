//! The loop around every view: look, draw, handle keys. One thread.

use std::io;
use std::time::{Duration, Instant};

use crossterm::event::{KeyCode, KeyEvent};
use fdguard_core::Gap;
use ratatui::backend::Backend;
use ratatui::{Frame, Terminal};

use super::input::{EndSignal, Input};
use super::screen::{DrawTarget, Screen};
use super::theme::Theme;
use super::widget::{self, HelpTable};
use super::{input, keys};
use fdguard_diagnose::watching::WatchProgress;

/// Why a view ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ViewEnd {
    /// There is no more to show.
    Ended,
    /// The user quit.
    Quit,
    /// The user pressed Ctrl-C, or a termination signal arrived.
    Interrupted,
}

/// What is on the screen, and what keys do to it.
pub(super) trait View {
    /// The keys for the help, in the order of use.
    const KEYS: HelpTable;
    /// The meaning of the columns.
    const WORDS: HelpTable = &[];

    /// Looks if it is time. Blocks at most until `deadline`, so that keys are handled.
    fn advance(&mut self, deadline: Instant) -> anyhow::Result<WatchProgress>;

    /// How long to wait for a key before the next advance.
    fn patience(&self) -> Duration {
        Duration::ZERO
    }

    /// Takes in what the last looks saw, before it is drawn. Returns whether something is left for
    /// the next frame.
    fn refresh(&mut self) -> bool {
        false
    }

    /// The screen has this size.
    fn resize(&mut self, width: u16, height: u16);

    /// Handles a key; returns whether to quit.
    fn press(&mut self, key: KeyEvent) -> bool;

    /// Whether keys are text now.
    fn is_typing(&self) -> bool {
        false
    }

    /// What could not be seen, for the help.
    fn gaps(&self) -> &[Gap];

    /// Draws everything.
    fn draw(&self, frame: &mut Frame<'_>, theme: &Theme);
}

/// How long a key may wait while a view waits for its next look.
const STEP: Duration = Duration::from_millis(50);
/// More than ten screens a second cannot be read.
const FRAME: Duration = Duration::from_millis(100);
/// How many keys of a burst are handled before the screen is drawn again: a paste must not freeze
/// the screen.
const BURST: usize = 64;

/// A view on a terminal.
#[derive(Debug)]
pub(super) struct App<V> {
    pub(super) view: V,
    theme: Theme,
    has_help: bool,
}

impl<V: View> App<V> {
    pub(super) fn new(view: V, colour: bool) -> Self {
        Self {
            view,
            theme: Theme::new(colour),
            has_help: false,
        }
    }

    /// Shows the view until it ends or the user quits, and always restores the terminal. A
    /// termination signal ends only the view: the caller decides what else it means.
    pub(super) fn run(
        &mut self,
        target: DrawTarget,
        signals: Option<&EndSignal>,
    ) -> anyhow::Result<ViewEnd> {
        let mut screen = Screen::enter(target)?;
        self.show(&mut screen.terminal, |timeout| {
            let input = input::next(timeout, signals)?;
            if input.is_some_and(Input::suspends) {
                target.suspend()?;
                return Ok(Some(Input::Resumed));
            }
            Ok(input)
        })
    }

    /// The loop itself, on any screen and any source of keys.
    pub(super) fn show<B: Backend>(
        &mut self,
        terminal: &mut Terminal<B>,
        mut next: impl FnMut(Duration) -> io::Result<Option<Input>>,
    ) -> anyhow::Result<ViewEnd> {
        let size = terminal.size().map_err(in_words)?;
        self.view.resize(size.width, size.height);
        let mut drawn: Option<Instant> = None;
        let mut is_new = true;
        loop {
            match self.view.advance(Instant::now() + STEP)? {
                WatchProgress::Waiting => {}
                WatchProgress::Looked | WatchProgress::Signalled => is_new = true,
                WatchProgress::Ended => return Ok(ViewEnd::Ended),
            }
            let since = drawn.map_or(FRAME, |at| at.elapsed());
            if is_new && since >= FRAME {
                is_new = self.view.refresh();
                terminal.draw(|frame| self.draw(frame)).map_err(in_words)?;
                drawn = Some(Instant::now());
            }
            let mut wait = self.view.patience();
            if is_new {
                wait = wait.min(FRAME.saturating_sub(since));
            }
            for _ in 0..BURST {
                let Some(input) = next(wait)? else { break };
                // Keys are answered at once.
                (wait, is_new, drawn) = (Duration::ZERO, true, None);
                if input == Input::Resumed {
                    terminal.clear().map_err(in_words)?;
                }
                if let Some(end) = self.handle(input) {
                    return Ok(end);
                }
            }
        }
    }

    /// Handles an input; returns how it ends the view.
    pub(super) fn handle(&mut self, input: Input) -> Option<ViewEnd> {
        match input {
            Input::Resize { width, height } => self.view.resize(width, height),
            Input::Resumed => {}
            Input::Key(key) if keys::is_interrupt(key) => return Some(ViewEnd::Interrupted),
            // Any key closes the help and does nothing else.
            Input::Key(_) if self.has_help => self.has_help = false,
            Input::Key(key) if asks_for_help(key) && !self.view.is_typing() => self.has_help = true,
            Input::Key(key) => return self.view.press(key).then_some(ViewEnd::Quit),
        }
        None
    }

    /// Draws the view, and the help over it.
    pub(super) fn draw(&self, frame: &mut Frame<'_>) {
        self.view.draw(frame, &self.theme);
        if self.has_help {
            let tables = [V::KEYS, V::WORDS];
            widget::draw_help(frame, &tables, self.view.gaps(), &self.theme);
        }
    }
}

fn asks_for_help(key: KeyEvent) -> bool {
    matches!(key.code, KeyCode::Char('?') | KeyCode::F(1))
}

fn in_words(error: impl std::error::Error) -> io::Error {
    io::Error::other(error.to_string())
}
