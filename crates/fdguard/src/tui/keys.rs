//! The meaning of keys. One table of texts for the help, one function for the meaning.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::order::Sort;

/// The action of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    Quit,
    /// Closes what is open: an overlay, a pane, a filter, and finally the program.
    Back,
    Help,
    Pane,
    EditFilter,
    Cycle,
    Reverse,
    SortBy(Sort),
    Tree,
    Pause,
    Refresh,
    Move(Step),
}

/// How far the cursor, or the pane, moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Up,
    Down,
    PageUp,
    PageDown,
    First,
    Last,
}

/// The keys for the help, in the order of use.
pub(super) const HELP: &[(&str, &str)] = &[
    ("↑ ↓ j k", "move; the cursor follows its process"),
    ("PgUp PgDn", "scroll a page, or the open detail pane"),
    ("g G", "go to the first, the last process"),
    ("enter d", "show open classes, targets and lints"),
    ("/", "filter by command or pid; enter applies, esc clears"),
    ("s S", "next sort order; reverse it"),
    (
        "w p c + l",
        "sort by headroom, %soft, count, growth, time left",
    ),
    ("t", "tree: TREE sums a process and its descendants"),
    ("space r", "pause; refresh now"),
    ("? q esc", "this help; quit (ctrl-c anywhere)"),
];

/// Whether a key leaves at once, whatever is open.
pub(super) fn quits(key: KeyEvent) -> bool {
    key.modifiers.contains(KeyModifiers::CONTROL) && key.code == KeyCode::Char('c')
}

/// The meaning of a key while no filter is being typed.
pub(super) fn action(key: KeyEvent) -> Option<Action> {
    if key.modifiers.contains(KeyModifiers::CONTROL) {
        return match key.code {
            KeyCode::Char('c') => Some(Action::Quit),
            KeyCode::Char('b') => Some(Action::Move(Step::PageUp)),
            KeyCode::Char('f') => Some(Action::Move(Step::PageDown)),
            _ => None,
        };
    }
    Some(match key.code {
        KeyCode::Char('q') | KeyCode::Esc => Action::Back,
        KeyCode::Char('?') | KeyCode::F(1) => Action::Help,
        KeyCode::Char('d') | KeyCode::Enter => Action::Pane,
        KeyCode::Char('/') => Action::EditFilter,
        KeyCode::Char('s') => Action::Cycle,
        KeyCode::Char('S') => Action::Reverse,
        KeyCode::Char('w') => Action::SortBy(Sort::Wall),
        KeyCode::Char('p') => Action::SortBy(Sort::Percent),
        KeyCode::Char('c') => Action::SortBy(Sort::Count),
        // Not `g`: in every pager that moves to the first line.
        KeyCode::Char('+') => Action::SortBy(Sort::Growth),
        KeyCode::Char('l') => Action::SortBy(Sort::TimeLeft),
        KeyCode::Char('t') => Action::Tree,
        KeyCode::Char(' ') => Action::Pause,
        KeyCode::Char('r') => Action::Refresh,
        _ => Action::Move(step(key.code)?),
    })
}

fn step(code: KeyCode) -> Option<Step> {
    Some(match code {
        KeyCode::Up | KeyCode::Char('k') => Step::Up,
        KeyCode::Down | KeyCode::Char('j') => Step::Down,
        KeyCode::PageUp => Step::PageUp,
        KeyCode::PageDown => Step::PageDown,
        KeyCode::Home | KeyCode::Char('g') => Step::First,
        KeyCode::End | KeyCode::Char('G') => Step::Last,
        _ => return None,
    })
}
