//! Whether a process can call `select()`: programs compiled with and without it.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use fdguard_core::{SelectUse, Text};
use fdguard_probe::{Error, Probe};
use rustix::process::{WaitId, WaitIdOptions};
use testkit::{FakeProc, VictimLaunch, c_variant, have, skip};

const SELECTS: (&str, &[&str]) = ("selects", &["-DWAIT=BY_SELECT"]);
const POLLS: (&str, &[&str]) = ("polls", &["-DWAIT=BY_POLL"]);

/// testkit's `waiter.c` in one of its variants; `None`, with a message, if it cannot be built.
pub(super) fn waiter((variant, flags): (&str, &[&str])) -> Option<PathBuf> {
    let path = have("cc")
        .then(|| c_variant("waiter", variant, flags))
        .flatten();
    if path.is_none() {
        skip(&format!("needs a C compiler that takes {flags:?}"));
    }
    path
}

fn select_use(pid: u32) -> SelectUse {
    Probe::new().unwrap().select_use(pid).unwrap()
}

pub(super) fn imports(name: &str) -> SelectUse {
    SelectUse::Imports {
        objects: vec![Text::from(name)],
    }
}

#[test]
fn r7_a_program_that_calls_select_is_told() {
    let Some(program) = waiter(SELECTS) else {
        return;
    };
    let victim = VictimLaunch::program(&program).start();
    assert_eq!(select_use(victim.pid()), imports("waiter-selects"));
    victim.finish();
}

#[test]
fn r7_a_program_that_polls_does_not_import_it() {
    let Some(program) = waiter(POLLS) else { return };
    let victim = VictimLaunch::program(&program).start();
    assert_eq!(select_use(victim.pid()), SelectUse::Absent);
    victim.finish();
}

#[test]
fn r7_a_fortified_program_that_sleeps_by_select_sets_no_bits() {
    let fortify = ["-O2", "-U_FORTIFY_SOURCE", "-D_FORTIFY_SOURCE=2"];
    let sleeper = [&fortify[..], &["-DWAIT=BY_SLEEP"]].concat();
    let Some(program) = waiter(("sleeps-fortified", &sleeper)) else {
        return;
    };
    let victim = VictimLaunch::program(&program).start();
    assert_eq!(select_use(victim.pid()), SelectUse::Absent);
    victim.finish();
    let setter = [&fortify[..], &["-DWAIT=BY_SELECT"]].concat();
    let Some(program) = waiter(("selects-fortified", &setter)) else {
        return;
    };
    let victim = VictimLaunch::program(&program).start();
    let wanted = imports("waiter-selects-fortified");
    assert_eq!(select_use(victim.pid()), wanted);
    victim.finish();
}

#[test]
fn r7_a_static_program_is_not_known() {
    let flags = ["-DWAIT=BY_SELECT", "-static"];
    let Some(program) = waiter(("static", &flags)) else {
        return;
    };
    let victim = VictimLaunch::program(&program).start();
    let SelectUse::Unknown { why } = select_use(victim.pid()) else {
        panic!("{}", select_use(victim.pid()));
    };
    assert!(why.contains("statically linked"), "{why}");
    victim.finish();
}

#[test]
fn r7_a_program_that_was_deleted_since_is_still_read() {
    let Some(program) = waiter(SELECTS) else {
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    let copy = directory.path().join("copy");
    let copied = Command::new("cp").arg(&program).arg(&copy).status();
    assert!(copied.unwrap().success());
    let victim = VictimLaunch::program(&copy).start();
    fs::remove_file(&copy).unwrap();
    assert_eq!(select_use(victim.pid()), imports("copy"));
    victim.finish();
}

#[test]
fn r7_a_library_that_was_deleted_since_is_read_or_said_to_be_deleted() {
    let flags = ["-DWAIT=BY_SELECT", "-shared", "-fPIC"];
    let Some(library) = waiter(("library", &flags)) else {
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    let copy = directory.path().join("libcopy.so");
    fs::copy(library, &copy).unwrap();
    let mut command = Command::new("sh");
    command.env("LD_PRELOAD", &copy);
    let reader = Reader::of(command.args(["-c", "echo ready; read line"]));
    fs::remove_file(&copy).unwrap();
    match select_use(reader.0.id()) {
        SelectUse::Imports { objects } => {
            assert!(objects.contains(&Text::from("libcopy.so")), "{objects:?}");
        }
        SelectUse::Unknown { why } => {
            skip("needs the right to open what is mapped");
            assert!(why.contains("libcopy.so: the file was deleted"), "{why}");
        }
        SelectUse::Absent => panic!("the library was overlooked"),
    }
}

/// A program that reads its input to the end; killed when this is dropped.
struct Reader(Child);

impl Reader {
    fn start(program: &str, args: &[&str]) -> Self {
        Self::of(Command::new(program).args(args))
    }

    fn of(command: &mut Command) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        let stdout = child.stdout.as_mut().unwrap();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(stdout), &mut line).unwrap();
        assert_eq!(line, "ready\n");
        Self(child)
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

#[test]
fn r7_python_can_call_select_before_it_loaded_the_module() {
    if !have("python3") {
        return skip("needs python3");
    }
    let script = "import sys; print('ready', flush=True); sys.stdin.read()";
    let reader = Reader::start("python3", &["-S", "-c", script]);
    let SelectUse::Imports { objects } = select_use(reader.0.id()) else {
        panic!("{}", select_use(reader.0.id()));
    };
    let name = objects[0].to_lossy().into_owned();
    assert!(name.contains("python"), "{name}");
}

#[test]
fn r7_node_waits_by_epoll() {
    if !have("node") {
        return skip("needs node");
    }
    let script = "console.log('ready'); process.stdin.resume()";
    let reader = Reader::start("node", &["-e", script]);
    assert_eq!(select_use(reader.0.id()), SelectUse::Absent);
}

#[test]
fn a_plain_program_does_not_import_it_and_the_look_takes_milliseconds() {
    let mut sleeper = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
    let probe = Probe::new().unwrap();
    // Between fork and exec the child is still this test.
    let link = format!("/proc/{}/exe", sleeper.id());
    while fs::read_link(&link).ok() == fs::read_link("/proc/self/exe").ok() {
        std::thread::yield_now();
    }
    let looks = (0..20).map(|_| {
        let start = Instant::now();
        assert_eq!(probe.select_use(sleeper.id()).unwrap(), SelectUse::Absent);
        start.elapsed()
    });
    let quickest = looks.min().unwrap();
    sleeper.kill().unwrap();
    sleeper.wait().unwrap();
    assert!(quickest < Duration::from_millis(50), "{quickest:?}");
}

#[test]
fn the_look_leaves_no_descriptor_behind() {
    let probe = Probe::new().unwrap();
    let before = super::own_table();
    drop(probe.select_use(std::process::id()).unwrap());
    assert_eq!(super::own_table(), before);
}

#[test]
fn a_process_that_is_not_there_is_an_error_and_not_an_answer() {
    let probe = Probe::new().unwrap();
    let mut child = Command::new("true").spawn().unwrap();
    let pid = child.id();
    child.wait().unwrap();
    let answer = probe.select_use(pid);
    assert!(matches!(answer, Err(Error::NoSuchProcess(_))), "{answer:?}");
}

#[test]
fn a_zombie_has_nothing_mapped_and_is_an_error() {
    let mut child = Command::new("true").spawn().unwrap();
    let pid = rustix::process::Pid::from_child(&child);
    let ended = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
    rustix::process::waitid(WaitId::Pid(pid), ended).unwrap();
    let answer = Probe::new().unwrap().select_use(child.id());
    assert!(matches!(answer, Err(Error::Zombie { .. })), "{answer:?}");
    child.wait().unwrap();
}

/// The line of `maps` for the code of this file, under this name.
fn code(path: &Path, name: &str) -> String {
    let ino = fs::metadata(path).unwrap().ino();
    format!("7f0000000000-7f0000001000 r-xp 00000000 fe:00 {ino} {name}\n")
}

#[test]
fn r7_in_a_made_up_tree_files_are_found_under_the_root_of_the_process() {
    let (Some(selects), Some(polls)) = (waiter(SELECTS), waiter(POLLS)) else {
        return;
    };
    let mut tree = FakeProc::new();
    let dir = tree.root().join("10");
    let process = tree
        .process(10)
        .file("exe", fs::read(polls).unwrap())
        .file("root/lib/libx.so", fs::read(selects).unwrap())
        .file("root/lib/font", "no object at all, and that is no harm");
    let library = code(&dir.join("root/lib/libx.so"), "/lib/libx.so");
    let font = code(&dir.join("root/lib/font"), "/lib/font");
    let look = || {
        Probe::at(dir.parent().unwrap())
            .unwrap()
            .select_use(10)
            .unwrap()
    };
    let process = process.file("maps", format!("{font}{library}"));
    assert_eq!(look(), imports("libx.so"));
    let process = process.file("maps", library.replace("r-xp", "r--p"));
    assert_eq!(
        look(),
        SelectUse::Absent,
        "a library that is only looked at"
    );
    let other = code(&dir.join("root/lib/font"), "/lib/libx.so");
    let process = process.file("maps", other);
    let replaced = "libx.so: the file was replaced";
    assert_eq!(look(), SelectUse::unknown(replaced));
    let process = process.file("maps", library.replace("/libx.so", "/libx.so (deleted)"));
    let deleted = "libx.so: the file was deleted: only root can open it";
    assert_eq!(look(), SelectUse::unknown(deleted));
    let cut = fs::read(dir.join("root/lib/libx.so")).unwrap();
    let process = process.file("root/lib/libx.so", &cut[..200]);
    let process = process.file("maps", &library);
    let damaged = "libx.so: its symbols are unreadable";
    assert_eq!(look(), SelectUse::unknown(damaged));
    drop(process.state('Z'));
    let answer = Probe::at(dir.parent().unwrap()).unwrap().select_use(10);
    assert!(matches!(answer, Err(Error::Zombie { .. })), "{answer:?}");
}

#[test]
fn r7_more_objects_than_are_looked_at_forbid_a_no() {
    let Some(polls) = waiter(POLLS) else { return };
    let bytes = fs::read(polls).unwrap();
    let mut tree = FakeProc::new();
    let dir = tree.root().join("10");
    let mut process = tree.process(10).file("exe", &bytes);
    let mut maps = String::new();
    for number in 0..120 {
        let name = format!("/lib/lib{number}.so");
        process = process.file(&format!("root{name}"), &bytes);
        maps += &code(&dir.join(format!("root{name}")), &name);
    }
    drop(process.file("maps", maps));
    let answer = Probe::at(tree.root()).unwrap().select_use(10).unwrap();
    let wanted = "the rest: more than 100 objects are mapped";
    assert_eq!(answer, SelectUse::unknown(wanted));
}
