//! The forty public incidents that fdguard must be able to explain, and the entry that explains
//! each.

use super::{Playbook, Suspect};
use crate::Class;

/// The visible sign of an incident.
enum IncidentSign {
    /// As a class, at a target, in a command, with other classes beside it.
    As(
        &'static str,
        &'static str,
        &'static str,
        &'static [&'static str],
    ),
    /// As a problem without a class, found by its topic.
    Topic(&'static str),
}

use IncidentSign::{As, Topic};

/// Number in the table of incidents, its sign, the entry that must match.
const INCIDENTS: &[(u8, IncidentSign, &str)] = &[
    (
        1,
        As("pipe", "pipe:[*]", "codex", &["pidfd", "regular"]),
        "child-stdio-and-handle",
    ),
    (
        2,
        As("pipe", "pipe:[*]", "codex", &["pidfd"]),
        "child-stdio-and-handle",
    ),
    (3, As("pipe", "pipe:[*]", "codex", &[]), "child-stdio"),
    (4, Topic("orphans"), "orphan-processes"),
    (
        5,
        As("pty-master", "/dev/ptmx", "node", &[]),
        "pty-not-destroyed",
    ),
    (
        6,
        As("pty-master", "/dev/ptmx", "claude", &[]),
        "pty-not-destroyed",
    ),
    (7, Topic("processes"), "orphan-processes"),
    (
        8,
        As("regular", "/home/u/project/*.ts", "node", &["directory"]),
        "watched-tree",
    ),
    (
        9,
        As("inotify", "inotify", "node", &["eventpoll"]),
        "watchers",
    ),
    (
        10,
        As("regular", "/srv/agent/skills/*", "node", &[]),
        "loaded-files",
    ),
    (
        11,
        As("unix", "/run/docker.sock", "python3", &[]),
        "docker-streams",
    ),
    (
        11,
        As("tcp:ESTABLISHED", "*->10.0.0.7:443", "python3", &[]),
        "python-http-client",
    ),
    (
        12,
        As(
            "sqlite-db",
            "/srv/state.db",
            "python3",
            &["sqlite-wal", "tcp:CLOSE_WAIT"],
        ),
        "sqlite-with-block",
    ),
    (
        12,
        As(
            "tcp:CLOSE_WAIT",
            "*->10.0.0.7:443",
            "hermes",
            &["sqlite-db"],
        ),
        "peer-closed",
    ),
    (
        13,
        As("sqlite-db", "/srv/state.db", "hermes", &["sqlite-wal"]),
        "sqlite-whole-connections",
    ),
    (
        14,
        As("pty-master", "/dev/ptmx", "python3", &["pipe"]),
        "parent-end-kept",
    ),
    (
        15,
        As("tcp:CLOSE", "*->10.0.0.7:443", "python3", &[]),
        "shutdown-without-close",
    ),
    (16, Topic("recycled-write"), "recycled-number"),
    (17, Topic("posix-locks"), "lock-loss"),
    (18, Topic("deleted-wal"), "deleted-wal"),
    (19, Topic("emfile"), "exhaustion-misread"),
    (20, Topic("zombies"), "zombies"),
    (21, Topic("reaper"), "reaper-without-list"),
    (22, Topic("double-close"), "double-close"),
    (23, Topic("double-close"), "double-close"),
    (24, Topic("double-close"), "double-close"),
    (25, Topic("bad-file-descriptor"), "double-close"),
    (26, Topic("eintr"), "close-retried"),
    (27, Topic("stranger-close"), "close-by-stranger"),
    (
        28,
        As("pidfd", "pid * git", "python3.14", &[]),
        "python-process-handles",
    ),
    (
        29,
        As("inotify", "inotify", "python3", &[]),
        "python-watchers",
    ),
    (
        30,
        As("eventpoll", "eventpoll", "server", &["eventfd"]),
        "runtime-per-object",
    ),
    (
        31,
        As("tcp:LISTEN", "0.0.0.0:8080", "vlc", &[]),
        "inherited-listener",
    ),
    (
        32,
        As("regular", "/run/app.lock", "daemon", &[]),
        "inherited-lock-file",
    ),
    (
        33,
        As("deleted", "/var/log/app.log.1", "vector", &[]),
        "rotated-file",
    ),
    (34, Topic("select"), "number-past-1024"),
    (35, Topic("accept"), "accept-wedge"),
    (
        36,
        As("regular", "/data/missing", "xrootd", &[]),
        "open-files",
    ),
    (37, Topic("counting"), "wrong-count"),
    (38, Topic("pdeathsig"), "thread-bound-death-signal"),
    (39, Topic("use-after-close"), "use-after-close"),
    (40, As("timerfd", "timerfd", "app", &[]), "timers"),
];

#[test]
fn r5_every_incident_has_its_entry() {
    let playbook = Playbook::embedded();
    for (number, shown, expected) in INCIDENTS {
        match shown {
            As(class, target, comm, beside) => {
                let beside: Vec<Class> = beside.iter().map(|name| name.parse().unwrap()).collect();
                let advice = playbook.advise(&Suspect {
                    class: &class.parse().unwrap(),
                    target: Some(target.as_bytes()),
                    comm: comm.as_bytes(),
                    exe: None,
                    beside: &beside,
                });
                let id = advice.map(|advice| advice.id.as_str());
                assert_eq!(id, Some(*expected), "incident {number}");
            }
            Topic(topic) => {
                let mut found = playbook.on_topic(topic);
                assert!(
                    found.any(|advice| advice.id == *expected),
                    "incident {number}"
                );
            }
        }
    }
    for number in 1..=40 {
        assert!(
            INCIDENTS.iter().any(|(known, ..)| *known == number),
            "{number}"
        );
    }
}

#[test]
fn r5_every_entry_of_the_table_names_a_public_report() {
    let playbook = Playbook::embedded();
    for (number, _, id) in INCIDENTS {
        let mut entries = playbook.advice().iter();
        let advice = entries.find(|advice| advice.id == *id).unwrap();
        assert!(!advice.incidents.is_empty(), "incident {number}: {id}");
    }
}
