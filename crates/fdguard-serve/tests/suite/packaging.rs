//! Rules, dashboard, DaemonSet, compose file and unit: each is read by the program that uses it, or
//! at least parsed and compared with what it promises.

use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

use super::fleet_engine::MetricEngine;
use super::harness::Server;

fn packaging(path: &str) -> PathBuf {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    root.join("../../packaging").join(path)
}

fn succeeds(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text).into_owned();
    assert!(output.status.success(), "{command:?}: {text}");
    text
}

#[test]
fn promtool_accepts_the_rules_and_their_tests() {
    if !testkit::have("promtool") {
        return testkit::skip("no promtool: testkit/packages installs it");
    }
    let rules = packaging("prometheus/fdguard-serve.rules.yml");
    succeeds(Command::new("promtool").args(["check", "rules"]).arg(rules));
    let tests = packaging("prometheus/fdguard-serve.rules.test.yml");
    succeeds(Command::new("promtool").args(["test", "rules"]).arg(tests));
}

/// Every expression of the dashboard, with its variables set to everything.
fn expressions(dashboard: &Value) -> Vec<String> {
    let panels = dashboard["panels"].as_array().unwrap().iter();
    let targets = panels.flat_map(|panel| panel["targets"].as_array().unwrap());
    let texts = targets.map(|target| target["expr"].as_str().unwrap());
    let all = |text: &str| text.replace("$host", ".*").replace("$service", ".*");
    texts.map(all).collect()
}

#[test]
fn every_expression_of_the_dashboard_is_answered_by_prometheus() {
    let server = Server::with(|options| options.web.public_metrics = true);
    let Some(engine) = MetricEngine::prometheus(&[server.address]) else {
        return;
    };
    let text = std::fs::read_to_string(packaging("grafana/fdguard-fleet.json")).unwrap();
    let dashboard: Value = serde_json::from_str(&text).unwrap();
    let expressions = expressions(&dashboard);
    assert!(expressions.len() > 12);
    let query = |expression: &str| {
        let mut command = Command::new("promtool");
        command.args(["query", "instant", &engine.url, expression]);
        command
    };
    testkit::wait_until("the first scrape", || {
        let output = query("fdguard_visible_processes").output().unwrap();
        String::from_utf8_lossy(&output.stdout).contains("=>")
    });
    for expression in &expressions {
        succeeds(&mut query(expression));
    }
    // Those that do not depend on a finding have a value.
    for always in expressions.iter().filter(|it| {
        it.contains("fdguard_open_fds") || it.contains("fdguard_gaps") || it.contains("or vector")
    }) {
        let text = succeeds(&mut query(always));
        assert!(text.contains("=>"), "{always}: {text}");
    }
}

const LEAST: &str = r"
import sys, yaml
pod = yaml.safe_load(open(sys.argv[1]))
spec = pod['spec']['template']['spec']
assert pod['kind'] == 'DaemonSet' and spec['hostPID'] is True, spec
assert spec['automountServiceAccountToken'] is False
assert 'hostNetwork' not in spec and 'serviceAccountName' not in spec
labels = pod['spec']['selector']['matchLabels']
assert labels.items() <= pod['spec']['template']['metadata']['labels'].items()
[container] = spec['containers']
context = container['securityContext']
assert context['privileged'] is False and context['allowPrivilegeEscalation'] is False
assert context['readOnlyRootFilesystem'] is True
assert context['capabilities'] == {'drop': ['ALL'], 'add': ['SYS_PTRACE', 'DAC_READ_SEARCH']}
names = {volume['name'] for volume in spec['volumes']}
assert {mount['name'] for mount in container['volumeMounts']} == names
compose = yaml.safe_load(open(sys.argv[2]))
[service] = compose['services'].values()
assert service['cap_drop'] == ['ALL'] and service['cap_add'] == ['SYS_PTRACE', 'DAC_READ_SEARCH']
assert service['read_only'] is True and service['pid'] == 'host' and 'privileged' not in service
assert service['security_opt'] == ['no-new-privileges:true']
print(' '.join(container['command'][1:]))
print(' '.join(service['command'][1:]))
";

#[test]
fn the_daemon_set_and_the_compose_file_have_the_least_privileges() {
    let Some(python) = testkit::software("venv/bin/python") else {
        return;
    };
    let mut command = Command::new(python);
    command
        .args(["-c", LEAST])
        .arg(packaging("kubernetes/fdguard-serve.yaml"))
        .arg(packaging("compose/fdguard-serve.yml"));
    let commands = succeeds(&mut command);
    assert!(
        commands.lines().all(|line| line.starts_with("serve --")),
        "{commands}"
    );
}

#[test]
fn systemd_accepts_the_unit() {
    let unit = packaging("debian/fdguard-serve.service");
    let text = std::fs::read_to_string(&unit).unwrap();
    assert!(text.contains("NoNewPrivileges=true") && text.contains("ProtectSystem=strict"));
    if !testkit::have("systemd-analyze") {
        return testkit::skip("no systemd-analyze: the unit was not verified");
    }
    // The program is not installed here, which is the only thing that may be wrong.
    let copy = tempfile::tempdir().unwrap();
    let path = copy.path().join("fdguard-serve.service");
    std::fs::write(&path, text.replace("/usr/bin/fdguard", "/usr/bin/env")).unwrap();
    succeeds(
        Command::new("systemd-analyze")
            .args(["verify", "--man=no"])
            .arg(&path),
    );
}
