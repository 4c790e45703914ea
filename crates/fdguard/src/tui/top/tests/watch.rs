//! The loop, on a screen in memory and with keys from a list.

use std::io;
use std::time::Duration;

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use fdguard_core::Pid;
use fdguard_core::host::HostView;
use ratatui::Terminal;
use ratatui::backend::TestBackend;

use crate::tui::ViewEnd;
use crate::tui::app::App;
use crate::tui::input::Input;
use crate::tui::top::{Holdings, HostSource, TopState, TopView, fixture};

#[derive(Default)]
pub(super) struct Scripted {
    looks: usize,
    details: Vec<Pid>,
}

impl HostSource for Scripted {
    fn look(&mut self) -> HostView {
        self.looks += 1;
        fixture::view()
    }

    fn detail(&mut self, pid: Pid) -> Result<Holdings, String> {
        self.details.push(pid);
        Ok(fixture::holdings())
    }
}

/// Runs the loop over these keys; between two bursts, marked by `|`, no key is waiting. `^` is
/// Ctrl-C.
fn watched(keys: &str) -> (anyhow::Result<ViewEnd>, Scripted, String) {
    let mut terminal = Terminal::new(TestBackend::new(80, 24)).unwrap();
    let state = TopState::new(Duration::from_secs(3600));
    let mut source = Scripted::default();
    let mut keys = keys.chars();
    let mut app = App::new(TopView::new(state, &mut source), true);
    let result = app.show(&mut terminal, |_| {
        let (code, modifiers) = match keys.next() {
            None => return Err(io::ErrorKind::UnexpectedEof.into()),
            Some('|') => return Ok(None),
            Some('^') => (KeyCode::Char('c'), KeyModifiers::CONTROL),
            Some(c) => (KeyCode::Char(c), KeyModifiers::NONE),
        };
        Ok(Some(Input::Key(KeyEvent::new(code, modifiers))))
    });
    (result, source, terminal.backend().to_string())
}

#[test]
fn the_loop_looks_once_per_interval_draws_and_ends_on_demand() {
    let (result, source, screen) = watched("|||q");
    assert_eq!((result.unwrap(), source.looks), (ViewEnd::Quit, 1));
    assert!(screen.contains("codex"));
}

#[test]
fn a_refresh_looks_again_and_the_open_pane_with_it() {
    let (_, source, _) = watched("d|r|qq");
    assert_eq!((source.looks, source.details), (2, vec![4242, 4242]));
}

#[test]
fn a_burst_of_keys_asks_for_one_close_look() {
    let (_, source, _) = watched("djjj|qq");
    assert_eq!(source.details.len(), 1);
}

#[test]
fn a_terminal_that_went_away_ends_the_loop_with_its_error() {
    let (result, _, _) = watched("|");
    let error = result.unwrap_err().downcast::<io::Error>().unwrap();
    assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
}

#[test]
fn control_c_quits_from_everywhere() {
    for keys in ["", "?", "/x", "d"] {
        let (result, ..) = watched(&format!("|{keys}^"));
        assert_eq!(result.unwrap(), ViewEnd::Interrupted, "{keys}");
    }
}

#[test]
fn help_is_closed_by_any_key_and_does_nothing_else() {
    let (result, _, screen) = watched("|?|");
    assert!(result.is_err() && screen.contains("help: press any key"));
    let (result, _, screen) = watched("|?q|");
    assert!(result.is_err() && !screen.contains("help: press any key"));
    assert_eq!(watched("|?qq").0.unwrap(), ViewEnd::Quit);
    let (_, _, screen) = watched("|/?|");
    assert!(screen.contains("filter: ?"), "a filter is text: {screen}");
}
