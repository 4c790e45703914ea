//! What the screens look like.

use std::time::{Duration, Instant};

use crossterm::event::KeyCode;
use ratatui::Terminal;
use ratatui::backend::TestBackend;

use super::update::{app, look, press};
use super::watch::Scripted;
use crate::tui::app::App;
use crate::tui::input::Input;
use crate::tui::theme::Theme;
use crate::tui::top::draw::draw;
use crate::tui::top::{TopState, TopView, fixture};

fn screen(app: &mut TopState, width: u16, height: u16) -> TestBackend {
    screen_in(app, width, height, true)
}

fn screen_in(app: &mut TopState, width: u16, height: u16, colour: bool) -> TestBackend {
    app.resize(width, height);
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    let theme = Theme::new(colour);
    terminal.draw(|frame| draw(frame, app, &theme)).unwrap();
    terminal.backend().clone()
}

fn with_pane(app: &mut TopState) {
    press(app, "d");
    app.fill_pane(4242, Ok(fixture::holdings()));
}

#[test]
fn the_list_at_80_by_24() {
    insta::assert_snapshot!(screen(&mut app(), 80, 24));
}

#[test]
fn the_list_at_120_by_40() {
    insta::assert_snapshot!(screen(&mut app(), 120, 40));
}

#[test]
fn the_tree_at_80_by_24() {
    let mut app = app();
    press(&mut app, "t");
    insta::assert_snapshot!(screen(&mut app, 80, 24));
}

#[test]
fn the_tree_with_a_filter_at_120_by_40() {
    let mut app = app();
    press(&mut app, "t/agent");
    insta::assert_snapshot!(screen(&mut app, 120, 40));
}

#[test]
fn the_help_at_80_by_24() {
    let mut source = Scripted::default();
    let mut app = App::new(TopView::new(app(), &mut source), true);
    app.handle(Input::Key(KeyCode::Char('?').into()));
    let mut terminal = Terminal::new(TestBackend::new(80, 24)).unwrap();
    terminal.draw(|frame| app.draw(frame)).unwrap();
    insta::assert_snapshot!(terminal.backend());
}

#[test]
fn the_detail_pane_at_80_by_24() {
    let mut app = app();
    with_pane(&mut app);
    insta::assert_snapshot!(screen(&mut app, 80, 24));
}

#[test]
fn the_detail_pane_at_120_by_40() {
    let mut app = app();
    with_pane(&mut app);
    insta::assert_snapshot!(screen(&mut app, 120, 40));
}

#[test]
fn a_process_that_cannot_be_looked_at_says_why() {
    let mut app = app();
    press(&mut app, "d");
    app.fill_pane(4242, Err("permission denied: run as root".to_owned()));
    let text = screen(&mut app, 80, 24).to_string();
    assert!(
        text.contains("could not read the process: permission denied"),
        "{text}"
    );
}

#[test]
fn a_narrow_terminal_gives_up_columns_by_their_worth() {
    insta::assert_snapshot!(screen(&mut app(), 40, 10));
}

#[test]
fn no_size_is_too_small_to_draw() {
    for (width, height) in [(1, 1), (2, 3), (40, 5), (5, 40), (300, 2), (13, 8)] {
        for keys in ["", "t", "/x", "d", "G"] {
            let mut app = app();
            press(&mut app, keys);
            screen(&mut app, width, height);
            with_pane(&mut app);
            screen(&mut app, width, height);
        }
    }
}

#[test]
fn a_name_cannot_reach_the_terminal_as_a_command() {
    let mut app = app();
    let text = screen(&mut app, 120, 40).to_string();
    assert!(!text.contains(['\u{1b}', '\u{202e}']));
    assert!(text.contains("\\u{1b}[2J"));
}

#[test]
fn without_colour_every_mark_is_still_there() {
    let mut app = TopState::new(Duration::from_secs(2));
    look(&mut app, 0, fixture::view());
    let backend = screen_in(&mut app, 80, 24, false);
    let cells = backend.buffer().content();
    let plain = ratatui::style::Color::Reset;
    assert!(
        cells
            .iter()
            .all(|cell| cell.fg == plain && cell.bg == plain)
    );
    assert!(backend.to_string().contains("!!  4242"));
}

#[test]
fn two_thousand_processes_are_taken_in_and_drawn_without_a_pause() {
    let mut app = TopState::new(Duration::from_secs(2));
    press(&mut app, "t");
    look(&mut app, 0, fixture::crowd(2000));
    let start = Instant::now();
    look(&mut app, 2, fixture::crowd(2000));
    screen(&mut app, 120, 40);
    // Generous, since this also runs unoptimized on a busy machine: it guards against quadratic
    // time, not against a slow machine.
    assert!(start.elapsed() < Duration::from_millis(500));
}
