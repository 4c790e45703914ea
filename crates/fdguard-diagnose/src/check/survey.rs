//! What the server and its children hold, by identity, and since which cycle.

use std::collections::{HashMap, HashSet};

use fdguard_core::collapse;
use fdguard_core::{Class, Fd, Gap, Pid, TcpState, Text, Tier};
use fdguard_probe::{Error, Probe, ProcessWatcher};

/// One descriptor that is open now.
#[derive(Clone, Debug)]
pub(super) struct OpenDescriptor {
    pub(super) class: Class,
    pub(super) target: Text,
    /// What the target has in common with similar ones.
    pub(super) group: Text,
    /// The cycle in which it was first seen; 0 for before the cycles.
    pub(super) cycle: u32,
    /// Whether a child had it at the first look: it may be inherited from its parent.
    pub(super) inborn: bool,
}

/// The descriptors of a tree of processes.
#[derive(Debug)]
pub struct Survey<'p> {
    probe: &'p Probe,
    root: Pid,
    watchers: HashMap<Pid, ProcessWatcher<'p>>,
    held: HashMap<(Pid, Fd), OpenDescriptor>,
    looks: u64,
}

impl<'p> Survey<'p> {
    /// Starts with a first look.
    ///
    /// # Errors
    ///
    /// If the server cannot be read.
    pub fn start(probe: &'p Probe, root: Pid) -> Result<Self, Error> {
        let watcher = ProcessWatcher::new(probe, root)?;
        let mut survey = Self {
            probe,
            root,
            watchers: HashMap::from([(root, watcher)]),
            held: HashMap::new(),
            looks: 0,
        };
        survey.record(0)?;
        Ok(survey)
    }

    /// Looks at all processes; new descriptors were opened in this cycle.
    ///
    /// # Errors
    ///
    /// If the server itself is gone.
    pub fn record(&mut self, cycle: u32) -> Result<(), Error> {
        self.looks += 1;
        let mut new = HashSet::new();
        for pid in self.probe.tree(self.root)? {
            if !self.watchers.contains_key(&pid)
                && let Ok(watcher) = ProcessWatcher::new(self.probe, pid)
            {
                self.watchers.insert(pid, watcher);
                new.insert(pid);
            }
        }
        let mut gone = Vec::new();
        for (pid, watcher) in &mut self.watchers {
            let pid = *pid;
            let tick = watcher.list().and_then(|listed| {
                // A reused number is a different descriptor.
                let again = watcher.verify(usize::MAX)?;
                Ok([listed, again])
            });
            match tick {
                Ok(ticks) => {
                    for tick in ticks {
                        for fd in tick.closed {
                            self.held.remove(&(pid, fd));
                        }
                        for entry in tick.opened {
                            let seen = OpenDescriptor {
                                group: Text::from(&*collapse::target(&entry)),
                                class: entry.class,
                                target: entry.target,
                                cycle,
                                inborn: new.contains(&pid),
                            };
                            self.held.insert((pid, entry.fd), seen);
                        }
                        for entry in tick.changed {
                            if let Some(seen) = self.held.get_mut(&(pid, entry.fd)) {
                                seen.group = Text::from(&*collapse::target(&entry));
                                seen.class = entry.class;
                                seen.target = entry.target;
                            }
                        }
                    }
                }
                Err(error) if pid == self.root => return Err(error),
                Err(_) => gone.push(pid),
            }
        }
        for pid in gone {
            self.watchers.remove(&pid);
            self.held.retain(|(holder, _), _| *holder != pid);
        }
        Ok(())
    }

    /// Counts everything that is open now as older than the coming cycles.
    pub fn forget_cycles(&mut self) {
        for seen in self.held.values_mut() {
            seen.cycle = 0;
        }
    }

    /// Everything that is open.
    pub(super) fn held(&self) -> impl Iterator<Item = (Pid, Fd, &OpenDescriptor)> {
        self.held.iter().map(|((pid, fd), seen)| (*pid, *fd, seen))
    }

    /// How many are open.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.held.len() as u64
    }

    /// The number of looks.
    pub(super) fn looks(&self) -> u64 {
        self.looks
    }

    /// Whether any process accepts connections.
    #[must_use]
    pub fn listens(&self) -> bool {
        let is_listener = |seen: &OpenDescriptor| seen.class == Class::Tcp(TcpState::Listen);
        self.held.values().any(is_listener)
    }

    /// The server's process.
    pub(super) fn process(&self) -> Result<fdguard_core::snapshot::Process, Error> {
        match self.watchers.get(&self.root) {
            Some(watcher) => watcher.process(),
            None => Err(Error::Vanished(self.root)),
        }
    }

    /// Whether its descriptors may be listed.
    #[must_use]
    pub fn is_full(&self) -> bool {
        let root = self.watchers.get(&self.root);
        root.is_some_and(|watcher| watcher.tier() != Tier::Radar)
    }

    /// What could not be seen.
    #[must_use]
    pub fn gaps(&self) -> Vec<Gap> {
        self.watchers
            .values()
            .flat_map(ProcessWatcher::gaps)
            .collect()
    }
}
