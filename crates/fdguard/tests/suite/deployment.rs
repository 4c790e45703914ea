//! The files of `packaging/` that start `fdguard serve`: each option is one that it has, and no
//! privilege is more than it needs.

use std::path::PathBuf;
use std::process::Command;

use clap::Parser as _;
use fdguard::cli::Cli;

pub(super) fn packaging(path: &str) -> PathBuf {
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

/// Runs the command of the DaemonSet at an address that is not a loopback one, in a network of its
/// own, and asks it as the kubelet does for the liveness probe and as Prometheus does for metrics.
const PROBE: &str = r"
import http.client, subprocess, sys, yaml
program, manifest, state, pod_ip = sys.argv[1:]
for words in (['addr', 'add', pod_ip + '/32', 'dev', 'lo'], ['link', 'set', 'lo', 'up']):
    subprocess.run(['ip', *words], check=True)
[container] = yaml.safe_load(open(manifest))['spec']['template']['spec']['containers']
values = {'$(POD_IP)': pod_ip, '$(NODE_NAME)': 'node-7'}
words = [values.get(word, word).replace('/var/lib/fdguard', state) for word in container['command']]
server = subprocess.Popen([program, *words[1:]], stdout=subprocess.PIPE, text=True)
try:
    ready = server.stdout.readline()
    assert '0.0.0.0:9187' in ready, ready
    probe = container['livenessProbe']['httpGet']
    [port] = [one['containerPort'] for one in container['ports'] if one['name'] == probe['port']]
    def ask(path, host):
        connection = http.client.HTTPConnection(pod_ip, port, timeout=60)
        connection.request('GET', path, headers={'Host': host, 'Connection': 'close'})
        return connection.getresponse().status
    given = {one['name'].lower(): one['value'] for one in probe.get('httpHeaders', [])}
    own = f'{pod_ip}:{port}'
    print(ask(probe['path'], given.get('host', own)), ask('/metrics', own), ask('/healthz', 'localhost'))
finally:
    server.terminate()
    server.wait()
";

#[test]
fn the_probe_of_the_daemon_set_reaches_the_server_at_the_address_of_the_pod() {
    let Some(python) = testkit::software("venv/bin/python") else {
        return;
    };
    if !testkit::is_root() || !testkit::have("unshare") || !testkit::have("ip") {
        return testkit::skip("needs root, unshare and ip for a network of its own");
    }
    let state = tempfile::tempdir().unwrap();
    let output = Command::new("unshare")
        .arg("--net")
        .arg(python)
        .args(["-c", PROBE])
        .arg(env!("CARGO_BIN_EXE_fdguard"))
        .arg(packaging("kubernetes/fdguard-serve.yaml"))
        .arg(state.path())
        .arg("198.51.100.7")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    // Another name is refused: a page of another site could have it.
    let why = String::from_utf8_lossy(&output.stderr);
    assert_eq!(text.trim(), "200 200 421", "{why}");
}
