//! Files that an epoll instance still watches although their descriptor was closed.

use super::wording::numbers;
use super::{LintMatch, Rule, RuleKind, Severity, entries};
use crate::detail::Eventpoll;
use crate::units::counted;
use crate::{Detail, Fd, Snapshot};

pub(super) const RULE: Rule = Rule {
    id: "epoll-ghost",
    kind: RuleKind::Lint,
    severity: Severity::Warning,
    summary: "epoll registrations that no longer match the file at their descriptor number",
    cwe: Some(910),
    requirement: "R40",
    fix: Some(
        "call EPOLL_CTL_DEL before close, and find the duplicate (dup, fork, a passed descriptor) that keeps the file open",
    ),
};

pub(super) fn check(snapshot: &Snapshot) -> Vec<LintMatch> {
    entries(snapshot)
        .filter_map(|entry| match &entry.detail {
            Detail::Eventpoll(epoll) if epoll.ghosts.is_some_and(|ghosts| ghosts > 0) => {
                Some(LintMatch::new(sentence(entry.fd, epoll), vec![entry.fd]))
            }
            _ => None,
        })
        .collect()
}

fn sentence(fd: Fd, epoll: &Eventpoll) -> String {
    // The count may be known without the numbers.
    let which = if epoll.ghost_fds.is_empty() {
        String::new()
    } else {
        format!(" (registered as {})", numbers(&epoll.ghost_fds))
    };
    let count = usize::try_from(epoll.ghosts.unwrap_or(0)).unwrap_or(usize::MAX);
    format!(
        "epoll {fd} still watches {}{which}: closed here but kept open by a duplicate; \
         events arrive for a number that is free or reused",
        counted(count, "ghost"),
    )
}

#[cfg(test)]
mod tests {
    use super::check;
    use crate::testing::{entry, epoll, radar, snapshot};
    use crate::{Class, Detail};

    #[test]
    fn r40_a_ghost_is_named_with_its_epoll() {
        let found = check(&snapshot(vec![epoll(5, 4, &[9, 12]), epoll(6, 3, &[])]));
        assert_eq!(found.len(), 1);
        assert!(
            found[0]
                .message
                .starts_with("epoll 5 still watches 2 ghosts (registered as 9, 12): "),
            "{}",
            found[0].message
        );
        assert_eq!(found[0].fds, [5]);
    }

    #[test]
    fn r40_ghosts_without_numbers_are_still_counted() {
        let mut nameless = epoll(5, 4, &[9]);
        if let Detail::Eventpoll(epoll) = &mut nameless.detail {
            epoll.ghost_fds.clear();
        }
        let found = check(&snapshot(vec![nameless]));
        assert!(
            found[0]
                .message
                .starts_with("epoll 5 still watches 1 ghost: "),
            "{}",
            found[0].message
        );
    }

    #[test]
    fn r40_an_epoll_without_ghosts_or_without_detail_is_quiet() {
        let mut unread = entry(6, Class::Eventpoll);
        unread.detail = Detail::Fields(crate::detail::OtherDetail::default());
        assert!(check(&snapshot(vec![epoll(5, 10, &[]), unread])).is_empty());
        assert!(check(&radar(900)).is_empty());
    }
}
