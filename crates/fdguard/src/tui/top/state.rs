//! The state of the view, and how events change it.

use std::time::Duration;

use crossterm::event::{KeyCode, KeyEvent};
use fdguard_core::growth::Growth;
use fdguard_core::host::{HostRow, HostView};
use fdguard_core::{Pid, RowKey, Snapshot, Summary};

use super::draw;
use super::list::{self, Arrangement, Entry};
use super::order::Sort;
use crate::tui::keys::{Step, is_control};
use crate::tui::selection::Selection;

/// Something that the loop must do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Leave.
    Quit,
    /// Look at the host now.
    Look,
    /// Look closely at one process, and answer with [`TopState::fill_pane`].
    Detail(Pid),
}

/// What one process has open.
#[derive(Clone, Debug, PartialEq)]
pub struct Holdings {
    /// What was seen.
    pub snapshot: Snapshot,
    /// What it means.
    pub summary: Summary,
}

/// The detail pane: its process, and the result.
#[derive(Clone, Debug)]
pub(super) struct Pane {
    pub(super) pid: Pid,
    pub(super) scroll: usize,
    /// `None` before the first sample.
    pub(super) result: Option<Result<Holdings, String>>,
}

/// Everything the screen shows.
#[derive(Clone, Debug, Default)]
pub struct TopState {
    pub(super) view: HostView,
    pub(super) growth: Growth,
    pub(super) entries: Vec<Entry>,
    pub(super) sort: Sort,
    pub(super) reversed: bool,
    pub(super) tree: bool,
    pub(super) paused: bool,
    pub(super) filter: String,
    pub(super) editing: bool,
    pub(super) pane: Option<Pane>,
    /// The process under the cursor.
    pub(super) selection: Selection<RowKey>,
    pub(super) offset: usize,
    pub(super) size: (u16, u16),
    pub(super) interval: Duration,
}

impl TopState {
    /// An empty view that refreshes at this interval.
    #[must_use]
    pub fn new(interval: Duration) -> Self {
        Self {
            size: (80, 24),
            interval,
            ..Self::default()
        }
    }

    /// The same, with only the rows that match the filter.
    #[must_use]
    pub fn showing(mut self, filter: String) -> Self {
        self.filter = filter;
        self
    }

    /// Handles a key and returns the effect to perform.
    pub fn press(&mut self, key: KeyEvent) -> Option<Effect> {
        let effect = match self.editing {
            true => self.edit(key),
            false => self.act(key),
        };
        self.keep_cursor_visible();
        effect
    }

    /// The screen has this size.
    pub fn resize(&mut self, width: u16, height: u16) {
        self.size = (width, height);
        self.keep_cursor_visible();
    }

    /// Takes in a sample of the whole machine, at this time since the view began.
    pub fn observe(&mut self, at: Duration, view: HostView) -> Option<Effect> {
        self.growth.observe(at, &view);
        self.view = view;
        self.arrange();
        self.keep_cursor_visible();
        self.refresh_pane()
    }

    /// Whether automatic sampling is paused.
    #[must_use]
    pub fn is_paused(&self) -> bool {
        self.paused
    }

    /// The process under the cursor.
    #[must_use]
    pub fn current(&self) -> Option<&HostRow> {
        let entry = self.entries.get(self.selection.cursor())?;
        self.view.rows.get(entry.row)
    }

    /// Rows of the list that fit on the screen.
    pub(super) fn list_height(&self) -> usize {
        draw::list_height(self)
    }

    fn act(&mut self, key: KeyEvent) -> Option<Effect> {
        if is_control(key) {
            return self.step(Step::of(key)?);
        }
        match key.code {
            KeyCode::Char('q') | KeyCode::Esc => return self.back(),
            KeyCode::Char('d') | KeyCode::Enter => return self.toggle_pane(),
            KeyCode::Char('/') => self.editing = true,
            KeyCode::Char('s') => self.sort_by(self.sort.next()),
            KeyCode::Char('S') => {
                self.reversed = !self.reversed;
                self.arrange();
            }
            KeyCode::Char('w') => self.sort_by(Sort::Wall),
            KeyCode::Char('p') => self.sort_by(Sort::Percent),
            KeyCode::Char('c') => self.sort_by(Sort::Count),
            // Not `g`: in every pager that moves to the first line.
            KeyCode::Char('+') => self.sort_by(Sort::Growth),
            KeyCode::Char('l') => self.sort_by(Sort::TimeLeft),
            KeyCode::Char('t') => {
                self.tree = !self.tree;
                self.arrange();
            }
            KeyCode::Char(' ') => self.paused = !self.paused,
            KeyCode::Char('r') => return Some(Effect::Look),
            _ => return self.step(Step::of(key)?),
        }
        None
    }

    /// Closes what is open: a pane, a filter, and finally the program.
    fn back(&mut self) -> Option<Effect> {
        if self.pane.take().is_some() {
            return None;
        }
        if self.filter.is_empty() {
            return Some(Effect::Quit);
        }
        self.filter.clear();
        self.arrange();
        None
    }

    fn sort_by(&mut self, sort: Sort) {
        self.sort = sort;
        self.reversed = false;
        self.arrange();
    }

    fn edit(&mut self, key: KeyEvent) -> Option<Effect> {
        let control = is_control(key);
        match key.code {
            KeyCode::Char('u') if control => self.filter.clear(),
            KeyCode::Enter => self.editing = false,
            KeyCode::Esc => {
                self.editing = false;
                self.filter.clear();
            }
            KeyCode::Backspace => {
                // The filter is already empty: stop editing, as in a pager.
                self.editing = self.filter.pop().is_some();
            }
            KeyCode::Char(c) if !control => self.filter.push(c),
            KeyCode::Up => return self.step(Step::Up),
            KeyCode::Down => return self.step(Step::Down),
            _ => return None,
        }
        self.arrange();
        self.refresh_pane()
    }

    fn step(&mut self, step: Step) -> Option<Effect> {
        if step.is_page()
            && let Some(scroll) = self.pane.as_ref().map(|pane| pane.scroll)
        {
            let scroll = step.scroll(scroll, draw::pane_extent(self));
            self.pane.as_mut()?.scroll = scroll;
            return None;
        }
        let page = self.list_height().saturating_sub(1).max(1);
        let rows = &self.view.rows;
        let key = |entry: &Entry| rows[entry.row].row_key();
        self.selection.step(step, page, &self.entries, key, false);
        self.refresh_pane()
    }

    fn toggle_pane(&mut self) -> Option<Effect> {
        if self.pane.take().is_some() {
            return None;
        }
        let pid = self.current()?.pid;
        let rows = &self.view.rows;
        self.selection
            .pin(&self.entries, |entry| rows[entry.row].row_key());
        self.pane = Some(Pane {
            pid,
            scroll: 0,
            result: None,
        });
        Some(Effect::Detail(pid))
    }

    /// The pane follows the cursor, and is read again with every look.
    fn refresh_pane(&mut self) -> Option<Effect> {
        let pid = self.current().map(|row| row.pid);
        let pane = self.pane.as_mut()?;
        let pid = pid?;
        if pane.pid != pid {
            *pane = Pane {
                pid,
                scroll: 0,
                result: None,
            };
        }
        Some(Effect::Detail(pid))
    }

    /// Shows what a process has open, or why it cannot be read.
    pub fn fill_pane(&mut self, pid: Pid, result: Result<Holdings, String>) {
        let now = self.view.rows.iter().find(|row| row.pid == pid);
        let expected = now.and_then(HostRow::key);
        let Some(pane) = self.pane.as_mut().filter(|pane| pane.pid == pid) else {
            return;
        };
        let found = result.as_ref().ok();
        let found = found.and_then(|holdings| holdings.snapshot.process.key());
        pane.result = Some(match (expected, found) {
            (Some(expected), Some(found)) if expected != found => Err(format!(
                "process {pid} exited; another process now has its pid"
            )),
            _ => result,
        });
    }

    fn arrange(&mut self) {
        let how = Arrangement {
            sort: self.sort,
            reversed: self.reversed,
            tree: self.tree,
            filter: &self.filter,
        };
        self.entries = list::arrange(&self.view, &self.growth, how);
        let rows = &self.view.rows;
        self.selection
            .follow(&self.entries, |entry| rows[entry.row].row_key());
    }

    fn keep_cursor_visible(&mut self) {
        let height = self.list_height().max(1);
        let most = self.entries.len().saturating_sub(height);
        let cursor = self.selection.cursor();
        let lowest = cursor.saturating_sub(height - 1);
        self.offset = self.offset.clamp(lowest, cursor).min(most.max(lowest));
    }
}
