//! Tests of the shipped alert rules: they parse and use only exported metrics.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Command;

use super::{families, tests};

fn path() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/examples/fdguard.rules.yml")
}

/// Words of the expressions that are names of metrics.
fn asked() -> BTreeSet<String> {
    let text = std::fs::read_to_string(path()).unwrap();
    let mut words = BTreeSet::new();
    let mut within = false;
    for line in text.lines() {
        let trimmed = line.trim();
        within = match trimmed.split_once(": ") {
            Some(("expr", _)) => true,
            _ => within && !trimmed.ends_with(':') && !trimmed.starts_with("for:"),
        };
        if within {
            let parts = trimmed.split(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != ':');
            let ours = |word: &&str| word.starts_with("fdguard_") || word.starts_with("node_");
            words.extend(parts.filter(ours).map(str::to_owned));
        }
    }
    words
}

#[test]
fn rules_ask_only_for_metrics_that_there_are() {
    let mut state = tests::state();
    state.host.maximum = Some(100_000);
    let text = families::write(&state);
    let asked = asked();
    assert!(asked.len() >= 10, "{asked:?}");
    for name in asked {
        assert!(text.contains(&format!("# TYPE {name} ")), "{name}");
    }
}

#[test]
fn rules_are_yaml_of_the_right_shape() {
    let script = "import sys, yaml\n\
        groups = yaml.safe_load(open(sys.argv[1]))['groups']\n\
        rules = [rule for group in groups for rule in group['rules']]\n\
        assert len(rules) > 8, len(rules)\n\
        for rule in rules:\n\
        \x20   assert ('alert' in rule) != ('record' in rule), rule\n\
        \x20   assert isinstance(rule['expr'], str), rule\n\
        \x20   assert set(rule) <= {'alert', 'record', 'expr', 'for', 'labels', 'annotations'}, rule\n\
        \x20   assert 'record' in rule or rule['annotations']['summary'], rule\n";
    let Some(python) = testkit::software("venv/bin/python") else {
        return;
    };
    let output = Command::new(python)
        .args(["-c", script])
        .arg(path())
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

#[test]
fn promtool_accepts_the_rules() {
    if !testkit::have("promtool") {
        testkit::skip("no promtool: the expressions were not parsed");
        return;
    }
    let output = Command::new("promtool")
        .args(["check", "rules"])
        .arg(path())
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}
