//! Rules, dashboard, DaemonSet, compose file and unit: each is read by the program that uses it, or
//! at least parsed and compared with what it promises.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::Command;

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::fleet_engine::{MetricEngine, post};
use super::harness::{Server, command, leaker};

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

/// Three quarters of an hour of some hosts, a sample each minute: a leak on host a that nears its
/// limit, a full service on host b, one that grows on three of four hosts, a server on host d that
/// has stopped to look, and host e that is gone after a quarter of an hour.
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
        for (host, verdict) in [("a", 4.0), ("b", 3.0), ("c", 3.0), ("d", 1.0)] {
            add(
                &format!(r#"verdict{{instance="{host}",kind="unit",service="api"}}"#),
                verdict,
            );
            let ticks = if host == "d" { 700 } else { 12 * minute };
            add(
                &format!(r#"serve_ticks_total{{instance="{host}"}}"#),
                ticks as f64,
            );
        }
        if minute < 15 {
            add(r#"serve_ticks_total{instance="e"}"#, 12.0 * minute as f64);
        }
        add(r#"verdict{instance="a",kind="unit",service="web"}"#, 4.0);
        add(r#"verdict{instance="b",kind="unit",service="web"}"#, 1.0);
    }
    lines
}

/// Alerts that fire: name, host and service; where a label has no value, any or none.
const FIRE: [(&str, &str, &str); 6] = [
    ("FdguardLeak", "a", "web"),
    ("FdguardLimitSoon", "a", "web"),
    ("FdguardNearLimit", "b", "db"),
    ("FdguardGrowsEverywhere", "", "api"),
    ("FdguardSilent", "d", ""),
    ("FdguardSilent", "e", ""),
];
/// And those that must not.
const QUIET: [(&str, &str, &str); 3] = [
    ("FdguardNearLimit", "a", ""),
    ("FdguardGrowsEverywhere", "", "web"),
    ("FdguardSilent", "a", ""),
];

/// Whether a line has this alert.
fn fires(lines: &str, (alert, host, service): (&str, &str, &str)) -> bool {
    let labels = [
        ("alertname", alert),
        ("instance", host),
        ("service", service),
    ];
    let labels = labels.iter().filter(|(_, value)| !value.is_empty());
    let labels: Vec<String> = labels
        .map(|(name, value)| format!("{name}=\"{value}\""))
        .collect();
    let mut lines = lines.lines();
    lines.any(|line| labels.iter().all(|label| line.contains(label.as_str())))
}

/// Lets vmalert evaluate the rules over this time.
fn replay(url: &str, from: Timestamp, to: Timestamp) {
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
    replay(url, from, to);
    let asked = |expression: &str| {
        let mut promtool = Command::new("promtool");
        promtool.args(["query", "range", "--step=1m"]);
        promtool.arg(format!("--start={}", from.as_second()));
        promtool.arg(format!("--end={}", to.as_second()));
        succeeds(promtool.args([url.as_str(), expression]))
    };
    let fired = asked(r#"ALERTS{alertstate="firing"}"#);
    for alert in FIRE {
        assert!(fires(&fired, alert), "{alert:?}: {fired}");
    }
    for alert in QUIET {
        assert!(!fires(&fired, alert), "{alert:?}: {fired}");
    }
    let rules = std::fs::read_to_string(packaging("prometheus/fdguard-serve.rules.yml")).unwrap();
    let names: BTreeSet<&str> = FIRE.iter().map(|(name, ..)| *name).collect();
    assert_eq!(rules.matches("- alert: ").count(), names.len());
    let recorded = asked("instance_service:fdguard_seconds_to_limit:min");
    assert!(recorded.contains(r#"service="web""#), "{recorded}");
}

/// Every expression of the dashboard, with its variables set to everything. Without the 0 that
/// stands in for no series: it would answer for a metric that does not exist, too.
fn expressions(dashboard: &Value) -> Vec<String> {
    let panels = dashboard["panels"].as_array().unwrap().iter();
    let targets = panels.flat_map(|panel| panel["targets"].as_array().unwrap());
    let texts = targets.map(|target| target["expr"].as_str().unwrap());
    let texts = texts.map(|text| text.trim_end_matches(" or vector(0)"));
    texts.map(with_everything).collect()
}

fn with_everything(text: &str) -> String {
    text.replace("$host", ".*").replace("$service", ".*")
}

/// The queries of the dashboard's variables: the label of `label_values(SERIES, LABEL)`, and an
/// expression that has its values.
fn variables(dashboard: &Value) -> Vec<(String, String)> {
    let list = dashboard["templating"]["list"].as_array().unwrap().iter();
    let queries = list.filter_map(|one| one["query"].as_str());
    let parts = queries.filter_map(|query| {
        let inner = query.strip_prefix("label_values(")?.strip_suffix(')')?;
        let (series, label) = inner.rsplit_once(", ")?;
        let series = with_everything(series);
        Some((label.to_owned(), format!("count by ({label}) ({series})")))
    });
    parts.collect()
}

#[test]
fn every_expression_of_the_dashboard_has_a_value_in_prometheus_while_a_service_leaks() {
    let server = Server::with(|options| options.web.public_metrics = true);
    let Some(engine) = MetricEngine::prometheus(&[server.address]) else {
        return;
    };
    let text = std::fs::read_to_string(packaging("grafana/fdguard-fleet.json")).unwrap();
    let dashboard: Value = serde_json::from_str(&text).unwrap();
    let expressions = expressions(&dashboard);
    assert!(expressions.len() > 12);
    assert!(expressions.iter().all(|one| !one.contains("vector(")));
    let query = |expression: &str| {
        let mut command = Command::new("promtool");
        command.args(["query", "instant", &engine.url, expression]);
        command
    };
    testkit::wait_until("Prometheus", || {
        let output = query("vector(1)").output().unwrap();
        output.status.success()
    });
    let mut victim = leaker().nofile(4000).start();
    for expression in &expressions {
        testkit::wait_until(expression, || {
            victim.tell("2 file");
            succeeds(&mut query(expression)).contains("=>")
        });
    }
    let variables = variables(&dashboard);
    let labels: Vec<&str> = variables.iter().map(|(label, _)| label.as_str()).collect();
    assert_eq!(labels, ["instance", "service"]);
    let values = [server.address.to_string(), command()];
    for ((label, expression), value) in variables.iter().zip(values) {
        let found = succeeds(&mut query(expression));
        assert!(found.contains(&format!("{label}=\"{value}\"")), "{found}");
    }
    victim.finish();
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
# Profiles for containers would hide the processes of the host.
assert context['appArmorProfile'] == {'type': 'Unconfined'}
assert context['seLinuxOptions'] == {'type': 'spc_t'}
assert context['seccompProfile'] == {'type': 'RuntimeDefault'}
names = {volume['name'] for volume in spec['volumes']}
mounts = container['volumeMounts']
assert {mount['name'] for mount in mounts} == names
paths = {mount['mountPath']: mount.get('readOnly', False) for mount in mounts}
# Names are read from these; only the state and temporary files are written.
assert paths == {'/var/lib/fdguard': False, '/tmp': False, '/var/log/pods': True, '/var/log/containers': True}
[tmp] = [volume for volume in spec['volumes'] if volume['name'] == 'tmp']
assert tmp['emptyDir'] == {'medium': 'Memory', 'sizeLimit': '64Mi'}
for volume in spec['volumes']:
    if volume is tmp:
        continue
    [mount] = [mount for mount in mounts if mount['name'] == volume['name']]
    assert volume['hostPath']['path'] == mount['mountPath']
compose = yaml.safe_load(open(sys.argv[2]))
[service] = compose['services'].values()
assert service['cap_drop'] == ['ALL'] and service['cap_add'] == ['SYS_PTRACE', 'DAC_READ_SEARCH']
assert service['read_only'] is True and service['pid'] == 'host' and 'privileged' not in service
assert service['security_opt'] == ['no-new-privileges:true', 'apparmor=unconfined', 'label=disable']
assert service['tmpfs'] == ['/tmp:size=64m']
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
