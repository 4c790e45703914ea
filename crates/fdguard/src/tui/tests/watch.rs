//! The loop, on a screen in memory and with keys from a list.

use std::io;
use std::time::Duration;

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use fdguard_core::Pid;
use fdguard_core::host::HostView;
use ratatui::Terminal;
use ratatui::backend::TestBackend;

use crate::tui::run::watch;
use crate::tui::{App, AppEvent, Holdings, HostSource, fixture};

#[derive(Default)]
struct Scripted {
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

/// Runs the loop over these keys; between two bursts, marked by `|`, no key is waiting.
fn watched(keys: &str) -> (io::Result<()>, Scripted, String) {
    let mut terminal = Terminal::new(TestBackend::new(80, 24)).unwrap();
    let mut app = App::new(Duration::from_secs(3600), true);
    let mut source = Scripted::default();
    let mut keys = keys.chars();
    let result = watch(&mut terminal, &mut app, &mut source, |_| {
        match keys.next() {
            None => Err(io::ErrorKind::UnexpectedEof.into()),
            Some('|') => Ok(None),
            Some(c) => {
                let key = KeyEvent::new(KeyCode::Char(c), KeyModifiers::NONE);
                Ok(Some(AppEvent::Key(key)))
            }
        }
    });
    (result, source, terminal.backend().to_string())
}

#[test]
fn the_loop_looks_once_per_interval_draws_and_ends_on_demand() {
    let (result, source, screen) = watched("|||q");
    assert!(result.is_ok());
    assert_eq!(source.looks, 1);
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
    assert_eq!(result.unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
}
