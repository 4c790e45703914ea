//! Programs in several languages that are attached to: the report names the line, as at launch, and
//! the program goes on when it is left.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use super::attaching::{AttachOutcome, Attaching};
use super::orders::{self, Ordered};

/// Attaches for some rounds, twice; each time the line that keeps files is named, with as many as
/// it kept.
fn names_the_line(ordered: Option<Ordered>, file: &str, function: &str) {
    const ROUNDS: u64 = 4;
    let Some(mut ordered) = ordered else {
        return;
    };
    for _ in 0..2 {
        let attaching = Attaching::trace(&[&ordered.pid().to_string()]);
        for _ in 0..ROUNDS {
            ordered.work();
        }
        let outcome = attaching.interrupt();
        let site = kept(&outcome, file, function);
        assert_eq!(site["live"], ROUNDS, "{outcome:?}");
        ordered.work();
    }
}

/// The site in this function, with something that is open.
fn kept<'a>(outcome: &'a AttachOutcome, file: &str, function: &str) -> &'a Value {
    let sites = outcome.found["sites"].as_array().unwrap();
    let is_it = |site: &&Value| {
        let culprit = &site["culprit"];
        let is_at = |key: &str, part: &str| {
            culprit[key]
                .as_str()
                .is_some_and(|text| text.contains(part))
        };
        site["live"] != 0 && is_at("file", file) && is_at("function", function)
    };
    let site = sites.iter().find(is_it);
    site.unwrap_or_else(|| panic!("{outcome:?}"))
}

#[test]
fn r18_a_line_of_java_is_named() {
    names_the_line(orders::java(), "Orders.java", "keep");
}

#[test]
fn r18_a_line_of_cpp_is_named() {
    names_the_line(orders::cpp(), "orders.cpp", "keep");
}

#[test]
fn r18_a_line_of_rust_is_named() {
    names_the_line(orders::rust(), "orders.rs", "keep");
}

#[test]
fn r18_a_line_of_python_is_named() {
    names_the_line(orders::python(), "orders.py", "keep");
}

/// Tasks whose creators are known only because the interpreter's type was changed.
const TASKS: &str = "\
import asyncio, sys
kept = []
async def opener():
    kept.append(open('/etc/passwd'))
async def creator():
    await asyncio.create_task(opener())
async def main():
    loop = asyncio.get_running_loop()
    while await loop.run_in_executor(None, sys.stdin.readline):
        for _ in range(20):
            await asyncio.create_task(creator())
            await asyncio.sleep(0.02)
        print('DONE', flush=True)
print('READY', flush=True)
asyncio.run(main())
";

#[test]
fn r18_creators_of_tasks_are_named() {
    let Some(python) = testkit::have("python3").then(|| Path::new("python3")) else {
        testkit::skip("needs python3");
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tasks.py");
    std::fs::write(&path, TASKS).unwrap();
    let mut ordered = Ordered::start(Command::new(python).arg(path), dir);
    ordered.work();
    for _ in 0..2 {
        let attaching = Attaching::trace(&[&ordered.pid().to_string()]);
        ordered.work();
        ordered.work();
        let outcome = attaching.interrupt();
        let site = kept(&outcome, "tasks.py", "opener");
        let stacks = site["paths"].to_string();
        assert!(stacks.contains("creator"), "{stacks}");
        ordered.work();
    }
}

/// Writes to a number that it has closed and that belongs to another file by then.
const STALE: &str = "\
import os, sys
print('READY', flush=True)
for line in sys.stdin:
    stale = os.open('/dev/null', os.O_RDWR)
    os.close(stale)
    other = os.open('/dev/zero', os.O_RDWR)
    try:
        os.write(stale, b'x')
        said = 'hit'
    except OSError:
        said = 'refused'
    os.close(other)
    print(said, flush=True)
";

fn open_count(ordered: &Ordered) -> usize {
    let entries = std::fs::read_dir(format!("/proc/{}/fd", ordered.pid()));
    entries.unwrap().count()
}

#[test]
fn r41_protection_can_be_attached() {
    if !testkit::have("python3") {
        testkit::skip("needs python3");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("stale.py");
    std::fs::write(&path, STALE).unwrap();
    let mut ordered = Ordered::start(Command::new("python3").arg(path), dir);
    assert_eq!(ordered.say(), "hit");
    let before = open_count(&ordered);
    let attaching = Attaching::trace(&["--protect", &ordered.pid().to_string()]);
    for _ in 0..3 {
        assert_eq!(ordered.say(), "refused");
    }
    let outcome = attaching.interrupt();
    assert_eq!(ordered.say(), "hit");
    assert_eq!(open_count(&ordered), before, "{outcome:?}");
    let hazards = outcome.found["hazards"].to_string();
    assert!(hazards.contains("use-after-close"), "{outcome:?}");
    let inherited = outcome.found["opened_before_attach"].as_array().unwrap();
    let counts = inherited.iter().filter_map(|one| one["count"].as_u64());
    assert_eq!(counts.sum::<u64>(), before as u64, "{outcome:?}");
}
