//! Descriptors that a process held before fdguard attached to it. Their opening line is unknown,
//! and no line is blamed for them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::collapse;
use crate::lifetimes::report::SiteReport;
use crate::origin::Culprit;
use crate::{Class, Fd, Pid, Text};

/// Those of one class and target.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OpenedBefore {
    /// The process.
    pub pid: Pid,
    /// Its command.
    pub comm: Text,
    /// The class.
    pub class: Class,
    /// What they refer to, numbers collapsed.
    pub target: Text,
    /// How many are still open.
    pub count: u64,
    /// Their numbers.
    pub fds: Vec<Fd>,
    /// How long they have been open at least: since the attach. Their age is unknown.
    pub age_at_least_seconds: f64,
    /// The lines that opened the same since. That they opened these, too, is likely and not known.
    pub opened_since: Vec<SimilarSite>,
}

/// A line that opened the same class and target after the attach.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SimilarSite {
    /// The line.
    pub culprit: Culprit,
    /// How many it opened since.
    pub opened: u64,
    /// How many of them are open.
    pub live: u64,
}

impl OpenedBefore {
    /// Groups the descriptors of a process, the largest group first. `sites` are the lines that
    /// opened something since.
    #[must_use]
    pub fn group<'a>(
        (pid, comm): (Pid, &Text),
        fds: impl IntoIterator<Item = (Fd, &'a Class, &'a Text)>,
        age_at_least_seconds: f64,
        sites: &[SiteReport],
    ) -> Vec<Self> {
        let mut groups: BTreeMap<(&Class, Text), Vec<Fd>> = BTreeMap::new();
        for (fd, class, target) in fds {
            let target = Text::from(&*collapse::collapse(target.as_bytes()));
            groups.entry((class, target)).or_default().push(fd);
        }
        let group = |((class, target), mut fds): ((&Class, Text), Vec<Fd>)| {
            fds.sort_unstable();
            Self {
                pid,
                comm: comm.clone(),
                class: class.clone(),
                count: fds.len() as u64,
                fds,
                age_at_least_seconds,
                opened_since: similar(sites, pid, class, &target),
                target,
            }
        };
        let mut groups: Vec<Self> = groups.into_iter().map(group).collect();
        groups.sort_by_key(|one| std::cmp::Reverse(one.count));
        groups
    }
}

fn similar(sites: &[SiteReport], pid: Pid, class: &Class, target: &Text) -> Vec<SimilarSite> {
    let is_similar = |site: &&SiteReport| {
        let is_class = site.class.as_ref().map(Class::family) == Some(class.family());
        site.pid == pid && is_class && site.target.as_ref() == Some(target)
    };
    let of_site = |site: &SiteReport| {
        Some(SimilarSite {
            culprit: site.culprit.clone()?,
            opened: site.opened,
            live: site.live,
        })
    };
    sites
        .iter()
        .filter(is_similar)
        .filter_map(of_site)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::OpenedBefore;
    use crate::lifetimes::report::SiteReport;
    use crate::{Class, Text};

    fn site(pid: u32, class: &str, target: &str) -> SiteReport {
        let culprit = serde_json::json!({
            "file": "/srv/store.py", "function": "save", "line": 17, "language": "python"});
        let site = serde_json::json!({
            "pid": pid, "culprit": culprit, "leaking_caller": null, "paths": [], "class": class,
            "target": target, "opened": 12, "closed": 4, "live": 8, "oldest_age_seconds": 3.0,
            "verdict": "leaking", "why": null});
        serde_json::from_value(site).unwrap()
    }

    #[test]
    fn they_are_grouped_and_only_the_same_class_and_target_of_the_process_is_similar() {
        let (comm, log) = (Text::from("srv"), Text::from("/srv/a.log"));
        let names = ["/tmp/agent-1/x", "/tmp/agent-22/x"].map(Text::from);
        let fds = [
            (9, &Class::Regular, &names[1]),
            (5, &Class::Regular, &names[0]),
            (3, &Class::Regular, &log),
        ];
        let target =
            String::from_utf8_lossy(&crate::collapse::collapse(b"/tmp/agent-1/x")).into_owned();
        let sites = [
            site(7, "regular", &target),
            site(8, "regular", &target),
            site(7, "pipe", &target),
        ];
        let groups = OpenedBefore::group((7, &comm), fds, 2.5, &sites);
        assert_eq!(groups.len(), 2);
        let first = &groups[0];
        assert_eq!((first.count, &*first.fds), (2, &[5, 9][..]));
        assert_eq!(first.opened_since.len(), 1);
        assert_eq!(
            (first.opened_since[0].opened, first.opened_since[0].live),
            (12, 8)
        );
        assert!(groups[1].opened_since.is_empty());
    }
}
