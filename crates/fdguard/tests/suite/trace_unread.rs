//! Programs in languages whose lines are not read, and programs that execute others.

use serde_json::Value;
use testkit::{have, skip};

use super::{CommandOutput, fdguard};

/// The diagnosis of a trace of this command.
fn diagnosis(words: &[&str]) -> Value {
    let dir = tempfile::tempdir().unwrap();
    let result = dir.path().join("result");
    let mut command = fdguard();
    command
        .args(["trace", "--error-exitcode", "0", "--json", "-o"])
        .arg(&result)
        .arg("--")
        .args(words);
    let said = CommandOutput::of(command.output().unwrap());
    assert_eq!((said.code, &*said.stderr), (0, ""), "{words:?}");
    let text = std::fs::read_to_string(result).unwrap();
    serde_json::from_str(text.lines().last().unwrap()).unwrap()
}

/// A program of each language that leaves three files open.
const PROGRAMS: &[(&str, &str, &[&str])] = &[
    (
        "Perl",
        "perl",
        &[
            "-e",
            "use POSIX; open($kept[$_], '<', '/etc/passwd') for 0..2; POSIX::_exit(0)",
        ],
    ),
    (
        "Ruby",
        "ruby",
        &[
            "-e",
            "$kept = 3.times.map { File.open('/etc/passwd') }; exit!(0)",
        ],
    ),
    (
        "PHP",
        "php",
        &[
            "-r",
            "for ($i = 0; $i < 3; $i++) $kept[] = fopen('/etc/passwd', 'r');",
        ],
    ),
    (
        "Lua",
        "lua",
        &[
            "-e",
            "kept = {} for i = 1, 3 do kept[i] = io.open('/etc/passwd') end",
        ],
    ),
];

#[test]
fn a_language_that_is_not_read_is_a_gap_and_its_interpreter_is_not_blamed() {
    for (language, program, words) in PROGRAMS {
        if !have(program) {
            skip(&format!("no {program}"));
            continue;
        }
        let words: Vec<&str> = [&[*program], *words].concat();
        let found = diagnosis(&words);
        let gaps = found["gaps"].as_array().unwrap();
        let why = format!("fdguard does not read {language} stacks yet");
        assert!(gaps.iter().any(|gap| gap["why"] == *why), "{found:#}");
        let text = found.to_string();
        for origin in found["findings"].as_array().unwrap() {
            assert!(origin["origin"]["culprit"].is_null(), "{text}");
        }
    }
}

#[test]
fn a_process_has_the_name_of_the_program_that_it_became() {
    let found = diagnosis(&["sh", "-c", "sleep 1; exec sleep 2"]);
    assert_eq!(found["process"]["comm"], "sleep", "{found:#}");
}
