//! `fdguard why` of programs whose language keeps no record: C and Rust have the line that used a
//! descriptor last, Go the owner.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::Value;
use testkit::{compiled, go_toolchains, have, is_root, skip};

use super::run;
use super::why::started;

const C: &str = "c/last_use.c";
const RUST: &str = "rust/last_use.rs";

fn program(source: &str) -> Option<PathBuf> {
    let compiler = if source == C { "cc" } else { "rustc" };
    if !have(compiler) {
        skip(&format!("needs {compiler}"));
        return None;
    }
    match source {
        C => compiled("cc", C, "last_use", &["-g", "-O1"]),
        rust => {
            let flags = ["--edition=2021", "-Copt-level=1", "-g"];
            compiled("rustc", rust, "last-use-rust", &flags)
        }
    }
}

/// The line with this mark.
fn line_of(source: &str, mark: &str) -> u64 {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../testkit")
        .join(source);
    let text = std::fs::read_to_string(path).unwrap();
    let at = text.lines().position(|line| line.ends_with(mark)).unwrap();
    u64::try_from(at).unwrap() + 1
}

fn ends_by_itself(mut child: Child) {
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
}

fn last_uses(sites: &Value, source: &str) -> Vec<(u64, u64)> {
    let (_, name) = source.split_once('/').unwrap();
    let uses = sites.as_array().unwrap().iter().filter_map(|site| {
        let used = &site["why"]["last_use"];
        let file = used["file"].as_str()?;
        assert!(file.ends_with(name), "{used}");
        Some((used["line"].as_u64()?, used["count"].as_u64()?))
    });
    uses.collect()
}

#[test]
fn w22_the_line_that_used_a_descriptor_of_c_or_rust_last_is_named() {
    if !is_root() {
        return skip("needs root");
    }
    for source in [C, RUST] {
        the_last_use_is_named(source);
    }
}

fn the_last_use_is_named(source: &str) {
    let Some(program) = program(source) else {
        return;
    };
    let (child, _) = started(&mut Command::new(&program));
    let output = run(["why", &child.id().to_string(), "--json"]);
    assert_eq!(output.code, 0, "{}", output.stderr);
    let document: Value = serde_json::from_str(output.text()).unwrap();
    let sites = &document["processes"][0]["sites"];
    // All were opened before; of 24 ends 12 were last written to, and 12 read.
    let lines = ["// LAST WRITE", "// LAST READ"].map(|mark| line_of(source, mark));
    let uses = last_uses(sites, source);
    assert!(!uses.is_empty(), "{document:#}");
    assert!(
        uses.iter()
            .all(|(line, count)| lines.contains(line) && *count == 12),
        "{uses:?} {document:#}"
    );
    let text = sites[0]["why"]["chains"][0]["text"].as_str().unwrap();
    assert!(text.starts_with("not available: "), "{text}");
    assert!(text.contains("12 were last used at "), "{text}");
    ends_by_itself(child);
}

#[test]
fn w22_a_launched_program_has_the_last_use_only_if_it_is_asked_for() {
    let Some(program) = program(C) else { return };
    for is_asked in [true, false] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_fdguard"));
        command.args(["trace", "--json", "--for", "3s"]);
        if is_asked {
            command.arg("--why");
        }
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("out.json");
        // Its input stays open, so that it goes on.
        let mut child = command
            .arg("-o")
            .args([&file, Path::new("--"), &program])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let input = child.stdin.take();
        child.wait().unwrap();
        drop(input);
        let document: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
        let sites = &document["why"][0]["sites"];
        match is_asked {
            true => {
                let uses = last_uses(sites, C);
                assert!(uses.iter().any(|(_, count)| *count == 12), "{sites:#}");
            }
            false => assert_eq!(document.get("why"), None),
        }
    }
}

const GO: &str = r#"package main

import (
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
)

var kept []net.Conn
var files []*os.File

func main() {
	server, _ := net.Listen("tcp", "127.0.0.1:0")
	for i := 0; i < 6; i++ {
		one, _ := net.Dial("tcp", server.Addr().String())
		other, _ := server.Accept()
		kept = append(kept, one, other)
	}
	read, write, _ := os.Pipe()
	files = append(files, read, write)
	number, _ := syscall.Open("/dev/null", 0, 0)
	fmt.Println("READY", number)
	io.ReadAll(os.Stdin)
	fmt.Fprintln(io.Discard, len(kept), len(files))
}
"#;

#[test]
fn w22_the_owner_of_a_descriptor_of_go_is_found_or_not() {
    if !is_root() {
        return skip("needs root");
    }
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("main.go");
    std::fs::write(&source, GO).unwrap();
    for toolchain in go_toolchains() {
        let program = dir.path().join(format!("go-{}", toolchain.version));
        if !toolchain.compile(&source, &program, &[], false) {
            skip("Go cannot compile here");
            continue;
        }
        let (child, number) = started(&mut Command::new(&program));
        let output = run(["why", &child.id().to_string(), "--json", "--wait", "100ms"]);
        assert_eq!(output.code, 0, "{}", output.stderr);
        let document: Value = serde_json::from_str(output.text()).unwrap();
        let mut counts = [0, 0];
        for site in document["processes"][0]["sites"].as_array().unwrap() {
            for chain in site["why"]["chains"].as_array().unwrap() {
                assert_eq!(chain["basis"], "no_holder_found");
                let count = chain["count"].as_u64().unwrap();
                match chain["owner"].as_str() {
                    Some("net.netFD") => counts[0] += count,
                    Some("os.File") => counts[1] += count,
                    _ => {
                        let fds = chain["fds"].as_array().unwrap();
                        let is_net = fds.iter().any(|fd| fd.as_u64() == number.parse().ok());
                        assert!(is_net || !site["what"].as_str().unwrap().contains("socket"));
                    }
                }
            }
        }
        assert_eq!(counts, [13, 2], "{document:#}");
        ends_by_itself(child);
    }
}
