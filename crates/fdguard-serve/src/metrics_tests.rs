//! The page of metrics: names, folding, and what promtool thinks of it.

use std::io::Write as _;
use std::process::{Command, Stdio};

use fdguard_core::Class;
use fdguard_core::finding::Finding;
use fdguard_core::judge::Verdict;
use fdguard_core::lint::Severity;
use fdguard_core::snapshot::Limits;
use jiff::Timestamp;

use super::{MetricsOptions, render};
use crate::finding_book::{FindingBook, FindingPace};
use crate::overview::{ClassTally, LimitTime, Overview, WatchedView};
use crate::service::{ServiceKey, ServiceKind};
use crate::testing::service;

fn options(max_series: usize) -> MetricsOptions {
    MetricsOptions {
        max_series,
        open_metrics: false,
    }
}

/// A host with one leaking service among `quiet` others.
fn overview(quiet: usize) -> Overview {
    let mut overview = Overview::empty("h".to_owned(), 5.0, Timestamp::UNIX_EPOCH);
    let key = ServiceKey::new(ServiceKind::Unit, "web\n\"quoted\\.service");
    let mut finding = Finding::new("leak", 7, "we\"b".into(), Severity::Critical);
    finding.class = Some(Class::Pipe);
    let mut book = FindingBook::new(FindingPace::default(), 0);
    book.see(&key, &finding, 1.0, Timestamp::UNIX_EPOCH);
    overview.findings = book.records().into_iter().cloned().collect();
    let mut web = service("x", 900);
    web.key = key.clone();
    web.verdict = Verdict::Leaking;
    web.findings = vec![1];
    web.seconds_to_limit = vec![LimitTime {
        limit: "soft-limit".to_owned(),
        seconds: 100.0,
    }];
    let classes = (0..20).map(|n| ClassTally {
        class: format!("other:{n}"),
        count: 2,
    });
    web.classes = Some(classes.collect());
    overview.services = (0..quiet).map(|n| service(&format!("s{n}"), 10)).collect();
    overview.services.push(web);
    overview.watched = vec![WatchedView {
        pid: 7,
        comm: "we\"b".into(),
        service: key,
        workload: None,
        count: Some(900),
        growth_per_second: None,
        limits: Limits {
            soft: Some(1000),
            hard: None,
        },
        verdict: Verdict::Leaking,
        samples: 9,
        listings: 3,
        seconds_to_limit: Vec::new(),
        classes: None,
        has_findings: true,
    }];
    overview
}

fn series(text: &str) -> usize {
    let about = |line: &&str| line.starts_with("fdguard_") && line.contains("service=");
    text.lines().filter(about).count()
}

#[test]
fn every_metric_of_a_leaking_service_is_there() {
    let text = render(&overview(1), options(1000));
    let web = r#"service="web\n\"quoted\\.service",kind="unit""#;
    for line in [
        format!("fdguard_open_fds{{{web}}} 900"),
        format!("fdguard_fd_limit{{{web}}} 1000"),
        format!("fdguard_fd_usage_ratio{{{web}}} 0.9"),
        format!("fdguard_fd_growth_per_second{{{web}}} 0"),
        format!("fdguard_verdict{{{web}}} 4"),
        format!("fdguard_fds{{{web},class=\"other:0\"}} 2"),
        format!("fdguard_fds{{{web},class=\"other\"}} 16"),
        format!("fdguard_seconds_to_limit{{{web},limit=\"soft-limit\"}} 100"),
        format!("fdguard_findings{{{web},rule=\"leak\",severity=\"critical\"}} 1"),
        format!("fdguard_process_open_fds{{{web},pid=\"7\",comm=\"we\\\"b\"}} 900"),
        "fdguard_folded_services 0".to_owned(),
        "fdguard_serve_cpu_seconds_total 0".to_owned(),
    ] {
        assert!(
            text.lines().any(|one| one == line),
            "{line} is missing in\n{text}"
        );
    }
}

#[test]
fn what_does_not_fit_is_folded_and_the_leak_stays() {
    let all = render(&overview(500), options(100_000));
    assert!(series(&all) > 3000);
    let text = render(&overview(500), options(200));
    assert!(series(&text) <= 200, "{}", series(&text));
    assert!(text.contains("fdguard_verdict{service=\"web"));
    let folded = text
        .lines()
        .find(|line| line.starts_with("fdguard_folded_services "));
    let folded: usize = folded.unwrap().rsplit(' ').next().unwrap().parse().unwrap();
    assert!(folded > 450);
    let other = format!(
        "fdguard_open_fds{{service=\"(other)\",kind=\"other\"}} {}",
        folded * 10
    );
    assert!(text.contains(&other), "{other}");
    // Nothing is lost: the sum over services is the sum of the host.
    let sum: f64 = text
        .lines()
        .filter(|line| line.starts_with("fdguard_open_fds{"))
        .map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap())
        .sum();
    assert_eq!(sum, 500.0 * 10.0 + 900.0);
}

#[test]
fn the_host_ranks_its_first_five_services() {
    let mut overview = overview(500);
    for (number, view) in overview.services.iter_mut().enumerate().take(9) {
        view.usage_ratio = Some(0.25 + number as f64 / 16.0);
    }
    let text = render(&overview, options(10_000));
    let begin = "fdguard_top_fd_usage_ratio{service=";
    let ranked: Vec<&str> = text
        .lines()
        .filter(|line| line.starts_with(begin))
        .collect();
    let expected = [
        // The leaking service of every overview here.
        r#"{service="web\n\"quoted\\.service",kind="unit"} 0.9"#,
        r#"{service="s8",kind="unit"} 0.75"#,
        r#"{service="s7",kind="unit"} 0.6875"#,
        r#"{service="s6",kind="unit"} 0.625"#,
        r#"{service="s5",kind="unit"} 0.5625"#,
    ];
    let expected = expected.map(|rest| format!("fdguard_top_fd_usage_ratio{rest}"));
    assert_eq!(ranked, expected);
}

#[test]
fn findings_without_room_are_counted() {
    let mut overview = overview(0);
    let web = overview.services[0].key.clone();
    let mut book = FindingBook::new(FindingPace::default(), 0);
    for rule in 0..50 {
        let finding = Finding::new(&format!("r{rule}"), 7, "web".into(), Severity::Critical);
        book.see(&web, &finding, 1.0, Timestamp::UNIX_EPOCH);
    }
    overview.findings = book.records().into_iter().cloned().collect();
    let counts = |max_series| {
        let text = render(&overview, options(max_series));
        let value = |line: &str| -> u64 { line.rsplit(' ').next().unwrap().parse().unwrap() };
        let lines: Vec<&str> = text.lines().collect();
        let all = |begin: &str| -> u64 {
            let lines = lines.iter().filter(|line| line.starts_with(begin));
            lines.map(|line| value(line)).sum()
        };
        (all("fdguard_findings{"), all("fdguard_folded_findings "))
    };
    assert_eq!(counts(1000), (50, 0));
    let (shown, folded) = counts(60);
    assert!(shown > 0 && folded > 0, "{shown} {folded}");
    assert_eq!(shown + folded, 50, "none vanishes");
}

#[test]
fn the_page_of_open_metrics_ends_with_its_mark() {
    let text = render(
        &overview(1),
        MetricsOptions {
            max_series: 100,
            open_metrics: true,
        },
    );
    assert!(text.ends_with("# EOF\n"));
    assert!(text.contains("# TYPE fdguard_serve_cpu_seconds counter\n"));
    assert!(text.contains("\nfdguard_serve_cpu_seconds_total 0\n"));
}

#[test]
fn promtool_has_no_complaint() {
    let spawned = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let Ok(mut promtool) = spawned else {
        return testkit::skip("promtool is not installed");
    };
    let text = render(&overview(20), options(1000));
    promtool
        .stdin
        .take()
        .unwrap()
        .write_all(text.as_bytes())
        .unwrap();
    let output = promtool.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && said.is_empty(), "{said}");
}

#[test]
fn every_name_is_in_the_guide() {
    let guide = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../docs/guide/serve-metrics.md"
    );
    let guide = std::fs::read_to_string(guide).unwrap();
    let text = render(&overview(1), options(1000));
    for line in text.lines().filter(|line| line.starts_with("# TYPE ")) {
        let name = line.split(' ').nth(2).unwrap();
        assert!(
            guide.contains(&format!("`{name}`")),
            "{name} is not in serve-metrics.md"
        );
    }
}
