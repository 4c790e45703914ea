//! A short watch over some processes, written down entry by entry.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use fdguard_core::diagnosis::Ended;
use fdguard_core::evidence::Visit;
use fdguard_core::recording::{Appearance, Entry, Header};
use fdguard_core::timeline::{Change, Family, Look, Sighting};
use fdguard_core::{Pid, Snapshot, Tier};
use fdguard_probe::{Error as ProbeError, Options, Probe, Watcher};
use jiff::Timestamp;

/// A recording in memory.
pub(super) struct Taken {
    pub(super) header: Header,
    pub(super) entries: Vec<Entry>,
    began: Instant,
}

/// Looks at every process again and again until the time is up, all have ended, or the user has seen enough.
/// To be replaced by the engine behind `fdguard watch`, which also sees what changes without being reopened.
pub(super) fn short_watch(
    probe: &Probe,
    visits: &[Visit],
    length: Duration,
    every: Duration,
) -> anyhow::Result<Taken> {
    let stop = Arc::new(AtomicBool::new(false));
    let mut hooks = Vec::new();
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        hooks.push(signal_hook::flag::register(signal, Arc::clone(&stop))?);
    }
    let began = Instant::now();
    let mut taken = Taken {
        header: Header::new(Timestamp::now(), every.as_secs_f64()),
        entries: Vec::new(),
        began,
    };
    let mut watched = taken.introduce(probe, visits);
    let mut next = began;
    let ended = loop {
        for one in watched.iter_mut().filter(|one| !one.gone) {
            let entry = one.look(probe, began.elapsed().as_secs_f64());
            taken.entries.push(entry);
        }
        next += every;
        if watched.iter().all(|one| one.gone) {
            break Ended::ProcessEnded;
        }
        if next > began + length {
            break Ended::TimeUp;
        }
        std::thread::sleep(next.saturating_duration_since(Instant::now()));
        if stop.load(Ordering::Relaxed) {
            break Ended::Interrupted;
        }
    };
    for hook in hooks {
        signal_hook::low_level::unregister(hook);
    }
    taken.entries.push(Entry::End {
        ended,
        ended_at: Timestamp::now(),
    });
    Ok(taken)
}

impl Taken {
    fn introduce<'p>(&mut self, probe: &'p Probe, visits: &[Visit]) -> Vec<Watched<'p>> {
        let numbered = visits.iter().zip(0..);
        numbered
            .map(|(visit, id)| {
                self.entries.push(Entry::Process(Box::new(Appearance {
                    id,
                    at: 0.0,
                    process: visit.begin.process.clone(),
                    tier: visit.begin.tier,
                    select: visit.select.clone(),
                    successor_of: None,
                })));
                Watched::new(probe, &visit.begin, id)
            })
            .collect()
    }

    /// The look after the watch is its last one: it also tells limits, ceilings and children as they are then.
    pub(super) fn close_with(&mut self, ends: &[Option<Snapshot>]) {
        let at = self.began.elapsed().as_secs_f64();
        let looks = ends.iter().zip(0..).filter_map(|(end, id)| {
            let look = Look {
                at,
                ..surroundings(end.as_ref()?)
            };
            Some(Entry::Look {
                id,
                look: Box::new(look),
            })
        });
        let before_the_end = self.entries.len().saturating_sub(1);
        let tail = self.entries.split_off(before_the_end);
        self.entries.extend(looks);
        self.entries.extend(tail);
    }
}

/// What a snapshot tells beside the table.
fn surroundings(snapshot: &Snapshot) -> Look {
    let process = &snapshot.process;
    let family = process.children.map(|children| Family {
        children,
        zombies: process.zombies.unwrap_or(0),
    });
    Look {
        at: 0.0,
        count: snapshot.count,
        table: None,
        limits: Some(snapshot.limits),
        host: Some(snapshot.host),
        family,
    }
}

/// One process under watch.
struct Watched<'p> {
    id: u32,
    pid: Pid,
    /// Absent where its table may not be listed: then only the count is known.
    watcher: Option<Watcher<'p>>,
    first: Option<Look>,
    gone: bool,
}

impl<'p> Watched<'p> {
    fn new(probe: &'p Probe, begin: &Snapshot, id: u32) -> Self {
        let pid = begin.process.pid;
        let watcher = (begin.tier > Tier::Radar).then(|| Watcher::new(probe, pid).ok());
        Self {
            id,
            pid,
            watcher: watcher.flatten(),
            first: Some(surroundings(begin)),
            gone: false,
        }
    }

    fn look(&mut self, probe: &Probe, at: f64) -> Entry {
        let seen = match &mut self.watcher {
            Some(watcher) => watcher.tick().map(|tick| {
                let change = tick.listed.then(|| Change {
                    opened: tick.opened.iter().map(Sighting::from).collect(),
                    closed: tick.closed.clone(),
                    changed: Vec::new(),
                });
                (Some(tick.count), change)
            }),
            None => count(probe, self.pid).map(|count| (count, None)),
        };
        match seen {
            Ok((count, table)) => {
                let base = self.first.take().unwrap_or_default();
                Entry::Look {
                    id: self.id,
                    look: Box::new(Look {
                        at,
                        count,
                        table,
                        ..base
                    }),
                }
            }
            Err(_ended) => {
                self.gone = true;
                Entry::Gone { id: self.id, at }
            }
        }
    }
}

fn count(probe: &Probe, pid: Pid) -> Result<Option<u64>, ProbeError> {
    let options = Options {
        peers: false,
        threads: 1,
    };
    Ok(probe.snapshot(pid, options)?.count)
}
