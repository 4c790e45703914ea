//! Samples of many metrics, joined to one row for each service of a host.

use std::collections::BTreeMap;

use serde::Serialize;

use super::prometheus::PromSample;

/// A service of a host.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FleetRow {
    /// The host.
    pub host: String,
    /// The kind of the service.
    pub kind: String,
    /// Its name.
    pub service: String,
    /// Its descriptors.
    pub open_fds: Option<u64>,
    /// The limit of its process nearest to one.
    pub limit: Option<u64>,
    /// The share of it in use.
    pub usage_ratio: Option<f64>,
    /// Change per second.
    pub growth_per_second: Option<f64>,
    /// `unknown`, `stable`, `bounded`, `growing` or `leaking`.
    pub verdict: &'static str,
    /// Its processes.
    pub processes: Option<u64>,
    /// The shortest time to a limit.
    pub seconds_to_limit: Option<f64>,
    /// Open findings.
    pub findings: Vec<FleetFindingCount>,
}

/// Findings of a rule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FleetFindingCount {
    /// The rule.
    pub rule: String,
    /// The severity.
    pub severity: String,
    /// How many.
    pub count: u64,
}

impl FleetRow {
    /// Whether it grows without end in sight.
    #[must_use]
    pub fn is_growing(&self) -> bool {
        matches!(self.verdict, "growing" | "leaking")
    }
}

/// What makes a row.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct RowKey {
    pub(super) host: String,
    pub(super) kind: String,
    pub(super) service: String,
}

impl RowKey {
    /// The key of a sample; a label that is absent is empty.
    pub(super) fn of(sample: &PromSample, host_label: &str) -> Self {
        let label = |name: &str| sample.labels.get(name).cloned().unwrap_or_default();
        Self {
            host: label(host_label),
            kind: label("kind"),
            service: label("service"),
        }
    }

    fn row(self) -> FleetRow {
        FleetRow {
            host: self.host,
            kind: self.kind,
            service: self.service,
            open_fds: None,
            limit: None,
            usage_ratio: None,
            growth_per_second: None,
            verdict: "unknown",
            processes: None,
            seconds_to_limit: None,
            findings: Vec::new(),
        }
    }
}

/// The services of an answer, in its order: that of `topk` and `bottomk`.
pub(super) fn keys(samples: &[PromSample], host_label: &str) -> Vec<RowKey> {
    samples
        .iter()
        .map(|one| RowKey::of(one, host_label))
        .collect()
}

/// One row for each service of a host.
pub(super) fn join(samples: &[PromSample], host_label: &str) -> Vec<FleetRow> {
    let mut rows: BTreeMap<RowKey, FleetRow> = BTreeMap::new();
    for sample in samples {
        let key = RowKey::of(sample, host_label);
        let row = rows.entry(key.clone()).or_insert_with(|| key.row());
        add(row, sample);
    }
    rows.into_values().collect()
}

fn add(row: &mut FleetRow, sample: &PromSample) {
    let value = sample.value;
    let known = value.is_finite().then_some(value);
    let count = known.and_then(whole);
    let label = |name: &str| sample.labels.get(name).cloned().unwrap_or_default();
    match label("__name__").as_str() {
        "fdguard_open_fds" => row.open_fds = count,
        "fdguard_fd_limit" => row.limit = count,
        "fdguard_fd_usage_ratio" => row.usage_ratio = known,
        "fdguard_fd_growth_per_second" => row.growth_per_second = known,
        "fdguard_verdict" => row.verdict = verdict(value),
        "fdguard_processes" => row.processes = count,
        "fdguard_seconds_to_limit" => {
            let nearest = row.seconds_to_limit.into_iter().chain(known);
            row.seconds_to_limit = nearest.min_by(f64::total_cmp);
        }
        "fdguard_findings" => row.findings.extend(count.map(|count| FleetFindingCount {
            rule: label("rule"),
            severity: label("severity"),
            count,
        })),
        _ => {}
    }
}

/// A count, as metrics write it.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "negative values are excluded, and larger ones than fit are not counts"
)]
fn whole(value: f64) -> Option<u64> {
    (value >= 0.0).then_some(value as u64)
}

/// The word of a verdict's number in the metrics.
fn verdict(number: f64) -> &'static str {
    match number {
        1.0 => "stable",
        2.0 => "bounded",
        3.0 => "growing",
        4.0 => "leaking",
        _ => "unknown",
    }
}

/// The rows of these keys, in their order.
pub(super) fn in_order(rows: Vec<FleetRow>, keys: &[RowKey]) -> Vec<FleetRow> {
    let place = |row: &FleetRow| {
        keys.iter().position(|key| {
            key.host == row.host && key.kind == row.kind && key.service == row.service
        })
    };
    let mut placed: Vec<(usize, FleetRow)> = rows
        .into_iter()
        .filter_map(|row| Some((place(&row)?, row)))
        .collect();
    placed.sort_by_key(|(place, _)| *place);
    placed.into_iter().map(|(_, row)| row).collect()
}

#[cfg(test)]
pub(super) mod tests {
    use super::{PromSample, in_order, join, keys};

    pub(in crate::fleet) fn sample(name: &str, labels: &[(&str, &str)], value: f64) -> PromSample {
        let name = ("__name__", name);
        let all = labels.iter().chain([&name]);
        PromSample {
            labels: all
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect(),
            value,
        }
    }

    #[test]
    fn metrics_of_a_service_become_one_row_and_unknown_stays_unknown() {
        let web = [("instance", "a"), ("kind", "unit"), ("service", "web")];
        let soft = [web[0], web[1], web[2], ("limit", "soft-limit")];
        let hard = [web[0], web[1], web[2], ("limit", "hard-limit")];
        let found = [
            web[0],
            web[1],
            web[2],
            ("rule", "leak"),
            ("severity", "warning"),
        ];
        let other = [("instance", "b"), web[1], web[2]];
        let samples = [
            sample("fdguard_open_fds", &web, 40.0),
            sample("fdguard_fd_limit", &web, f64::NAN),
            sample("fdguard_verdict", &web, 4.0),
            sample("fdguard_seconds_to_limit", &hard, 900.0),
            sample("fdguard_seconds_to_limit", &soft, 60.0),
            sample("fdguard_findings", &found, 2.0),
            sample("fdguard_open_fds", &other, 7.0),
            sample("something_else", &other, 7.0),
        ];
        let rows = join(&samples, "instance");
        assert_eq!(rows.len(), 2);
        let web = &rows[0];
        assert_eq!(
            (web.open_fds, web.limit, web.verdict),
            (Some(40), None, "leaking")
        );
        assert_eq!(web.seconds_to_limit, Some(60.0));
        assert_eq!(web.findings[0].count, 2);
        assert_eq!(
            (rows[1].verdict, rows[1].seconds_to_limit),
            ("unknown", None)
        );
        let order = keys(&samples[6..7], "instance");
        let shown = in_order(rows, &order);
        assert_eq!((shown.len(), shown[0].host.as_str()), (1, "b"));
    }
}
