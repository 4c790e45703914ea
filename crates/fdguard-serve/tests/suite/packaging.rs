//! Rules, dashboard, DaemonSet, compose file and unit: each is read by the program that uses it, or
//! at least parsed and compared with what it promises.

use std::fmt::Write as _;
use std::io::Write as _;
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::Command;

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::fleet_engine::MetricEngine;
use super::harness::{PATIENCE, Server, answer};

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

/// Posts to a server and expects success.
fn post(url: &str, path: &str, body: &str) {
    let address = url.strip_prefix("http://").unwrap();
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let length = body.len();
    let head = format!("POST {path} HTTP/1.1\r\nHost: {address}\r\nContent-Length: {length}\r\n");
    write!(stream, "{head}Connection: close\r\n\r\n{body}").unwrap();
    let (status, _, text) = answer(&mut stream);
    assert!((200..300).contains(&status), "{path}: {status} {text}");
}

/// Three quarters of an hour of two hosts, a sample each minute: a leak on host a that nears its
/// limit, a full service on host b.
fn past(from: Timestamp) -> String {
    let mut lines = String::new();
    for minute in 0_i64..45 {
        let at = from + SignedDuration::from_mins(minute);
        let at = at.as_millisecond();
        let left = (7200 - 300 * minute).max(60);
        let mut add = |series: &str, value: f64| {
            writeln!(lines, "fdguard_{series} {value} {at}").unwrap();
        };
        let web = r#"instance="a",kind="unit",service="web""#;
        add(
            &format!(r#"findings{{{web},rule="leak",severity="warning"}}"#),
            1.0,
        );
        add(
            &format!(r#"seconds_to_limit{{{web},limit="soft-limit"}}"#),
            left as f64,
        );
        add(
            r#"fd_usage_ratio{instance="a",kind="unit",service="db"}"#,
            0.2,
        );
        add(
            r#"fd_usage_ratio{instance="b",kind="unit",service="db"}"#,
            0.95,
        );
    }
    lines
}

#[test]
fn vmalert_replays_the_rules_on_victoria_metrics() {
    for program in ["vmalert", "promtool"] {
        if !testkit::have(program) {
            return testkit::skip(&format!("no {program}: testkit/packages installs it"));
        }
    }
    let Some(engine) = MetricEngine::victoria() else {
        return;
    };
    let url = &engine.url;
    let to = Timestamp::now() - SignedDuration::from_mins(5);
    let from = to - SignedDuration::from_mins(45);
    testkit::wait_until("VictoriaMetrics", || {
        TcpStream::connect(url.strip_prefix("http://").unwrap()).is_ok()
    });
    post(url, "/api/v1/import/prometheus", &past(from));
    post(url, "/internal/force_flush", "");
    let time = |at: Timestamp| at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let rules = packaging("prometheus/fdguard-serve.rules.yml");
    succeeds(Command::new("vmalert").args([
        &format!("-rule={}", rules.display()),
        &format!("-datasource.url={url}"),
        &format!("-remoteWrite.url={url}"),
        &format!("-replay.timeFrom={}", time(from)),
        &format!("-replay.timeTo={}", time(to)),
        // Samples of five minutes, its default, would restart every `for` of a rule.
        "-datasource.queryStep=1m",
        "-replay.rulesDelay=10ms",
        "-httpListenAddr=127.0.0.1:0",
    ]));
    post(url, "/internal/force_flush", "");
    let asked = |expression: &str| {
        let seconds = |at: Timestamp| at.as_second().to_string();
        let mut promtool = Command::new("promtool");
        promtool.args(["query", "range", "--step=1m"]);
        promtool.arg(format!("--start={}", seconds(from)));
        promtool.arg(format!("--end={}", seconds(to)));
        succeeds(promtool.args([url.as_str(), expression]))
    };
    let fired = asked(r#"ALERTS{alertstate="firing"}"#);
    for (alert, host, service) in [
        ("FdguardLeak", "a", "web"),
        ("FdguardLimitSoon", "a", "web"),
        ("FdguardNearLimit", "b", "db"),
    ] {
        let is_it = |line: &str| {
            let labels = [
                ("alertname", alert),
                ("instance", host),
                ("service", service),
            ];
            let has = |(name, value)| line.contains(&format!("{name}=\"{value}\""));
            labels.into_iter().all(has)
        };
        assert!(fired.lines().any(is_it), "{alert}: {fired}");
    }
    assert!(
        !fired.contains(r#"alertname="FdguardNearLimit", instance="a""#),
        "{fired}"
    );
    let recorded = asked("instance_service:fdguard_seconds_to_limit:min");
    assert!(recorded.contains(r#"service="web""#), "{recorded}");
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
mounts = container['volumeMounts']
assert {mount['name'] for mount in mounts} == names
paths = {mount['mountPath']: mount.get('readOnly', False) for mount in mounts}
# Names are read from these; only the state is written.
assert paths == {'/var/lib/fdguard': False, '/var/log/pods': True, '/var/log/containers': True}
for volume in spec['volumes']:
    [mount] = [mount for mount in mounts if mount['name'] == volume['name']]
    assert volume['hostPath']['path'] == mount['mountPath']
compose = yaml.safe_load(open(sys.argv[2]))
[service] = compose['services'].values()
assert service['cap_drop'] == ['ALL'] and service['cap_add'] == ['SYS_PTRACE', 'DAC_READ_SEARCH']
assert service['read_only'] is True and service['pid'] == 'host' and 'privileged' not in service
assert service['security_opt'] == ['no-new-privileges:true']
docker = '/var/lib/docker/containers'
assert service['volumes'] == ['state:/var/lib/fdguard', f'{docker}:{docker}:ro']
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
