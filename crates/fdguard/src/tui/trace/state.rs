//! The user's choices in the view.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::SiteRow;
use crate::tui::input::Input;

/// Everything on the screen that is not in the rows.
#[derive(Clone, Debug)]
pub struct TraceViewState {
    pub(super) colour: bool,
    pub(super) cursor: usize,
    /// Whether the stack of the selected site is open.
    pub(super) is_open: bool,
    pub(super) scroll: usize,
    /// The site that the user chose; `None` selects the first one.
    chosen: Option<(u32, String)>,
}

/// The action that a key requests from the loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeyAction {
    Stay,
    Quit,
    Interrupt,
}

impl TraceViewState {
    /// The initial state, without a choice.
    #[must_use]
    pub fn new(colour: bool) -> Self {
        Self {
            colour,
            cursor: 0,
            is_open: false,
            scroll: 0,
            chosen: None,
        }
    }

    /// The cursor follows its site. If the site is gone, the cursor stays where it was.
    pub fn follow(&mut self, rows: &[SiteRow]) {
        let chosen = self.chosen.as_ref();
        let found = chosen.and_then(|key| rows.iter().position(|row| row.is_same(key)));
        self.cursor = found.unwrap_or(if chosen.is_some() { self.cursor } else { 0 });
        self.cursor = self.cursor.min(rows.len().saturating_sub(1));
        self.is_open &= !rows.is_empty();
    }

    /// Handles a key or event.
    pub(super) fn update(&mut self, input: Input, rows: &[SiteRow]) -> KeyAction {
        match input {
            Input::Resize { .. } => KeyAction::Stay,
            Input::Key(key) => self.press(key, rows),
        }
    }

    fn press(&mut self, key: KeyEvent, rows: &[SiteRow]) -> KeyAction {
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            let is_interrupt = key.code == KeyCode::Char('c');
            return if is_interrupt {
                KeyAction::Interrupt
            } else {
                KeyAction::Stay
            };
        }
        match key.code {
            KeyCode::Char('q') | KeyCode::Esc if self.is_open => self.is_open = false,
            KeyCode::Char('q') | KeyCode::Esc => return KeyAction::Quit,
            KeyCode::Char('j') | KeyCode::Down => self.step(rows, 1),
            KeyCode::Char('k') | KeyCode::Up => self.step(rows, -1),
            KeyCode::PageDown => self.scroll = self.scroll.saturating_add(5),
            KeyCode::PageUp => self.scroll = self.scroll.saturating_sub(5),
            KeyCode::Enter | KeyCode::Char(' ') => {
                self.is_open = !self.is_open && !rows.is_empty();
                self.scroll = 0;
                // Keep the selected site in view, however the rows move.
                self.choose(rows);
            }
            _ => {}
        }
        KeyAction::Stay
    }

    fn step(&mut self, rows: &[SiteRow], by: isize) {
        let last = rows.len().saturating_sub(1);
        self.cursor = self.cursor.saturating_add_signed(by).min(last);
        self.scroll = 0;
        self.choose(rows);
        if self.cursor == 0 && !self.is_open {
            self.chosen = None;
        }
    }

    fn choose(&mut self, rows: &[SiteRow]) {
        let row = rows.get(self.cursor);
        self.chosen = row.map(|row| (row.pid, row.line.clone()));
    }
}
