//! The expressions. Names of services come from processes, so every one of them is quoted.

use super::rows::RowKey;

/// The metrics that make a row.
const DETAILS: &str = "fdguard_open_fds|fdguard_fd_limit|fdguard_fd_usage_ratio|\
                       fdguard_fd_growth_per_second|fdguard_verdict|fdguard_processes|\
                       fdguard_seconds_to_limit|fdguard_findings";

/// Services in one expression: VictoriaMetrics accepts 16 kB.
const TOGETHER: usize = 40;

/// An order of services.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FleetOrder {
    /// The least time to a limit first, then the fullest.
    #[default]
    TimeLeft,
    /// The fastest growth first.
    Growth,
    /// The fullest first.
    Usage,
    /// The worst verdict first.
    Verdict,
    /// The most descriptors first.
    Count,
}

/// Expressions that find the first services, to be asked in turn until there are enough.
pub(super) fn rank(order: FleetOrder, host: &str, limit: usize) -> Vec<String> {
    let top = |metric: &str| format!("topk({limit}, {metric})");
    let least = format!("min by ({host}, kind, service) (fdguard_seconds_to_limit)");
    match order {
        FleetOrder::TimeLeft => vec![
            format!("bottomk({limit}, {least})"),
            top("fdguard_fd_usage_ratio"),
        ],
        FleetOrder::Growth => vec![top("fdguard_fd_growth_per_second")],
        FleetOrder::Usage => vec![top("fdguard_fd_usage_ratio")],
        FleetOrder::Verdict => vec![top("fdguard_verdict")],
        FleetOrder::Count => vec![top("fdguard_open_fds")],
    }
}

/// Everything about these services, some of them in each expression. One selector for each is much
/// faster than one regular expression for all: the server intersects short lists.
pub(super) fn details(host: &str, keys: &[RowKey]) -> Vec<String> {
    let one = |key: &RowKey| {
        let (name, service) = (quote(&key.host), quote(&key.service));
        format!("{{{host}={name},service={service}}}")
    };
    let some = |keys: &[RowKey]| keys.iter().map(one).collect::<Vec<_>>().join(" or ");
    keys.chunks(TOGETHER).map(some).collect()
}

/// One service on all hosts.
pub(super) fn service(name: &str) -> String {
    format!("{{__name__=~\"{DETAILS}\",service={}}}", quote(name))
}

/// The hosts that report now, and within the last hour.
pub(super) fn hosts(host: &str) -> [String; 2] {
    [
        format!("count by ({host}) (fdguard_visible_processes)"),
        format!("count by ({host}) (last_over_time(fdguard_visible_processes[1h]))"),
    ]
}

/// A string of PromQL.
fn quote(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '"' => out.push_str("\\\""),
            '\n' => out.push_str("\\n"),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::{FleetOrder, details, rank, service};
    use crate::fleet::rows::RowKey;

    #[test]
    fn hostile_names_stay_within_their_quotes() {
        assert!(service("a\"} or vector(1)\\").ends_with(r#",service="a\"} or vector(1)\\"}"#));
        let key = RowKey {
            host: "h.1:9187".to_owned(),
            kind: "command".to_owned(),
            service: "a|b\".*".to_owned(),
        };
        let expressions = details("instance", &[key.clone(), key.clone()]);
        let one = r#"{instance="h.1:9187",service="a|b\".*"}"#;
        assert_eq!(expressions, [format!("{one} or {one}")]);
        assert!(details("instance", &[]).is_empty());
        assert_eq!(details("instance", &vec![key; 41]).len(), 2);
    }

    #[test]
    fn the_least_time_is_filled_up_with_the_fullest() {
        let asked = rank(FleetOrder::TimeLeft, "host", 5);
        assert_eq!(
            asked,
            [
                "bottomk(5, min by (host, kind, service) (fdguard_seconds_to_limit))",
                "topk(5, fdguard_fd_usage_ratio)"
            ]
        );
    }
}
