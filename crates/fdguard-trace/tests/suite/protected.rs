//! A program behaves the same under protection, except for the numbers that it gets.

use std::ffi::OsString;
use std::path::PathBuf;

use fdguard_trace::{
    Options, PreloadSource, Protection, ReportPolicy, SiteDetail, TraceSession, TraceSource as _,
    TracedCommand,
};

use super::run::{alone, alone_of, alone_words, children, protected_of, protected_words, victim};

fn same(program: fn() -> PathBuf, modes: &[&str], redirection: &str) {
    for mode in modes {
        let without = alone_of(program(), mode, redirection);
        let with = protected_of(program(), mode, redirection);
        assert_eq!(with.outcome, without, "{mode}");
        assert!(with.table().is_protected, "{mode}");
    }
}

#[test]
fn r41_processes_threads_handlers_and_limits() {
    let modes = [
        "vfork",
        "threads",
        "timer",
        "syscall",
        "longjmp",
        "dlopen",
        "close-range",
        "emfile",
        "cancel",
        "received",
    ];
    same(victim, &modes, "> \"$1\" 2>&1");
    let closed = "<&- >&- 2>&-";
    let with = protected_of(victim(), "closed-stdio", closed);
    assert_eq!(with.outcome, alone("closed-stdio", closed));
}

#[test]
fn r41_processes_that_run_in_our_memory_are_left_alone() {
    let modes = [
        "clone",
        "clone-beside",
        "syscall-clone",
        "syscall-clone3",
        "nested",
        "_Fork",
        "threads",
    ];
    same(children, &modes, "> \"$1\" 2>&1");
}

#[test]
fn r41_programs_that_lock_themselves_up_live() {
    let flags = ["-O2", "-g", "-fno-optimize-sibling-calls"];
    let program =
        testkit::c_variant("restrained", "plain", &flags).expect("a victim that compiles");
    for how in ["strict", "library", "mild", "refused", "failing"] {
        let words = [program.clone().into_os_string(), OsString::from(how)];
        assert_eq!(
            protected_words(&words).outcome,
            alone_words(&words),
            "{how}"
        );
    }
}

/// Regression: a name was read into a buffer on the stack, of which a handler may have next to
/// none.
#[test]
fn r41_a_handler_with_a_little_stack_opens_for_writing() {
    let flags = ["-O2", "-g", "-pthread", "-w"];
    let program = testkit::c_variant("talking", "O2", &flags).expect("a victim that compiles");
    let with = protected_words(&[program.into_os_string()]);
    assert!(with.outcome.said.contains("intact 1"), "{:?}", with.outcome);
}

#[test]
fn r41_what_was_prevented_is_counted_in_the_table() {
    let script = "import os\nr, w = os.pipe()\nos.close(r)\n\
                  for call in (os.close, lambda fd: os.read(fd, 1), lambda fd: os.read(fd, 1)):\n\
                  \x20   try: call(r)\n    except OSError: pass\n";
    let words: Vec<OsString> = ["python3", "-c", script].map(OsString::from).to_vec();
    let options = Options {
        protect: protection(),
        ..Options::default()
    };
    let mut traced = TracedCommand::launch(&words, &options).unwrap();
    assert!(traced.wait().unwrap().success());
    let hazards = traced
        .session
        .finish(SiteDetail::Held, true)
        .unwrap()
        .hazards;
    assert!(!hazards.is_empty() && hazards.iter().all(|one| one.prevented));
    let tables = traced.session.tables().unwrap();
    let table = tables.table_of(traced.pid()).unwrap();
    let counted: Vec<_> = table.prevented.clone().into_iter().collect();
    assert_eq!(counted, [("double-close", 1), ("use-after-close", 2)]);
}

#[test]
fn r41_a_program_that_somebody_else_starts_is_listened_to() {
    let words: Vec<OsString> = [
        "python3",
        "-c",
        "import os; r, w = os.pipe(); os.close(r); os.close(r)",
    ]
    .map(OsString::from)
    .to_vec();
    let source = PreloadSource::prepare(&words, protection()).unwrap();
    assert_eq!(source.blind(), None);
    let mut variables = vec![
        ("PATH".into(), std::env::var_os("PATH").unwrap()),
        ("HOME".into(), std::env::var_os("HOME").unwrap_or_default()),
        ("NODE_OPTIONS".into(), "--inspect".into()),
    ];
    source.environment(&mut variables);
    let mut session = TraceSession::start(source, &Options::default()).unwrap();
    let value = |name: &str| {
        let found = variables.iter().filter(|(known, _)| known == name);
        found
            .map(|(_, value)| value.to_str().unwrap())
            .collect::<Vec<_>>()
    };
    assert_eq!(value("FDGUARD_PROTECT"), ["warn-once"]);
    assert!(value("NODE_OPTIONS")[0].starts_with("--inspect --require="));
    for _ in 0..2 {
        let mut start = std::process::Command::new(&words[0]);
        start.args(&words[1..]).env_clear().envs(variables.clone());
        let output = start.output().unwrap();
        assert!(!output.status.success(), "the second close fails");
    }
    let hazards = session.finish(SiteDetail::Held, true).unwrap().hazards;
    let rules: Vec<&str> = hazards.iter().map(|one| one.rule.as_str()).collect();
    assert_eq!(rules, ["double-close"; 2], "one of each process");
}

fn protection() -> Option<Protection> {
    Some(Protection::new(ReportPolicy::Once))
}

/// A protected program, and what it printed.
fn printed(words: &[&str]) -> String {
    let words: Vec<OsString> = words.iter().map(OsString::from).collect();
    let source = PreloadSource::prepare(&words, protection()).unwrap();
    let mut variables: Vec<_> = std::env::vars_os().collect();
    source.environment(&mut variables);
    let _session = TraceSession::start(source, &Options::default()).unwrap();
    let mut start = std::process::Command::new(&words[0]);
    start.args(&words[1..]).env_clear().envs(variables);
    let output = start.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Regression: `wrk`, `redis` and `haproxy` with low settings refused connections or crashed.
#[test]
fn r41_a_program_with_a_small_array_of_numbers_has_a_place_for_all() {
    let program = testkit::c_variant("small_table", "O1", &["-O1", "-g"]).unwrap();
    for mode in ["events", "start"] {
        let said = printed(&[program.to_str().unwrap(), mode]);
        assert_eq!(said, "has a place\n", "{mode}");
    }
}

/// From outside, these flags identify the class `other:fdguard` and the program's highest number.
#[test]
fn r41_what_is_kept_is_known_from_outside() {
    let script = "import os\nr, w = os.pipe()\nos.close(r)\n\
                  for line in open(f'/proc/self/fdinfo/{r}'):\n\
                  \x20   if line.startswith('flags'): print(oct(int(line.split()[1], 8) & 0o10400000))\n";
    assert_eq!(printed(&["python3", "-c", script]), "0o10400000\n");
}
