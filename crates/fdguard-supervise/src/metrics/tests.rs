//! Tests of the metrics text against the rules of its readers.

use std::collections::{BTreeMap, BTreeSet};
use std::process::{Command, Stdio};
use std::time::Duration;

use fdguard_core::{Class, TcpState};
use jiff::Timestamp;
use proptest::prelude::*;
use serde_json::Value;

use super::{
    HostMetrics, MetricsState, ProcessMetrics, ServiceMetrics, SupervisorMetrics, TargetMetrics,
    families, health,
};

fn moment(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn process(pid: u32, open: u64) -> ProcessMetrics {
    ProcessMetrics {
        pid,
        comm: "py\"th\\on\n".into(),
        open_fds: Some(open),
        soft: Some(1000),
        hard: Some(4096),
        highest: Some(open + 2),
        threads: Some(7),
        resident: Some(1 << 20),
        zombies: Some(0),
        classes: Some(vec![
            (Class::Tcp(TcpState::CloseWait), 9),
            (Class::Other("one".into()), 1),
            (Class::Other("two".into()), 2),
        ]),
    }
}

pub(super) fn state() -> MetricsState {
    MetricsState {
        own: SupervisorMetrics {
            open_fds: Some(12),
            max_fds: Some(1024),
            started: Some(moment(1_700_000_000)),
            resident: Some(4 << 20),
        },
        host: HostMetrics {
            allocated: Some(2000),
            maximum: None,
        },
        services: vec![ServiceMetrics {
            name: "web".into(),
            processes: vec![process(10, 40), process(11, 650)],
            up_since: Some(moment(1_700_000_100)),
            ready: Some(true),
            healthy: Some(true),
            restarts: BTreeMap::from([("exit".into(), 2), ("fd_budget".into(), 1)]),
            breaches: 1,
            last_breach: Some(moment(1_700_000_050)),
            eta: Some(Duration::from_secs(90)),
            targets: vec![TargetMetrics {
                name: "/srv/secret/*.db".into(),
                count: 30,
            }],
            ..ServiceMetrics::default()
        }],
        prevented: BTreeMap::from([("double-close".into(), 3)]),
    }
}

/// A line of the text: name, labels, value.
type Parsed = (String, Vec<(String, String)>, f64);

/// Parses the text format strictly; panics at anything that Prometheus would refuse or warn about.
fn parse(text: &str) -> Vec<Parsed> {
    assert!(text.ends_with('\n') || text.is_empty());
    let mut samples = Vec::new();
    let mut seen = BTreeSet::new();
    let mut families = BTreeSet::new();
    let mut family = (String::new(), String::new());
    let mut helped = String::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').unwrap();
            assert!(families.insert(name.to_owned()), "{name} twice");
            assert!(!help.contains('\\'), "{help}");
            name.clone_into(&mut helped);
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap();
            assert_eq!(name, helped);
            assert_eq!(kind == "counter", name.ends_with("_total"), "{name} {kind}");
            family = (name.to_owned(), kind.to_owned());
        } else {
            let sample = parse_sample(line);
            assert_eq!(sample.0, family.0, "a sample outside its family");
            assert!(
                seen.insert((sample.0.clone(), sample.1.clone())),
                "{line} twice"
            );
            samples.push(sample);
        }
    }
    samples
}

fn parse_sample(line: &str) -> Parsed {
    let end = line.find(['{', ' ']).unwrap();
    let name = &line[..end];
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    assert!(name.chars().all(plain), "{name}");
    let mut labels = Vec::new();
    let mut rest = &line[end..];
    if let Some(inner) = rest.strip_prefix('{') {
        rest = inner;
        loop {
            let (label, after) = rest.split_once("=\"").unwrap();
            assert!(label.chars().all(plain), "{label}");
            let (value, after) = parse_value(after);
            labels.push((label.to_owned(), value));
            if let Some(after) = after.strip_prefix('}') {
                rest = after;
                break;
            }
            rest = after.strip_prefix(',').unwrap();
        }
    }
    let value = rest.strip_prefix(' ').unwrap().parse::<f64>().unwrap();
    assert!(value.is_finite());
    (name.to_owned(), labels, value)
}

fn parse_value(text: &str) -> (String, &str) {
    let mut value = String::new();
    let mut chars = text.char_indices();
    loop {
        match chars.next().unwrap() {
            (at, '"') => return (value, &text[at + 1..]),
            (_, '\\') => value.push(match chars.next().unwrap().1 {
                'n' => '\n',
                c @ ('\\' | '"') => c,
                c => panic!("\\{c}"),
            }),
            (_, c) => value.push(c),
        }
    }
}

fn value(samples: &[Parsed], name: &str, labels: &[(&str, &str)]) -> Option<f64> {
    let fits = |sample: &&Parsed| {
        let has = |wanted: &(&str, &str)| {
            sample
                .1
                .iter()
                .any(|(name, value)| (name.as_str(), value.as_str()) == *wanted)
        };
        sample.0 == name && labels.iter().all(has)
    };
    samples.iter().find(fits).map(|sample| sample.2)
}

#[test]
fn the_names_are_those_of_the_convention() {
    let samples = parse(&families::write(&state()));
    let web = ("service", "web");
    let group = ("groupname", "web");
    for (name, labels, expected) in [
        ("process_open_fds", &[][..], 12.0),
        ("process_max_fds", &[], 1024.0),
        ("process_start_time_seconds", &[], 1_700_000_000.0),
        ("process_resident_memory_bytes", &[], f64::from(4 << 20)),
        (
            "fdguard_process_open_fds",
            &[web, ("pid", "11"), ("comm", "py\"th\\on\n")],
            650.0,
        ),
        ("fdguard_process_max_fds", &[web, ("pid", "11")], 1000.0),
        (
            "fdguard_process_open_fds_by_kind",
            &[web, ("kind", "tcp:CLOSE_WAIT")],
            9.0,
        ),
        (
            "fdguard_process_open_fds_by_kind",
            &[web, ("kind", "other")],
            3.0,
        ),
        ("namedprocess_namegroup_open_filedesc", &[group], 690.0),
        ("namedprocess_namegroup_worst_fd_ratio", &[group], 0.65),
        ("node_filefd_allocated", &[], 2000.0),
        (
            "fdguard_restarts_total",
            &[web, ("reason", "fd_budget")],
            1.0,
        ),
        ("fdguard_service_up", &[web], 1.0),
        ("fdguard_service_ready", &[web], 1.0),
        ("fdguard_exhaustion_seconds", &[web], 90.0),
        ("fdguard_breaches_total", &[web], 1.0),
        ("fdguard_survivors_total", &[web], 0.0),
        ("fdguard_prevented_total", &[("rule", "double-close")], 3.0),
    ] {
        assert_eq!(value(&samples, name, labels), Some(expected), "{name}");
    }
}

#[test]
fn what_is_unknown_is_absent_and_not_zero() {
    let samples = parse(&families::write(&state()));
    assert_eq!(value(&samples, "node_filefd_maximum", &[]), None);
    let mut state = state();
    state.services[0].eta = None;
    state.services[0].ready = None;
    state.services[0].processes[0].open_fds = None;
    let samples = parse(&families::write(&state));
    assert_eq!(value(&samples, "fdguard_exhaustion_seconds", &[]), None);
    assert_eq!(value(&samples, "fdguard_service_ready", &[]), None);
    assert_eq!(
        value(&samples, "fdguard_process_open_fds", &[("pid", "10")]),
        None
    );
    assert_eq!(families::write(&MetricsState::default()), "");
}

#[test]
fn no_path_is_a_label_and_processes_are_bounded() {
    let mut state = state();
    state.services[0].processes = (1..500).map(|pid| process(pid, u64::from(pid))).collect();
    let text = families::write(&state);
    assert!(!text.contains("secret"), "{text}");
    let samples = parse(&text);
    let rows = samples
        .iter()
        .filter(|sample| sample.0 == "fdguard_process_open_fds");
    assert_eq!(rows.count(), 32);
    assert_eq!(
        value(&samples, "fdguard_process_open_fds", &[("pid", "499")]),
        Some(499.0)
    );
}

#[test]
fn promtool_accepts_the_text() {
    if !testkit::have("promtool") {
        testkit::skip("no promtool: the text is read by our own strict reader only");
        return;
    }
    let mut child = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let text = families::write(&state());
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), text.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    // It complains about the style of these established names, which are intended.
    let ours = said.lines().filter(|line| line.starts_with("fdguard_"));
    assert_eq!(ours.collect::<Vec<_>>(), Vec::<&str>::new());
    assert!(!said.contains("error while linting"), "{said}");
}

fn json(state: &MetricsState, is_known: bool) -> (Value, bool) {
    let report = health::write(state, is_known);
    (serde_json::from_str(&report.body).unwrap(), report.is_well)
}

#[test]
fn r59_health_has_the_fields_and_strangers_get_counts_only() {
    let (page, is_well) = json(&state(), false);
    assert!(is_well);
    assert_eq!(page["fd_count"], 650);
    assert_eq!(page["fd_soft_limit"], 1000);
    assert_eq!(page["fd_hard_limit"], 4096);
    assert_eq!(page["fd_usage_percent"], 65.0);
    assert_eq!(page["thread_count"], 7);
    assert_eq!(page["status"], "ok");
    assert_eq!(page["restarts"], 3);
    let text = page.to_string();
    for secret in ["web", "secret", "th", "CLOSE_WAIT", "\"pid\""] {
        let hidden = text
            .replace("fd_", "")
            .replace("thread", "")
            .replace("health", "");
        assert!(!hidden.contains(secret), "{secret} in {text}");
    }
    let (page, _) = json(&state(), true);
    assert_eq!(page["services"][0]["name"], "web");
    assert_eq!(
        page["services"][0]["targets"][0]["name"],
        "/srv/secret/*.db"
    );
    assert_eq!(page["services"][0]["classes"][0]["name"], "tcp:CLOSE_WAIT");
}

#[test]
fn r30_health_is_degraded_when_a_service_is_and_warns_before() {
    let with = |change: fn(&mut ServiceMetrics)| {
        let mut state = state();
        change(&mut state.services[0]);
        let (page, is_well) = json(&state, false);
        (page["status"].as_str().unwrap().to_owned(), is_well)
    };
    assert_eq!(
        with(|one| one.processes[1].open_fds = Some(701)),
        ("warning".into(), true)
    );
    assert_eq!(
        with(|one| one.processes[1].open_fds = Some(900)),
        ("critical".into(), false)
    );
    assert_eq!(
        with(|one| one.healthy = Some(false)),
        ("degraded".into(), false)
    );
    assert_eq!(
        with(|one| one.ready = Some(false)),
        ("degraded".into(), false)
    );
    assert_eq!(
        with(|one| (one.ready, one.healthy) = (None, None)),
        ("ok".into(), true)
    );
    assert_eq!(
        with(|one| (one.up_since, one.processes) = (None, vec![])),
        ("degraded".into(), false)
    );
}

#[test]
fn what_health_does_not_know_is_null() {
    let (page, _) = json(&MetricsState::default(), false);
    assert_eq!(page["fd_count"], Value::Null);
    assert_eq!(page["fd_usage_percent"], Value::Null);
}

proptest! {
    #[test]
    fn any_names_make_a_text_that_can_be_read(name in ".*", comm in ".*", reason in ".*", other in ".*") {
        let mut state = state();
        state.services[0].name.clone_from(&name);
        state.services[0].processes[0].comm.clone_from(&comm);
        state.services[0].restarts = BTreeMap::from([(reason, 1)]);
        state.services[0].processes[0].classes = Some(vec![(Class::Other(other.into()), 1)]);
        // Lines of the text end only with a newline: other line breaks stay within a label.
        let samples = parse_all(&families::write(&state));
        prop_assert_eq!(value(&samples, "fdguard_process_open_fds", &[("service", &name), ("comm", &comm)]), Some(40.0));
        let _page = health::write(&state, true);
    }
}

/// Like [`parse`], for labels that contain a carriage return before an escaped newline.
fn parse_all(text: &str) -> Vec<Parsed> {
    let lines = text
        .split('\n')
        .filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.map(parse_sample).collect()
}
