//! The state of the view, and how events change it.

use std::time::Duration;

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use fdguard_core::growth::Growth;
use fdguard_core::host::{HostRow, HostView};
use fdguard_core::{Pid, Snapshot, Summary};

use super::keys::{self, Action, Step};
use super::list::{self, Arrangement, Entry};
use super::order::Sort;

/// Something that happened.
#[derive(Clone, Debug)]
pub enum AppEvent {
    /// A key was pressed.
    Key(KeyEvent),
    /// The terminal has this size.
    Resize {
        /// Columns.
        width: u16,
        /// Rows.
        height: u16,
    },
    /// A sample of the whole machine, at this time since the view began.
    Look {
        /// Time since the watch began.
        at: Duration,
        /// What was seen.
        view: Box<HostView>,
    },
    /// A snapshot of one process.
    Detail {
        /// Which.
        pid: Pid,
        /// What it has open, or why it cannot be read.
        result: Result<Box<Holdings>, String>,
    },
}

/// Something that the loop must do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Leave.
    Quit,
    /// Look at the host now.
    Look,
    /// Look closely at one process, and answer with [`AppEvent::Detail`].
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
    pub(super) result: Option<Result<Box<Holdings>, String>>,
}

/// Identifies a process for the cursor: includes the start time, since pids are reused.
type Identity = (Pid, Option<u64>);

/// Everything the screen shows.
#[derive(Clone, Debug)]
pub struct App {
    pub(super) view: HostView,
    pub(super) growth: Growth,
    pub(super) entries: Vec<Entry>,
    pub(super) sort: Sort,
    pub(super) reversed: bool,
    pub(super) tree: bool,
    pub(super) paused: bool,
    pub(super) help: bool,
    pub(super) filter: String,
    pub(super) editing: bool,
    pub(super) pane: Option<Pane>,
    pub(super) cursor: usize,
    pub(super) offset: usize,
    pub(super) size: (u16, u16),
    pub(super) interval: Duration,
    pub(super) colour: bool,
    /// The process under the cursor. `None` while the cursor is on the first line: without a choice
    /// the user wants to see the worst process, whichever that is now.
    selected: Option<Identity>,
}

impl App {
    /// An empty view that refreshes at this interval.
    #[must_use]
    pub fn new(interval: Duration, colour: bool) -> Self {
        Self {
            view: HostView::default(),
            growth: Growth::new(),
            entries: Vec::new(),
            sort: Sort::default(),
            reversed: false,
            tree: false,
            paused: false,
            help: false,
            filter: String::new(),
            editing: false,
            pane: None,
            cursor: 0,
            offset: 0,
            size: (80, 24),
            interval,
            colour,
            selected: None,
        }
    }

    /// The same, with only the rows that match the filter.
    #[must_use]
    pub fn showing(mut self, filter: String) -> Self {
        self.filter = filter;
        self
    }

    /// Handles one event and returns the effect to perform.
    pub fn update(&mut self, event: AppEvent) -> Option<Effect> {
        let effect = match event {
            AppEvent::Key(key) if self.editing => self.edit(key),
            // Any key closes the help and does nothing else.
            AppEvent::Key(key) if self.help => {
                self.help = false;
                keys::quits(key).then_some(Effect::Quit)
            }
            AppEvent::Key(key) => self.act(keys::action(key)?),
            AppEvent::Resize { width, height } => {
                self.size = (width, height);
                None
            }
            AppEvent::Look { at, view } => {
                self.growth.observe(at, &view);
                self.view = *view;
                self.arrange();
                self.refresh_pane()
            }
            AppEvent::Detail { pid, result } => {
                self.fill_pane(pid, result);
                None
            }
        };
        self.keep_cursor_visible();
        effect
    }

    /// Whether automatic sampling is paused.
    #[must_use]
    pub fn is_paused(&self) -> bool {
        self.paused
    }

    /// The process under the cursor.
    #[must_use]
    pub fn current(&self) -> Option<&HostRow> {
        let entry = self.entries.get(self.cursor)?;
        self.view.rows.get(entry.row)
    }

    /// Rows of the list that fit on the screen.
    pub(super) fn list_height(&self) -> usize {
        super::view::list_height(self)
    }

    fn act(&mut self, action: Action) -> Option<Effect> {
        match action {
            Action::Quit => return Some(Effect::Quit),
            Action::Back => return self.back(),
            Action::Help => self.help = true,
            Action::Pane => return self.toggle_pane(),
            Action::EditFilter => self.editing = true,
            Action::Cycle => self.sort_by(self.sort.next()),
            Action::SortBy(sort) => self.sort_by(sort),
            Action::Reverse => {
                self.reversed = !self.reversed;
                self.arrange();
            }
            Action::Tree => {
                self.tree = !self.tree;
                self.arrange();
            }
            Action::Pause => self.paused = !self.paused,
            Action::Refresh => return Some(Effect::Look),
            Action::Move(step) => return self.step(step),
        }
        None
    }

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
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            _ if keys::quits(key) => return Some(Effect::Quit),
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
        if self.pane.is_some() && matches!(step, Step::PageUp | Step::PageDown) {
            self.scroll_pane(step);
            return None;
        }
        let page = self.list_height().saturating_sub(1).max(1);
        let last = self.entries.len().saturating_sub(1);
        self.cursor = match step {
            Step::Up => self.cursor.saturating_sub(1),
            Step::Down => self.cursor.saturating_add(1),
            Step::PageUp => self.cursor.saturating_sub(page),
            Step::PageDown => self.cursor.saturating_add(page),
            Step::First => 0,
            Step::Last => last,
        }
        .min(last);
        self.selected = match self.cursor {
            0 => None,
            _ => self.current().map(identity),
        };
        self.refresh_pane()
    }

    fn toggle_pane(&mut self) -> Option<Effect> {
        if self.pane.take().is_some() {
            return None;
        }
        let (pid, start_ticks) = self.current().map(identity)?;
        // An open pane pins its process, even the first one.
        self.selected = Some((pid, start_ticks));
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

    fn fill_pane(&mut self, pid: Pid, result: Result<Box<Holdings>, String>) {
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

    fn scroll_pane(&mut self, step: Step) {
        let (length, room) = super::view::pane_extent(self);
        let page = room.saturating_sub(1).max(1);
        // Never past the end, or as many keys would be needed to come back and seem dead.
        let most = length.saturating_sub(room);
        if let Some(pane) = &mut self.pane {
            let from = pane.scroll.min(most);
            pane.scroll = match step {
                Step::PageUp => from.saturating_sub(page),
                _ => from.saturating_add(page).min(most),
            };
        }
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
        let found = self.selected.and_then(|selected| {
            let is_it = |entry: &Entry| identity(&rows[entry.row]) == selected;
            self.entries.iter().position(is_it)
        });
        let last = self.entries.len().saturating_sub(1);
        self.cursor = match (self.selected, found) {
            (None, _) => 0,
            (Some(_), Some(found)) => found,
            // The process ended, or the filter hides it: the cursor stays where it was.
            (Some(_), None) => self.cursor.min(last),
        };
    }

    fn keep_cursor_visible(&mut self) {
        let height = self.list_height().max(1);
        let most = self.entries.len().saturating_sub(height);
        let lowest = self.cursor.saturating_sub(height - 1);
        self.offset = self.offset.clamp(lowest, self.cursor).min(most.max(lowest));
    }
}

fn identity(row: &HostRow) -> Identity {
    (row.pid, row.start_ticks)
}
