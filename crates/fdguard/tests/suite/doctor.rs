//! `fdguard doctor`: the report and the document.

use std::fs::{self, Permissions};
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Child, Command, Stdio};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde_json::Value;
use testkit::{Victim, is_root, skip};

use super::doctor_bundle::{FILES, files};
use super::{AsNobody, CommandOutput, fdguard, run};

/// A short visit.
pub(super) fn doctor(pid: u32, args: &[&str]) -> CommandOutput {
    let pid = pid.to_string();
    let quick = ["doctor", &pid, "--for", "400ms", "--every", "20ms"];
    run(quick.into_iter().chain(args.iter().copied()))
}

/// The same while the victim opens a file about every 20 ms: the end of the report is waited for in
/// between.
pub(super) fn doctor_of_a_leak(victim: &mut Victim, args: &[&str]) -> CommandOutput {
    let mut command = fdguard();
    command.args([
        "doctor",
        &victim.pid().to_string(),
        "--for",
        "2s",
        "--every",
        "25ms",
    ]);
    let mut child = command
        .args(args)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    while !is_talking(&mut child) {
        victim.tell("1 file");
    }
    CommandOutput::of(child.wait_with_output().unwrap())
}

fn is_talking(child: &mut Child) -> bool {
    let pause = Timespec {
        tv_sec: 0,
        tv_nsec: 20_000_000,
    };
    let stdout = child.stdout.as_ref().unwrap();
    let mut waited = [PollFd::new(stdout, PollFlags::IN)];
    poll(&mut waited, Some(&pause)).unwrap() > 0
}

fn assert_failed(said: &CommandOutput, code: i32) {
    assert_eq!(said.code, code, "{}", said.stderr);
    assert!(said.stdout.is_empty(), "{}", said.text());
    assert!(said.stderr.starts_with("fdguard: "), "{}", said.stderr);
    assert!(said.stderr.lines().count() <= 2, "{}", said.stderr);
}

#[test]
fn r58_a_leak_is_named_in_the_first_sentence_and_exits_1() {
    let mut victim = Victim::of("leaker").nofile(1024).start();
    let said = doctor_of_a_leak(&mut victim, &[]);
    assert_eq!((said.code, &*said.stderr), (1, ""), "{}", said.text());
    let first = said.text().lines().next().unwrap();
    assert!(
        first.starts_with("leaking: ") && first.contains(" regular descriptors a second on "),
        "{first}"
    );
    assert!(
        first.contains("leaked-*.log; the soft limit of 1,024 is reached in "),
        "{first}"
    );
    for part in [
        "\nfindings\n",
        "likely: ",
        "fix: ",
        "\nopen descriptors\n",
        "\ntargets\n",
        "\nlimits\n",
        "\nprocess tree\n",
        "\nversions\n",
    ] {
        assert!(said.text().contains(part), "{part} in {}", said.text());
    }
    assert!(!said.text().contains('\u{1b}'));
    victim.finish();
}

#[test]
fn r58_the_document_is_a_diagnosis_with_the_evidence_beside_it() {
    let mut victim = Victim::of("leaker").nofile(1024).start();
    let said = doctor_of_a_leak(&mut victim, &["--json"]);
    assert_eq!((said.code, &*said.stderr), (1, ""), "{}", said.text());
    let document = said.json();
    assert!(
        said.text()
            .starts_with(r#"{"schema":"fdguard.diagnosis/1","#)
    );
    assert_eq!(document["verdict"], "leaking");
    assert_eq!(document["process"]["pid"], victim.pid());
    assert_eq!(document["findings"][0]["rule"], "leak");
    assert_eq!(document["findings"][0]["class"], "regular");
    assert!(document["baseline"].as_u64() < document["final"].as_u64());
    for name in [
        "started_at",
        "ended_at",
        "samples",
        "hazards",
        "coverage",
        "gaps",
        "snapshot",
        "lints",
    ] {
        assert!(!document[name].is_null(), "{name}");
    }
    assert_eq!(document["snapshot"]["classes"][0]["class"], "regular");
    let evidence = &document["evidence"];
    assert_eq!(evidence["redacted"], false);
    assert_eq!(evidence["bundle"], Value::Null);
    assert_eq!(evidence["machine"]["fdguard"], env!("CARGO_PKG_VERSION"));
    let points = evidence["processes"][0]["curves"]["total"]
        .as_array()
        .unwrap();
    assert!(points.len() > 30, "{} points", points.len());
    victim.finish();
}

#[test]
fn a_quiet_program_is_stable_and_exits_0() {
    let victim = Victim::start("leaker");
    let said = doctor(victim.pid(), &[]);
    assert_eq!((said.code, &*said.stderr), (0, ""), "{}", said.text());
    assert!(
        said.text()
            .starts_with("stable: 3 descriptors, no change in "),
        "{}",
        said.text()
    );
    assert!(
        said.text().ends_with("-o evidence.tar.zst --redact\n"),
        "{}",
        said.text()
    );
    victim.finish();
}

#[test]
fn r58_lints_of_a_quiet_program_exit_1() {
    let victim = Victim::start("everything");
    let said = doctor(victim.pid(), &["--json"]);
    assert_eq!(said.code, 1, "{}", said.stderr);
    let document = said.json();
    assert!(!document["lints"].as_array().unwrap().is_empty());
    let databases = document["evidence"]["processes"][0]["databases"]
        .as_array()
        .unwrap();
    assert!(
        databases.iter().any(|one| one["wal"].as_u64() > Some(0)),
        "{databases:?}"
    );
    victim.finish();
}

#[test]
fn r8_the_family_is_shown_with_its_zombies() {
    let victim = Victim::of("parent").arg("2").arg("1").start();
    let said = doctor(victim.pid(), &["--json"]);
    let document = said.json();
    let family = document["evidence"]["family"].as_array().unwrap();
    let of = |relation: &str| {
        family
            .iter()
            .filter(|one| one["relation"] == relation)
            .count()
    };
    assert_eq!((of("named"), of("descendant")), (1, 3));
    assert!(of("ancestor") >= 1);
    assert_eq!(family.iter().filter(|one| one["zombie"] == true).count(), 1);
    let said = doctor(victim.pid(), &["--tree"]);
    assert!(said.text().contains("other processes"), "{}", said.text());
    assert!(
        said.text()
            .contains("1 zombie (the parent does not wait for its children)"),
        "{}",
        said.text()
    );
    victim.finish();
}

#[test]
fn the_page_is_one_file_and_foreign_names_are_text_in_it() {
    let dir = tempfile::tempdir().unwrap();
    let name = "<script>alert(1)<img src=x onerror=\"y\">'`&amp;\u{1b}[31m.log";
    let mut child = Command::new("sh")
        .args(["-c", r#"exec 5>"$1"; echo ready; read -r line"#, "sh"])
        .arg(dir.path().join(name))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap())
        .read_line(&mut line)
        .unwrap();
    let page = dir.path().join("page.html");
    let said = doctor(child.id(), &["--html", page.to_str().unwrap()]);
    assert!(!said.text().contains('\u{1b}'), "{}", said.text());
    let html = fs::read_to_string(&page).unwrap();
    assert!(html.starts_with("<!DOCTYPE html>") && html.ends_with("</html>\n"));
    assert!(
        html.contains(
            "&lt;script&gt;alert(1)&lt;img src=x onerror=&quot;y&quot;&gt;&#39;&#96;&amp;amp;"
        ),
        "{html}"
    );
    for never in [
        "<script",
        "<img",
        "onerror=\"",
        "http://",
        "https://",
        "javascript:",
        "url(",
        "@import",
        "\u{1b}",
    ] {
        assert!(!html.contains(never), "{never}");
    }
    for part in [
        "<title>",
        "<svg",
        "role=\"img\"",
        "<desc>",
        "prefers-color-scheme",
        "@media print",
        "viewport",
    ] {
        assert!(html.contains(part), "{part}");
    }
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn what_cannot_be_is_told_in_one_line_before_anything_is_watched() {
    let victim = Victim::start("leaker");
    let pid = victim.pid().to_string();
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("file"), "x").unwrap();
    let full = dir.path().to_str().unwrap();
    let file = dir.path().join("file");
    let file = file.to_str().unwrap();
    let inside = format!("{file}/out");
    let missing = format!("{full}/missing.log");
    for (args, code) in [
        (vec!["doctor"], 2),
        (vec!["doctor", "--all"], 2),
        (vec!["doctor", "0"], 2),
        (vec!["doctor", &pid, "--for", "soon"], 2),
        (vec!["doctor", &pid, "--every", "1ms"], 2),
        (vec!["doctor", "4194301"], 3),
        (vec!["doctor", "--name", "no-such-command-here"], 3),
        (vec!["doctor", &pid, "-o", full], 3),
        (vec!["doctor", &pid, "-o", file], 3),
        (vec!["doctor", &pid, "-o", &inside], 3),
        (
            vec!["doctor", &pid, "-o", "/no/such/folder/evidence.tar.zst"],
            3,
        ),
        (vec!["doctor", &pid, "-o", "/proc/evidence"], 3),
        (vec!["doctor", &pid, "-o", ""], 2),
        (vec!["doctor", &pid, "-o", "/"], 3),
        (vec!["doctor", &pid, "--log", &missing], 3),
        (vec!["doctor", &pid, "--log", full], 3),
        (
            vec!["doctor", &pid, "--html", "/no/such/folder/page.html"],
            3,
        ),
    ] {
        // A watch of a minute would be noticed.
        let long = ["--for", "60s"]
            .iter()
            .copied()
            .filter(|_| !args.contains(&"--for"));
        let said = run(args.iter().copied().chain(long));
        assert_failed(&said, code);
    }
    assert_eq!(
        fs::read_dir(dir.path()).unwrap().count(),
        1,
        "nothing is left"
    );
    assert_eq!(fs::read(file).unwrap(), b"x");
    let said = run(["doctor", &pid, "-o", full]);
    assert!(
        said.stderr.contains("already exists and is not empty"),
        "{}",
        said.stderr
    );
    victim.finish();
}

#[test]
fn a_process_that_ends_during_the_watch_is_still_reported() {
    let victim = Victim::start("leaker");
    let pid = victim.pid();
    let dir = tempfile::tempdir().unwrap();
    let place = dir.path().join("evidence");
    let mut command = fdguard();
    command.args([
        "doctor",
        &pid.to_string(),
        "--for",
        "60s",
        "--every",
        "10ms",
        "--json",
        "-o",
    ]);
    let child = command
        .arg(&place)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // It watches once it holds a pidfd of the victim.
    let holds = |number: &str| {
        let link = fs::read_link(format!("/proc/{}/fd/{number}", child.id()));
        link.is_ok_and(|link| link.to_string_lossy().contains("pidfd"))
    };
    while !(3..32).any(|number| holds(&number.to_string())) {
        std::thread::yield_now();
    }
    victim.finish();
    let said = CommandOutput::of(child.wait_with_output().unwrap());
    let document = said.json();
    assert_eq!(document["ended"], "process-ended", "{}", said.text());
    assert!(
        document["gaps"]
            .as_array()
            .unwrap()
            .iter()
            .any(|gap| gap["why"] == "the process exited")
    );
    assert_eq!(files(&place).len(), FILES.len());
}

#[test]
fn r6_without_the_right_to_look_the_count_is_watched_and_it_exits_3() {
    if !is_root() {
        return skip("needs root");
    }
    let nobody = AsNobody::new();
    let victim = Victim::start("leaker");
    let pid = victim.pid().to_string();
    let said = nobody.run(&["doctor", &pid, "--for", "400ms", "--every", "20ms"]);
    assert_eq!(said.code, 3, "{}", said.stderr);
    assert!(
        said.text().contains("not seen") && said.text().contains("remedy: "),
        "{}",
        said.text()
    );
    assert!(
        said.text().contains("fdguard could not list them"),
        "{}",
        said.text()
    );
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).unwrap();
    let place = dir.path().join("evidence");
    let said = nobody.run(&["doctor", &pid, "-o", place.to_str().unwrap()]);
    assert_failed(&said, 3);
    victim.finish();
}
