//! What a visit knows and a lint over one snapshot does not: the other holders, the earlier state,
//! and whether `select()` is called at all. Harmless findings are reported but do not count.

use super::{ProcessVisit, Relative};
use crate::lint::{LintHit, Severity};
use crate::select_use::SelectUse;
use crate::{Fd, Pid, Snapshot};

/// Lowers the harmless ones to info.
pub(super) fn downgrade(lints: &mut [LintHit], visit: &ProcessVisit, relatives: &[Relative]) {
    for hit in lints.iter_mut() {
        let is_harmless = match hit.rule {
            "inherited-listener" => is_of_workers(hit, visit, relatives),
            "widowed-pipe" => was_there_before(hit, visit),
            "fd-number-past-1024" => visit.select == Some(SelectUse::Absent),
            _ => false,
        };
        if is_harmless {
            hit.severity = Severity::Info;
        }
    }
    lints.sort_by_key(|hit| std::cmp::Reverse(hit.severity));
}

/// Whether every other holder of these listeners is its parent, child or sibling and runs the same
/// command, as in a pre-fork server. A child that runs another command got them by mistake.
fn is_of_workers(hit: &LintHit, visit: &ProcessVisit, relatives: &[Relative]) -> bool {
    let latest = visit.latest();
    let own = latest.process.pid;
    let of = |pid: Pid| relatives.iter().find(|one| one.pid == pid);
    let parent = of(own).and_then(|one| one.ppid).or(latest.process.ppid);
    let is_worker = |pid: Pid| {
        of(pid).is_some_and(|other| {
            let is_near = other.ppid == Some(own) || parent == Some(pid) || other.ppid == parent;
            is_near && other.comm == latest.process.comm
        })
    };
    let entries = latest.fds.iter().flatten();
    let held = entries.filter(|entry| hit.fds.contains(&entry.fd));
    let mut others = held.flat_map(|entry| entry.shared_with.iter().map(|holder| holder.pid));
    others.all(|pid| pid == own || is_worker(pid))
}

/// Whether the first snapshot had the same pipes at the same numbers with no process at the other
/// end.
fn was_there_before(hit: &LintHit, visit: &ProcessVisit) -> bool {
    if visit.end.is_none() {
        return false;
    }
    let before = crate::lint::check(&visit.begin);
    let dead: Vec<Fd> = before
        .into_iter()
        .filter(|other| other.rule == hit.rule)
        .flat_map(|other| other.fds)
        .collect();
    let target = |snapshot: &Snapshot, fd: Fd| {
        let mut entries = snapshot.fds.iter().flatten();
        let found = entries.find(|entry| entry.fd == fd);
        found.map(|entry| entry.target.clone())
    };
    hit.fds.iter().all(|fd| {
        let same = target(&visit.begin, *fd) == target(visit.latest(), *fd);
        dead.contains(fd) && same
    })
}

#[cfg(test)]
mod tests {
    use super::downgrade;
    use crate::TcpState::Listen;
    use crate::detail::PipeEnd::Read;
    use crate::evidence::{ProcessVisit, Relation, Relative};
    use crate::lint::{Severity, check};
    use crate::select_use::SelectUse;
    use crate::testing::{PID, entry, holder, pipe, snapshot, stdio, tcp};
    use crate::{Class, FdEntry, Snapshot};

    fn visit(begin: Snapshot, end: Snapshot) -> ProcessVisit {
        ProcessVisit {
            begin,
            end: Some(end),
            select: None,
            runtime: None,
        }
    }

    fn of(fds: Vec<FdEntry>) -> Snapshot {
        snapshot(stdio().into_iter().chain(fds).collect())
    }

    fn relative(pid: u32, ppid: u32, comm: &str) -> Relative {
        Relative {
            pid,
            ppid: Some(ppid),
            relation: Relation::Sharer,
            depth: 0,
            comm: comm.into(),
            count: None,
            soft: None,
            zombie: false,
        }
    }

    fn severity(visit: &ProcessVisit, relatives: &[Relative], rule: &str) -> Severity {
        let mut lints = check(visit.latest());
        downgrade(&mut lints, visit, relatives);
        lints.iter().find(|hit| hit.rule == rule).unwrap().severity
    }

    fn listening(holders: &[u32]) -> ProcessVisit {
        let holders: Vec<_> = holders.iter().map(|pid| holder(*pid, 5)).collect();
        let listener = tcp(5, Listen, None).cloexec(Some(false));
        let seen = of(vec![listener.shared_with(&holders)]);
        visit(seen.clone(), seen)
    }

    #[test]
    fn r23_a_listener_of_a_parent_and_its_own_workers_is_only_worth_knowing() {
        let comm = snapshot(Vec::new()).process.comm;
        let comm = comm.as_str().unwrap();
        let worker = |pid, ppid| relative(pid, ppid, comm);
        let rule = "inherited-listener";
        // The master, then a worker with its master and a sibling.
        let family = [worker(PID, 1), worker(77, PID), worker(78, PID)];
        assert_eq!(
            severity(&listening(&[77, 78]), &family, rule),
            Severity::Info
        );
        let family = [worker(PID, 70), worker(70, 1), worker(78, 70)];
        assert_eq!(
            severity(&listening(&[70, 78]), &family, rule),
            Severity::Info
        );
    }

    #[test]
    fn r23_a_child_that_runs_something_else_or_a_stranger_stays_a_warning() {
        let comm = snapshot(Vec::new()).process.comm;
        let comm = comm.as_str().unwrap();
        let rule = "inherited-listener";
        let other = [relative(PID, 1, comm), relative(77, PID, "git")];
        assert_eq!(severity(&listening(&[77]), &other, rule), Severity::Warning);
        let stranger = [relative(PID, 1, comm), relative(77, 2, comm)];
        assert_eq!(
            severity(&listening(&[77]), &stranger, rule),
            Severity::Warning
        );
        assert_eq!(severity(&listening(&[77]), &[], rule), Severity::Warning);
    }

    #[test]
    fn r48_a_dead_pipe_that_was_there_at_first_is_only_worth_knowing() {
        let dead = || pipe(7, Read, Some(vec![]));
        let before = visit(of(vec![dead()]), of(vec![dead()]));
        assert_eq!(severity(&before, &[], "widowed-pipe"), Severity::Info);
        let new = visit(of(Vec::new()), of(vec![dead()]));
        assert_eq!(severity(&new, &[], "widowed-pipe"), Severity::Warning);
        let alive = pipe(7, Read, Some(vec![holder(99, 1)]));
        let died = visit(of(vec![alive]), of(vec![dead()]));
        assert_eq!(severity(&died, &[], "widowed-pipe"), Severity::Warning);
        let once = ProcessVisit {
            end: None,
            ..visit(of(vec![dead()]), of(Vec::new()))
        };
        assert_eq!(severity(&once, &[], "widowed-pipe"), Severity::Warning);
    }

    #[test]
    fn r7_a_high_number_matters_only_to_who_can_call_select() {
        let seen = of(vec![entry(1024, Class::Udp)]);
        let mut high = visit(seen.clone(), seen);
        assert_eq!(
            severity(&high, &[], "fd-number-past-1024"),
            Severity::Warning
        );
        high.select = Some(SelectUse::Absent);
        assert_eq!(severity(&high, &[], "fd-number-past-1024"), Severity::Info);
    }
}
