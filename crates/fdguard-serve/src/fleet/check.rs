//! What `fleet check` asks, and what counts as a problem.

use std::time::Duration;

use fdguard_core::Gap;
use fdguard_core::lint::Severity;
use serde::Serialize;

use super::prometheus::PromSample;
use super::rows::RowKey;

/// What fails a check.
#[derive(Clone, Copy, Debug)]
pub struct FleetCheckOptions {
    /// Findings of at least this severity.
    pub fail_on: Severity,
    /// A service that uses at least this share of its limit.
    pub max_usage: Option<f64>,
    /// A service that reaches a limit within this time.
    pub min_time_left: Option<Duration>,
}

/// The result of a check.
#[derive(Clone, Debug, Serialize)]
pub struct FleetCheck {
    /// `fdguard.fleet.check/1`.
    pub schema: &'static str,
    /// Hosts that report.
    pub hosts: u64,
    /// What is wrong, by host.
    pub problems: Vec<FleetProblem>,
    /// What could not be seen.
    pub gaps: Vec<Gap>,
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FleetProblem {
    /// The host.
    pub host: String,
    /// The kind of the service.
    pub kind: String,
    /// Its name.
    pub service: String,
    /// In words.
    pub what: String,
}

/// An expression, and how its samples read.
pub(super) struct CheckQuestion {
    pub(super) expression: String,
    words: fn(&PromSample) -> String,
}

impl CheckQuestion {
    /// The problems, by host.
    pub(super) fn problems(&self, samples: &[PromSample], host_label: &str) -> Vec<FleetProblem> {
        let problem = |sample: &PromSample| {
            let key = RowKey::of(sample, host_label);
            FleetProblem {
                host: key.host,
                kind: key.kind,
                service: key.service,
                what: (self.words)(sample),
            }
        };
        let mut problems: Vec<FleetProblem> = samples.iter().map(problem).collect();
        problems
            .sort_by(|a, b| (&a.host, &a.kind, &a.service).cmp(&(&b.host, &b.kind, &b.service)));
        problems
    }
}

pub(super) fn questions(options: &FleetCheckOptions) -> Vec<CheckQuestion> {
    let severities = match options.fail_on {
        Severity::Critical => "critical",
        Severity::Warning | Severity::Info => "warning|critical",
    };
    let findings = CheckQuestion {
        expression: format!("fdguard_findings{{severity=~\"{severities}\"}} > 0"),
        words: |sample| {
            let label = |name: &str| sample.labels.get(name).map_or("?", String::as_str);
            format!(
                "{} {}: {} open",
                label("severity"),
                label("rule"),
                sample.value
            )
        },
    };
    let usage = options.max_usage.map(|share| CheckQuestion {
        expression: format!("fdguard_fd_usage_ratio >= {share}"),
        words: |sample| format!("{:.1} % of its limit is used", 100.0 * sample.value),
    });
    let time = options.min_time_left.map(|left| CheckQuestion {
        expression: format!("fdguard_seconds_to_limit < {}", left.as_secs_f64()),
        words: |sample| {
            let limit = sample.labels.get("limit").map_or("a limit", String::as_str);
            let left = fdguard_core::units::duration(sample.value);
            format!("{left} to {limit}")
        },
    });
    [Some(findings), usage, time]
        .into_iter()
        .flatten()
        .collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use fdguard_core::lint::Severity;

    use super::{FleetCheckOptions, questions};
    use crate::fleet::rows::tests::sample;

    #[test]
    fn each_question_has_words_for_its_samples() {
        let asked = questions(&FleetCheckOptions {
            fail_on: Severity::Critical,
            max_usage: Some(0.9),
            min_time_left: Some(Duration::from_secs(3600)),
        });
        let expressions: Vec<&str> = asked.iter().map(|one| one.expression.as_str()).collect();
        assert_eq!(
            expressions,
            [
                "fdguard_findings{severity=~\"critical\"} > 0",
                "fdguard_fd_usage_ratio >= 0.9",
                "fdguard_seconds_to_limit < 3600"
            ]
        );
        let web = [
            ("instance", "a"),
            ("service", "web"),
            ("limit", "soft-limit"),
        ];
        let problems = asked[2].problems(&[sample("", &web, 120.0)], "instance");
        assert_eq!(
            (problems[0].host.as_str(), problems[0].kind.as_str()),
            ("a", "")
        );
        assert!(
            problems[0].what.ends_with(" to soft-limit"),
            "{}",
            problems[0].what
        );
    }
}
