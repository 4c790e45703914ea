//! The view, as a terminal would show it.

use std::time::Instant;

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use fdguard_diagnose::watching::WatchProgress;
use ratatui::Terminal;
use ratatui::backend::TestBackend;

use super::draw::draw;
use super::{SiteFeed, SiteRow, TraceHeadline, TraceView, TraceViewState};
use crate::tui::ViewEnd;
use crate::tui::app::App;
use crate::tui::input::Input;
use crate::tui::theme::Theme;

fn row(pid: u32, line: &str, live: usize, rate: Option<f64>) -> SiteRow {
    SiteRow {
        pid,
        comm: "server".to_owned(),
        live,
        rate,
        is_growing: rate.is_some_and(|rate| rate > 0.0),
        opened: live as u64 + 7,
        closed: 7,
        oldest: 312.0,
        class: "tcp:ESTABLISHED".to_owned(),
        target: Some("127.0.0.1:80".to_owned()),
        line: line.to_owned(),
        stack: (0..12).map(|n| format!("main.c:{n} frame_{n}")).collect(),
    }
}

fn rows() -> Vec<SiteRow> {
    vec![
        row(7, "session.c:23 begin_session", 312, Some(4.0)),
        row(
            8,
            "a_rather_long_file_name_of_somebody.py:1234 connect",
            9,
            Some(0.0),
        ),
        row(7, "config.c:5 load", 1, None),
    ]
}

fn headline(processes: usize) -> TraceHeadline {
    TraceHeadline {
        name: "server".to_owned(),
        pid: 7,
        processes,
        descriptors: Some(330),
    }
}

fn screen(state: &TraceViewState, rows: &[SiteRow], width: u16, height: u16) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    let theme = Theme::new(true);
    let drawn = terminal.draw(|frame| draw(frame, state, &headline(2), rows, &theme));
    drawn.unwrap();
    let buffer = terminal.backend().buffer();
    let lines = (0..height).map(|y| {
        let cells = (0..width).map(|x| buffer[(x, y)].symbol());
        cells.collect::<String>().trim_end().to_owned() + "\n"
    });
    lines.collect()
}

fn key(code: KeyCode) -> KeyEvent {
    KeyEvent::new(code, KeyModifiers::NONE)
}

#[test]
fn the_sites_at_80_by_24() {
    insta::assert_snapshot!(screen(&TraceViewState::default(), &rows(), 80, 24));
}

#[test]
fn the_sites_at_50_by_15() {
    insta::assert_snapshot!(screen(&TraceViewState::default(), &rows(), 50, 15));
}

#[test]
fn the_stack_at_50_by_15() {
    let mut state = TraceViewState::default();
    state.press(key(KeyCode::Enter), &rows());
    insta::assert_snapshot!(screen(&state, &rows(), 50, 15));
}

#[test]
fn nothing_and_next_to_no_room_are_drawn_too() {
    let text = screen(&TraceViewState::default(), &[], 80, 10);
    assert!(text.contains("no traced descriptor is open"), "{text}");
    for (width, height) in [(1, 1), (10, 3), (30, 2), (200, 4)] {
        let mut state = TraceViewState::default();
        screen(&state, &rows(), width, height);
        state.press(key(KeyCode::Enter), &rows());
        screen(&state, &rows(), width, height);
    }
}

#[test]
fn the_cursor_stays_on_its_site_however_the_rows_move() {
    let mut state = TraceViewState::default();
    let mut rows = rows();
    state.press(key(KeyCode::Char('j')), &rows);
    assert_eq!(state.cursor(), 1);
    rows.swap(0, 1);
    state.follow(&rows);
    assert_eq!(state.cursor(), 0);
    rows.remove(0);
    state.follow(&rows);
    assert_eq!(state.cursor(), 0);
    state.follow(&[]);
    assert!(!state.is_open);
}

#[test]
fn a_long_stack_scrolls_to_its_end_and_straight_back() {
    let mut state = TraceViewState::default();
    state.size = (50, 15);
    state.press(key(KeyCode::Enter), &rows());
    for _ in 0..9 {
        state.press(key(KeyCode::PageDown), &rows());
    }
    let end = screen(&state, &rows(), 50, 15);
    assert!(
        end.contains("frame_11") && !end.contains("more: PgDn"),
        "{end}"
    );
    state.press(key(KeyCode::PageUp), &rows());
    assert_eq!(state.scroll, 0);
}

struct Played {
    rows: Vec<SiteRow>,
    looks: u32,
}

impl SiteFeed for Played {
    fn advance(&mut self, _: Instant) -> anyhow::Result<WatchProgress> {
        self.looks += 1;
        Ok(if self.looks > 20 {
            WatchProgress::Ended
        } else {
            WatchProgress::Looked
        })
    }

    fn rows(&self) -> &[SiteRow] {
        &self.rows
    }

    fn headline(&self) -> TraceHeadline {
        headline(1)
    }
}

#[test]
fn the_loop_ends_with_the_watch_by_a_key_or_by_ctrl_c() {
    let shown = |keys: Vec<KeyEvent>| {
        let mut terminal = Terminal::new(TestBackend::new(80, 24)).unwrap();
        let mut source = Played {
            rows: rows(),
            looks: 0,
        };
        let mut keys = keys.into_iter();
        let next = |_| Ok(keys.next().map(Input::Key));
        let mut app = App::new(TraceView::new(&mut source), false);
        app.show(&mut terminal, next).unwrap()
    };
    assert_eq!(shown(Vec::new()), ViewEnd::Ended);
    assert_eq!(shown(vec![key(KeyCode::Char('q'))]), ViewEnd::Quit);
    let (enter, leave) = (key(KeyCode::Enter), key(KeyCode::Esc));
    assert_eq!(
        shown(vec![enter, leave]),
        ViewEnd::Ended,
        "only the stack is closed"
    );
    let interrupt = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
    assert_eq!(shown(vec![interrupt]), ViewEnd::Interrupted);
}
