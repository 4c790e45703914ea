//! Events in, state and effects out.

use std::time::Duration;

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use fdguard_core::host::HostView;

use crate::tui::top::{Effect, Sort, TopState, fixture};

pub(super) fn app() -> TopState {
    let mut app = TopState::new(Duration::from_secs(2));
    look(&mut app, 0, fixture::earlier());
    look(&mut app, 180, fixture::view());
    app
}

pub(super) fn look(app: &mut TopState, second: u64, view: HostView) -> Option<Effect> {
    app.observe(Duration::from_secs(second), view)
}

pub(super) fn press(app: &mut TopState, keys: &str) -> Option<Effect> {
    let press = |app: &mut TopState, c: char| {
        let code = match c {
            '\n' => KeyCode::Enter,
            '\u{1b}' => KeyCode::Esc,
            '\u{8}' => KeyCode::Backspace,
            c => KeyCode::Char(c),
        };
        app.press(KeyEvent::new(code, KeyModifiers::NONE))
    };
    keys.chars().map(|c| press(app, c)).last().flatten()
}

fn shown(app: &TopState) -> Vec<u32> {
    let rows = app.entries.iter().map(|entry| app.view.rows[entry.row].pid);
    rows.collect()
}

fn current(app: &TopState) -> u32 {
    app.current().unwrap().pid
}

#[test]
fn the_list_opens_with_who_is_nearest_to_a_wall() {
    assert_eq!(shown(&app())[..3], [4242, 950, 888]);
}

#[test]
fn the_cursor_stays_with_its_process_and_not_with_its_line() {
    let mut app = app();
    press(&mut app, "jj");
    assert_eq!(current(&app), 888);
    press(&mut app, "S");
    assert_eq!(current(&app), 888);
    let mut later = fixture::view();
    later.rows[4].count = Some(1020);
    press(&mut app, "w");
    look(&mut app, 200, later);
    assert_eq!((current(&app), app.selection.cursor()), (888, 0));
}

#[test]
fn a_cursor_that_was_never_moved_stays_on_the_worst() {
    let mut app = app();
    let mut later = fixture::view();
    later.rows[4].count = Some(1024);
    look(&mut app, 200, later);
    assert_eq!((current(&app), app.selection.cursor()), (888, 0));
}

#[test]
fn the_cursor_keeps_its_line_when_its_process_ends_or_its_number_is_reused() {
    let mut app = app();
    press(&mut app, "j");
    assert_eq!(current(&app), 950);
    let mut later = fixture::view();
    later.rows[6].start_ticks = Some(1);
    later.rows[6].count = Some(3);
    look(&mut app, 200, later);
    assert_eq!((current(&app), app.selection.cursor()), (888, 1));
    look(&mut app, 210, HostView::default());
    assert!(app.current().is_none());
    assert_eq!(press(&mut app, "jkGg\n"), None);
}

#[test]
fn the_sort_keys_choose_and_turn_over() {
    let mut app = app();
    press(&mut app, "c");
    assert_eq!((app.sort, shown(&app)[0]), (Sort::Count, 4242));
    press(&mut app, "S");
    assert_eq!(shown(&app)[0], 666);
    press(&mut app, "+");
    assert_eq!(
        (app.sort, app.reversed, shown(&app)[0]),
        (Sort::Growth, false, 4242)
    );
    press(&mut app, "l");
    assert_eq!(shown(&app)[0], 4242);
    press(&mut app, "s");
    assert_eq!((app.sort, shown(&app)[0]), (Sort::Pid, 1));
}

#[test]
fn the_filter_works_while_it_is_typed() {
    let mut app = app();
    press(&mut app, "/nod");
    assert_eq!(shown(&app), [4243]);
    // Keys are text now, not commands.
    press(&mut app, "q");
    assert!(shown(&app).is_empty());
    press(&mut app, "\u{8}\n");
    assert_eq!((app.editing, shown(&app)), (false, vec![4243]));
    assert_eq!(press(&mut app, "\u{1b}"), None);
    assert_eq!(shown(&app).len(), 10);
    assert_eq!(press(&mut app, "\u{1b}"), Some(Effect::Quit));
}

#[test]
fn escape_while_typing_clears_the_filter() {
    let mut app = app();
    assert_eq!(press(&mut app, "/nod\u{1b}"), None);
    assert_eq!((app.editing, shown(&app).len()), (false, 10));
}

#[test]
fn pausing_stops_looking_and_a_refresh_is_still_possible() {
    let mut app = app();
    press(&mut app, " ");
    assert!(app.is_paused());
    assert_eq!(press(&mut app, "r"), Some(Effect::Look));
    press(&mut app, " ");
    assert!(!app.is_paused());
}

#[test]
fn the_pane_follows_the_cursor_and_every_look() {
    let mut app = app();
    assert_eq!(press(&mut app, "d"), Some(Effect::Detail(4242)));
    assert_eq!(press(&mut app, "j"), Some(Effect::Detail(950)));
    assert_eq!(
        look(&mut app, 200, fixture::view()),
        Some(Effect::Detail(950))
    );
    assert_eq!(press(&mut app, "\n"), None);
    assert!(app.pane.is_none());
}

#[test]
fn an_open_pane_pins_even_the_first_process() {
    let mut app = app();
    press(&mut app, "d");
    let mut later = fixture::view();
    later.rows[4].count = Some(1024);
    assert_eq!(look(&mut app, 200, later), Some(Effect::Detail(4242)));
}

#[test]
fn the_pane_scrolls_to_its_end_and_straight_back() {
    let mut app = app();
    press(&mut app, "d");
    app.fill_pane(4242, Ok(fixture::holdings()));
    let page = |app: &mut TopState, code| {
        app.press(KeyEvent::new(code, KeyModifiers::NONE));
        app.pane.as_ref().unwrap().scroll
    };
    let end = page(&mut app, KeyCode::PageDown);
    assert!(end > 0);
    assert_eq!(page(&mut app, KeyCode::PageDown), end);
    assert_eq!(page(&mut app, KeyCode::PageUp), 0);
    assert_eq!(app.selection.cursor(), 0);
}

#[test]
fn an_answer_about_another_process_is_not_shown() {
    let mut app = app();
    press(&mut app, "d");
    app.fill_pane(1, Err("late".to_owned()));
    assert!(app.pane.as_ref().unwrap().result.is_none());
    let mut holdings = fixture::holdings();
    holdings.snapshot.process.start_ticks = Some(1);
    app.fill_pane(4242, Ok(holdings));
    let result = app.pane.as_ref().unwrap().result.as_ref().unwrap();
    assert!(result.as_ref().unwrap_err().contains("exited"));
}

#[test]
fn the_list_scrolls_no_further_than_it_must() {
    let mut app = TopState::new(Duration::from_secs(2));
    look(&mut app, 0, fixture::crowd(100));
    let height = app.list_height();
    press(&mut app, "G");
    assert_eq!((app.selection.cursor(), app.offset), (99, 100 - height));
    press(&mut app, "k");
    assert_eq!(app.offset, 100 - height);
    app.resize(80, 200);
    assert_eq!(app.offset, 0);
    app.resize(1, 1);
    press(&mut app, "gGjk");
}
