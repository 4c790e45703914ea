//! Programs that a traced one starts and whose loader cannot load the library: they start without
//! it, and a gap reports that.

use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use fdguard_trace::{
    BlindReason, Options, PreloadSource, SiteDetail, TraceSession, TraceSource as _, TracedProgram,
};

const WAYS: &[&str] = &[
    "execl",
    "execlp",
    "execle",
    "execv",
    "execve",
    "execvp",
    "execvpe",
    "fexecve",
    "posix_spawn",
    "posix_spawnp",
];

/// Runs a command under the tracer; returns its output and why programs were started without the
/// library.
fn traced(words: &[&str]) -> (Output, Vec<String>) {
    let words: Vec<OsString> = words.iter().map(OsString::from).collect();
    let source = PreloadSource::prepare(&words, None).unwrap();
    assert_eq!(source.blind(), None);
    let mut variables: Vec<_> = std::env::vars_os().collect();
    source.environment(&mut variables);
    let mut session = TraceSession::start(source, &Options::default()).unwrap();
    let mut start = Command::new(&words[0]);
    let output = start.args(&words[1..]).env_clear().envs(variables).output();
    let state = session.finish(SiteDetail::Held, true).unwrap();
    let omitted = state
        .gaps
        .into_iter()
        .filter(|gap| gap.what.contains("without fdguard's library"));
    (output.unwrap(), omitted.map(|gap| gap.why).collect())
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// `environment.c`, built by this compiler; `None` if it cannot build it.
fn built(dir: &Path, compiler: &str, flags: &[&str]) -> Option<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testkit/c/environment.c");
    let program = dir.join(compiler);
    let status = Command::new(compiler)
        .args(flags)
        .arg("-o")
        .arg(&program)
        .arg(source)
        .status();
    let is_built = status.is_ok_and(|status| status.success());
    let runs = is_built
        && Command::new(&program)
            .output()
            .is_ok_and(|said| said.status.success());
    runs.then_some(program)
}

fn starts_by_every_way(program: &Path, blind: BlindReason) {
    let becomes = testkit::c_variant("becomes", "O1", &["-O1", "-g"]).unwrap();
    let becomes = becomes.to_str().unwrap();
    assert_eq!(
        TracedProgram::find(program.as_os_str()).unwrap().blind,
        Some(blind)
    );
    let program = program.to_str().unwrap();
    for way in WAYS {
        let (said, gaps) = traced(&[becomes, way, program]);
        let outcome = (said.status.code(), said.status.signal());
        assert_eq!(outcome, (Some(0), None), "{way}: {}", text(&said.stderr));
        assert_eq!(text(&said.stdout), "7 f without\n", "{way}");
        assert_eq!(gaps, [blind.why()], "{way}");
    }
    // A shell that runs it, and a script that the shell runs.
    let script = format!("{program} x; {program} y");
    let (said, gaps) = traced(&["sh", "-c", &script]);
    assert_eq!(text(&said.stdout), "2 x without\n2 y without\n");
    assert_eq!(gaps, [blind.why()]);
}

/// Regression: they crashed, because musl's loader loads the library and does not find the symbols
/// that it needs.
#[test]
fn programs_of_another_c_library_start() {
    let dir = tempfile::tempdir().unwrap();
    let Some(program) = built(dir.path(), "musl-gcc", &["-O1"]) else {
        testkit::skip("no musl-gcc");
        return;
    };
    starts_by_every_way(&program, BlindReason::OtherLoader);
}

/// They interpose the same functions, with state of their own.
#[test]
fn programs_with_a_thread_sanitizer_start() {
    let dir = tempfile::tempdir().unwrap();
    let Some(program) = built(dir.path(), "gcc", &["-O1", "-fsanitize=thread"]) else {
        testkit::skip("no gcc with a thread sanitizer");
        return;
    };
    starts_by_every_way(&program, BlindReason::Sanitizer);
}

/// Regression: they did not start, because the sanitizer must be loaded first.
#[test]
fn programs_with_an_address_sanitizer_keep_the_library() {
    let dir = tempfile::tempdir().unwrap();
    let Some(program) = built(dir.path(), "gcc", &["-O1", "-fsanitize=address"]) else {
        testkit::skip("no gcc with an address sanitizer");
        return;
    };
    let becomes = testkit::c_variant("becomes", "O1", &["-O1", "-g"]).unwrap();
    assert_eq!(
        TracedProgram::find(program.as_os_str()).unwrap().blind,
        None
    );
    let program = program.to_str().unwrap();
    for way in WAYS {
        let (said, gaps) = traced(&[becomes.to_str().unwrap(), way, program]);
        assert_eq!(
            text(&said.stdout),
            "7 f with\n",
            "{way}: {}",
            text(&said.stderr)
        );
        assert!(gaps.is_empty(), "{way}: {gaps:?}");
    }
    // Without the option it could not start, so it starts without the library.
    let script = format!("unset ASAN_OPTIONS; {program} x");
    let (said, gaps) = traced(&["sh", "-c", &script]);
    assert_eq!(
        text(&said.stdout),
        "2 x without\n",
        "{}",
        text(&said.stderr)
    );
    assert_eq!(gaps, [BlindReason::Sanitizer.why()]);
}

#[test]
fn ordinary_programs_keep_the_library() {
    let becomes = testkit::c_variant("becomes", "O1", &["-O1", "-g"]).unwrap();
    let program = testkit::c_variant("environment", "O1", &["-O1", "-g"]).unwrap();
    let program = program.to_str().unwrap();
    for way in WAYS {
        let (said, gaps) = traced(&[becomes.to_str().unwrap(), way, program]);
        assert_eq!(text(&said.stdout), "7 f with\n", "{way}");
        assert!(gaps.is_empty(), "{way}: {gaps:?}");
    }
}

/// Regression: the loader printed that it could not read the library.
#[test]
fn a_program_of_another_user_says_nothing_of_the_library() {
    if !testkit::is_root() {
        testkit::skip("not root: no other user to become");
        return;
    }
    let words = [
        "setpriv",
        "--reuid=65534",
        "--regid=65534",
        "--clear-groups",
        "sh",
        "-c",
        "cat /dev/null; echo ran",
    ];
    let (said, gaps) = traced(&words);
    assert_eq!(
        (text(&said.stdout).as_str(), text(&said.stderr).as_str()),
        ("ran\n", "")
    );
    assert_eq!(gaps, [BlindReason::Unreachable.why()]);
}

#[test]
fn a_program_with_other_mounts_says_nothing_of_the_library() {
    let inner =
        "mount -t tmpfs none /dev/shm && mount -t tmpfs none /tmp && cat /dev/null && echo ran";
    let words = [
        "unshare",
        "--user",
        "--map-root-user",
        "--mount",
        "sh",
        "-c",
        inner,
    ];
    let plain = Command::new(words[0]).args(&words[1..]).output();
    if !plain.is_ok_and(|said| said.stdout == b"ran\n") {
        testkit::skip("no mount namespaces for us");
        return;
    }
    let (said, gaps) = traced(&words);
    assert_eq!(
        (text(&said.stdout).as_str(), text(&said.stderr).as_str()),
        ("ran\n", "")
    );
    let mut expected = vec![BlindReason::Unreachable.why()];
    // For others than root, `mount` is a privileged program.
    if !testkit::is_root() {
        expected.push(BlindReason::Privileged.why());
    }
    assert_eq!(gaps, expected);
}
