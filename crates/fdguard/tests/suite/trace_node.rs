//! The lines of JavaScript that `fdguard trace` names: those that asked, whoever opened for them.

use std::fs;

use testkit::{have, skip};

use super::fdguard;

/// A program does not end by itself: Node would close some of it before.
const END: &str = "setInterval(() => {}, 1000);\n";

/// Runs a program; gives what was still open, a line a site, with marks (`// ASK name`) in place of lines.
fn still_open(name: &str, program: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    let (file, result) = (folder.path().join(name), folder.path().join("result"));
    let program = format!("{program}{END}");
    fs::write(&file, &program).unwrap();
    let status = fdguard()
        .args(["trace", "--for", "2s", "--every", "100ms"])
        .args(["--error-exitcode", "0", "-o"])
        .arg(&result)
        .args(["--", "node"])
        .arg(&file)
        .current_dir(folder.path())
        .env_remove("NODE_OPTIONS")
        .status()
        .unwrap();
    assert!(status.success(), "{status}");
    let said = fs::read_to_string(&result).unwrap();
    let sites = said.lines().filter(|line| line.contains(" live of "));
    let mut sites: String = sites.flat_map(|line| [line, "\n"]).collect();
    for (at, line) in program.lines().enumerate() {
        if let Some((_, mark)) = line.split_once("// ASK ") {
            sites = sites.replace(&format!("{name}:{} ", at + 1), &format!("ASK {mark} "));
        }
    }
    sites
}

#[track_caller]
fn has(sites: &str, mark: &str, live: usize) {
    let mark = format!("ASK {mark} ");
    let site = sites.lines().find(|line| line.contains(&mark));
    let is_right =
        site.is_some_and(|line| format!(" {line}").contains(&format!(" {live} live of ")));
    assert!(is_right, "{live} at {mark}in\n{sites}");
}

#[test]
fn r18_files_are_named_by_the_javascript_that_asked() {
    if !have("node") {
        return skip("needs node");
    }
    let sites = still_open(
        "files.cjs",
        r"const fs = require('fs');
const keep = (globalThis.keep = []);
for (let i = 0; i < 3; i++) {
  fs.openSync(__filename); // ASK openSync
  fs.open(__filename, () => {}); // ASK open
  keep.push(fs.createReadStream('/dev/zero')); // ASK stream
  keep.push(new fs.ReadStream('/dev/zero')); // ASK class
  keep.push(fs.opendirSync('/')); // ASK opendirSync
  fs.opendir('/', (error, folder) => keep.push(folder)); // ASK opendir
  keep.push(fs.watch('/', () => {})); // ASK watch
  fs.closeSync(fs.openSync(__filename)); // ASK closed
}
(async () => {
  for (let i = 0; i < 3; i++) {
    keep.push(await fs.promises.open(__filename)); // ASK promised
  }
})();
",
    );
    for mark in ["openSync", "open", "stream", "opendirSync", "opendir"] {
        has(&sites, mark, 3);
    }
    has(&sites, "promised", 3);
    has(&sites, "class", 3);
    has(&sites, "watch", 1);
    assert!(!sites.contains("ASK closed"), "{sites}");
}

#[test]
fn r18_sockets_are_named_by_the_javascript_that_asked() {
    if !have("node") {
        return skip("needs node");
    }
    let sites = still_open(
        "sockets.cjs",
        r"const net = require('net');
const http = require('http');
const dgram = require('dgram');
const keep = (globalThis.keep = []);
const server = net.createServer((socket) => keep.push(socket));
const connect = () => {
  const { port } = server.address();
  for (let i = 0; i < 3; i++) {
    keep.push(net.connect(port, '127.0.0.1')); // ASK address
    keep.push(net.connect(port, 'localhost')); // ASK name
    keep.push(http.get({ port, host: 'localhost', agent: false })); // ASK http
  }
};
server.listen(0, '127.0.0.1', connect); // ASK listen
for (let i = 0; i < 3; i++) {
  const socket = dgram.createSocket('udp4'); // ASK datagrams
  socket.bind(0);
  keep.push(socket);
}
",
    );
    for mark in ["address", "name", "http", "datagrams"] {
        has(&sites, mark, 3);
    }
    // Its own and what it accepted.
    has(&sites, "listen", 10);
}

#[test]
fn r18_children_are_named_by_the_javascript_that_asked() {
    if !have("node") {
        return skip("needs node");
    }
    let sites = still_open(
        "children.cjs",
        r"const { spawn } = require('child_process');
for (let i = 0; i < 3; i++) {
  spawn('sleep', ['4']); // ASK spawn
}
",
    );
    has(&sites, "spawn", 9);
}

#[test]
fn r18_modules_and_workers_name_their_javascript_too() {
    if !have("node") {
        return skip("needs node");
    }
    let sites = still_open(
        "module.mjs",
        r"import { openSync } from 'node:fs';
import { Worker, isMainThread } from 'node:worker_threads';
if (isMainThread) {
  for (let i = 0; i < 3; i++) openSync('/etc/passwd'); // ASK main
  new Worker(new URL(import.meta.url)); // ASK worker
} else {
  for (let i = 0; i < 4; i++) openSync('/etc/passwd'); // ASK within
}
",
    );
    has(&sites, "main", 3);
    has(&sites, "within", 4);
    assert!(sites.contains("ASK worker "), "{sites}");
}

#[test]
fn r18_a_node_program_does_not_notice() {
    if !have("node") {
        return skip("needs node");
    }
    let program = r"const fs = require('fs');
fs.openSync('/etc/passwd');
require('net').createServer().listen(0, function () { this.close(); });
const seen = [Error.stackTraceLimit, Object.keys(Error), fs.open.name, fs.open.length, process.noDeprecation];
console.log(JSON.stringify(seen), fs.readdirSync('/proc/self/fd').length, new Error('x').stack.split('\n').length);
";
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("quiet.cjs");
    fs::write(&file, program).unwrap();
    for flag in [
        "--no-warnings",
        "--throw-deprecation",
        "--experimental-permission",
    ] {
        let flags: &[&str] = match flag {
            "--throw-deprecation" => &["--pending-deprecation", flag],
            "--experimental-permission" => &["--no-warnings", flag, "--allow-fs-read=*"],
            _ => &[flag],
        };
        let alone = std::process::Command::new("node")
            .args(flags)
            .arg(&file)
            .env_remove("NODE_OPTIONS")
            .output()
            .unwrap();
        let traced = fdguard()
            .args([
                "trace",
                "--error-exitcode",
                "0",
                "-o",
                "/dev/null",
                "--",
                "node",
            ])
            .args(flags)
            .arg(&file)
            .env_remove("NODE_OPTIONS")
            .output()
            .unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert_eq!(text(&traced.stdout), text(&alone.stdout), "{flag}");
        assert_eq!(text(&traced.stderr), text(&alone.stderr), "{flag}");
        assert_eq!(traced.status.code(), alone.status.code(), "{flag}");
    }
}
