//! The files of `packaging/` that start `fdguard serve`: each option is one that it has, and no
//! privilege is more than it needs.

use std::path::PathBuf;
use std::process::Command;

use clap::Parser as _;
use fdguard::cli::Cli;

fn packaging(path: &str) -> PathBuf {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    root.join("../../packaging").join(path)
}

/// The command line must be one that fdguard accepts.
fn assert_accepted(words: &[&str]) {
    assert!(words.contains(&"serve"), "{words:?}");
    if let Err(error) = Cli::try_parse_from(words) {
        panic!("{words:?}: {error}");
    }
    // And one that is not must be noticed.
    let wrong = [words, &["--no-such-option"]].concat();
    assert!(Cli::try_parse_from(wrong).is_err());
}

#[test]
fn the_systemd_unit_has_options_that_exist_and_four_capabilities() {
    let unit = std::fs::read_to_string(packaging("debian/fdguard-serve.service")).unwrap();
    let value = |key: &str| {
        let mut lines = unit.lines().filter_map(|line| line.strip_prefix(key));
        let value = lines.next().unwrap_or_else(|| panic!("no {key}"));
        assert_eq!(lines.next(), None, "{key} twice");
        value
    };
    assert_accepted(&value("ExecStart=").split_whitespace().collect::<Vec<_>>());
    let capabilities: Vec<&str> = value("CapabilityBoundingSet=").split(' ').collect();
    assert_eq!(
        capabilities,
        [
            "CAP_SYS_PTRACE",
            "CAP_DAC_READ_SEARCH",
            "CAP_BPF",
            "CAP_PERFMON"
        ]
    );
    assert_eq!(value("NoNewPrivileges="), "true");
    assert_eq!(value("ProtectSystem="), "strict");
    assert!(!unit.contains("AmbientCapabilities="));
}

/// The command of each file, one word on each line, after a line with its name. Kubernetes puts
/// values for variables.
const COMMANDS: &str = r"
import re, sys, yaml
pod = yaml.safe_load(open(sys.argv[1]))
compose = yaml.safe_load(open(sys.argv[2]))
[container] = pod['spec']['template']['spec']['containers']
[service] = compose['services'].values()
values = {'$(POD_IP)': '10.0.0.7', '$(NODE_NAME)': 'node-7'}
for words in (container['command'], service['command']):
    print('\x1f'.join(values.get(word, word) for word in words))
";

#[test]
fn the_daemon_set_and_the_compose_file_have_options_that_exist() {
    let Some(python) = testkit::software("venv/bin/python") else {
        return;
    };
    let output = Command::new(python)
        .args(["-c", COMMANDS])
        .arg(packaging("kubernetes/fdguard-serve.yaml"))
        .arg(packaging("compose/fdguard-serve.yml"))
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let commands: Vec<Vec<&str>> = text
        .lines()
        .map(|line| line.split('\u{1f}').collect())
        .collect();
    assert_eq!(
        commands.len(),
        2,
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    for words in &commands {
        assert_accepted(words);
    }
}
