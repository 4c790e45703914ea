//! Watching real processes: what is reported, in which format.

use serde_json::{Value, json};
use testkit::Victim;

use super::diagnosis::assert_sample;
use super::run;
use super::watching::{Watching, diagnosis, value};

const KEYS: [&str; 10] = [
    "pid",
    "comm",
    "count",
    "highest",
    "soft",
    "percent",
    "growing",
    "verdict",
    "wall",
    "eta_seconds",
];

/// The keys of a line, in their order.
fn keys(line: &str) -> Vec<&str> {
    let rest = line.strip_prefix("fd_state ").unwrap_or_default();
    let pairs = rest.split(' ').map(|pair| pair.split_once('=').unwrap());
    pairs
        .map(|(key, value)| {
            assert!(!value.is_empty(), "{key} in {line}");
            key
        })
        .collect()
}

#[test]
fn r13_a_leak_is_told_with_class_rate_and_walls() {
    let mut victim = Victim::of("leaker").nofile(4000).start();
    let mut watching = Watching::over(&victim, &["--json", "--samples"]);
    watching.leak(&mut victim, "2 file", 120);
    let said = watching.stop();
    assert_eq!((said.code, &*said.stderr), (1, ""));
    let document = diagnosis(&said);
    assert_eq!(document["verdict"], "leaking", "{document}");
    assert_eq!(document["ended"], "interrupted");
    assert_eq!(document["process"]["pid"], victim.pid());
    assert_eq!(
        (&document["baseline"], &document["final"]),
        (&json!(3), &json!(243))
    );
    let finding = &document["findings"][0];
    assert_eq!(finding["rule"], "leak", "{document}");
    assert_eq!(finding["class"], "regular");
    assert_eq!(finding["pid"], victim.pid());
    let target = finding["target"].as_str().unwrap();
    assert!(target.ends_with("/leaked-*.log"), "{target}");
    assert!(finding["rate_per_min"].as_f64().unwrap() > 0.0);
    let walls = finding["walls"].as_array().unwrap();
    assert!(
        walls.iter().any(|wall| wall["name"] == "soft-limit"),
        "{walls:?}"
    );
    victim.finish();
}

#[test]
fn r13_a_quiet_process_is_stable_and_exit_0() {
    let mut victim = Victim::start("leaker");
    victim.tell("20");
    let mut watching = Watching::over(&victim, &["--json", "--samples"]);
    watching.idle(100);
    let said = watching.stop();
    assert_eq!((said.code, &*said.stderr), (0, ""));
    let document = diagnosis(&said);
    assert_eq!(document["verdict"], "stable");
    assert_eq!(document["findings"], json!([]));
    assert_eq!(document["gaps"], json!([]));
    assert_eq!(document["coverage"]["live_fds"], 23);
    victim.finish();
}

#[test]
fn r11_samples_come_before_the_diagnosis_which_is_the_last_line() {
    let mut victim = Victim::start("leaker");
    let mut watching = Watching::over(&victim, &["--json", "--samples"]);
    watching.line();
    victim.tell("5");
    watching.wait_for("\"count\":8");
    let said = watching.stop();
    let lines: Vec<Value> = said
        .text()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let (last, samples) = lines.split_last().unwrap();
    assert_eq!(last["schema"], "fdguard.diagnosis/1");
    assert_eq!(last["samples"], samples.len(), "each look is a line");
    samples.iter().for_each(assert_sample);
    let times: Vec<f64> = samples
        .iter()
        .filter_map(|one| one["at"].as_f64())
        .collect();
    assert!(times.is_sorted(), "{times:?}");
    assert_eq!(samples[0]["opened"], 3, "the first look finds everything");
    let opened: u64 = samples[1..]
        .iter()
        .filter_map(|one| one["opened"].as_u64())
        .sum();
    assert_eq!(opened, 5);
    victim.finish();
}

#[test]
fn without_samples_json_is_one_line() {
    let victim = Victim::start("leaker");
    let said = Watching::over(&victim, &["--json", "--for", "100ms"]).end();
    assert_eq!(said.json()["ended"], "time-up");
    diagnosis(&said);
    victim.finish();
}

#[test]
fn r60_the_line_of_a_look_has_these_keys_in_this_order() {
    let mut victim = Victim::of("leaker").nofile(1000).start();
    victim.tell("97 socket");
    let mut watching = Watching::over(&victim, &["--plain"]);
    let line = watching.line();
    assert_eq!(keys(&line), KEYS, "{line}");
    let expected = format!(
        "fd_state pid={} comm=leaker count=100 highest=99 soft=1000 percent=10.0 growing=none verdict=",
        victim.pid()
    );
    assert!(line.starts_with(&expected), "{line}");
    assert_eq!(
        (value(&line, "wall"), value(&line, "eta_seconds")),
        ("none", "none")
    );
    // On a busy machine lines come late, and few looks see what was opened meanwhile.
    let mut last = line;
    while value(&last, "verdict") != "leaking" {
        victim.tell("1 socket");
        last = watching.line();
        assert_eq!(keys(&last), KEYS, "{last}");
    }
    assert_eq!(value(&last, "growing"), "tcp:UNBOUND", "{last}");
    assert_eq!(value(&last, "wall"), "soft-limit", "{last}");
    let eta: u64 = value(&last, "eta_seconds").parse().unwrap();
    assert!(eta < 3600, "{last}");
    assert_eq!(watching.stop().code, 1);
    victim.finish();
}

#[test]
fn r60_lines_of_other_systems_are_spoken_too() {
    let mut victim = Victim::of("leaker").nofile(1000).start();
    victim.tell("7");
    for (form, expected) in [
        (
            "inxeption",
            "FD_STATE[watch]: count=10, range=0-9, limit=1000",
        ),
        ("resource-monitor", "Resource monitor: open_fds=10"),
    ] {
        let mut watching = Watching::over(&victim, &["--plain", "--format", form]);
        assert_eq!(watching.line(), expected);
        watching.stop();
    }
    victim.finish();
}

#[test]
fn r12_levels_and_expectations_are_findings() {
    let mut victim = Victim::of("leaker").nofile(1000).start();
    victim.tell("150");
    let rules = |args: &[&str]| {
        // Long enough for several looks on a busy machine: a single one is no answer.
        let args: Vec<&str> = ["--json", "--for", "500ms"]
            .iter()
            .chain(args)
            .copied()
            .collect();
        let said = Watching::over(&victim, &args).end();
        let document = diagnosis(&said);
        let findings = document["findings"].as_array().unwrap();
        let rules: Vec<String> = findings
            .iter()
            .map(|one| format!("{} {}", one["rule"], one["severity"]).replace('"', ""))
            .collect();
        (said.code, rules.join(", "))
    };
    assert_eq!(rules(&[]), (0, String::new()));
    let (code, found) = rules(&["--expect", "sessions=25*3"]);
    assert_eq!(code, 1);
    assert!(found.contains("expected-budget"), "{found}");
    assert_eq!(rules(&["--expect", "sessions=26*3"]).0, 0, "153 of 156");
    let (code, found) = rules(&["--max", "152"]);
    assert_eq!(code, 1, "{found}");
    let (code, found) = rules(&["--warn-at", "15"]);
    assert_eq!(code, 1);
    assert!(found.contains("warning"), "{found}");
    let (code, found) = rules(&["--warn-at", "10", "--critical-at", "15"]);
    assert_eq!(code, 1);
    assert!(found.contains("critical"), "{found}");
    victim.finish();
}

#[test]
fn r15_what_the_ledger_clears_is_shown_and_does_not_count() {
    let dir = tempfile::tempdir().unwrap();
    let ledger = dir.path().join("mine.toml");
    let text =
        "[[cleared]]\nclass = 'eventfd'\nowner = 'leaker'\nreason = 'a test'\ndate = 2026-01-01\n";
    std::fs::write(&ledger, text).unwrap();
    let mut victim = Victim::start("leaker");
    let config = ledger.to_str().unwrap();
    let mut watching = Watching::over(&victim, &["--plain", "--config", config]);
    watching.leak(&mut victim, "1", 120);
    let said = watching.stop();
    assert_eq!(said.code, 0, "{}", said.text());
    assert!(
        said.text().contains("cleared on 2026-01-01: a test"),
        "{}",
        said.text()
    );
    victim.finish();
}

#[test]
fn r60_several_processes_have_a_line_each_and_the_worst_verdict_counts() {
    let (quiet, mut leaking) = (Victim::start("leaker"), Victim::start("leaker"));
    let pids = [&quiet, &leaking].map(|victim| victim.pid().to_string());
    let mut watching = Watching::start([&*pids[0], &pids[1], "--json", "--samples"]);
    for look in 0..240 {
        let line = watching.line();
        assert!(line.contains(&pids[look % 2]), "in turn: {line}");
        if look % 2 == 1 {
            leaking.tell("1 pipe");
        }
    }
    let said = watching.stop();
    assert_eq!(said.code, 1);
    let document = diagnosis(&said);
    assert_eq!(document["process"]["pid"], quiet.pid(), "the first named");
    let verdicts: Vec<&Value> = document["processes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| &one["verdict"])
        .collect();
    assert_eq!(verdicts, ["stable", "leaking"]);
    assert_eq!(document["verdict"], "leaking");
    assert_eq!(document["findings"][0]["pid"], leaking.pid());
    quiet.finish();
    leaking.finish();
}

#[test]
fn a_process_named_twice_is_watched_once() {
    let victim = Victim::start("leaker");
    let pid = victim.pid().to_string();
    let said = Watching::over(&victim, &["-p", &pid, "--json", "--for", "50ms"]).end();
    let document = diagnosis(&said);
    assert_eq!(document["processes"].as_array().unwrap().len(), 1);
    victim.finish();
}

#[test]
fn the_rules_that_a_watch_lists_are_those_of_a_watch() {
    let said = run(["watch", "--list-rules"]);
    assert_eq!((said.code, &*said.stderr), (0, ""));
    let document = run(["watch", "--list-rules", "--json"]).good_json();
    assert_eq!(document["schema"], "fdguard.rules/1");
    let rules = document["rules"].as_array().unwrap();
    assert_eq!(rules.len(), said.text().lines().count());
    for rule in ["leak", "growth", "expected-budget", "select-cliff"] {
        assert!(rules.iter().any(|one| one["id"] == rule), "{rule}");
    }
    assert!(rules.iter().all(|one| one["id"] != "dead-pidfd"));
}
