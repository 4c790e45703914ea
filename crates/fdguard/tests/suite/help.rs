//! Help and version.

use super::{CommandOutput, fdguard, run};

/// Most commands, in the order and the groups of the top-level help.
const GROUPS: &[(&str, &[&str])] = &[
    (
        "Find:",
        &["top", "snap", "diff", "watch", "doctor", "explain"],
    ),
    ("Trace and prove:", &["trace", "why", "check", "inspect"]),
    ("Survive:", &["run", "drill"]),
    ("Host:", &["serve", "host"]),
];

fn commands() -> impl Iterator<Item = &'static str> {
    GROUPS
        .iter()
        .flat_map(|(_, commands)| commands.iter().copied())
        .chain(["unit", "fleet", "history", "archive"])
}

/// Help as a terminal of 80 columns shows it.
fn help(args: &[&str]) -> String {
    let output = fdguard().args(args).env("COLUMNS", "80").output().unwrap();
    let said = CommandOutput::of(output);
    assert_eq!((said.code, &*said.stderr), (0, ""), "{args:?}");
    said.text().to_owned()
}

/// The lines that describe an option.
fn options(text: &str) -> Vec<&str> {
    let lines = text.lines().map(str::trim_start);
    let is_option = |line: &&str| line.starts_with('-') && !line.starts_with("- ");
    lines.filter(is_option).collect()
}

#[test]
fn every_command_helps_with_examples() {
    for command in commands() {
        let text = help(&[command, "--help"]);
        assert!(text.contains("Examples:"), "{text}");
        assert!(text.contains(&format!("fdguard {command}")), "{command}");
    }
    let text = help(&["--help"]);
    for word in ["completions", "Exit codes", "--color", "--version"] {
        assert!(text.contains(word), "{word}");
    }
    let version = concat!("fdguard ", env!("CARGO_PKG_VERSION"), "\n");
    assert_eq!(run(["--version"]).text(), version);
    assert_eq!(run(["-V", "--color=never"]).text(), version);
}

#[test]
fn short_help_fits_a_screen_and_points_to_the_rest() {
    for command in commands() {
        let text = help(&[command, "-h"]);
        assert!(text.lines().count() <= 24, "{text}");
        assert!(options(&text).len() <= 5, "{text}");
        let pointer = format!("Run `fdguard {command} --help` for all options and examples.");
        assert_eq!(text.lines().last(), Some(&*pointer), "{text}");
        let long = help(&[command, "--help"]);
        assert!(options(&long).len() >= options(&text).len(), "{long}");
        for option in options(&text) {
            let flag = option
                .split_whitespace()
                .find(|word| word.starts_with("--"));
            assert!(long.contains(flag.unwrap()), "{option} is only in -h");
        }
    }
    let text = help(&["-h"]);
    assert!(text.lines().count() <= 24, "{text}");
    assert!(text.contains("--help"), "{text}");
}

#[test]
fn the_top_level_lists_commands_in_groups() {
    for flag in ["-h", "--help"] {
        let text = help(&[flag]);
        let mut lines = text.lines();
        for (heading, commands) in GROUPS {
            assert!(lines.any(|line| line == *heading), "{heading} in {text}");
            for command in *commands {
                let line = lines.next().unwrap();
                assert_eq!(line.split_whitespace().next(), Some(*command), "{text}");
            }
        }
    }
}

#[test]
fn global_options_come_last() {
    for command in commands() {
        let text = help(&[command, "--help"]);
        let (own, global) = text.split_once("\nGlobal options:\n").expect(command);
        for flag in ["--color", "-h, --help"] {
            assert!(global.contains(flag), "{command}: {flag}");
            let is_listed = options(own).iter().any(|line| line.starts_with(flag));
            assert!(!is_listed, "{command}: {flag}");
        }
        let (global, _) = global.split_once("\nExamples:\n").expect(command);
        assert_eq!(options(global).len(), 2, "{command}: {global}");
        assert!(!help(&[command, "-h"]).contains("--color"), "{command}");
    }
    let text = help(&["--help"]);
    assert!(text.find("Global options:") > text.find("Other:"), "{text}");
}
