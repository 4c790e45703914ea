//! Output for people: safe, plain in pipes, whole in files.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::process::{Command, Stdio};

use serde_json::Value;
use testkit::{Victim, have, skip};

use super::{CommandOutput, fdguard, run, snap};

/// Control bytes other than line breaks.
fn has_control(bytes: &[u8]) -> bool {
    bytes
        .iter()
        .any(|byte| byte.is_ascii_control() && *byte != b'\n')
}

#[test]
fn hostile_names_never_reach_the_terminal_raw() {
    let victim = Victim::start("everything");
    for args in [&[][..], &["--fds"], &["--fds", "--targets", "1000"]] {
        let said = snap(victim.pid(), args);
        assert_eq!(said.code, 0, "{}", said.stderr);
        assert!(!has_control(&said.stdout), "{args:?}: {:?}", said.text());
        assert!(said.stderr.is_empty());
    }
    let all = snap(victim.pid(), &["--fds"]);
    let text = all.text();
    assert!(text.contains("two\\nlines\\t\\u{1b}[31m"), "{text}");
    assert!(text.contains("\\xff\\xfe-caf\\xe9.log"), "{text}");
    // One line for each descriptor, whatever their names.
    let listed = text
        .lines()
        .skip_while(|line| *line != "descriptors")
        .skip(2);
    let listed = listed.take_while(|line| line.starts_with("  "));
    assert_eq!(listed.count(), victim.holdings().len());
    victim.finish();
}

#[test]
fn a_hostile_command_name_is_made_visible_everywhere() {
    if !have("bash") {
        return skip("needs bash");
    }
    // A process that renames itself: the file system accepts any name.
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("\u{1b}[31m\nx");
    let copied = Command::new("cp").arg("/bin/cat").arg(&program).status();
    assert!(copied.unwrap().success());
    let mut child = Command::new(&program)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let pid = child.id().to_string();
    // An echoed line proves that the new program runs.
    std::io::Write::write_all(child.stdin.as_mut().unwrap(), b"ready\n").unwrap();
    let mut line = [0; 6];
    std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut line).unwrap();
    let outputs = [
        run(["snap", &pid]),
        run(["snap", &pid, "--fds"]),
        run(["snap", &pid, &std::process::id().to_string()]),
        run(["top", "--once", "--filter", &pid]),
        run(["diff", &pid, &pid]),
        run(["diff", &pid, &std::process::id().to_string()]),
    ];
    child.kill().unwrap();
    child.wait().unwrap();
    for said in outputs {
        assert_eq!(said.code, 0, "{}", said.stderr);
        assert!(!has_control(&said.stdout), "{:?}", said.text());
    }
}

/// Puts an escape sequence and a line break into every string except those that control parsing.
fn poisoned(value: &mut Value, key: &str) {
    const KEPT: [&str; 10] = [
        "schema",
        "taken_at",
        "start_time",
        "tier",
        "via",
        "mode",
        "end",
        "shutdown",
        "severity",
        "bytes",
    ];
    match value {
        Value::String(text) if key == "class" && !text.starts_with("other:") => {}
        Value::String(text) if !KEPT.contains(&key) => text.push_str("\u{1b}[31m\n\u{7}x"),
        Value::Array(list) => list.iter_mut().for_each(|element| poisoned(element, key)),
        Value::Object(map) => map.iter_mut().for_each(|(key, value)| poisoned(value, key)),
        _ => {}
    }
}

#[test]
fn a_saved_snapshot_from_somebody_else_is_shown_safely() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("evil.json");
    let victim = Victim::start("everything");
    let mut document = snap(victim.pid(), &["--json"]).good_json();
    victim.finish();
    document["process"]["container"] = "c".into();
    document["gaps"] = serde_json::json!([{"what": "a", "why": "b", "remedy": "c"}]);
    poisoned(&mut document, "");
    fs::write(&path, document.to_string()).unwrap();
    let path = path.to_str().unwrap();
    for args in [
        &["snap", "--fds", "--targets", "1000", "--from", path][..],
        &["snap", "--counts", "--from", path],
        &["diff", path, path],
        &["diff", path, &std::process::id().to_string()],
        &["diff", &std::process::id().to_string(), path],
    ] {
        let said = run(args);
        assert_eq!(said.code, 0, "{}", said.stderr);
        assert!(!has_control(&said.stdout), "{args:?}: {:?}", said.text());
    }
}

#[test]
fn in_a_pipe_there_are_no_colours_unless_asked_for() {
    let victim = Victim::start("starved");
    let pid = victim.pid().to_string();
    let coloured = |args: &[&str], env: &[(&str, &str)]| {
        let mut command = fdguard();
        command.args(args).envs(env.iter().copied());
        let said = CommandOutput::of(command.output().unwrap());
        assert_eq!(said.code, 0, "{}", said.stderr);
        said.stdout.contains(&0x1b)
    };
    assert!(!coloured(&["snap", &pid], &[]));
    assert!(!coloured(&["snap", &pid], &[("NO_COLOR", "1")]));
    assert!(!coloured(
        &["snap", &pid, "--color", "never"],
        &[("CLICOLOR_FORCE", "1")]
    ));
    assert!(coloured(&["snap", &pid, "--color", "always"], &[]));
    assert!(coloured(&["--color", "always", "snap", &pid], &[]));
    assert!(coloured(&["snap", &pid], &[("CLICOLOR_FORCE", "1")]));
    assert!(!coloured(
        &["snap", &pid, "--json", "--color", "always"],
        &[]
    ));
    assert!(!coloured(
        &["snap", &pid, "--counts", "--color", "always"],
        &[]
    ));
    assert!(!coloured(&["top", "--once"], &[]));
    victim.finish();
}

#[test]
fn on_a_terminal_there_are_colours_and_no_color_takes_them_away() {
    if !have("script") {
        return skip("needs the program script");
    }
    let victim = Victim::start("starved");
    let on_terminal = |env: &[(&str, &str)]| {
        let line = format!("{} snap {}", env!("CARGO_BIN_EXE_fdguard"), victim.pid());
        let mut command = Command::new("script");
        command
            .args(["-qec", &line, "/dev/null"])
            .stdin(Stdio::null());
        command.env_remove("NO_COLOR").env("TERM", "xterm");
        command.envs(env.iter().copied());
        let said = CommandOutput::of(command.output().unwrap());
        assert_eq!(said.code, 0, "{}", said.text());
        said.stdout.contains(&0x1b)
    };
    assert!(on_terminal(&[]));
    assert!(!on_terminal(&[("NO_COLOR", "1")]));
    victim.finish();
}

#[test]
fn a_file_appears_whole_or_not_at_all() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("out.txt");
    let victim = Victim::start("starved");
    fs::write(&path, "before").unwrap();
    let before = fs::metadata(&path).unwrap().ino();
    let name = path.to_str().unwrap();
    let said = snap(victim.pid(), &["-o", name, "--color", "always"]);
    assert_eq!((said.code, said.stdout.len(), &*said.stderr), (0, 0, ""));
    let written = fs::read_to_string(&path).unwrap();
    assert!(written.contains("32 of 32 descriptors"), "{written}");
    assert!(!written.contains('\u{1b}'), "a file has no colours");
    assert_ne!(
        fs::metadata(&path).unwrap().ino(),
        before,
        "renamed into place"
    );
    // A failed look leaves the existing file unchanged.
    let failed = run(["snap", "4194303", "-o", name]);
    assert_eq!(failed.code, 3);
    assert_eq!(fs::read_to_string(&path).unwrap(), written);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    victim.finish();
}

#[test]
fn r1_r7_the_head_says_count_limit_share_highest_and_what_is_left() {
    let victim = Victim::start("starved");
    let said = snap(victim.pid(), &[]);
    let text = said.text();
    assert!(text.contains("starved (pid "), "{text}");
    assert!(text.contains("tier full"), "{text}");
    assert!(
        text.contains("32 of 32 descriptors (100 %), highest fd 31"),
        "{text}"
    );
    assert!(text.contains("0 to the soft limit"), "{text}");
    victim.finish();
    let victim = Victim::start("crosser");
    let said = snap(victim.pid(), &[]);
    assert!(
        said.text().contains("1024 or more was in use earlier"),
        "{}",
        said.text()
    );
    victim.finish();
}

#[test]
fn r3_r8_children_and_their_pipes_are_said_in_words() {
    let victim = Victim::of("parent").arg("6").arg("2").start();
    let said = snap(victim.pid(), &[]);
    let text = said.text();
    assert!(text.contains("8 children × 3 pipes + pidfd"), "{text}");
    assert!(text.contains("8 children, 2 zombies: parent ×8"), "{text}");
    victim.finish();
}

#[test]
fn lints_fail_the_command_only_when_asked_to() {
    let victim = Victim::start("starved");
    assert_eq!(snap(victim.pid(), &[]).code, 0);
    assert_eq!(snap(victim.pid(), &["--fail-on", "info"]).code, 1);
    let quiet = Victim::start("leaker");
    assert_eq!(snap(quiet.pid(), &["--fail-on", "critical"]).code, 0);
    victim.finish();
    quiet.finish();
}

#[test]
fn the_lsof_format_has_every_number_once() {
    let victim = Victim::start("everything");
    let mut held: Vec<String> = victim
        .holdings()
        .iter()
        .map(|it| it.fd.to_string())
        .collect();
    held.sort();
    for (args, end) in [(&["-F"][..], '\n'), (&["-F0"], '\0')] {
        let said = snap(victim.pid(), args);
        assert_eq!(said.code, 0);
        let text = String::from_utf8_lossy(&said.stdout).into_owned();
        assert!(text.starts_with(&format!("p{}", victim.pid())), "{text}");
        let fields = text.split(['\n', end]);
        let mut numbers: Vec<String> = fields
            .filter_map(|field| field.strip_prefix('f'))
            .filter(|number| number.bytes().all(|byte| byte.is_ascii_digit()))
            .map(str::to_owned)
            .collect();
        numbers.sort();
        assert_eq!(numbers, held, "{args:?}");
    }
    victim.finish();
}

/// The fields of each number: letter and value.
fn fields_by_number(text: &str) -> BTreeMap<u32, BTreeMap<String, String>> {
    let mut found: BTreeMap<u32, BTreeMap<String, String>> = BTreeMap::new();
    let mut number = None;
    for line in text.lines() {
        let Some((letter, value)) = line.split_at_checked(1) else {
            continue;
        };
        if letter == "f" {
            number = value.parse().ok();
        } else if let Some(number) = number {
            found
                .entry(number)
                .or_default()
                .insert(letter.to_owned(), value.to_owned());
        }
    }
    found
}

#[test]
fn devices_flags_and_the_user_are_those_of_lsof() {
    if !have("lsof") {
        return skip("no lsof");
    }
    let victim = Victim::start("everything");
    let pid = victim.pid().to_string();
    let said = snap(victim.pid(), &["-F"]);
    let ours = String::from_utf8_lossy(&said.stdout).into_owned();
    let lsof = |letters: &str| {
        let mut command = Command::new("lsof");
        // With this option lsof also prints the device number of a device.
        command.args(["-nP", "+fG", "-F", letters, "-p", &pid]);
        let said = command.stderr(Stdio::null()).output().unwrap();
        String::from_utf8_lossy(&said.stdout).into_owned()
    };
    let theirs = lsof("ftGDrdLg");
    for letter in ['L', 'g'] {
        let first = |text: &str| {
            text.lines()
                .find(|line| line.starts_with(letter))
                .map(str::to_owned)
        };
        assert!(first(&ours).is_some(), "{letter}: {ours}");
        assert_eq!(first(&ours), first(&theirs), "{letter}");
    }
    let (ours, theirs) = (fields_by_number(&ours), fields_by_number(&theirs));
    let mut compared = 0;
    for (number, fields) in &ours {
        let Some(other) = theirs.get(number) else {
            continue;
        };
        for letter in ["D", "r", "G"] {
            let kinds = ["REG", "DIR", "CHR", "BLK"];
            let is_file = fields
                .get("t")
                .is_some_and(|kind| kinds.contains(&kind.as_str()));
            if let (Some(mine), true) = (fields.get(letter), is_file) {
                assert_eq!(
                    Some(mine),
                    other.get(letter),
                    "{number} {letter}: {other:?}"
                );
                compared += 1;
            }
        }
    }
    assert!(compared > 20, "only {compared} fields were compared");
    victim.finish();
}
