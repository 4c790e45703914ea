//! Go programs under `fdguard trace`: what cannot be traced is reported with its true reason.

use std::fs;
use std::path::PathBuf;

use serde_json::Value;
use tempfile::TempDir;
use testkit::{have, skip};

use super::tracing::Tracing;
use super::{CommandOutput, fdguard, run};

const OPENER: &str = r#"package main

import (
	"fmt"
	"os"
	"time"
)

var kept []*os.File

func main() {
	for i := 0; i < 20; i++ {
		file, _ := os.Open(os.DevNull)
		kept = append(kept, file)
	}
	time.Sleep(time.Second)
	fmt.Println("held", len(kept))
}
"#;

/// The same with a part in C, which makes it load the C library.
const MIXED: &str = r#"package main

/*
#include <fcntl.h>
static int c_part(void) { return open("/dev/null", O_RDONLY); }
*/
import "C"

import (
	"fmt"
	"os"
	"time"
)

var kept []*os.File

func main() {
	for i := 0; i < 20; i++ {
		file, _ := os.Open(os.DevNull)
		kept = append(kept, file)
	}
	for i := 0; i < 4; i++ {
		C.c_part()
	}
	time.Sleep(time.Second)
	fmt.Println("held", len(kept))
}
"#;

fn build(source: &str, has_c: bool) -> Option<(TempDir, PathBuf)> {
    let go = testkit::go_toolchains().pop()?;
    let dir = tempfile::tempdir().unwrap();
    let (file, program) = (dir.path().join("main.go"), dir.path().join("opener"));
    fs::write(&file, source).unwrap();
    assert!(go.compile(&file, &program, &[], has_c));
    Some((dir, program))
}

fn trace(words: &[&str]) -> Value {
    let mut command = fdguard();
    command.args(["trace", "--json", "--every", "50ms"]);
    // What the library says about them; tests of the kernel's source are elsewhere.
    command.args(["--source", "launch", "--"]);
    let said = CommandOutput::of(command.args(words).output().unwrap());
    let (first, rest) = said.text().split_once('\n').unwrap();
    assert_eq!(first, "held 20", "{}", said.stderr);
    serde_json::from_str(rest).unwrap()
}

fn why(found: &Value) -> Vec<&str> {
    let gaps = found["gaps"].as_array().unwrap().iter();
    gaps.map(|gap| gap["why"].as_str().unwrap()).collect()
}

const REASON: &str = "Go programs make system calls without libc, which tracing interposes";

#[test]
fn r40_a_go_program_is_a_gap_with_its_reason_and_no_wrong_line() {
    let Some((_dir, program)) = build(OPENER, false) else {
        return;
    };
    let found = trace(&[program.to_str().unwrap()]);
    assert!(why(&found).contains(&REASON), "{found}");
    assert!(!found["gaps"].to_string().contains("statically linked"));
    assert_eq!(found["coverage"]["attributed_fds"], 0);
}

#[test]
fn r40_a_report_of_a_go_program_says_why_there_is_none() {
    let Some((_dir, program)) = build(&OPENER.replace("time.Second", "time.Hour"), false) else {
        return;
    };
    let tracing = Tracing::start(&["--source", "launch"], &[program.to_str().unwrap()]);
    let said = loop {
        // The tracer is there at once, its program a moment later.
        let said = run(["trace", "--report", &tracing.pid().to_string()]);
        assert_eq!(said.code, 3);
        if said.stderr.contains(REASON) {
            break said;
        }
    };
    assert_eq!(said.stderr.lines().count(), 2, "{}", said.stderr);
    tracing.signal(rustix::process::Signal::TERM);
    tracing.end();
}

#[test]
fn r40_a_go_program_that_a_shell_became_or_started_is_told_too() {
    let Some((_dir, program)) = build(OPENER, false) else {
        return;
    };
    let program = program.to_str().unwrap();
    for script in ["exec \"$0\"", "\"$0\"; exit $?"] {
        let found = trace(&["sh", "-c", script, program]);
        assert!(why(&found).contains(&REASON), "{script}: {found}");
    }
}

#[test]
fn r40_of_a_mixed_program_the_c_part_is_seen_and_the_rest_is_told() {
    if !have("gcc") {
        return skip("needs gcc");
    }
    let Some((_dir, program)) = build(MIXED, true) else {
        return;
    };
    let found = trace(&[program.to_str().unwrap()]);
    let gaps = found["gaps"].as_array().unwrap();
    let gap = gaps.iter().find(|gap| gap["why"] == REASON);
    let gap = gap.unwrap_or_else(|| panic!("{found}"));
    let what = gap["what"].as_str().unwrap();
    let count: u32 = what
        .split(' ')
        .find_map(|word| word.parse().ok())
        .unwrap_or_else(|| panic!("{what}"));
    assert!(count >= 20, "{what}");
    assert!(!found["gaps"].to_string().contains("inside the C library"));
    assert_eq!(found["coverage"]["attributed_fds"], 4, "{found}");
}
