//! What the numbers say together: pairs and multiples that betray their source.

use std::collections::BTreeMap;

use crate::{Class, Detail, FdEntry, Snapshot, Text};

/// Sentences about the shape of what is held, most telling first.
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

#[derive(Default)]
struct Database {
    db: u64,
    wal: u64,
}

/// In WAL mode every live connection holds the database and its log; SQLite parks database
/// descriptors of closed connections while another connection lives. So live = wal, parked = db − wal.
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
    list.into_iter()
        .map(|(path, database)| database_sentence(&path, &database))
        .collect()
}

fn database_sentence(path: &Text, database: &Database) -> String {
    let lossy = path.to_lossy();
    let name = lossy.rsplit('/').next().unwrap_or(&lossy);
    let Database { db, wal } = *database;
    if wal == 0 {
        return format!(
            "{db} open handles on {name}, no -wal: {db} SQLite connections in rollback mode, or idle ones"
        );
    }
    let parked = db.saturating_sub(wal);
    let connections = if wal == 1 {
        "connection"
    } else {
        "connections"
    };
    if parked == 0 {
        format!("{wal} live SQLite {connections} on {name}")
    } else {
        format!(
            "{wal} live SQLite {connections} on {name}, {parked} parked database handles (not leaked: SQLite reuses them)"
        )
    }
}

/// Children that were started with pipes and never released: their pipes (and pidfds) come in
/// fixed multiples.
fn children_with_pipes(snapshot: &Snapshot, fds: &[FdEntry]) -> Option<String> {
    let pipes = count(fds, &Class::Pipe);
    let pidfds = count(fds, &Class::Pidfd);
    let children = snapshot.process.children.unwrap_or(0);
    let units = if pidfds >= 3 { pidfds } else { children };
    if units < 3 || pipes < 2 * units {
        return None;
    }
    // Event loops hold a few pipes of their own: allow less than one per ten children.
    let per_child = pipes / units;
    let rest = pipes - per_child * units;
    if !(2..=4).contains(&per_child) || rest * 10 > units.max(20) {
        return None;
    }
    let what = if pidfds >= 3 {
        "pipes + pidfd"
    } else {
        "pipes"
    };
    let state = if pidfds >= 3 && children < pidfds / 2 {
        format!("; only {children} children are left: the rest ended and was never released")
    } else {
        String::new()
    };
    Some(format!("{units} children × {per_child} {what}{state}"))
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
    Some(format!(
        "{epolls} event loops (epoll instances), {watching_nothing_more} of them watch nothing or only their own wake-up"
    ))
}

fn count(fds: &[FdEntry], class: &Class) -> u64 {
    fds.iter().filter(|entry| entry.class == *class).count() as u64
}
