//! Descriptor numbers that `select()` cannot handle.

use super::{LintMatch, Rule, RuleKind, Severity, entries};
use crate::units::counted;
use crate::wall::FD_SETSIZE;
use crate::{Fd, Snapshot};

pub(super) const RULE: Rule = Rule {
    id: "fd-number-past-1024",
    kind: RuleKind::Lint,
    severity: Severity::Warning,
    summary: "descriptor numbers of 1024 and above, which select() cannot handle",
    cwe: Some(787),
    requirement: "R7",
    fix: Some(
        "use poll or epoll (Python: selectors, not select.select); raising the limit makes this worse",
    ),
};

/// Checks numbers that are open now. A large table only shows that one was open once; the summary
/// reports that as `crossed_1024`.
pub(super) fn check(snapshot: &Snapshot) -> Vec<LintMatch> {
    let past: Vec<Fd> = entries(snapshot)
        .filter(|entry| !entry.class.is_of_fdguard())
        .map(|entry| entry.fd)
        .filter(|fd| u64::from(*fd) >= FD_SETSIZE)
        .collect();
    let Some(highest) = past.iter().max() else {
        return Vec::new();
    };
    let message = format!(
        "{} above {}, highest {highest}: select() with such a number fails \
         or corrupts memory, whatever the limit is",
        counted(past.len(), "descriptor number"),
        FD_SETSIZE - 1,
    );
    vec![LintMatch::new(message, past)]
}

#[cfg(test)]
mod tests {
    use super::check;
    use crate::testing::{entry, radar, snapshot};
    use crate::{Class, Snapshot};

    #[test]
    fn r7_a_single_high_number_is_enough_however_few_are_open() {
        let fds = vec![entry(3, Class::Regular), entry(1024, Class::Udp)];
        let found = check(&snapshot(fds));
        assert_eq!(found[0].fds, [1024]);
        assert_eq!(
            found[0].message,
            "1 descriptor number above 1023, highest 1024: select() with such a number fails \
             or corrupts memory, whatever the limit is"
        );
    }

    #[test]
    fn r7_what_protection_keeps_is_not_the_programs() {
        let fds = vec![entry(3, Class::Regular), entry(1024, Class::of_fdguard())];
        let snapshot = snapshot(fds);
        assert!(check(&snapshot).is_empty());
        let summary = crate::Summary::summarize(&Snapshot {
            table_size: Some(2048),
            ..snapshot
        });
        assert_eq!((summary.highest, summary.crossed_1024), (Some(3), None));
    }

    #[test]
    fn r7_the_last_number_that_fits_is_quiet() {
        assert!(check(&snapshot(vec![entry(1023, Class::Udp)])).is_empty());
    }

    #[test]
    fn r7_a_wide_table_or_a_high_count_alone_is_no_finding() {
        let wide = Snapshot {
            table_size: Some(4096),
            ..snapshot(vec![entry(3, Class::Udp)])
        };
        assert!(check(&wide).is_empty());
        assert!(check(&radar(5000)).is_empty());
    }
}
