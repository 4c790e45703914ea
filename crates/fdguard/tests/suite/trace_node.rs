//! The JavaScript lines that `fdguard trace` names: those that requested the open, whichever thread
//! performed it. Runs with every supported version of Node that is installed.

use std::fs;
use std::path::Path;
use std::process::Command;

use testkit::{TestRuntime, runtimes};

use super::fdguard;

fn nodes() -> Vec<TestRuntime> {
    runtimes("node", &[18, 20, 22])
}

/// Runs a program that does not end by itself: Node would close some descriptors before. Returns
/// what was still open, a line per site.
fn still_open(node: &TestRuntime, dir: &Path, name: &str) -> String {
    let result = dir.join("result");
    let said = fdguard()
        .args(["trace", "--for", "2500ms", "--every", "100ms"])
        .args(["--error-exitcode", "0", "-o"])
        .arg(&result)
        .arg("--")
        .arg(&node.path)
        .arg(dir.join(name))
        .current_dir(dir)
        .env_remove("NODE_OPTIONS")
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&said.stderr);
    assert!(said.status.success(), "Node {}: {stderr}", node.version);
    assert_eq!(stderr, "", "Node {}", node.version);
    let said = fs::read_to_string(&result).unwrap();
    let sites = said.lines().filter(|line| line.contains(" live of "));
    sites.flat_map(|line| [line, "\n"]).collect()
}

/// How many descriptors all sites of this line have open.
fn live(sites: &str, name: &str, line: usize) -> u32 {
    let place = format!(": {name}:{line} ");
    let of_line = sites.lines().filter(|site| site.contains(&place));
    let counts = of_line.map(|site| {
        let count = site.split(" live of ").next().unwrap();
        count.rsplit(' ').next().unwrap().parse::<u32>().unwrap()
    });
    counts.sum()
}

/// Each mark (`// ASK what count`, or `count+` for a minimum) must be a site with that count.
fn names_every_mark(name: &str, program: &str) {
    for node in nodes() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join(name), program).unwrap();
        let sites = still_open(&node, dir.path(), name);
        let mut marks = 0;
        for (at, line) in program.lines().enumerate() {
            let Some((_, mark)) = line.split_once("// ASK ") else {
                continue;
            };
            let count = mark.rsplit(' ').next().unwrap();
            let wanted: u32 = count.trim_end_matches('+').parse().unwrap();
            let found = live(&sites, name, at + 1);
            let is_right = found == wanted || (found > wanted && count.ends_with('+'));
            assert!(
                is_right,
                "Node {}: {found} at {mark} in\n{sites}",
                node.version
            );
            marks += 1;
        }
        assert!(marks > 5, "{marks}");
    }
}

#[test]
fn r18_files_are_named_by_the_javascript_that_asked() {
    names_every_mark("files.cjs", include_str!("../node/files.cjs"));
}

#[test]
fn r18_sockets_are_named_by_the_javascript_that_asked() {
    names_every_mark("sockets.cjs", include_str!("../node/sockets.cjs"));
}

#[test]
fn r18_children_are_named_by_the_javascript_that_asked() {
    names_every_mark("children.cjs", include_str!("../node/children.cjs"));
}

#[test]
fn r18_modules_and_workers_name_their_javascript_too() {
    names_every_mark("module.mjs", include_str!("../node/module.mjs"));
}

/// The program's output and exit code are the same with and without tracing.
fn is_the_same(node: &TestRuntime, flags: &[&str], file: &Path) -> String {
    let alone = Command::new(&node.path)
        .args(flags)
        .arg(file)
        .env_remove("NODE_OPTIONS")
        .output()
        .unwrap();
    let traced = fdguard()
        .args(["trace", "--error-exitcode", "0", "-o", "/dev/null", "--"])
        .arg(&node.path)
        .args(flags)
        .arg(file)
        .env_remove("NODE_OPTIONS")
        .output()
        .unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let version = node.version;
    assert_eq!(
        text(&traced.stderr),
        text(&alone.stderr),
        "{version} {flags:?}"
    );
    assert_eq!(
        text(&traced.stdout),
        text(&alone.stdout),
        "{version} {flags:?}"
    );
    assert_eq!(
        traced.status.code(),
        alone.status.code(),
        "{version} {flags:?}"
    );
    text(&alone.stdout)
}

/// The flag for Node's permission model; empty for versions without one.
fn locks(node: &TestRuntime) -> Vec<&'static str> {
    match node.version {
        ..20 => vec![],
        20 => vec!["--experimental-permission"],
        _ => vec!["--permission", "--experimental-permission"],
    }
}

#[test]
fn r18_a_node_program_does_not_notice() {
    let program = r"const fs = require('fs');
fs.openSync('/etc/passwd');
require('net').createServer().listen(0, function () { this.close(); });
const seen = [Error.stackTraceLimit, Object.keys(Error), fs.open.name, fs.open.length, process.noDeprecation];
console.log(JSON.stringify(seen), fs.readdirSync('/proc/self/fd').length, new Error('x').stack.split('\n').length);
";
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("quiet.cjs");
    fs::write(&file, program).unwrap();
    for node in nodes() {
        is_the_same(&node, &["--no-warnings"], &file);
        is_the_same(
            &node,
            &["--pending-deprecation", "--throw-deprecation"],
            &file,
        );
        for lock in locks(&node) {
            let said = is_the_same(&node, &["--no-warnings", lock, "--allow-fs-read=*"], &file);
            assert!(!said.is_empty());
        }
    }
}

#[test]
fn a_child_that_may_read_little_starts() {
    let dir = tempfile::tempdir().unwrap();
    let (parent, child) = (dir.path().join("parent.cjs"), dir.path().join("child.cjs"));
    fs::write(
        &child,
        "console.log('child', process.permission.has('fs.read', '/etc/passwd'));",
    )
    .unwrap();
    for node in nodes() {
        for lock in locks(&node) {
            let here = dir.path().display();
            let arguments = format!(
                "['--no-warnings', '{lock}', '--allow-fs-read={here}/*', '{here}/child.cjs']"
            );
            let start = "const { spawnSync } = require('child_process');\n";
            let call =
                format!("spawnSync(process.execPath, {arguments}, {{ stdio: 'inherit' }}).status");
            fs::write(&parent, format!("{start}console.log({call});\n")).unwrap();
            let said = is_the_same(&node, &[], &parent);
            assert_eq!(said, "child false\n0\n", "Node {}", node.version);
        }
    }
}
