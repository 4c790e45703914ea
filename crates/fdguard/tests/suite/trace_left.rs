//! What a trace leaves behind if a child outlives the program, and that the next trace removes it.

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;
use std::process::Stdio;

use super::fdguard;

fn trace_something() {
    let status = fdguard()
        .args(["trace", "-o", "/dev/null", "--", "true"])
        .status();
    assert!(status.unwrap().success());
}

#[test]
fn a_dir_stays_as_long_as_a_child_lives_and_the_next_trace_removes_it() {
    // The child holds the test's stderr pipe, and ends with its input.
    let script = "echo $FDGUARD_TRACE_DIR; exec 3<&0; cat <&3 2>&1 >/dev/null & exit 0";
    let mut traced = fdguard()
        .args(["trace", "-o", "/dev/null", "--", "sh", "-c", script])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let (input, output) = (traced.stdin.take(), traced.stdout.take());
    let mut output = BufReader::new(output.unwrap());
    let mut dir = String::new();
    output.read_line(&mut dir).unwrap();
    let dir = Path::new(dir.trim_end());
    assert!(traced.wait().unwrap().success());
    assert!(dir.exists());
    trace_something();
    assert!(dir.join("libfdguard_preload.so").exists());
    drop(input);
    assert_eq!(output.read_to_end(&mut Vec::new()).unwrap(), 0);
    trace_something();
    assert!(!dir.exists());
}
