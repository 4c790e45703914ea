//! The cursor of a list whose rows move.

use super::keys::Step;

/// The line of the cursor, and what the user chose there.
#[derive(Clone, Debug)]
pub(super) struct Selection<K> {
    cursor: usize,
    /// `None` while the cursor is on the first line: without a choice the user wants to see the
    /// worst, whichever that is now.
    chosen: Option<K>,
}

impl<K> Default for Selection<K> {
    fn default() -> Self {
        Self {
            cursor: 0,
            chosen: None,
        }
    }
}

impl<K: PartialEq> Selection<K> {
    /// The index of the selected row.
    pub(super) fn cursor(&self) -> usize {
        self.cursor
    }

    /// Moves the cursor in a list with these rows. The first row is a choice only if it is
    /// `pinned`.
    pub(super) fn step<T>(
        &mut self,
        step: Step,
        page: usize,
        rows: &[T],
        key: impl Fn(&T) -> K,
        is_pinned: bool,
    ) {
        self.cursor = step.apply(self.cursor, page, rows.len().saturating_sub(1));
        self.chosen = None;
        if self.cursor > 0 || is_pinned {
            self.pin(rows, key);
        }
    }

    /// Keeps the selected row, even the first one: do not replace it while it is being read.
    pub(super) fn pin<T>(&mut self, rows: &[T], key: impl Fn(&T) -> K) {
        self.chosen = rows.get(self.cursor).map(key);
    }

    /// The cursor follows its row. If the row is gone, the cursor stays where it was.
    pub(super) fn follow<T>(&mut self, rows: &[T], key: impl Fn(&T) -> K) {
        let Some(chosen) = &self.chosen else {
            self.cursor = 0;
            return;
        };
        let found = rows.iter().position(|row| key(row) == *chosen);
        let last = rows.len().saturating_sub(1);
        self.cursor = found.unwrap_or(self.cursor).min(last);
    }
}
