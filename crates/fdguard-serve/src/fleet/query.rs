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

/// A metric by which services are ranked, highest first, and the one that has only the first few
/// services of each host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ranking {
    all: &'static str,
    first: &'static str,
}

impl Ranking {
    /// The ranking of an order; that of the time left ranks the rest, which does not grow.
    pub(super) fn of(order: FleetOrder) -> Self {
        let (all, first) = match order {
            FleetOrder::TimeLeft | FleetOrder::Usage => {
                ("fdguard_fd_usage_ratio", "fdguard_top_fd_usage_ratio")
            }
            FleetOrder::Growth => (
                "fdguard_fd_growth_per_second",
                "fdguard_top_fd_growth_per_second",
            ),
            FleetOrder::Verdict => ("fdguard_verdict", "fdguard_top_verdict"),
            FleetOrder::Count => ("fdguard_open_fds", "fdguard_top_open_fds"),
        };
        Self { all, first }
    }

    /// The first services among the first of each host.
    pub(super) fn first(self, limit: usize) -> String {
        format!("topk({limit}, {})", self.first)
    }

    /// How many services each host ranks itself; a host with an older fdguard is absent.
    pub(super) fn sizes(self, host: &str) -> String {
        format!("count by ({host}) ({})", self.first)
    }

    /// The first services of these hosts, a few hosts in each expression.
    pub(super) fn of_hosts(self, host: &str, hosts: &[&str], limit: usize) -> Vec<String> {
        let one = |name: &&str| format!("{}{{{host}={}}}", self.all, quote(name));
        let some = |names: &[&str]| names.iter().map(one).collect::<Vec<_>>().join(" or ");
        let some = hosts.chunks(TOGETHER).map(some);
        some.map(|all| format!("topk({limit}, {all})")).collect()
    }

    /// The first services of all hosts, from every series: slow in a large fleet.
    pub(super) fn of_all(self, limit: usize) -> String {
        format!("topk({limit}, {})", self.all)
    }
}

/// The services with the least time to a limit.
pub(super) fn least_time(host: &str, limit: usize) -> String {
    let least = format!("min by ({host}, kind, service) (fdguard_seconds_to_limit)");
    format!("bottomk({limit}, {least})")
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
    use super::{FleetOrder, Ranking, details, least_time, service};
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
    fn a_ranking_asks_for_a_few_series_of_each_host() {
        let usage = Ranking::of(FleetOrder::TimeLeft);
        assert_eq!(usage.first(5), "topk(5, fdguard_top_fd_usage_ratio)");
        assert_eq!(
            usage.sizes("host"),
            "count by (host) (fdguard_top_fd_usage_ratio)"
        );
        assert_eq!(
            usage.of_hosts("host", &["a", "b\"} or vector(1)"], 5),
            [
                r#"topk(5, fdguard_fd_usage_ratio{host="a"} or fdguard_fd_usage_ratio{host="b\"} or vector(1)"})"#
            ]
        );
        assert_eq!(usage.of_hosts("host", &["a"; 41], 5).len(), 2);
        assert_eq!(
            least_time("host", 5),
            "bottomk(5, min by (host, kind, service) (fdguard_seconds_to_limit))"
        );
    }
}
