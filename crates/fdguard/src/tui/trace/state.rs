//! The user's choices in the view.

use crossterm::event::{KeyCode, KeyEvent};

use super::{SiteRow, draw};
use crate::tui::keys::{Step, is_control};
use crate::tui::selection::Selection;

/// Everything on the screen that is not in the rows.
#[derive(Clone, Debug, Default)]
pub struct TraceViewState {
    /// Whether the stack of the selected site is open.
    pub(super) is_open: bool,
    pub(super) scroll: usize,
    pub(super) size: (u16, u16),
    /// The selected site: its process and its line.
    selection: Selection<(u32, String)>,
}

fn identity(row: &SiteRow) -> (u32, String) {
    (row.pid, row.line.clone())
}

impl TraceViewState {
    /// The index of the selected site.
    pub(super) fn cursor(&self) -> usize {
        self.selection.cursor()
    }

    /// The cursor follows its site.
    pub fn follow(&mut self, rows: &[SiteRow]) {
        self.selection.follow(rows, identity);
        self.is_open &= !rows.is_empty();
    }

    /// Handles a key; returns whether to quit.
    pub(super) fn press(&mut self, key: KeyEvent, rows: &[SiteRow]) -> bool {
        match key.code {
            _ if is_control(key) => self.step(key, rows),
            KeyCode::Char('q') | KeyCode::Esc => {
                return !std::mem::replace(&mut self.is_open, false);
            }
            KeyCode::Enter | KeyCode::Char(' ') => {
                self.is_open = !self.is_open && !rows.is_empty();
                self.scroll = 0;
                self.selection.pin(rows, identity);
            }
            _ => self.step(key, rows),
        }
        false
    }

    fn step(&mut self, key: KeyEvent, rows: &[SiteRow]) {
        let Some(step) = Step::of(key) else { return };
        if self.is_open && step.is_page() {
            let extent = draw::pane_extent(self, rows);
            self.scroll = step.scroll(self.scroll, extent);
            return;
        }
        let page = draw::list_height(self.size.1).saturating_sub(1).max(1);
        self.selection
            .step(step, page, rows, identity, self.is_open);
        self.scroll = 0;
    }
}
