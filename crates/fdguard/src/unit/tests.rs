//! Tests: generated units, parsed by the parsers of their supervisors.

use std::io::Write as _;
use std::process::Stdio;
use std::time::Duration;

use clap::Parser as _;
use fdguard_supervise::config::{Overrides, RunSettings};
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;

use super::read::{UnitNode, read};
use super::{UnitSpec, UnitTarget, is_name, lint};
use crate::cli::{Cli, Command};

fn spec(command: &[&str]) -> UnitSpec {
    UnitSpec {
        name: "web".to_owned(),
        command: command.iter().map(|it| (*it).to_owned()).collect(),
        fdguard: "/usr/bin/fdguard".to_owned(),
        listen: vec!["http=tcp:8787".parse().unwrap()],
        metrics: Some("127.0.0.1:9464".to_owned()),
        grace: Duration::from_secs(10),
        restart: "on-failure",
        files: (4096, 524_288),
        user: false,
        dir: Some("/srv/100% web".to_owned()),
        home: Some("/home/a".to_owned()),
        image: None,
    }
}

const ALL: [UnitTarget; 4] = [
    UnitTarget::Systemd,
    UnitTarget::Launchd,
    UnitTarget::Supervisord,
    UnitTarget::Compose,
];

#[test]
fn every_command_that_we_write_is_one_that_run_takes() {
    let specs = ["always", "on-failure", "never"].map(|restart| UnitSpec {
        restart,
        name: "web@1".to_owned(),
        grace: Duration::from_millis(1500),
        listen: [
            "http=tcp:8787",
            "tcp:*:80",
            "tcp:[::1]:81",
            "unix:/run/a.sock",
        ]
        .map(|listen| listen.parse().unwrap())
        .to_vec(),
        ..spec(&["/bin/server", "--port", "80"])
    });
    for spec in specs {
        let words = spec.words();
        let parsed = Cli::try_parse_from(&words).unwrap_or_else(|error| panic!("{error}"));
        let Command::Run(args) = parsed.command else {
            panic!("{words:?}");
        };
        let said = Overrides {
            command: args.command.clone(),
            name: args.name.clone(),
            flags: args.said(),
            ..Overrides::default()
        };
        let settings = RunSettings::resolve(&said, None).unwrap_or_else(|error| panic!("{error}"));
        let [service] = &settings.services[..] else {
            panic!("{words:?}");
        };
        assert_eq!((&*service.name, service.stop.grace), ("web@1", spec.grace));
        assert_eq!(service.listen.len(), 4);
        assert_eq!(settings.metrics.unwrap().port(), 9464);
    }
}

#[test]
fn what_we_write_has_none_of_the_traps() {
    for target in ALL {
        for user in [false, true] {
            let unit = UnitSpec {
                user,
                ..spec(&["/bin/server", "--port", "80"])
            };
            let text = unit.write(target).unwrap();
            let tree = read(target, &text).unwrap_or_else(|error| panic!("{error:?}\n{text}"));
            assert_eq!(lint::lint(target, &tree), [], "{text}");
        }
    }
}

#[test]
fn a_name_with_two_hyphens_does_not_end_a_comment() {
    for target in ALL {
        let name = "a--b".to_owned();
        let unit = UnitSpec {
            name,
            ..spec(&["/bin/a"])
        };
        let text = unit.write(target).unwrap();
        assert!(read(target, &text).is_ok(), "{text}");
    }
}

#[test]
fn the_supervisor_waits_longer_than_our_own_grace() {
    let unit = UnitSpec {
        grace: Duration::from_millis(30_500),
        ..spec(&["/bin/a"])
    };
    for (target, line) in [
        (UnitTarget::Systemd, "TimeoutStopSec=46"),
        (UnitTarget::Launchd, "<integer>46</integer>"),
        (UnitTarget::Supervisord, "stopwaitsecs=46"),
        (UnitTarget::Compose, "stop_grace_period: 46s"),
    ] {
        let text = unit.write(target).unwrap();
        assert!(text.contains(line), "{text}");
        assert!(text.contains("30500ms"), "{text}");
    }
}

#[test]
fn what_a_format_cannot_hold_is_refused_and_not_written_wrongly() {
    assert!(
        spec(&["/bin/a", "two\nlines"])
            .write(UnitTarget::Supervisord)
            .is_err()
    );
    assert!(
        spec(&["/bin/a", "bell\u{7}"])
            .write(UnitTarget::Launchd)
            .is_err()
    );
    let dir = Some("/srv/x ;y".to_owned());
    assert!(
        UnitSpec {
            dir,
            ..spec(&["/bin/a"])
        }
        .write(UnitTarget::Supervisord)
        .is_err()
    );
    let dir = Some("/srv/x\ny".to_owned());
    assert!(
        UnitSpec {
            dir,
            ..spec(&["/bin/a"])
        }
        .write(UnitTarget::Systemd)
        .is_err()
    );
}

#[test]
fn names_are_names_of_files_and_sections() {
    assert!(is_name("web") && is_name("org.example.web-1@2"));
    for wrong in [
        "",
        "a b",
        "../x",
        "a/b",
        "-x",
        ".x",
        "a]",
        "é",
        &"x".repeat(200),
    ] {
        assert!(!is_name(wrong), "{wrong}");
    }
}

/// Commands with everything that a user could type.
fn commands(count: usize) -> Vec<Vec<String>> {
    let nasty = [
        "",
        " ",
        "a b",
        "%n %%",
        "$HOME ${X} $$",
        "\"'`\\",
        "; #",
        "a ;b #c",
        "<&>]]>",
        "{x: [y]}",
        "- :",
        "é\u{1F980}",
        "100%",
        "'",
        "\\n",
        "=",
        "~",
        "!x",
        "*",
        "yes",
        "0x1f",
        "\\",
    ];
    let mut all = vec![nasty.iter().map(|it| (*it).to_owned()).collect()];
    let mut runner = TestRunner::deterministic();
    let words = proptest::collection::vec("[ -~é\u{1F980}\u{a9}]{0,14}", 1..6);
    all.extend((1..count).map(|_| words.new_tree(&mut runner).unwrap().current()));
    all
}

/// The words of each generated unit, as read by a Python program.
fn read_by_python(
    target: UnitTarget,
    code: &str,
    commands: &[Vec<String>],
) -> Option<Vec<Vec<String>>> {
    let dir = tempfile::tempdir().unwrap();
    let mut files = Vec::new();
    for (at, command) in commands.iter().enumerate() {
        let words: Vec<&str> = command.iter().map(String::as_str).collect();
        let file = dir.path().join(at.to_string());
        std::fs::write(&file, spec(&words).write(target).unwrap()).unwrap();
        files.push(file);
    }
    let mut child = std::process::Command::new("python3")
        .args(["-c", code])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .ok()?;
    let mut stdin = child.stdin.take().unwrap();
    for file in &files {
        writeln!(stdin, "{}", file.display()).unwrap();
    }
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    if error.contains("ModuleNotFoundError") {
        return None;
    }
    assert!(output.status.success(), "{error}");
    Some(serde_json::from_slice(&output.stdout).unwrap())
}

/// Reads the words after `--` with the format's own parser, and compares.
fn assert_words_come_back(target: UnitTarget, code: &str) {
    let commands = commands(150);
    let Some(read) = read_by_python(target, code, &commands) else {
        return testkit::skip("no python3 with the parser of this format");
    };
    assert_eq!(read.len(), commands.len());
    for (words, command) in read.iter().zip(&commands) {
        let at = words.iter().position(|word| word == "--").unwrap();
        assert_eq!(&words[at + 1..], command);
        assert_eq!(words[..2], ["/usr/bin/fdguard", "run"]);
    }
}

#[test]
fn plistlib_reads_the_words_back() {
    assert_words_come_back(
        UnitTarget::Launchd,
        "import json, plistlib, sys\n\
        print(json.dumps([plistlib.load(open(f.rstrip('\\n'), 'rb'))['ProgramArguments'] for f in sys.stdin]))",
    );
}

#[test]
fn supervisords_steps_give_the_words_back_with_and_without_comments_behind_values() {
    // Versions differ in whether `;` and `#` after a space begin a comment; then `%` is expanded,
    // then shlex splits the line.
    for prefixes in ["None", "(';',)", "(';', '#')"] {
        let code = format!(
            "import configparser, json, shlex, sys\n\
             def words(f):\n\
             \x20   p = configparser.RawConfigParser(inline_comment_prefixes={prefixes}, strict=False)\n\
             \x20   p.read(f, encoding='utf-8')\n\
             \x20   return shlex.split(p.get('program:web', 'command') % {{}})\n\
             print(json.dumps([words(f.rstrip('\\n')) for f in sys.stdin]))"
        );
        assert_words_come_back(UnitTarget::Supervisord, &code);
    }
}

#[test]
fn pyyaml_reads_the_words_back() {
    assert_words_come_back(
        UnitTarget::Compose,
        "import json, sys, yaml\n\
        def words(f):\n\
        \x20   service = yaml.safe_load(open(f, encoding='utf-8'))['services']['web']\n\
        \x20   assert service['init'] is True and service['ulimits']['nofile']['soft'] == 4096\n\
        \x20   return [w.replace('$$', '$') for w in service['command']]\n\
        print(json.dumps([words(f.rstrip('\\n')) for f in sys.stdin]))",
    );
}

#[test]
fn systemd_itself_takes_the_unit() {
    if !testkit::have("systemd-analyze") {
        return testkit::skip("no systemd-analyze");
    }
    let dir = tempfile::tempdir().unwrap();
    let mut files = Vec::new();
    for (at, command) in commands(20).iter().enumerate() {
        let words: Vec<&str> = command.iter().map(String::as_str).collect();
        // An existing program: the parser looks for it.
        let unit = UnitSpec {
            fdguard: "/bin/true".to_owned(),
            dir: None,
            ..spec(&words)
        };
        let file = dir.path().join(format!("web{at}.service"));
        std::fs::write(&file, unit.write(UnitTarget::Systemd).unwrap()).unwrap();
        files.push(file);
    }
    let output = std::process::Command::new("systemd-analyze")
        .arg("verify")
        .args(&files)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    let about_ours: Vec<&str> = said
        .lines()
        .filter(|line| line.contains("web") && line.contains(".service"))
        .collect();
    assert!(about_ours.is_empty(), "{said}");
    // The checker does complain about a broken unit.
    let broken = dir.path().join("broken.service");
    std::fs::write(
        &broken,
        "[Service]\nExecStart=bin/relative 'open\nNonsense=1\n",
    )
    .unwrap();
    let output = std::process::Command::new("systemd-analyze")
        .arg("verify")
        .arg(&broken)
        .output()
        .unwrap();
    assert!(String::from_utf8_lossy(&output.stderr).contains("broken.service"));
}

fn words_of(node: &UnitNode, target: UnitTarget) -> Vec<String> {
    let text = |node: &UnitNode| node.text().unwrap().to_owned();
    match target {
        UnitTarget::Systemd => super::systemd::split(&text(
            node.get("Service").unwrap().get("ExecStart").unwrap(),
        ))
        .unwrap(),
        UnitTarget::Supervisord => super::supervisord::split(&text(
            node.get("program:web").unwrap().get("command").unwrap(),
        ))
        .unwrap(),
        UnitTarget::Launchd => node
            .get("ProgramArguments")
            .unwrap()
            .list()
            .unwrap()
            .iter()
            .map(text)
            .collect(),
        UnitTarget::Compose => {
            let service = node.get("services").unwrap().get("web").unwrap();
            let words = service
                .get("command")
                .unwrap()
                .list()
                .unwrap()
                .iter()
                .map(text);
            words.map(|word| word.replace("$$", "$")).collect()
        }
    }
}

proptest! {
    #[test]
    fn our_own_readers_give_the_words_back(words in proptest::collection::vec("[ -~\u{a1}-\u{d7ff}\u{1F980}]{0,12}", 1..6)) {
        for target in ALL {
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            let Ok(text) = spec(&words).write(target) else {
                // Only supervisord cannot represent these.
                prop_assert!(target == UnitTarget::Supervisord);
                continue;
            };
            let found = words_of(&read(target, &text).unwrap(), target);
            let at = found.iter().position(|word| word == "--").unwrap();
            prop_assert_eq!(&found[at + 1..], &words[..], "{:?}", target);
        }
    }
}
