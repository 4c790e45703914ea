//! Interpreters on this machine, from outside: the victim prints what it runs.

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};

use fdguard_kernel::LanguageFrame;
use fdguard_wire::python::{PythonOffsets, PythonRefusal};

use super::code;
use super::{GONE, PythonProcesses, memory};
use crate::table::RawFrame;

/// Lists code objects with an instruction and its line, for every kind of code; then waits.
const VICTIM: &str = r#"
import asyncio, contextlib, sys, os, types
shown = []
def look():
    frame = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        shown.append((code, frame.f_lasti, frame.f_lineno or 0))
        frame = frame.f_back
class Größe:
    def naïve(self):
        (lambda: look())()
        return [look() for _ in range(2)]
    def 測量(self):
        def inner():
            yield look()
            yield (
                1,
                look(),
            )
        return list(inner())
async def main():
    await asyncio.sleep(0)
    look()
    async with context():
        look()
@contextlib.asynccontextmanager
async def context():
    look()
    yield
Größe().naïve(), Größe().測量()
asyncio.run(main())
scope = {"look": look}
for name in ["/made/up.py", "/größe/測.py", "/odd/\udcff.py", "/" + "long" * 700 + ".py"]:
    text = "\n" * 700 + "def f():\n" + "    x = 1\n" * 9000 + "    look()\nf()\n"
    exec(compile(text, name, "exec"), scope)
def every(code, seen):
    if code in seen: return
    seen.append(code)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType): every(constant, seen)
all_code = []
for module in [asyncio.base_events, contextlib, os]:
    for value in list(vars(module).values()) + [v for c in vars(module).values() if isinstance(c, type) for v in vars(c).values()]:
        if isinstance(value, types.FunctionType): every(value.__code__, all_code)
for code in all_code:
    if hasattr(code, "co_lines"):
        for begin, end, line in code.co_lines():
            if line is not None and begin < end: shown.append((code, begin, line))
    else:
        import dis
        for begin, line in dis.findlinestarts(code): shown.append((code, begin, line))
out = sys.stdout.buffer
for code, last, line in shown:
    name = getattr(code, "co_qualname", code.co_name)
    file = code.co_filename.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    out.write(f"{id(code)}\t{last}\t{line}\t{name}\t{file}\n".encode())
out.write(b"done\n"); out.flush()
sys.stdin.read()
"#;

/// A running interpreter that prints what it runs.
struct Victim {
    child: Child,
    _stdin: Option<ChildStdin>,
    lines: Vec<String>,
}

impl Victim {
    fn start(python: &Path) -> Self {
        let mut child = Command::new(python)
            .args(["-c", VICTIM])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let lines = output.lines().map(Result::unwrap);
        let lines = lines.take_while(|line| line != "done").collect();
        Self {
            _stdin: child.stdin.take(),
            child,
            lines,
        }
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        let _killed = self.child.kill();
        let _status = self.child.wait();
    }
}

pub(super) fn interpreter(minor: &str) -> Option<PathBuf> {
    let home = std::env::var_os("HOME").map(|home| Path::new(&home).join(".pyenv"));
    let root = std::env::var_os("PYENV_ROOT").map(PathBuf::from).or(home)?;
    let versions = std::fs::read_dir(root.join("versions")).ok()?;
    let prefix = format!("{minor}.");
    versions
        .filter_map(Result::ok)
        .filter(|entry| entry.file_name().to_string_lossy().starts_with(&prefix))
        .map(|entry| entry.path().join("bin/python"))
        .max()
}

/// Compares every line that the victim printed with what its memory gives.
fn compare(python: &Path) -> usize {
    let victim = Victim::start(python);
    let pid = victim.child.id();
    let mut processes = PythonProcesses::default();
    processes.find(pid).unwrap();
    let process = processes.processes[&pid];
    for line in &victim.lines {
        let mut parts = line.splitn(5, '\t');
        let mut part = || parts.next().unwrap();
        let code = part().parse().unwrap();
        let instruction = part().parse().unwrap();
        let expected_line: u32 = part().parse().unwrap();
        let (function, file) = (part(), part());
        let captured = memory::capture(pid, code, &process).unwrap();
        let frame = LanguageFrame {
            code,
            identity: captured.identity,
            instruction,
        };
        let named = processes.name(pid, &[frame]);
        let [
            RawFrame::Language {
                file: f,
                function: n,
                line: l,
                ..
            },
        ] = named.as_slice()
        else {
            panic!("{named:?}");
        };
        assert_eq!(
            (n.as_str(), f.as_str(), *l),
            (function, file, expected_line)
        );
    }
    assert_eq!(processes.gone(), 0);
    victim.lines.len()
}

fn compare_version(minor: &str) {
    match interpreter(minor) {
        Some(python) => assert!(compare(&python) > 500),
        None => testkit::skip(&format!("no Python {minor} in pyenv")),
    }
}

#[test]
fn frames_of_python_3_9_are_named_as_it_names_them() {
    compare_version("3.9");
}

#[test]
fn frames_of_python_3_10_are_named_as_it_names_them() {
    compare_version("3.10");
}

#[test]
fn frames_of_python_3_11_are_named_as_it_names_them() {
    compare_version("3.11");
}

#[test]
fn frames_of_python_3_12_are_named_as_it_names_them() {
    compare_version("3.12");
}

#[test]
fn frames_of_python_3_13_are_named_as_it_names_them() {
    compare_version("3.13");
}

#[test]
fn frames_of_an_interpreter_without_a_library_are_named() {
    let python = Path::new("/usr/bin/python3");
    match python.exists() {
        true => assert!(compare(python) > 500),
        false => testkit::skip("no /usr/bin/python3"),
    }
}

#[test]
fn versions_that_are_too_old_and_programs_without_python_are_refused() {
    let refusal = |program: &Path, arguments: &[&str]| {
        let mut child = Command::new(program)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut output = child.stdout.take().unwrap();
        output.read_exact(&mut [0]).unwrap();
        let found = PythonProcesses::default().find(child.id());
        drop(child.stdin.take());
        child.wait().unwrap();
        found.unwrap_err()
    };
    let echo = "echo ready; read line";
    assert_eq!(
        refusal(Path::new("/bin/sh"), &["-c", echo]),
        PythonRefusal::NoPython
    );
    for minor in ["3.7", "3.8"] {
        let Some(python) = interpreter(minor) else {
            testkit::skip(&format!("no Python {minor} in pyenv"));
            continue;
        };
        let wait = "import sys; print('ready', flush=True); sys.stdin.read()";
        assert_eq!(refusal(&python, &["-c", wait]), PythonRefusal::TooOld);
    }
}

#[test]
fn the_library_of_a_program_is_found_before_it_starts() {
    for minor in ["3.9", "3.10", "3.11", "3.12", "3.13"] {
        let Some(python) = interpreter(minor) else {
            testkit::skip(&format!("no Python {minor} in pyenv"));
            continue;
        };
        let file = super::find_in_program(&python).unwrap();
        let in_file = file.layout;
        let victim = Victim::start(&python);
        let found = PythonProcesses::default().find(victim.child.id()).unwrap();
        assert_eq!(found.file, file);
        let in_process = found.layout;
        assert_eq!(in_file.offsets, in_process.offsets);
        let bias = in_process.runtime - in_file.runtime;
        assert_eq!(in_file.loaded(bias), in_process);
    }
}

#[test]
fn another_object_at_the_address_is_not_named() {
    let Some(python) = interpreter("3.12") else {
        testkit::skip("no Python 3.12 in pyenv");
        return;
    };
    let victim = Victim::start(&python);
    let pid = victim.child.id();
    let mut processes = PythonProcesses::default();
    processes.find(pid).unwrap();
    let code: u64 = victim.lines[0].split('\t').next().unwrap().parse().unwrap();
    for (code, identity) in [(code, 1), (0x1000, 1), (code + 16, 1)] {
        let frame = LanguageFrame {
            code,
            identity,
            instruction: 2,
        };
        let named = processes.name(pid, &[frame]);
        let [
            RawFrame::Language {
                file,
                function,
                line,
                ..
            },
        ] = named.as_slice()
        else {
            panic!("{named:?}");
        };
        assert_eq!((file.as_str(), function.as_str(), *line), ("", GONE, 0));
    }
    assert_eq!(processes.gone(), 3);
}

#[test]
fn strings_of_other_shapes_are_refused() {
    for at in PythonOffsets::ALL {
        let mut string = vec![0; 80];
        assert_eq!(code::string_size(&string, at), None);
        string[usize::from(at.unicode_state)] = 0x7c;
        assert_eq!(code::string_size(&string, at), None, "seven bytes wide");
        string[usize::from(at.unicode_state)] = 0x64;
        string[usize::from(at.unicode_length)] = 3;
        let size = u64::from(at.unicode_ascii) + 3;
        assert_eq!(code::string_size(&string, at), Some(size));
    }
}
