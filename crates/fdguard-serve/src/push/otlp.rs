//! OTLP metrics: an `ExportMetricsServiceRequest` with the names of the semantic conventions where
//! they have one. Pure.
//!
//! Each service is a resource (`host.name`, `service.name`, and what names its container or pod),
//! so that a backend joins it with its other signals. What is about fdguard itself is a resource of
//! its own.

use std::collections::BTreeMap;

use fdguard_core::workload::Workload;

use super::MetricPush;
use super::otlp_units::unit;
use super::protobuf::Message;
use crate::metric_sink::MetricSeries;

const SCHEMA_URL: &str = "https://opentelemetry.io/schemas/1.37.0";
/// The descriptors of a process; fdguard adds up the processes of a service.
const SEMANTIC_COUNT: &str = "process.unix.file_descriptor.count";
/// AGGREGATION_TEMPORALITY_CUMULATIVE.
const CUMULATIVE: u64 = 2;
/// DATA_POINT_FLAGS_NO_RECORDED_VALUE_MASK: the series has ended.
const NO_VALUE: u64 = 1;

/// The body of a request.
pub(crate) fn encode(push: &MetricPush<'_>) -> Vec<u8> {
    let mut resources: BTreeMap<(&str, &str), Vec<&MetricSeries>> = BTreeMap::new();
    for one in push.series {
        let key = (one.label("kind"), one.label("service"));
        resources.entry(key).or_default().push(one);
    }
    let mut request = Message::default();
    for ((kind, service), series) in resources {
        request.message(1, |resource_metrics| {
            resource_metrics.message(1, |resource| {
                let workload = push.workloads.get(&(kind.to_owned(), service.to_owned()));
                for (key, value) in resource_attributes(push.host, (kind, service), workload) {
                    attribute(resource, 1, key, &value);
                }
            });
            resource_metrics.message(2, |scope_metrics| {
                scope_metrics.message(1, |scope| {
                    scope.text(1, "fdguard");
                    scope.text(2, env!("CARGO_PKG_VERSION"));
                });
                write_families(scope_metrics, &series, &PointTimes::new(push));
                scope_metrics.text(3, SCHEMA_URL);
            });
            resource_metrics.text(3, SCHEMA_URL);
        });
    }
    request.finish()
}

/// Nanoseconds since 1970.
struct PointTimes {
    /// When sums were 0.
    started: u64,
    now: u64,
}

impl PointTimes {
    fn new(push: &MetricPush<'_>) -> Self {
        // The clock may have been set back since.
        let started = push.started_at.min(push.taken_at);
        let [started, now] =
            [started, push.taken_at].map(|time| u64::try_from(time.as_nanosecond()).unwrap_or(0));
        Self { started, now }
    }
}

/// What names a service for other signals.
fn resource_attributes(
    host: &str,
    (kind, service): (&str, &str),
    workload: Option<&Workload>,
) -> Vec<(&'static str, String)> {
    let mut all = vec![
        ("host.name", host.to_owned()),
        ("os.type", "linux".to_owned()),
    ];
    let name = if service.is_empty() {
        "fdguard"
    } else {
        service
    };
    all.push(("service.name", name.to_owned()));
    match kind {
        "container" => all.push(("container.name", service.to_owned())),
        "pod" => {
            let (namespace, name) = service.split_once('/').unwrap_or(("", service));
            all.push(("k8s.namespace.name", namespace.to_owned()));
            // The conventions name each kind of workload apart, and the kind is unknown here.
            all.push(("fdguard.workload.name", name.to_owned()));
        }
        "command" => all.push(("process.command", service.to_owned())),
        "" => return all,
        _ => {}
    }
    all.push(("fdguard.service.kind", kind.to_owned()));
    let container = workload.and_then(|one| one.container.as_ref());
    all.extend(container.map(|one| ("container.id", one.id.clone())));
    let pod = workload.and_then(|one| one.pod.as_ref());
    all.extend(pod.map(|one| ("k8s.pod.uid", one.uid.clone())));
    let name = pod.and_then(|one| one.name.clone());
    all.extend(name.map(|name| ("k8s.pod.name", name)));
    all
}

/// One metric for each name, with all its points.
fn write_families(scope: &mut Message, series: &[&MetricSeries], times: &PointTimes) {
    let mut families: BTreeMap<&str, Vec<&MetricSeries>> = BTreeMap::new();
    for one in series {
        families.entry(one.name).or_default().push(one);
    }
    for (name, points) in families {
        let is_count = name == "fdguard_open_fds";
        let is_counter = points.iter().any(|one| one.is_counter);
        scope.message(2, |metric| {
            metric.text(1, &metric_name(name));
            metric.text(2, points.first().map_or("", |one| one.help));
            metric.text(3, unit(name).unwrap_or("1"));
            // The conventions define the count as a sum that goes up and down.
            let is_sum = is_count || is_counter;
            metric.message(if is_sum { 7 } else { 5 }, |data| {
                for one in &points {
                    data.message(1, |point| {
                        if is_sum {
                            point.fixed(2, times.started.to_le_bytes());
                        }
                        write_point(point, one, times.now);
                    });
                }
                if is_sum {
                    data.varint(2, CUMULATIVE);
                    data.varint(3, u64::from(is_counter));
                }
            });
        });
    }
}

fn write_point(point: &mut Message, series: &MetricSeries, time: u64) {
    point.fixed(3, time.to_le_bytes());
    match series.value {
        Some(value) => point.fixed(4, value.to_le_bytes()),
        None => point.varint(8, NO_VALUE),
    }
    let of_resource = ["service", "kind"];
    let own = series
        .labels
        .iter()
        .filter(|(name, _)| !of_resource.contains(name));
    for (name, value) in own {
        let key = match *name {
            "pid" => "process.pid",
            "comm" => "process.command",
            other => other,
        };
        attribute(point, 7, key, value);
    }
}

fn attribute(message: &mut Message, field: u32, key: &str, value: &str) {
    message.message(field, |pair| {
        pair.text(1, key);
        pair.message(2, |any| match (key, value.parse()) {
            ("process.pid", Ok(number)) => any.varint(3, number),
            _ => any.text(1, value),
        });
    });
}

/// Dots instead of underscores after the first word, as the conventions write names.
fn metric_name(name: &str) -> String {
    if name == "fdguard_open_fds" {
        return SEMANTIC_COUNT.to_owned();
    }
    name.trim_end_matches("_total").replacen('_', ".", 1)
}

#[cfg(test)]
mod tests {
    use fdguard_core::workload::{ContainerName, PodName, Workload};

    use super::super::otlp_units::unit;
    use super::resource_attributes;

    #[test]
    fn every_metric_of_the_guide_has_a_unit() {
        let guide = include_str!("../../../../docs/guide/serve-metrics.md");
        let rows = guide.lines().filter_map(|line| line.strip_prefix("| `"));
        let names: Vec<&str> = rows.filter_map(|row| row.split('`').next()).collect();
        assert!(names.len() > 30, "{names:?}");
        for name in names {
            assert!(unit(name).is_some(), "{name}");
        }
    }

    #[test]
    fn a_pod_has_its_name_and_uid_and_a_container_its_id() {
        let pod = Workload {
            pod: Some(PodName {
                uid: "1234".to_owned(),
                namespace: Some("shop".to_owned()),
                name: Some("cart-0".to_owned()),
            }),
            ..Workload::default()
        };
        let attributes = |kind, service, workload| {
            let all = resource_attributes("h", (kind, service), workload);
            let from = all.iter().position(|(name, _)| *name == "service.name");
            let own = all[from.unwrap() + 1..].iter();
            let words = own.map(|(name, value)| format!("{name}={value}"));
            words.collect::<Vec<_>>().join(" ")
        };
        assert_eq!(
            attributes("pod", "shop/cart", Some(&pod)),
            "k8s.namespace.name=shop fdguard.workload.name=cart fdguard.service.kind=pod \
             k8s.pod.uid=1234 k8s.pod.name=cart-0"
        );
        // Several pods of one workload.
        assert_eq!(
            attributes("pod", "shop/cart", None),
            "k8s.namespace.name=shop fdguard.workload.name=cart fdguard.service.kind=pod"
        );
        let container = Workload {
            container: Some(ContainerName {
                id: "3f4c".to_owned(),
                ..ContainerName::default()
            }),
            ..Workload::default()
        };
        assert_eq!(
            attributes("container", "web", Some(&container)),
            "container.name=web fdguard.service.kind=container container.id=3f4c"
        );
    }
}
