//! The first services of all hosts, from what each host ranks itself. Pure.

use std::collections::{BTreeMap, BTreeSet};

use super::prometheus::PromSample;
use super::rows::RowKey;

/// Services with the value by which they are ranked.
#[derive(Debug)]
pub(super) struct RankedServices<'a> {
    host_label: &'a str,
    values: BTreeMap<RowKey, f64>,
}

impl<'a> RankedServices<'a> {
    pub(super) fn new(host_label: &'a str) -> Self {
        Self {
            host_label,
            values: BTreeMap::new(),
        }
    }

    /// Adds an answer.
    pub(super) fn add(&mut self, samples: Vec<PromSample>) {
        let known = samples.into_iter().filter(|one| !one.value.is_nan());
        let values = known.map(|one| (RowKey::of(&one, self.host_label), one.value));
        self.values.extend(values);
    }

    /// Hosts whose other services may be among the first as well: all that such a host ranks is
    /// here, or it ranks none, as an older fdguard does. `sizes`: how many each host ranks.
    pub(super) fn incomplete_hosts<'b>(
        &self,
        sizes: &[PromSample],
        hosts: &'b BTreeSet<String>,
        limit: usize,
    ) -> Vec<&'b str> {
        let mut left: BTreeMap<&str, f64> = BTreeMap::new();
        for size in sizes {
            let host = size.labels.get(self.host_label);
            left.insert(host.map_or("", String::as_str), size.value);
        }
        for key in self.first(limit) {
            if let Some(left) = left.get_mut(key.host.as_str()) {
                *left -= 1.0;
            }
        }
        let is_incomplete = |host: &&str| left.get(host).is_none_or(|left| *left <= 0.0);
        hosts
            .iter()
            .map(String::as_str)
            .filter(is_incomplete)
            .collect()
    }

    /// The first services, highest value first.
    pub(super) fn first(&self, limit: usize) -> Vec<RowKey> {
        let mut all: Vec<(&RowKey, f64)> = self
            .values
            .iter()
            .map(|(key, value)| (key, *value))
            .collect();
        // Stable: of equal values the order is that of the keys.
        all.sort_by(|a, b| b.1.total_cmp(&a.1));
        let first = all.into_iter().take(limit);
        first.map(|(key, _)| key.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::RankedServices;
    use crate::fleet::rows::tests::sample;

    #[test]
    fn hosts_that_may_have_more_are_asked_for_everything() {
        let mut ranked = RankedServices::new("host");
        let one = |host, service, value| {
            let labels = [("host", host), ("kind", "unit"), ("service", service)];
            sample("x", &labels, value)
        };
        ranked.add(vec![
            one("full", "a", 0.9),
            one("full", "b", 0.8),
            one("partly", "a", 0.7),
            one("none", "a", f64::NAN),
        ]);
        let sizes = [("full", 2.0), ("partly", 2.0), ("none", 2.0)];
        let sizes = sizes.map(|(host, count)| sample("", &[("host", host)], count));
        let hosts = ["full", "none", "old", "partly"].map(str::to_owned);
        let hosts: BTreeSet<String> = hosts.into_iter().collect();
        assert_eq!(ranked.incomplete_hosts(&sizes, &hosts, 3), ["full", "old"]);
        assert_eq!(ranked.incomplete_hosts(&sizes, &hosts, 1), ["old"]);
        ranked.add(vec![one("full", "c", 0.75), one("old", "z", 0.85)]);
        let first = ranked.first(4);
        let names: Vec<String> = first
            .iter()
            .map(|key| format!("{}/{}", key.host, key.service))
            .collect();
        assert_eq!(names, ["full/a", "old/z", "full/b", "full/c"]);
    }
}
