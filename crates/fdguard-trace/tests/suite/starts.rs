//! Every way to start a child is recorded with its line, and every way to wait for one.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use fdguard_core::children::finding::ChildPile;
use fdguard_trace::{Options, TracedCommand};
use testkit::wait_until;

fn victim() -> PathBuf {
    let flags = ["-O2", "-g", "-fomit-frame-pointer"];
    testkit::c_variant("starter", "O2", &flags).expect("a victim that compiles")
}

/// The lines with the mark `START`, by the text after it.
fn marks() -> BTreeMap<String, u32> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testkit/c/starter.c");
    let text = std::fs::read_to_string(source).unwrap();
    let marked = (1..).zip(text.lines()).filter_map(|(number, line)| {
        let name = line.split_once("/* START ")?.1.split_once(" */")?.0;
        Some((name.to_owned(), number))
    });
    marked.collect()
}

/// Starts it with its output in a file.
fn launch(mode: &str, file: &Path) -> TracedCommand {
    let script = "exec \"$0\" \"$1\" > \"$2\" 2>&1";
    let mut words: Vec<OsString> = ["sh", "-c", script].map(OsString::from).to_vec();
    words.extend([victim().into(), mode.into(), file.into()]);
    TracedCommand::launch(&words, &Options::default()).unwrap()
}

/// Started, waited for, zombies: for each line, by its mark.
fn accounts(traced: &mut TracedCommand) -> BTreeMap<String, (u64, u64, u64)> {
    let lines = traced.session.child_lines();
    let line = |pile: &ChildPile| pile.origin.culprit.as_ref().and_then(|one| one.line);
    let mark = |wanted: u32| marks().into_iter().find(|(_, line)| *line == wanted);
    let of_mark = lines.iter().map(|(pile, _)| {
        let name = line(pile).and_then(mark).map(|(name, _)| name);
        let name = name.unwrap_or_else(|| format!("{:?}", pile.origin));
        (name, (pile.started, pile.waited, pile.zombies))
    });
    of_mark.collect()
}

/// Marks of other modes, which `wait` and `leave` do not start.
const LEFT_OUT: [&str; 5] = ["intermediate", "orphan", "shell", "daemon-shell", "habit"];

#[test]
fn every_start_and_every_wait_is_recorded_with_its_line() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("said");
    let mut traced = launch("wait", &file);
    assert!(traced.wait().unwrap().success());
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "ready\n");
    let wanted = marks()
        .into_keys()
        .filter(|name| !LEFT_OUT.contains(&&**name));
    let wanted: BTreeMap<String, (u64, u64, u64)> = wanted.map(|name| (name, (1, 1, 0))).collect();
    wait_until("all are reported", || {
        accounts(&mut traced) == wanted || {
            eprintln!("{:#?}", accounts(&mut traced));
            false
        }
    });
}

#[test]
fn who_ended_and_is_not_waited_for_is_a_zombie_of_its_line() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("said");
    let mut traced = launch("leave", &file);
    wait_until("it is ready", || {
        std::fs::read_to_string(&file).is_ok_and(|said| said == "ready\n")
    });
    let not = |name: &String| name != "system" && !LEFT_OUT.contains(&&**name);
    let wanted: BTreeMap<String, (u64, u64, u64)> = marks()
        .into_keys()
        .filter(not)
        .map(|name| (name, (1, 0, 1)))
        .collect();
    wait_until("all have ended", || {
        accounts(&mut traced) == wanted || {
            eprintln!("{:#?}", accounts(&mut traced));
            false
        }
    });
    traced.signal(rustix::process::Signal::TERM).unwrap();
    traced.wait().unwrap();
}
