//! `fdguard trace` by programs in the kernel: for programs that cannot load the library.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use testkit::{have, is_root, skip};

use super::attaching::{Attaching, Runner, is_left};
use super::tracing::line_of;
use super::{AsNobody, CommandOutput, fdguard};

const OPTIONS: &[&str] = &["-O2", "-g", "-fomit-frame-pointer"];

/// Whether the kernel can be asked; says so if not.
pub(crate) fn may_trace() -> bool {
    let is_allowed = is_root() && {
        let said = trace(&["--source", "ebpf"], "true", &[]);
        said.code == 0
    };
    if !is_allowed {
        skip("needs root, and a kernel that loads the programs");
    }
    is_allowed
}

fn trace(arguments: &[&str], program: impl AsRef<Path>, words: &[&str]) -> CommandOutput {
    let mut command = fdguard();
    command.arg("trace").args(arguments).arg("--");
    CommandOutput::of(command.arg(program.as_ref()).args(words).output().unwrap())
}

/// The JSON document after the program's own output.
fn found(said: &CommandOutput) -> Value {
    let last = said.text().lines().last().unwrap_or_default();
    serde_json::from_str(last).unwrap_or_else(|error| panic!("{error}: {}", said.stderr))
}

/// The site whose line has this mark.
fn site<'a>(found: &'a Value, file: &str, mark: &str) -> &'a Value {
    let line = line_of(file, mark);
    let mut sites = found["sites"].as_array().unwrap().iter();
    let site = sites.find(|site| site["culprit"]["line"] == line);
    site.unwrap_or_else(|| panic!("no site at {mark}: {found}"))
}

pub(super) fn variant(name: &str, compiler: &str, flags: &[&str]) -> Option<PathBuf> {
    let flags = [OPTIONS, flags].concat();
    let file = format!("{name}-{compiler}-{}", flags.join(""));
    testkit::compiled(compiler, &format!("c/{name}.c"), &file, &flags)
}

/// Traces a leak without choosing the source, and checks its line.
pub(super) fn leak_is_found(program: &Path, why: &str) {
    let said = trace(&["--json"], program, &["3"]);
    assert_eq!(said.code, 1, "{}", said.stderr);
    let announced = format!("fdguard: tracing by the kernel (eBPF): {why}");
    assert!(said.stderr.contains(&announced), "{}", said.stderr);
    let found = found(&said);
    assert_eq!(found["coverage"]["backend"], "ebpf");
    assert_eq!(found["coverage"]["lost_events"], 0);
    let site = site(&found, "drip.c", "/* LEAK */");
    assert_eq!(site["culprit"]["function"], "arm", "{site}");
    let stack = site["paths"][0]["stack"].as_array().unwrap();
    let names: Vec<_> = stack.iter().map(|frame| &frame["function"]).collect();
    assert!(names.contains(&&Value::from("main")), "{names:?}");
}

#[test]
fn r18_a_static_program_has_its_lines() {
    if !may_trace() {
        return;
    }
    let Some(program) = variant("drip", "cc", &["-static"]) else {
        return skip("no static C library");
    };
    leak_is_found(&program, "it is statically linked");
}

#[test]
fn r18_a_program_of_musl_has_its_lines_although_musl_has_no_unwind_tables() {
    if !may_trace() {
        return;
    }
    if !have("musl-gcc") {
        return skip("no musl-gcc (apt: musl-tools)");
    }
    let program = variant("drip", "musl-gcc", &[]).unwrap();
    leak_is_found(&program, "its loader is not glibc's");
    let program = variant("drip", "musl-gcc", &["-static"]).unwrap();
    leak_is_found(&program, "it is statically linked");
}

#[test]
fn r18_a_program_that_ends_at_once_has_its_lines() {
    if !may_trace() {
        return;
    }
    for flags in [&["-static", "-pthread"][..], &["-pthread"]] {
        let Some(program) = variant("traced", "cc", flags) else {
            return skip("no static C library");
        };
        for _ in 0..8 {
            let said = trace(&["--json", "--source", "ebpf"], &program, &["leak"]);
            assert_eq!(said.code, 0, "{}", said.stderr);
            let found = found(&said);
            let site = site(&found, "traced.c", "/* LEAK helper */");
            assert_eq!(site["live"], 12, "{site}");
        }
    }
}

#[test]
fn r18_a_running_program_is_traced_without_touching_it() {
    if !may_trace() {
        return;
    }
    let mut runner = Runner::start();
    let pid = runner.pid.to_string();
    let words = ["trace", "--every", "20ms", "--source", "ebpf", &pid];
    let mut attaching = Attaching::start(&words);
    attaching.wait_for("tracing by the kernel (eBPF), as requested");
    assert!(is_left(runner.pid), "nothing is in it");
    for _ in 0..4 {
        runner.say("o");
    }
    runner.say("h");
    runner.say("d");
    runner.say("f");
    let done = attaching.interrupt();
    let kept = done.site("/* KEEP */");
    assert_eq!((&kept["live"], &kept["opened"]), (&4.into(), &6.into()));
    let child = done.site("/* CHILD */");
    assert_eq!(child["live"], 3);
    let before = done.found["opened_before_attach"].as_array().unwrap();
    let held: u64 = before.iter().filter_map(|one| one["count"].as_u64()).sum();
    assert!(held >= 5, "{before:?}");
    let hazards = done.found["hazards"].as_array().unwrap();
    assert_eq!(hazards[0]["rule"], "double-close", "{hazards:?}");
    runner.say("o");
    runner.end();
}

#[test]
fn r18_a_program_that_executes_another_goes_on_being_traced() {
    if !may_trace() {
        return;
    }
    let mut runner = Runner::start();
    let pid = runner.pid.to_string();
    let words = ["trace", "--every", "20ms", "--source", "ebpf", &pid];
    let mut attaching = Attaching::start(&words);
    attaching.wait_for("tracing by the kernel");
    runner.say("o");
    let ready = runner.say("e");
    assert!(ready.starts_with("READY"), "{ready}");
    for _ in 0..3 {
        runner.say("o");
    }
    let done = attaching.interrupt();
    assert_eq!(done.site("/* KEEP */")["live"], 3, "{done:?}");
    runner.end();
}

#[test]
fn two_fdguards_trace_the_same_program() {
    if !may_trace() {
        return;
    }
    let mut runner = Runner::start();
    let pid = runner.pid.to_string();
    let words = ["trace", "--every", "20ms", "--source", "ebpf", &pid];
    let mut both = [Attaching::start(&words), Attaching::start(&words)];
    for one in &mut both {
        one.wait_for("tracing by the kernel");
    }
    for _ in 0..3 {
        runner.say("o");
    }
    for one in both {
        assert_eq!(one.interrupt().site("/* KEEP */")["live"], 3);
    }
    runner.end();
}

#[test]
fn a_program_in_a_sandbox_is_traced_by_the_kernel_unasked() {
    if !may_trace() {
        return;
    }
    let Some(program) = variant("runner", "cc", &["-static"]) else {
        return skip("no static C library");
    };
    let mut runner = Runner::of(&mut Command::new(program));
    let pid = runner.pid.to_string();
    let mut attaching = Attaching::start(&["trace", "--every", "20ms", &pid]);
    attaching.wait_for("tracing by the kernel (eBPF): the library cannot see into");
    runner.say("o");
    runner.say("o");
    let done = attaching.interrupt();
    assert!(done.said.contains("statically linked"), "{}", done.said);
    assert_eq!(done.site("/* KEEP */")["live"], 2);
    runner.end();
}

#[test]
fn what_killed_workers_held_is_known() {
    if !may_trace() {
        return;
    }
    let mut runner = Runner::start();
    let pid = runner.pid.to_string();
    let words = ["trace", "--every", "20ms", "--source", "ebpf", &pid];
    let mut attaching = Attaching::start(&words);
    attaching.wait_for("tracing by the kernel");
    for _ in 0..3 {
        let said = runner.say("f");
        let child: i32 = said.strip_prefix("child ").unwrap().parse().unwrap();
        let child = rustix::process::Pid::from_raw(child).unwrap();
        rustix::process::kill_process(child, rustix::process::Signal::KILL).unwrap();
    }
    let done = attaching.interrupt();
    let sites = done.found["sites"].as_array().unwrap();
    let line = line_of("runner.c", "/* CHILD */");
    let children = sites.iter().filter(|one| one["culprit"]["line"] == line);
    let held: u64 = children.filter_map(|one| one["live"].as_u64()).sum();
    assert_eq!(held, 9, "{sites:?}");
    runner.end();
}

/// In a pid namespace of its own: a host with nothing else on it.
const WHOLE_HOST: &str = r#"
"$1" trace --all --for 4s --json -o "$3/report" 2>"$3/said" &
until grep -q "tracing every process" "$3/said"; do sleep 0.05; done
"$2" >/dev/null &
leaky=$!
wait %1
code=$?
kill $leaky
exit $code
"#;

#[test]
fn r10_a_whole_host_shows_the_program_that_leaks() {
    if !may_trace() {
        return;
    }
    let program = testkit::c_variant("drip", "O2", &["-O2", "-g"]).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let mut command = Command::new("unshare");
    command
        .args(["--pid", "--fork", "--mount-proc", "--kill-child"])
        .args(["bash", "-c", WHOLE_HOST, "host"])
        .args([
            Path::new(env!("CARGO_BIN_EXE_fdguard")),
            &program,
            dir.path(),
        ]);
    let done = command.output().unwrap();
    let said = std::fs::read_to_string(dir.path().join("said")).unwrap_or_default();
    assert_eq!(done.status.code(), Some(1), "{said}");
    let report = std::fs::read(dir.path().join("report")).unwrap();
    let found: Value = serde_json::from_slice(&report).unwrap();
    let line = line_of("drip.c", "/* LEAK */");
    let mut findings = found["findings"].as_array().unwrap().iter();
    let is_it = |one: &Value| one["origin"]["culprit"]["line"] == line;
    assert!(findings.any(is_it), "{found:#}");
    assert_eq!(found["schema"], "fdguard.diagnosis/1");
}

/// The same with programs that open and close as fast as they can, beside a shell that starts
/// others. Ctrl-C comes in the middle.
const BUSY_HOST: &str = r#"
for _ in 1 2 3; do "$2" & done
while :; do /bin/true; done &
"$1" trace --all --json -o "$3/report" 2>"$3/said" &
tracer=$!
until grep -q "tracing every process" "$3/said"; do sleep 0.05; done
sleep 2
asked=$(date +%s%N)
kill -INT $tracer
wait $tracer
code=$?
echo $((($(date +%s%N) - asked) / 1000000))
exit $code
"#;

/// In milliseconds. On two cores a debug build took 5 s at a load average of 9, and 20 s at 35.
/// Without a bound it had not ended after ten minutes at 15.
const MOST_TO_END: u64 = 60_000;

#[test]
fn a_trace_of_a_busy_host_ends_soon_after_ctrl_c() {
    if !may_trace() {
        return;
    }
    let program = variant("busy", "cc", &[]).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let mut command = Command::new("unshare");
    command
        .args(["--pid", "--fork", "--mount-proc", "--kill-child"])
        .args(["bash", "-c", BUSY_HOST, "host"])
        .args([
            Path::new(env!("CARGO_BIN_EXE_fdguard")),
            &program,
            dir.path(),
        ]);
    let done = command.output().unwrap();
    let said = std::fs::read_to_string(dir.path().join("said")).unwrap_or_default();
    assert_eq!(done.status.code(), Some(0), "{said}");
    let took = String::from_utf8(done.stdout).unwrap();
    let took: u64 = took.trim().parse().unwrap();
    assert!(took < MOST_TO_END, "{took} ms");
    let report = std::fs::read(dir.path().join("report")).unwrap();
    let found: Value = serde_json::from_slice(&report).unwrap();
    assert_eq!(found["schema"], "fdguard.diagnosis/1");
    // What was dropped is not a leak, and is said.
    assert_eq!(found["findings"], serde_json::json!([]), "{found:#}");
    let gaps = found["gaps"].as_array().unwrap();
    let is_said = |gap: &Value| gap["what"].as_str().unwrap().contains("events");
    let lost = &found["coverage"]["lost_events"];
    assert!(*lost == 0 || gaps.iter().any(is_said), "{gaps:#?}");
}

#[test]
fn r38_children_that_nobody_waits_for_have_their_line() {
    if !may_trace() {
        return;
    }
    let script = super::trace_children::script("starts.py");
    let words = [script.to_str().unwrap(), "task"];
    let options = ["--json", "--every", "100ms", "--source", "ebpf"];
    let said = trace(&options, "python3", &words);
    assert_eq!(said.code, 1, "{}", said.stderr);
    let found = found(&said);
    let findings = found["findings"].as_array().unwrap();
    let is_pile = |one: &&Value| one["rule"] == "unwaited-child";
    let pile = findings.iter().find(is_pile);
    let pile = pile.unwrap_or_else(|| panic!("{findings:#?}"));
    let line = super::trace_children::line(&script, "task");
    assert_eq!(pile["origin"]["culprit"]["line"], line, "{pile:#}");
}

#[test]
fn without_rights_the_reason_and_the_way_are_said() {
    if !is_root() {
        return skip("needs root, to give it up");
    }
    let nobody = AsNobody::new();
    let said = nobody.run(&["trace", "--source", "ebpf", "--", "true"]);
    assert_eq!(said.code, 125, "{}", said.stderr);
    for part in ["cannot trace by the kernel", "CAP_BPF", "sudo"] {
        assert!(said.stderr.contains(part), "{part} in {}", said.stderr);
    }
    let pid = std::process::id().to_string();
    for words in [
        &["trace", "--source", "ebpf", &pid][..],
        &["trace", "--all"],
    ] {
        let said = nobody.run(words);
        assert_eq!(said.code, 3, "{}", said.stderr);
        assert!(said.stderr.contains("CAP_BPF"), "{}", said.stderr);
    }
}

#[test]
fn a_program_runs_as_it_would_where_nothing_can_trace_it() {
    if !is_root() {
        return skip("needs root, to give it up");
    }
    let Some(program) = variant("drip", "cc", &["-static"]) else {
        return skip("no static C library");
    };
    let dir = tempfile::tempdir().unwrap();
    let copy = dir.path().join("drip");
    std::fs::copy(program, &copy).unwrap();
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(dir.path(), open).unwrap();
    let said = AsNobody::new().run(&["trace", "--", copy.to_str().unwrap(), "3"]);
    assert_eq!(said.text(), "done\n", "{}", said.stderr);
    assert!(
        said.stderr.contains("no lines: it is statically linked"),
        "{}",
        said.stderr
    );
    assert!(said.stderr.contains("CAP_BPF"), "{}", said.stderr);
}

#[test]
fn a_source_that_does_not_fit_is_a_usage_error() {
    let said = trace(&["--source", "attach"], "true", &[]);
    assert_eq!(said.code, 2, "{}", said.stderr);
    let pid = std::process::id().to_string();
    let usage = [
        &["trace", "--source", "launch", &pid][..],
        &["trace", "--all", "--source", "attach"],
        &["trace", "--all", "--follow"],
        &["trace", "--source", "magic", "--", "true"],
    ];
    for words in usage {
        let said = super::run(words);
        assert_eq!(said.code, 2, "{words:?}: {}", said.stderr);
    }
}

#[test]
fn nothing_is_left_in_the_kernel() {
    if !may_trace() {
        return;
    }
    let mut runner = Runner::start();
    let pid = runner.pid.to_string();
    let mut attaching = Attaching::start(&["trace", "--source", "ebpf", &pid]);
    attaching.wait_for("tracing by the kernel");
    let ours = programs_of(&attaching);
    assert!(!ours.is_empty(), "the programs are loaded");
    // Killed in the middle.
    drop(attaching);
    runner.say("o");
    let all = loaded_programs();
    assert!(
        ours.iter().all(|id| !all.contains(id)),
        "{ours:?} in {all:?}"
    );
    runner.end();
}

/// The ids of programs that a process holds, from `fdinfo`.
fn programs_of(attaching: &Attaching) -> Vec<u32> {
    ids_in(attaching.pid())
}

/// The ids of programs that any process holds.
fn loaded_programs() -> Vec<u32> {
    let pids = std::fs::read_dir("/proc").unwrap().flatten();
    let pids = pids.filter_map(|one| one.file_name().to_str()?.parse::<u32>().ok());
    pids.flat_map(ids_in).collect()
}

fn ids_in(pid: u32) -> Vec<u32> {
    let infos = std::fs::read_dir(format!("/proc/{pid}/fdinfo"));
    let infos = infos.into_iter().flatten().flatten();
    let texts = infos.filter_map(|one| std::fs::read_to_string(one.path()).ok());
    let ids = texts.filter_map(|text| {
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix("prog_id:"))?;
        line.trim().parse::<u32>().ok()
    });
    ids.collect()
}
