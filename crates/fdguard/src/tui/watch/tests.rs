//! The screens and the loop, without a terminal.

use std::time::Instant;
use std::{env, io, thread};

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use fdguard_core::watch::Watch;
use fdguard_diagnose::watching::WatchProgress;
use ratatui::Terminal;
use ratatui::backend::TestBackend;

use super::draw::draw;
use super::fixture::{self, Actor, Life};
use super::{WatchSource, WatchView, WatchViewState, run};
use crate::tui::ViewEnd;
use crate::tui::app::App;
use crate::tui::input::Input;
use crate::tui::theme::Theme;

fn screen(state: &WatchViewState, watch: &Watch, width: u16, height: u16) -> TestBackend {
    screen_in(&Theme::new(true), state, watch, width, height)
}

fn screen_in(
    theme: &Theme,
    state: &WatchViewState,
    watch: &Watch,
    width: u16,
    height: u16,
) -> TestBackend {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    let drawn = terminal.draw(|frame| draw(frame, state, watch, theme));
    drawn.unwrap();
    terminal.backend().clone()
}

fn key(c: char) -> KeyEvent {
    let code = match c {
        '\n' => KeyCode::Enter,
        '\t' => KeyCode::Tab,
        '\u{1b}' => KeyCode::Esc,
        'v' => KeyCode::PageDown,
        '^' => KeyCode::PageUp,
        c => KeyCode::Char(c),
    };
    KeyEvent::new(code, KeyModifiers::NONE)
}

/// Presses these keys; returns whether the last one quit.
fn press(state: &mut WatchViewState, watch: &Watch, keys: &str) -> bool {
    keys.chars()
        .map(|c| state.press(key(c), watch))
        .last()
        .unwrap_or(false)
}

fn single(life: Life, seconds: u32) -> Watch {
    fixture::watch(&[Actor::new(0, "worker", life)], seconds)
}

#[test]
fn a_leak_at_80_by_24() {
    let watch = fixture::leak();
    insta::assert_snapshot!(screen(&fixture::judged(&watch), &watch, 80, 24));
}

#[test]
fn a_leak_at_40_by_12() {
    let watch = fixture::leak();
    insta::assert_snapshot!(screen(&fixture::judged(&watch), &watch, 40, 12));
}

#[test]
fn a_leak_at_120_by_40() {
    let watch = fixture::leak();
    insta::assert_snapshot!(screen(&fixture::judged(&watch), &watch, 120, 40));
}

#[test]
fn a_stable_process_at_80_by_24() {
    let watch = single(Life::Stable, 100);
    insta::assert_snapshot!(screen(&fixture::judged(&watch), &watch, 80, 24));
}

#[test]
fn a_mere_count_at_80_by_24() {
    let mut watch = single(Life::Counted, 100);
    fixture::gap(&mut watch, "descriptors of 4242");
    insta::assert_snapshot!(screen(&fixture::judged(&watch), &watch, 80, 24));
}

#[test]
fn a_tree_at_80_by_24() {
    let watch = fixture::watch(&fixture::tree(), 100);
    insta::assert_snapshot!(screen(&fixture::judged(&watch), &watch, 80, 24));
}

#[test]
fn a_tree_at_40_by_12() {
    let watch = fixture::watch(&fixture::tree(), 100);
    insta::assert_snapshot!(screen(&fixture::judged(&watch), &watch, 40, 12));
}

#[test]
fn a_process_that_ended_at_80_by_24() {
    let actor = Actor {
        ends: Some(80),
        ..Actor::new(0, "worker", Life::Leaking)
    };
    let watch = fixture::watch(&[actor], 81);
    insta::assert_snapshot!(screen(&fixture::judged(&watch), &watch, 80, 24));
}

#[test]
fn a_finding_in_full_at_80_by_24() {
    let watch = fixture::leak();
    let mut state = fixture::judged(&watch);
    press(&mut state, &watch, "\n");
    insta::assert_snapshot!(screen(&state, &watch, 80, 24));
}

#[test]
fn the_gaps_at_80_by_24() {
    let watch = fixture::leak();
    let mut state = fixture::judged(&watch);
    press(&mut state, &watch, "g");
    insta::assert_snapshot!(screen(&state, &watch, 80, 24));
}

#[test]
fn before_the_first_look_it_says_what_it_waits_for() {
    let watch = fixture::begun(&[]);
    let shown = screen(&fixture::judged(&watch), &watch, 80, 24).to_string();
    assert!(shown.contains("waiting for worker"), "{shown}");
}

#[test]
fn no_size_of_the_screen_is_too_small_or_too_large() {
    let watches = [
        fixture::leak(),
        single(Life::Counted, 50),
        fixture::watch(&fixture::tree(), 100),
        fixture::begun(&[]),
    ];
    for (nth, watch) in watches.iter().enumerate() {
        for keys in ["", "\n", "g"] {
            let mut state = fixture::judged(watch);
            press(&mut state, watch, keys);
            // Every width and every height among the four watches, not every pair.
            for width in (1 + nth..200).step_by(watches.len()) {
                let height = 1 + u16::try_from(width * 7 + nth * 13).unwrap() % 80;
                screen(&state, watch, u16::try_from(width).unwrap(), height);
            }
            for height in (1 + nth..80).step_by(watches.len()) {
                let height = u16::try_from(height).unwrap();
                for width in [1, 2, 10, 39, 40, 61, 80] {
                    screen(&state, watch, width, height);
                }
            }
        }
    }
}

#[test]
fn names_of_others_never_act_on_the_terminal() {
    let watch = fixture::watch(&fixture::tree(), 100);
    let mut state = fixture::judged(&watch);
    for keys in ["", "j", "\n", "\n\t", "\t"] {
        press(&mut state, &watch, keys);
        let shown = screen(&state, &watch, 120, 40).to_string();
        assert!(!shown.contains(['\u{1b}', '\u{202e}']), "{shown}");
    }
}

#[test]
fn without_colour_there_is_none() {
    let watch = fixture::leak();
    let state = fixture::judged(&watch);
    let shown = screen_in(&Theme::new(false), &state, &watch, 80, 24);
    let cells = &shown.buffer().content;
    assert!(
        cells
            .iter()
            .all(|cell| cell.fg == ratatui::style::Color::Reset)
    );
    let coloured = screen(&fixture::judged(&watch), &watch, 80, 24);
    let cells = &coloured.buffer().content;
    assert!(
        cells
            .iter()
            .any(|cell| cell.fg == ratatui::style::Color::Red)
    );
}

#[test]
fn the_selection_stays_with_its_finding() {
    let watch = fixture::leak();
    let mut state = fixture::judged(&watch);
    assert!(state.findings(&watch).len() > 1);
    press(&mut state, &watch, "j");
    let before = state.finding(&watch).unwrap().rule.clone();
    state.judge(&watch, &fixture::settings(), || true);
    assert_eq!(state.finding(&watch).unwrap().rule, before);
    press(&mut state, &watch, "kkk");
    assert_eq!(state.cursor(), 0);
    press(&mut state, &watch, "jjjjjjjjjjjj");
    assert_eq!(state.cursor(), state.findings(&watch).len() - 1);
}

#[test]
fn a_pane_is_left_before_the_program() {
    let watch = fixture::leak();
    let mut state = fixture::judged(&watch);
    assert!(!press(&mut state, &watch, "\nq"));
    assert!(!press(&mut state, &watch, "g\u{1b}"));
    assert!(press(&mut state, &watch, "q"));
}

#[test]
fn a_long_pane_scrolls_to_its_end_and_back() {
    let watch = fixture::leak();
    let mut state = fixture::judged(&watch);
    let (width, height) = (40, 12);
    state.size = (width, height);
    press(&mut state, &watch, "\n");
    let top = screen(&state, &watch, width, height).to_string();
    press(&mut state, &watch, "vvvvvvvvvvvvvv");
    let end = screen(&state, &watch, width, height).to_string();
    assert!(top.contains("more: PgDn") && !end.contains("more: PgDn"));
    press(&mut state, &watch, "^^^^^^^^^^^^^^");
    assert_eq!(screen(&state, &watch, width, height).to_string(), top);
}

#[test]
fn the_worst_process_is_shown_until_the_user_chooses_another() {
    let watch = fixture::watch(&fixture::tree(), 100);
    let mut state = fixture::judged(&watch);
    let shown = |state: &WatchViewState| state.current(&watch).map(|subject| subject.id);
    assert_eq!(shown(&state), Some(2));
    press(&mut state, &watch, "\t");
    let chosen = shown(&state);
    assert_ne!(chosen, Some(2));
    state.judge(&watch, &fixture::settings(), || true);
    assert_eq!(shown(&state), chosen);
    press(&mut state, &watch, "\t\t\t");
    assert_eq!(shown(&state), Some(2));
}

#[test]
fn without_time_the_others_are_judged_in_turn() {
    let watch = fixture::watch(&fixture::tree(), 100);
    let mut state = WatchViewState::new(&fixture::options());
    for judged in 1..=4 {
        let is_complete = state.judge(&watch, &fixture::settings(), || false);
        assert_eq!((state.judged.len(), is_complete), (judged, judged == 4));
    }
}

/// A source that looks at every step, far faster than a real one.
struct Played {
    watch: Watch,
    actors: Vec<Actor>,
    second: u32,
    end: u32,
    waits: bool,
}

impl Played {
    fn new(actors: Vec<Actor>, end: u32) -> Self {
        Self {
            watch: fixture::begun(&actors),
            actors,
            second: 0,
            end,
            waits: false,
        }
    }
}

impl WatchSource for Played {
    fn advance(&mut self, deadline: Instant) -> anyhow::Result<WatchProgress> {
        if self.second >= self.end {
            return Ok(WatchProgress::Ended);
        }
        // Only for viewing by eye: no test waits.
        if self.waits {
            thread::sleep(deadline.saturating_duration_since(Instant::now()));
        }
        fixture::proceed(&mut self.watch, &self.actors, self.second);
        self.second += 1;
        Ok(WatchProgress::Looked)
    }

    fn watch(&self) -> &Watch {
        &self.watch
    }
}

fn shown(end: u32, keys: &str) -> (anyhow::Result<ViewEnd>, u32) {
    let mut terminal = Terminal::new(TestBackend::new(80, 24)).unwrap();
    let mut source = Played::new(fixture::tree(), end);
    let mut keys = keys.chars();
    let options = fixture::options();
    let mut app = App::new(WatchView::new(&mut source, &options), true);
    let outcome = app.show(&mut terminal, |_| match keys.next() {
        Some('|') | None => Ok(None),
        Some('!') => Err(io::ErrorKind::UnexpectedEof.into()),
        Some('^') => Ok(Some(Input::Key(KeyEvent::new(
            KeyCode::Char('c'),
            KeyModifiers::CONTROL,
        )))),
        Some(c) => Ok(Some(Input::Key(key(c)))),
    });
    (outcome, source.second)
}

#[test]
fn the_loop_ends_with_the_watch_or_when_the_user_leaves() {
    let (outcome, looks) = shown(50, "");
    assert_eq!((outcome.unwrap(), looks), (ViewEnd::Ended, 50));
    let (outcome, looks) = shown(50, "||j|q");
    assert_eq!((outcome.unwrap(), looks), (ViewEnd::Quit, 4));
    let (outcome, looks) = shown(50, "|\n^");
    assert_eq!((outcome.unwrap(), looks), (ViewEnd::Interrupted, 2));
}

#[test]
fn a_terminal_that_went_away_ends_the_loop_with_its_error() {
    assert!(shown(50, "|!").0.is_err());
}

/// For viewing by eye: `FDGUARD_SHOWN=tree cargo test -p fdguard --lib shown_on_this_terminal --
/// --ignored --nocapture`.
#[test]
#[ignore = "takes the terminal until q is pressed"]
fn shown_on_this_terminal() {
    let actors = match env::var("FDGUARD_SHOWN").as_deref() {
        Ok("tree") => fixture::tree(),
        Ok("stable") => vec![Actor::new(0, "worker", Life::Stable)],
        Ok("counted") => vec![Actor::new(0, "worker", Life::Counted)],
        _ => vec![Actor::new(0, "worker", Life::Leaking)],
    };
    let mut source = Played {
        waits: true,
        ..Played::new(actors, 100_000)
    };
    fixture::gap(&mut source.watch, "peers of 12 sockets");
    let mut options = fixture::options();
    options.colour = env::var_os("NO_COLOR").is_none();
    let outcome = run(&mut source, &options).unwrap();
    assert_eq!(outcome, ViewEnd::Quit);
}
