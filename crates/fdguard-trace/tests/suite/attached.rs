//! The library in a program that was already running. The victim loads it by `dlopen` and calls its
//! entries, as an attaching tracer makes it do.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use fdguard_core::origin::Language;
use fdguard_trace::{ProcessTable, ProcessTables, Site, Symbols};
use object::{Object as _, ObjectSymbol};
use tempfile::TempDir;

/// Everything but these warns in the same way as in other victims.
const FLAGS: [&str; 5] = ["-O1", "-g", "-pthread", "-Wno-unused-result", "-rdynamic"];

/// A run of the victim, with the directory of its records.
struct AttachedRun {
    dir: TempDir,
    said: String,
}

impl AttachedRun {
    fn tables(&self) -> ProcessTables {
        ProcessTables::from_dir(self.dir.path()).unwrap()
    }

    /// The only table.
    fn table(&self) -> ProcessTable {
        let tables = self.tables();
        assert_eq!(tables.iter().count(), 1);
        let table = tables.iter().next().unwrap();
        assert_eq!((table.lost_events, table.unhooked), (0, 0));
        assert!(table.is_attached);
        table.clone()
    }

    /// The numbers after this word.
    fn numbers(&self, word: &str) -> Vec<u32> {
        let lines = self.said.lines().filter_map(|line| line.split_once(' '));
        let of_word = lines.filter(|(first, _)| *first == word);
        of_word.map(|(_, number)| number.parse().unwrap()).collect()
    }

    fn sites(&self) -> Vec<Site> {
        let tables = self.tables();
        let table = tables.iter().next().unwrap();
        let fds = table.open.keys().copied();
        Site::rank(&tables, table, fds, &mut Symbols::new())
    }
}

fn victim(variant: &str, flags: &[&str]) -> PathBuf {
    let all: Vec<&str> = FLAGS.iter().chain(flags).copied().collect();
    testkit::c_variant("attached", variant, &all).expect("a victim that compiles")
}

fn library(dir: &Path) -> PathBuf {
    let path = dir.join("library.so");
    std::fs::write(&path, fdguard_trace::library()).unwrap();
    path
}

fn output(command: &mut Command) -> String {
    let Output { status, stdout, .. } = command.output().unwrap();
    let said = String::from_utf8(stdout).unwrap();
    assert!(status.success(), "{status}: {said}");
    said
}

/// Runs a mode; `prepare` changes the command.
fn attached(program: &Path, mode: &str, prepare: impl FnOnce(&mut Command)) -> AttachedRun {
    let dir = tempfile::tempdir().unwrap();
    let library = library(dir.path());
    let mut command = Command::new(program);
    command.arg(library).arg(dir.path()).arg(mode);
    prepare(&mut command);
    let said = output(&mut command);
    AttachedRun { dir, said }
}

fn plain(mode: &str) -> AttachedRun {
    attached(&victim("plain", &[]), mode, |_| {})
}

/// Ways to bind functions: at the first call, before `main`, without a table of entries, and at
/// fixed addresses.
fn variants() -> [PathBuf; 4] {
    [
        victim("lazy", &["-Wl,-z,lazy"]),
        victim("now", &["-Wl,-z,now"]),
        victim("no-plt", &["-fno-plt", "-Wl,-z,now"]),
        victim("fixed", &["-no-pie", "-fno-pie", "-Wl,-z,lazy"]),
    ]
}

#[test]
fn r18_hooks_return_what_the_calls_return() {
    for program in variants() {
        let run = attached(&program, "results", |_| {});
        let expected = "attach 0\ntwice 2\n";
        assert!(run.said.starts_with(expected), "{}", run.said);
        let answers = "twice 0\nrequest 1\nrelative 1\nnull 1\nnowhere 3\n";
        assert!(run.said.contains(answers), "{}", run.said);
        let calls = [
            "open", "write", "none", "close", "again", "bad", "read", "gone",
        ];
        for call in calls {
            assert_eq!(run.numbers(call), [1, 1, 1], "{call}: {}", run.said);
        }
        assert!(run.table().ended.is_some());
    }
}

#[test]
fn r18_everything_that_a_program_opens_is_seen_and_what_was_open_is_inherited() {
    for program in variants() {
        let run = attached(&program, "coverage", |_| {});
        let table = run.table();
        for word in ["inherited", "high"] {
            let before = run.numbers(word)[0];
            assert!(
                table.inherited.contains(&before),
                "{word}: {:?}",
                table.inherited
            );
            assert!(!table.open.contains_key(&before), "{word}");
        }
        let is_opened = |(word, _): &(&str, &str)| !["attach", "inherited", "high"].contains(word);
        let lines = run.said.lines().filter_map(|line| line.split_once(' '));
        let expected: BTreeMap<u32, &str> = lines
            .filter(is_opened)
            .map(|(call, fd)| (fd.parse().unwrap(), call))
            .collect();
        let found: BTreeMap<u32, &str> = table
            .open
            .iter()
            .map(|(fd, one)| (*fd, one.call.name()))
            .collect();
        let numbers: Vec<_> = found.keys().collect();
        assert_eq!(
            numbers,
            expected.keys().collect::<Vec<_>>(),
            "{}",
            program.display()
        );
        assert!(table.ended.is_none());
    }
}

#[test]
fn r18_a_table_of_pointers_names_the_line() {
    for program in variants() {
        let run = attached(&program, "table", |_| {});
        let fd = run.numbers("fd")[0];
        assert!(run.table().open.contains_key(&fd), "{}", program.display());
        let sites = run.sites();
        let culprit = sites[0].culprit.as_ref().unwrap();
        assert_eq!(culprit.function.as_deref(), Some("leak_by_table"));
    }
}

#[test]
fn r18_detach_leaves_no_reference() {
    for program in variants() {
        let run = attached(&program, "slots", |_| {});
        assert_eq!(
            run.said,
            "attach 0\nmore 1\ndetach 0\nsame 1\n",
            "{}",
            program.display()
        );
    }
    // As an injector loads it, from a file that only exists in memory.
    let dir = tempfile::tempdir().unwrap();
    let library = library(dir.path());
    let mut command = Command::new(victim("plain", &[]));
    command
        .arg("memfd")
        .arg(dir.path())
        .arg("slots")
        .env("LIBRARY", library);
    assert_eq!(output(&mut command), "attach 0\nmore 1\ndetach 0\nsame 1\n");
}

#[test]
fn r18_a_hundred_times_while_five_threads_are_inside() {
    let run = plain("stress");
    assert_eq!(run.said, "answers 0\nfailures 0\nworked 1\ngrown 0\n");
}

#[test]
fn r18_a_forked_child_has_its_own_table() {
    let run = plain("fork");
    let tables = run.tables();
    let child = tables.table_of(run.numbers("child")[0]).unwrap();
    assert!(child.parent.is_some() && child.is_attached);
    let own = run.numbers("own")[0];
    assert_eq!(child.open.keys().copied().collect::<Vec<_>>(), [own, 50]);
    let parent = tables.iter().find(|table| table.parent.is_none()).unwrap();
    let mine = run.numbers("mine")[0];
    assert_eq!(parent.open.keys().copied().collect::<Vec<_>>(), [mine]);
}

#[test]
fn r18_a_program_that_it_becomes_gets_nothing() {
    let run = plain("exec");
    assert!(run.said.contains("FDGUARD_TRACE_DIR=/nonexistent/old\n"));
    let others: Vec<&str> = run
        .said
        .lines()
        .filter(|line| line.starts_with("LD_PRELOAD="))
        .collect();
    assert_eq!(others, [""; 0]);
    assert_eq!(run.tables().iter().count(), 1);
}

#[test]
fn r18_cancellation_inside_of_a_hook_runs_its_handlers() {
    assert_eq!(
        plain("cancel").said,
        "attach 0\ncancelled 1\ntidied 1\ndetach 0\n"
    );
}

#[test]
fn r41_protection_begins_and_gives_everything_back() {
    let run = attached(&victim("plain", &[]), "protect", |command| {
        command.env("ATTACH_VARIABLES", "FDGUARD_PROTECT=warn-once");
    });
    let expected = "attach 0\nanother 1\nrefused 1\nkept 0\ndetach 0\nmine 1\nleft 0\nwrite 1\n\
                    again 0\nclose 1\ndetach 0\nleft 0\n";
    assert_eq!(run.said, expected);
    for table in run.tables().iter() {
        let own: Vec<u32> = table
            .inherited
            .iter()
            .copied()
            .filter(|fd| *fd > 20)
            .collect();
        assert_eq!(own, [0; 0], "protection's own number was not open before");
    }
}

#[test]
fn r18_a_library_that_is_loaded_later_is_seen() {
    let flags = ["-O1", "-g", "-shared", "-fPIC"];
    let later = testkit::c_variant("later", "so", &flags).unwrap();
    for mode in ["later-dlsym", "later-silent"] {
        let run = attached(&victim("plain", &[]), mode, |command| {
            command.env("LATER", &later);
        });
        let fd = run.numbers("fd")[0];
        assert!(run.table().open.contains_key(&fd), "{mode}: {}", run.said);
    }
}

#[test]
fn r19_another_interposer_stays_in_the_chain() {
    let flags = ["-O2", "-shared", "-fPIC"];
    let other = testkit::c_variant("interposer", "so", &flags).unwrap();
    let run = attached(&victim("plain", &[]), "chain", |command| {
        command.env("LD_PRELOAD", &other);
    });
    assert!(run.said.ends_with("asked 21\n"), "{}", run.said);
    let fd = run.numbers("fd")[0];
    assert!(run.table().open.contains_key(&fd));
}

#[test]
fn r18_a_program_whose_tracer_is_killed_is_left_alone() {
    let run = plain("orphan");
    let expected = "attach 0\nalive 1\nended 1\n";
    assert!(run.said.starts_with(expected), "{}", run.said);
    assert!(run.said.ends_with("again 0\ndetach 0\n"), "{}", run.said);
}

#[test]
fn r18_a_child_whose_loader_is_locked_for_ever_goes_on() {
    let run = plain("locked-fork");
    let begins = "attach 0\nown 1\ndetach 0\nopen 1\n";
    assert!(run.said.starts_with(begins), "{}", run.said);
    assert!(run.said.ends_with("gone 1\nstatus 0\n"), "{}", run.said);
}

#[test]
fn r18_a_forked_child_can_be_left_and_entered() {
    let flags = ["-O1", "-g", "-shared", "-fPIC"];
    let later = testkit::c_variant("later", "so", &flags).unwrap();
    let run = attached(&victim("plain", &[]), "child", |command| {
        command.env("LATER", &later);
    });
    let begins = "attach 0\ndetach 0\nsame 1\nagain 0\n";
    assert!(run.said.starts_with(begins), "{}", run.said);
    assert!(run.said.ends_with("status 0\ndetach 0\n"), "{}", run.said);
    let (fd, pid) = (run.numbers("fd")[0], run.numbers("pid")[0]);
    let tables = run.tables();
    let mut of_child = tables.iter().filter(|table| table.pid == pid);
    assert!(of_child.any(|table| table.open.contains_key(&fd)));
}

#[test]
fn r18_memory_of_the_program_is_its_own_after_an_attach_that_failed() {
    let full = tempfile::tempdir().unwrap();
    let own = tempfile::tempdir().unwrap();
    let library = library(own.path());
    // The one page of the file system holds a file.
    let script = "mount -t tmpfs -o size=4k none \"$FULL\" && head -c 4096 /dev/zero \
                  > \"$FULL/page\" && exec \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", "--mount", "sh", "-c"]);
    command.args([script, "sh"]).arg(victim("plain", &[]));
    command.arg(library).arg(own.path()).arg("full");
    command.env("FULL", full.path());
    let Output { status, stdout, .. } = command.output().unwrap();
    let said = String::from_utf8(stdout).unwrap();
    if said.is_empty() {
        testkit::skip(&format!("no file system of its own: {status}"));
        return;
    }
    let begins = "answers 0\nfailures 4\nanswers 0\nchanged 0\nopen 1\n";
    assert!(said.starts_with(begins), "{status}: {said}");
    assert!(said.ends_with("gone 1\n"), "{status}: {said}");
}

/// What the library exports, without its own entries and what the compiler needs.
fn interposed() -> Vec<String> {
    let file = object::File::parse(fdguard_trace::library()).unwrap();
    let defined = file.dynamic_symbols().filter(ObjectSymbol::is_definition);
    let names = defined.filter_map(|symbol| symbol.name().map(str::to_owned).ok());
    let is_hook = |name: &String| !name.starts_with("fdguard_") && name != "rust_eh_personality";
    names.filter(is_hook).chain(["dlsym".to_owned()]).collect()
}

#[test]
fn r18_every_function_that_is_interposed_can_be_rebound() {
    let dir = tempfile::tempdir().unwrap();
    let names = interposed();
    let list: String = names.iter().map(|name| format!(" X({name})")).collect();
    let header = dir.path().join("names.h");
    std::fs::write(&header, format!("#define NAMES(X){list}\n")).unwrap();
    let program = dir.path().join("exports");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testkit/c/exports.c");
    let mut compiler = Command::new("cc");
    compiler.args(["-Wall", "-Werror", "-include"]).arg(header);
    output(compiler.arg("-o").args([&program, &source]));
    let mut command = Command::new(program);
    let said = output(command.arg(library(dir.path())).arg(dir.path()));
    assert!(said.starts_with("attach 0\ndetach 0\n"), "{said}");
    let of = |word: &str| {
        said.lines()
            .filter(|line| line.split(' ').next() == Some(word))
            .count()
    };
    assert_eq!((of("kept"), of("lasting")), (0, 0), "{said}");
    assert_eq!(of("rebound") + of("absent"), names.len(), "{said}");
    assert!(names.len() > 100 && of("absent") < 10, "{said}");
}

const PYTHON: &str = "
import ctypes, os, sys
entries = ctypes.CDLL(sys.argv[1])
kept = []
def leak():
    kept.append(os.open('/dev/null', os.O_RDONLY))
def outer():
    sorted([1], key=lambda _: leak())
request = sys.argv[2].encode() + b'\\0'
print(entries.fdguard_attach(request, ctypes.c_size_t(len(request))), flush=True)
outer()
os._exit(0)
";

#[test]
fn r18_python_frames_are_recorded_after_an_attach() {
    for minor in ["3.9", "3.10", "3.11", "3.12", "3.13"] {
        let Some(python) = super::python::interpreter(minor) else {
            testkit::skip(&format!("no Python {minor} in pyenv"));
            continue;
        };
        let dir = tempfile::tempdir().unwrap();
        let library = library(dir.path());
        let mut command = Command::new(python);
        command.arg("-c").arg(PYTHON).arg(library).arg(dir.path());
        let said = output(&mut command);
        assert_eq!(said, "0\n", "{minor}");
        let run = AttachedRun { dir, said };
        let sites = run.sites();
        let frames = sites.iter().flat_map(|site| site.stack.iter());
        let names: Vec<String> = frames
            .filter(|frame| frame.language == Language::Python)
            .filter_map(|frame| frame.function.clone())
            .map(|name| name.rsplit('.').next().unwrap_or_default().to_owned())
            .collect();
        assert_eq!(names, ["leak", "<lambda>", "outer", "<module>"], "{minor}");
    }
}
