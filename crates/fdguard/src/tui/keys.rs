//! Keys with the same meaning in every view.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

/// How far the cursor, or a pane, moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Up,
    Down,
    PageUp,
    PageDown,
    First,
    Last,
}

impl Step {
    /// The step of a key, if it is one.
    pub(super) fn of(key: KeyEvent) -> Option<Self> {
        if is_control(key) {
            return match key.code {
                KeyCode::Char('b') => Some(Self::PageUp),
                KeyCode::Char('f') => Some(Self::PageDown),
                _ => None,
            };
        }
        Some(match key.code {
            KeyCode::Up | KeyCode::Char('k') => Self::Up,
            KeyCode::Down | KeyCode::Char('j') => Self::Down,
            KeyCode::PageUp => Self::PageUp,
            KeyCode::PageDown => Self::PageDown,
            KeyCode::Home | KeyCode::Char('g') => Self::First,
            KeyCode::End | KeyCode::Char('G') => Self::Last,
            _ => return None,
        })
    }

    /// Whether it scrolls an open pane instead of moving the cursor.
    pub(super) fn is_page(self) -> bool {
        matches!(self, Self::PageUp | Self::PageDown)
    }

    /// Where it leads from a place, in a list whose last place is `last`.
    pub(super) fn apply(self, from: usize, page: usize, last: usize) -> usize {
        let to = match self {
            Self::Up => from.saturating_sub(1),
            Self::Down => from.saturating_add(1),
            Self::PageUp => from.saturating_sub(page),
            Self::PageDown => from.saturating_add(page),
            Self::First => 0,
            Self::Last => last,
        };
        to.min(last)
    }

    /// The same for a pane of `length` lines, `room` of which are visible. Never past the end, or
    /// as many keys would be needed to come back and seem dead.
    pub(super) fn scroll(self, from: usize, (length, room): (usize, usize)) -> usize {
        let most = length.saturating_sub(room);
        let page = room.saturating_sub(1).max(1);
        self.apply(from.min(most), page, most)
    }
}

/// Whether a key leaves at once, whatever is open.
pub(super) fn is_interrupt(key: KeyEvent) -> bool {
    is_control(key) && key.code == KeyCode::Char('c')
}

pub(super) fn is_control(key: KeyEvent) -> bool {
    key.modifiers.contains(KeyModifiers::CONTROL)
}
