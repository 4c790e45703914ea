//! The live view of `fdguard trace`, on a real terminal.

use std::process::Command;

use testkit::{have, skip};

use super::run;
use super::terminal::Live;
use super::tracing::{Tracing, line_of};

fn drip() -> String {
    let program = testkit::c_variant("drip", "O2", &["-O2", "-g"]).unwrap();
    program.to_str().unwrap().to_owned()
}

#[test]
fn r18_a_second_terminal_shows_the_sites_and_leaves_without_touching_the_program() {
    let tracing = Tracing::start(&[], &[&drip(), "1000"]);
    let place = format!("drip.c:{} arm", line_of("drip.c", "/* LEAK */"));
    // The tracer is there at once, its program a moment later.
    let pid = tracing.pid().to_string();
    while run(["trace", "--report", &pid]).code == 3 {}
    let piped = run(["trace", "--report", &pid, "--live"]);
    assert_eq!(piped.code, 2, "{}", piped.stderr);
    let text = "fdguard: the live view needs a terminal\n";
    assert!(piped.stderr.starts_with(text), "{}", piped.stderr);
    let mut live = Live::of(&["trace", "--report", &pid, "--live"], 80, 24);
    live.wait_for(&place);
    // Only changes are redrawn: the mark of a site that grows.
    live.wait_for("↑");
    live.press(b"\r");
    live.wait_for("careless");
    live.press(b"qq");
    let (status, shown) = live.end();
    assert!(
        status.code() == Some(0) || status.code() == Some(1),
        "{status}"
    );
    assert!(
        shown.contains("Stopped early. The verdict covers the time until then."),
        "{shown}"
    );
    assert_eq!(
        run(["trace", "--report", &pid, "--json"]).code,
        0,
        "it still runs"
    );
    tracing.signal(rustix::process::Signal::TERM);
    let (said, report) = tracing.end();
    assert_eq!(said.code, 143, "{report}");
    assert!(report.contains(&place), "{report}");
}

/// The tracer with a terminal of its own and the program's input and output elsewhere.
fn launched(dir: &std::path::Path, seconds: &str) -> Live {
    let script = format!(
        "'{}' trace --live --every 100ms -o report -- '{}' {seconds} </dev/null >out 2>&1",
        env!("CARGO_BIN_EXE_fdguard"),
        drip()
    );
    let mut command = Command::new("setsid");
    command.args(["-c", "-w", "sh", "-c", &script]);
    command.current_dir(dir);
    Live::run(command, 80, 24)
}

#[test]
fn r18_a_launched_program_is_shown_where_the_terminal_is_not_its_own() {
    if !have("setsid") {
        return skip("needs setsid");
    }
    let dir = tempfile::tempdir().unwrap();
    let mut live = launched(dir.path(), "3");
    live.wait_for("drip.c:");
    let (status, shown) = live.end();
    assert!(
        shown.contains("\u{1b}[?1049l"),
        "the terminal comes back: {shown}"
    );
    let report = std::fs::read_to_string(dir.path().join("report")).unwrap();
    assert!(report.contains("60 live of 60"), "{status}: {report}");
    let out = std::fs::read_to_string(dir.path().join("out")).unwrap();
    assert_eq!(out, "done\n", "nothing of ours is in its output");
}

#[test]
fn ctrl_c_in_the_view_is_for_the_program_as_always() {
    if !have("setsid") {
        return skip("needs setsid");
    }
    let dir = tempfile::tempdir().unwrap();
    let mut live = launched(dir.path(), "1000");
    live.wait_for("drip.c:");
    live.press(b"\x03");
    let (_, shown) = live.end();
    assert!(shown.contains("\u{1b}[?1049l"), "{shown}");
    let report = std::fs::read_to_string(dir.path().join("report")).unwrap();
    assert!(report.contains("still open in drip-O2"), "{report}");
}

#[test]
fn r18_where_the_terminal_is_the_programs_there_is_one_clear_line() {
    let live = Live::of(&["trace", "--live", "--", "true"], 80, 24);
    let (status, shown) = live.end();
    assert_eq!(status.code(), Some(2), "{shown}");
    assert!(
        shown.contains("fdguard: cannot show the live view: the program uses this terminal"),
        "{shown}"
    );
    assert!(shown.contains("</dev/null >out.log 2>&1"), "{shown}");
}
