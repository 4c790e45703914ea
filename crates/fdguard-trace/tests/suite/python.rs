//! Stacks of Python programs: the native frames of the call, then Python's own.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use fdguard_core::origin::{Frame, Language};
use fdguard_trace::{Options, Site, SiteDetail, TracedCommand};

/// It leaves a file and a socket open, the former through C code that calls back, and exits without
/// cleanup.
const SCRIPT: &str = "
import os, socket
kept = []
def leak():
    kept.append(os.open('/dev/null', os.O_RDONLY))
def called_by_sorted():
    sorted([1], key=lambda _: leak())
def connect():
    kept.append(socket.socket())
called_by_sorted()
connect()
os._exit(0)
";

/// `close` itself handles a signal that arrives every tenth of a millisecond, wherever Python is:
/// there may be half a frame.
const INTERRUPTED: &str = "
import ctypes, os, signal
os.dup2(0, 14), os.close(14)
libc = ctypes.CDLL(None)
libc.signal.argtypes = [ctypes.c_int, ctypes.c_void_p]
libc.signal(signal.SIGALRM, ctypes.cast(libc.close, ctypes.c_void_p))
signal.setitimer(signal.ITIMER_REAL, 0.0001, 0.0001)
def nested(n):
    return n if n < 2 else nested(n - 1) + nested(n - 2)
def items():
    for i in range(200):
        yield (lambda *words, **named: len(words))(i, *range(i % 7), x=i)
for turn in range(400):
    nested(10), sum(items()), [x for x in range(50)]
    exec('def f(): return 1\\nf()', {})
    open('/dev/null').close()
signal.setitimer(signal.ITIMER_REAL, 0)
";

/// pyenv's interpreter of that version.
pub(crate) fn interpreter(minor: &str) -> Option<PathBuf> {
    let home = std::env::var_os("HOME").map(|home| Path::new(&home).join(".pyenv"));
    let root = std::env::var_os("PYENV_ROOT").map(PathBuf::from).or(home)?;
    let entries = std::fs::read_dir(root.join("versions")).ok()?;
    let names = entries.filter_map(Result::ok);
    let wanted = format!("{minor}.");
    names
        .filter(|entry| entry.file_name().to_string_lossy().starts_with(&wanted))
        .map(|entry| entry.path().join("bin/python"))
        .max()
}

/// What the script left open; `None` if there is no such interpreter.
fn leaks(minor: &str) -> Option<Vec<Site>> {
    let Some(python) = interpreter(minor) else {
        testkit::skip(&format!("no Python {minor} in pyenv"));
        return None;
    };
    let words: Vec<OsString> = vec![python.into(), "-c".into(), SCRIPT.into()];
    let mut traced = TracedCommand::launch(&words, &Options::default()).unwrap();
    assert!(traced.wait().unwrap().success());
    let sites = traced.session.sites_of(traced.pid()).unwrap();
    assert_eq!(sites.len(), 2, "{sites:#?}");
    Some(sites)
}

/// The native functions and Python's functions of what this call opened.
fn functions(sites: &[Site], how: &str) -> (Vec<String>, Vec<String>) {
    let is_wanted = |site: &&Site| site.open[0].descriptor.call.name() == how;
    let site = sites.iter().find(is_wanted).expect("a site of the call");
    let name = |frame: &Frame| frame.function.clone().unwrap_or_default();
    let (python, native): (Vec<_>, Vec<_>) = site
        .stack
        .iter()
        .partition(|frame| frame.language == Language::Python);
    (
        native.into_iter().map(name).collect(),
        python.into_iter().map(name).collect(),
    )
}

#[test]
fn r18_python_frames_follow_those_of_the_extension_and_the_interpreter_is_left_out() {
    for minor in ["3.9", "3.10", "3.11", "3.12", "3.13"] {
        let Some(sites) = leaks(minor) else {
            continue;
        };
        let last = |name: &String| name.rsplit('.').next().unwrap_or_default().to_owned();
        let (native, python) = functions(&sites, "open");
        let python: Vec<String> = python.iter().map(last).collect();
        let expected = ["leak", "<lambda>", "called_by_sorted", "<module>"];
        assert_eq!(python, expected, "{minor}");
        assert_eq!(native, [""; 0], "{minor}: all of it is the interpreter");
        let (native, python) = functions(&sites, "socket");
        assert_eq!(python.last().unwrap(), "<module>", "{minor}");
        let is_extension = |name: &String| name.starts_with("sock");
        assert!(
            native.first().is_some_and(is_extension),
            "{minor}: {native:?}"
        );
        assert!(native.iter().all(is_extension), "{minor}: {native:?}");
    }
}

#[test]
fn r19_signal_handlers_in_c_that_close_at_any_moment_of_python() {
    for minor in ["3.9", "3.10", "3.11", "3.12", "3.13"] {
        let Some(python) = interpreter(minor) else {
            testkit::skip(&format!("no Python {minor} in pyenv"));
            continue;
        };
        let words: Vec<OsString> = vec![python.into(), "-c".into(), INTERRUPTED.into()];
        let mut traced = TracedCommand::launch(&words, &Options::default()).unwrap();
        let status = traced.wait().unwrap();
        assert!(status.success(), "{minor}: {status}");
        // Each of them is a second close of a number that the script had already closed.
        let hazards = traced
            .session
            .finish(SiteDetail::Held, true)
            .unwrap()
            .hazards;
        let closes = hazards.iter().filter(|one| one.rule == "double-close");
        let closes: u64 = closes.map(|one| one.count).sum();
        assert!(closes > 10, "{minor}: {hazards:?}");
    }
}

#[test]
fn r18_of_an_interpreter_that_is_not_known_all_native_frames_are_kept() {
    let Some(sites) = leaks("3.8") else {
        return;
    };
    let (native, python) = functions(&sites, "open");
    assert_eq!(python, [""; 0]);
    for name in ["_PyEval_EvalFrameDefault", "_start"] {
        assert!(native.iter().any(|found| found == name), "{native:?}");
    }
}
