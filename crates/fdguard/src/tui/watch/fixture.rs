//! MadeReport-up watches: one look a second; whatever a test does not specify is ordinary.

use fdguard_core::config::Config;
use fdguard_core::playbook::Playbook;
use fdguard_core::recording::{Appearance, RecordingEntry, RecordingHeader};
use fdguard_core::rule::RuleSettings;
use fdguard_core::snapshot::{Ceiling, Ceilings, Limits, Process};
use fdguard_core::timeline::{Look, LookChange, Sighting};
use fdguard_core::watch::Watch;
use fdguard_core::{Class, Fd, Gap, Pid, TcpState, Text, Tier};

use super::{WatchOptions, WatchViewState};

/// How the descriptors of a made-up process change from look to look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Life {
    /// Every other second one connection is leaked, and a log file now and then.
    Leaking,
    /// No change.
    Stable,
    /// Only a count, which grows.
    Counted,
    /// Two connections a second, closed after three.
    Busy,
}

/// One process of a made-up watch.
#[derive(Clone, Copy, Debug)]
pub(super) struct Actor {
    pub(super) id: u32,
    pub(super) pid: Pid,
    pub(super) comm: &'static str,
    pub(super) life: Life,
    pub(super) ends: Option<u32>,
}

impl Actor {
    pub(super) fn new(id: u32, comm: &'static str, life: Life) -> Self {
        Self {
            id,
            pid: 4242 + id,
            comm,
            life,
            ends: None,
        }
    }

    fn appearance(&self) -> RecordingEntry {
        RecordingEntry::Process(Box::new(Appearance {
            id: self.id,
            at: 0.0,
            process: Process {
                pid: self.pid,
                start_ticks: Some(100),
                comm: Text::from(self.comm),
                ..Process::default()
            },
            tier: match self.life {
                Life::Counted => Tier::Radar,
                _ => Tier::Full,
            },
            select: None,
            successor_of: None,
        }))
    }

    fn look(&self, second: u32) -> Look {
        let steps = u64::from(second);
        let (count, table) = match self.life {
            Life::Leaking => (44 + steps / 2 + steps / 20, leaking(second)),
            Life::Stable => (44, (second == 0).then(beginning)),
            Life::Counted => (300 + steps, None),
            Life::Busy => (44 + 2 * steps.min(3), busy(second)),
        };
        Look {
            at: f64::from(second),
            count: Some(count),
            table,
            limits: (second == 0).then_some(Limits {
                soft: Some(1024),
                hard: Some(524_288),
            }),
            host: (second == 0).then(ceilings),
            family: None,
            process: None,
        }
    }
}

fn ceilings() -> Ceilings {
    let ceiling = |used, at| Ceiling {
        used: Some(used),
        at: Some(at),
    };
    Ceilings {
        files: ceiling(12_345, i64::MAX as u64),
        ptys: ceiling(3, 4096),
        inotify_instances: Ceiling {
            used: None,
            at: Some(128),
        },
        tasks: ceiling(640, 32_768),
        ..Ceilings::default()
    }
}

fn sighting(fd: Fd, class: Class, target: &str) -> Sighting {
    Sighting {
        fd,
        class,
        target: target.into(),
        group: None,
    }
}

/// The descriptors at the first look: 44 of five classes.
fn beginning() -> LookChange {
    let mut opened = Vec::new();
    let mut hold = |class: Class, count: u32, target: &str| {
        for _ in 0..count {
            let fd = Fd::try_from(opened.len()).unwrap();
            opened.push(sighting(fd, class.clone(), target));
        }
    };
    hold(Class::Chardev, 3, "/dev/null");
    hold(Class::Pipe, 24, "pipe");
    hold(Class::Eventpoll, 2, "eventpoll");
    hold(Class::Tcp(TcpState::Listen), 1, "0.0.0.0:8080");
    hold(Class::Regular, 14, "/var/lib/worker/state/*.db");
    LookChange {
        opened,
        ..LookChange::default()
    }
}

fn opening(fd: Fd, class: Class, target: &str) -> LookChange {
    LookChange {
        opened: vec![sighting(fd, class, target)],
        ..LookChange::default()
    }
}

fn leaking(second: u32) -> Option<LookChange> {
    if second == 0 {
        return Some(beginning());
    }
    let mut change = LookChange::default();
    if second.is_multiple_of(2) {
        let class = Class::Tcp(TcpState::CloseWait);
        change = opening(44 + second, class, "10.0.0.5:* → 93.184.216.34:443");
    }
    if second.is_multiple_of(20) {
        let log = "/var/log/worker/\u{1b}[2J\u{202e}request-*.log";
        let log = sighting(45 + second, Class::Regular, log);
        change.opened.push(log);
    }
    (!change.is_empty()).then_some(change)
}

fn busy(second: u32) -> Option<LookChange> {
    if second == 0 {
        return Some(beginning());
    }
    let number = |second: u32| [100 + 2 * (second % 8), 101 + 2 * (second % 8)];
    let target = "10.0.0.5:* → 10.0.0.9:5432";
    let class = Class::Tcp(TcpState::Established);
    let opened = number(second).map(|fd| sighting(fd, class.clone(), target));
    let closed = second.checked_sub(3).filter(|before| *before > 0);
    Some(LookChange {
        opened: opened.to_vec(),
        closed: closed.map(number).into_iter().flatten().collect(),
        changed: Vec::new(),
    })
}

/// A watch of these processes over `seconds` seconds.
pub(super) fn watch(actors: &[Actor], seconds: u32) -> Watch {
    let mut watch = begun(actors);
    for second in 0..seconds {
        proceed(&mut watch, actors, second);
    }
    watch
}

/// A watch before its first look.
pub(super) fn begun(actors: &[Actor]) -> Watch {
    let started = "2026-11-15T09:00:00Z".parse().unwrap();
    let mut watch = Watch::new(RecordingHeader::new(started, 1.0));
    for actor in actors {
        watch.record(&actor.appearance());
    }
    watch
}

/// The looks of one second.
pub(super) fn proceed(watch: &mut Watch, actors: &[Actor], second: u32) {
    for actor in actors {
        let id = actor.id;
        match actor.ends {
            Some(end) if second > end => {}
            Some(end) if second == end => watch.record(&RecordingEntry::Gone {
                id,
                at: f64::from(second),
            }),
            _ => watch.record(&RecordingEntry::Look {
                id,
                look: Box::new(actor.look(second)),
            }),
        }
    }
}

/// Adds a gap.
pub(super) fn gap(watch: &mut Watch, what: &str) {
    watch.record(&RecordingEntry::Gap(Gap::new(
        what,
        "permission denied",
        "run as root or with CAP_SYS_PTRACE",
    )));
}

/// Five minutes of a leak, a part of which was accepted.
pub(super) fn leak() -> Watch {
    let mut watch = watch(&[Actor::new(0, "worker", Life::Leaking)], 300);
    gap(&mut watch, "open files of the user's other processes");
    gap(&mut watch, "peers of 12 sockets");
    watch
}

/// A tree of four, one of which has ended.
pub(super) fn tree() -> Vec<Actor> {
    let ended = Actor {
        ends: Some(70),
        ..Actor::new(3, "git", Life::Busy)
    };
    vec![
        Actor::new(0, "supervisor", Life::Stable),
        Actor::new(1, "\u{1b}[2J名前のプロセス", Life::Busy),
        Actor::new(2, "worker", Life::Leaking),
        ended,
    ]
}

/// Settings in which log files were examined and found harmless.
pub(super) fn settings() -> RuleSettings {
    let config = Config::parse(
        "[[cleared]]\nclass = \"regular\"\ntarget = \"/var/log/*\"\n\
         reason = \"one log for each request, closed at night\"\ndate = 2026-10-01\n",
    );
    RuleSettings {
        suppressions: config.unwrap().suppressions,
        levels: fdguard_core::config::Levels::default(),
        expectations: Vec::new(),
        playbook: Playbook::embedded(),
        today: "2026-11-15".parse().unwrap(),
    }
}

pub(super) fn options() -> WatchOptions {
    WatchOptions {
        colour: true,
        settings: settings(),
        ends_after: Some(600.0),
        name: "worker".to_owned(),
    }
}

/// The state after everything was judged.
pub(super) fn judged(watch: &Watch) -> WatchViewState {
    let options = options();
    let mut state = WatchViewState::new(&options);
    state.judge(watch, &options.settings, || true);
    state
}
