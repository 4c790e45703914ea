//! Patterns in the numbers: pairs and multiples that reveal their source.

use std::collections::{BTreeMap, HashMap};

use crate::units::counted;
use crate::{Class, Detail, FdEntry, Pid, Snapshot, Text};

/// Sentences about the patterns in what is open, the most useful first.
#[must_use]
pub fn patterns(snapshot: &Snapshot) -> Vec<String> {
    let Some(fds) = snapshot.fds.as_deref() else {
        return Vec::new();
    };
    let mut found = sqlite_connections(fds);
    found.extend(children_with_pipes(snapshot, fds));
    found.extend(pty_sessions(fds));
    found.extend(reactors(fds));
    found
}

/// How many databases are named individually: a host with many tenants has thousands.
const NAMED: usize = 5;

#[derive(Default)]
struct Database {
    db: u64,
    wal: u64,
}

/// In WAL mode every live connection holds the database and its log; SQLite parks database
/// descriptors of closed connections while another connection lives. So live = wal, parked = db −
/// wal.
fn sqlite_connections(fds: &[FdEntry]) -> Vec<String> {
    let mut databases: BTreeMap<Text, Database> = BTreeMap::new();
    for entry in fds {
        let Some(path) = entry.path() else { continue };
        match entry.class {
            Class::SqliteDb => databases.entry(path.clone()).or_default().db += 1,
            Class::SqliteWal => {
                let base = path
                    .as_bytes()
                    .strip_suffix(b"-wal")
                    .unwrap_or(path.as_bytes());
                databases.entry(Text::from(base)).or_default().wal += 1;
            }
            _ => {}
        }
    }
    let mut list: Vec<_> = databases
        .into_iter()
        .filter(|(_, d)| d.db + d.wal >= 2)
        .collect();
    list.sort_by_key(|(_, database)| std::cmp::Reverse(database.db + database.wal));
    let rest = list.len().saturating_sub(NAMED);
    let names = names(&list);
    let mut sentences: Vec<String> = list
        .iter()
        .zip(&names)
        .take(NAMED)
        .map(|((_, database), name)| database_sentence(name, database))
        .collect();
    if rest > 0 {
        sentences.push(format!(
            "{} with SQLite connections",
            counted(rest as u64, "more database")
        ));
    }
    sentences
}

/// The last component of each path; the whole path where two databases share it.
fn names(list: &[(Text, Database)]) -> Vec<String> {
    let base = |path: &Text| {
        let lossy = path.to_lossy();
        lossy.rsplit('/').next().unwrap_or(&lossy).to_owned()
    };
    let mut seen: HashMap<String, usize> = HashMap::new();
    for (path, _) in list {
        *seen.entry(base(path)).or_default() += 1;
    }
    list.iter()
        .map(|(path, _)| {
            let name = base(path);
            if seen.get(&name) == Some(&1) {
                name
            } else {
                path.to_lossy().into_owned()
            }
        })
        .collect()
}

fn database_sentence(name: &str, database: &Database) -> String {
    let Database { db, wal } = *database;
    if wal == 0 {
        return format!(
            "{db} open handles on {name}, no -wal: {db} SQLite connections, in rollback mode or idle"
        );
    }
    let live = counted(wal, "live SQLite connection");
    match db.saturating_sub(wal) {
        0 => format!("{live} on {name}"),
        parked => format!(
            "{live} on {name}, {} (not leaked: SQLite reuses them)",
            counted(parked, "parked database handle")
        ),
    }
}

/// Children that were started with pipes and never released: their pipes (and pidfds) come in
/// fixed multiples.
fn children_with_pipes(snapshot: &Snapshot, fds: &[FdEntry]) -> Option<String> {
    let pipes = fds
        .iter()
        .filter(|entry| may_lead_to_a_child(entry, snapshot.process.pid))
        .count() as u64;
    let pidfds = count(fds, &Class::Pidfd);
    let process = &snapshot.process;
    let cohorts = process.cohorts.iter().map(|cohort| cohort.count);
    // Running children give the best count; if they have exited, only pidfds are left.
    let Shape { units, per_unit } = process
        .children
        .into_iter()
        .chain(cohorts)
        .chain([pidfds])
        .filter_map(|counter| Shape::of(pipes, counter))
        .min_by_key(|(_, error)| *error)
        .map(|(shape, _)| shape)?;
    let with_pidfd = is_close(pidfds, units) || pidfds > units;
    if units < if with_pidfd { 4 } else { 6 } {
        return None;
    }
    let mut sentence = format!("{units} children × {per_unit} pipes");
    if with_pidfd {
        sentence.push_str(" + pidfd");
    }
    if with_pidfd && pidfds > units {
        let more = counted(pidfds - units, "more pidfd");
        sentence.push_str(&format!(" ({more})"));
    }
    if let Some(left) = process.children.filter(|left| *left < units / 2) {
        let left = match left {
            0 => "none is left: they".to_owned(),
            left => format!("at most {left} of them are left: the rest"),
        };
        sentence.push_str(&format!("; {left} exited without being released"));
    }
    Some(sentence)
}

/// Stdio leads to the parent, and a pipe with both ends here is the program's own wake-up.
fn may_lead_to_a_child(entry: &FdEntry, own: Pid) -> bool {
    let Detail::Pipe(pipe) = &entry.detail else {
        return false;
    };
    let both_ends_here = pipe.peer.iter().flatten().any(|holder| holder.pid == own);
    entry.class == Class::Pipe && entry.fd > 2 && !both_ends_here
}

/// A number of units with a number of pipes each.
struct Shape {
    units: u64,
    per_unit: u64,
}

impl Shape {
    /// The shape of `pipes` if `counter` is the number of units, and how far off that is. The two
    /// never agree exactly: programs have other pipes and other children.
    fn of(pipes: u64, counter: u64) -> Option<(Self, u64)> {
        if counter == 0 {
            return None;
        }
        let per_unit = (pipes + counter / 2) / counter;
        // One pipe each is too ordinary to mean anything; no runtime uses five.
        if !(2..=4).contains(&per_unit) {
            return None;
        }
        let units = pipes / per_unit;
        let error = pipes.abs_diff(counter * per_unit);
        is_close(counter, units).then_some((Self { units, per_unit }, error))
    }
}

/// Within a tenth.
fn is_close(a: u64, b: u64) -> bool {
    a.abs_diff(b) * 10 <= b
}

fn pty_sessions(fds: &[FdEntry]) -> Option<String> {
    let masters = count(fds, &Class::PtyMaster);
    (masters >= 3).then(|| {
        format!("{masters} pseudo-terminal masters: one per terminal session that was not closed")
    })
}

/// An event loop holds one epoll and one or two wake-up descriptors.
fn reactors(fds: &[FdEntry]) -> Option<String> {
    let epolls = count(fds, &Class::Eventpoll);
    if epolls < 4 {
        return None;
    }
    let watching_nothing_more = fds
        .iter()
        .filter(|entry| matches!(&entry.detail, Detail::Eventpoll(epoll) if epoll.watching <= 1))
        .count();
    let idle = match watching_nothing_more {
        0 => String::new(),
        idle => format!(", {idle} of them watch nothing but their own wake-up"),
    };
    Some(format!("{epolls} event loops (epoll instances){idle}"))
}

fn count(fds: &[FdEntry], class: &Class) -> u64 {
    fds.iter().filter(|entry| entry.class == *class).count() as u64
}

#[cfg(test)]
mod tests {
    use super::patterns;
    use crate::detail::PipeEnd::{Read, Write};
    use crate::snapshot::Cohort;
    use crate::testing::{PID, entry, epoll, file, holder, pipe, pty, radar, snapshot};
    use crate::{Class, FdEntry, Snapshot};

    fn many(first: u32, count: u32, class: &Class) -> Vec<FdEntry> {
        (first..first + count)
            .map(|fd| entry(fd, class.clone()))
            .collect()
    }

    fn family(pipes: u32, pidfds: u32, children: Option<u64>) -> Snapshot {
        let mut fds = many(3, pipes, &Class::Pipe);
        fds.extend(many(2000, pidfds, &Class::Pidfd));
        let mut snapshot = snapshot(fds);
        snapshot.process.children = children;
        snapshot
    }

    fn database(path: &str, first: u32, db: u32, wal: u32) -> Vec<FdEntry> {
        let log = format!("{path}-wal");
        (first..first + db)
            .map(|fd| file(fd, Class::SqliteDb, path))
            .chain((first + db..first + db + wal).map(|fd| file(fd, Class::SqliteWal, &log)))
            .collect()
    }

    #[test]
    fn r3_live_connections_are_the_logs_and_the_other_handles_are_parked() {
        let fds = database("/srv/state.db", 3, 48, 46);
        assert_eq!(
            patterns(&snapshot(fds)),
            [
                "46 live SQLite connections on state.db, 2 parked database handles (not leaked: SQLite reuses them)"
            ]
        );
        let fds = database("/srv/state.db", 3, 46, 46);
        assert_eq!(
            patterns(&snapshot(fds)),
            ["46 live SQLite connections on state.db"]
        );
    }

    #[test]
    fn r3_without_a_log_handles_are_connections_in_rollback_mode() {
        let found = patterns(&snapshot(database("/srv/state.db", 3, 4, 0)));
        assert!(found[0].starts_with("4 open handles on state.db, no -wal"));
        assert!(patterns(&snapshot(database("/srv/state.db", 3, 1, 0))).is_empty());
    }

    #[test]
    fn r3_databases_of_one_name_are_told_apart_and_a_long_list_ends() {
        let mut fds = database("/a/state.db", 3, 1, 1);
        fds.extend(database("/b/state.db", 10, 2, 2));
        assert_eq!(
            patterns(&snapshot(fds)),
            [
                "2 live SQLite connections on /b/state.db",
                "1 live SQLite connection on /a/state.db"
            ]
        );
        let tenants = (0..40).flat_map(|n| database(&format!("/t/{n}.db"), 10 * n + 3, 1, 1));
        let found = patterns(&snapshot(tenants.collect()));
        assert_eq!(found.len(), 6);
        assert_eq!(found[5], "35 more databases with SQLite connections");
    }

    #[test]
    fn r3_incident_2_is_229_children_with_three_pipes_and_a_pidfd() {
        assert_eq!(
            patterns(&family(687, 241, Some(229))),
            ["229 children × 3 pipes + pidfd (12 more pidfds)"]
        );
    }

    #[test]
    fn r3_incident_2_is_seen_without_knowing_the_children_and_after_they_ended() {
        assert_eq!(
            patterns(&family(687, 241, None)),
            ["229 children × 3 pipes + pidfd (12 more pidfds)"]
        );
        assert_eq!(
            patterns(&family(687, 241, Some(5))),
            [
                "229 children × 3 pipes + pidfd (12 more pidfds); at most 5 of them are left: the rest exited without being released"
            ]
        );
    }

    #[test]
    fn r3_incident_1_is_about_200_children_with_three_pipes() {
        assert_eq!(
            patterns(&family(597, 0, Some(200))),
            ["199 children × 3 pipes"]
        );
    }

    #[test]
    fn r3_a_cohort_may_explain_the_pipes_that_all_children_together_do_not() {
        let mut snapshot = family(60, 0, Some(75));
        snapshot.process.cohorts = vec![
            Cohort {
                command: "sleep".into(),
                count: 55,
                zombies: 0,
            },
            Cohort {
                command: "npx".into(),
                count: 20,
                zombies: 0,
            },
        ];
        assert_eq!(patterns(&snapshot), ["20 children × 3 pipes"]);
    }

    #[test]
    fn r3_an_ordinary_server_has_no_pattern() {
        for (pipes, pidfds, children) in [
            (5, 0, Some(3)),
            (6, 0, Some(3)),
            (2, 1, Some(1)),
            (40, 0, Some(2)),
            (13, 0, Some(8)),
            (0, 30, Some(30)),
            (0, 0, None),
        ] {
            let found = patterns(&family(pipes, pidfds, children));
            assert!(found.is_empty(), "{pipes} {pidfds} {children:?}: {found:?}");
        }
    }

    #[test]
    fn r3_stdio_and_wake_up_pipes_are_not_the_childrens() {
        let mut fds = vec![pipe(0, Read, None), pipe(1, Write, None)];
        fds.extend((10..30).map(|fd| pipe(fd, Read, Some(vec![holder(PID, fd + 100)]))));
        let mut snapshot = snapshot(fds);
        snapshot.process.children = Some(10);
        assert!(patterns(&snapshot).is_empty());
    }

    #[test]
    fn r3_terminals_and_event_loops_are_counted_from_where_they_are_many() {
        let mut fds: Vec<FdEntry> = (3..5).map(|fd| pty(fd, fd)).collect();
        fds.extend((10..13).map(|fd| epoll(fd, 1, &[])));
        assert!(patterns(&snapshot(fds.clone())).is_empty());
        fds.push(pty(5, 5));
        fds.push(epoll(13, 9, &[]));
        assert_eq!(
            patterns(&snapshot(fds)),
            [
                "3 pseudo-terminal masters: one per terminal session that was not closed",
                "4 event loops (epoll instances), 3 of them watch nothing but their own wake-up"
            ]
        );
    }

    #[test]
    fn r3_the_radar_sees_no_pattern() {
        assert!(patterns(&radar(900)).is_empty());
    }
}
