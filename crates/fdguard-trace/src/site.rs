//! Descriptors grouped by the place that opened them.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use fdguard_core::blame::leaking_caller_frame;
use fdguard_core::dependency_path::through;
use fdguard_core::lifetimes::{JudgedPath, JudgedSite, Lifetime};
use fdguard_core::origin::{Culprit, Origin, Stack};

use fdguard_wire::Account;

use crate::symbol::Symbols;
use crate::table::{Descriptor, ProcessTable, ProcessTables};

/// A place that opened what is still open.
#[derive(Clone, Debug)]
pub struct Site {
    /// The stack of most of them, innermost first.
    pub stack: Stack,
    /// The place to blame.
    pub culprit: Option<Culprit>,
    /// The caller that leaks, if other callers use that line correctly. Set by
    /// [`Site::find_leaking_caller`].
    pub leaking_caller: Option<Culprit>,
    /// What is open.
    pub open: Vec<OpenFd>,
    /// How many descriptors these stacks ever opened.
    pub opened: u64,
    /// How many of those were closed.
    pub closed: u64,
    /// The stacks that were merged here, the one with the most first.
    pub paths: Vec<CallPath>,
}

/// One call path to a site.
#[derive(Clone, Debug)]
pub struct CallPath {
    /// Innermost first.
    pub stack: Stack,
    /// The numbers that it opened and that are still open.
    pub fds: Vec<u32>,
    /// How many it ever opened.
    pub opened: u64,
    /// How many of those were closed.
    pub closed: u64,
}

/// An open descriptor of a site.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenFd {
    /// Its number.
    pub fd: u32,
    /// What is known of it.
    pub descriptor: Descriptor,
}

impl OpenFd {
    /// Seconds that it has been open, to the millisecond; `now` must be from the same clock as its
    /// time.
    #[must_use]
    pub fn age(&self, now: u64) -> f64 {
        let age = Duration::from_nanos(now.saturating_sub(self.descriptor.ns));
        (age.as_secs_f64() * 1e3).round() / 1e3
    }
}

impl From<&JudgedPath> for CallPath {
    fn from(path: &JudgedPath) -> Self {
        Self {
            stack: path.stack.clone(),
            fds: path.open_at_end().iter().map(|one| one.fd).collect(),
            opened: path.history.opened,
            closed: path.history.closed,
        }
    }
}

impl From<&Lifetime> for OpenFd {
    fn from(one: &Lifetime) -> Self {
        Self {
            fd: one.fd,
            descriptor: Descriptor {
                generation: 0,
                stack: 0,
                tid: one.thread,
                ns: one.at,
                call: one.call,
                forks: 0,
                used: 0,
            },
        }
    }
}

impl Site {
    /// A site from its lifetimes at the beginning of the end: the paths that held something then.
    /// `None` if none did.
    #[must_use]
    pub fn of_lifetimes(site: &JudgedSite) -> Option<Self> {
        let paths: Vec<CallPath> = site
            .paths
            .iter()
            .map(CallPath::from)
            .filter(|path| !path.fds.is_empty())
            .collect();
        let open: Vec<OpenFd> = site
            .paths
            .iter()
            .flat_map(JudgedPath::open_at_end)
            .map(OpenFd::from)
            .collect();
        Some(Self {
            stack: paths.first()?.stack.clone(),
            culprit: site.culprit.clone(),
            leaking_caller: site.leaking_caller.clone(),
            open,
            opened: paths.iter().map(|path| path.opened).sum(),
            closed: paths.iter().map(|path| path.closed).sum(),
            paths,
        })
    }

    /// The sites of these descriptors of a process, the one with the most first. Descriptors that
    /// the table does not know are left out.
    #[must_use]
    pub fn rank(
        tables: &ProcessTables,
        table: &ProcessTable,
        fds: impl IntoIterator<Item = u32>,
        symbols: &mut Symbols,
    ) -> Vec<Self> {
        let mut by_stack: HashMap<(u8, u32), Vec<OpenFd>> = HashMap::new();
        for fd in fds {
            if let Some(descriptor) = table.open.get(&fd).copied() {
                let key = (descriptor.forks, descriptor.stack);
                by_stack
                    .entry(key)
                    .or_default()
                    .push(OpenFd { fd, descriptor });
            }
        }
        let mut stacks: Vec<Self> = by_stack
            .into_values()
            .filter_map(|open| Self::of_stack(tables, table, open, symbols))
            .collect();
        Self::sort(&mut stacks);
        let mut sites: Vec<Self> = Vec::new();
        for stack in stacks {
            let same = sites
                .iter_mut()
                .find(|site| site.culprit.is_some() && site.culprit == stack.culprit);
            match same {
                Some(site) => site.absorb(stack),
                None => sites.push(stack),
            }
        }
        Self::sort(&mut sites);
        sites
    }

    /// The one with the most first. Ties are broken by age, so that the same program gives the same
    /// order.
    pub fn sort(sites: &mut [Self]) {
        sites.sort_by_key(|site| (Reverse(site.open.len()), site.oldest_at()));
    }

    /// The site of some of its descriptors; `None` if none is wanted.
    #[must_use]
    pub fn only(&self, wanted: impl Fn(&OpenFd) -> bool) -> Option<Self> {
        let open = self.open.iter().copied().filter(|open| wanted(open));
        let open: BTreeMap<u32, OpenFd> = open.map(|open| (open.fd, open)).collect();
        let mut paths = self.paths.clone();
        for path in &mut paths {
            path.fds.retain(|fd| open.contains_key(fd));
        }
        paths.retain(|path| !path.fds.is_empty());
        let oldest_at = |path: &CallPath| {
            let open = path.fds.iter().filter_map(|fd| open.get(fd));
            open.map(|open| open.descriptor.ns).min()
        };
        paths.sort_by_key(|path| (Reverse(path.fds.len()), oldest_at(path)));
        Some(Self {
            stack: paths.first()?.stack.clone(),
            culprit: self.culprit.clone(),
            leaking_caller: self.leaking_caller.clone(),
            open: open.into_values().collect(),
            opened: paths.iter().map(|path| path.opened).sum(),
            closed: paths.iter().map(|path| path.closed).sum(),
            paths,
        })
    }

    fn of_stack(
        tables: &ProcessTables,
        table: &ProcessTable,
        open: Vec<OpenFd>,
        symbols: &mut Symbols,
    ) -> Option<Self> {
        let first = open.first()?.descriptor;
        let stack = symbols.name(&tables.stack(table, &first));
        let own = table.accounts.get(&first.stack).copied();
        let account = own.filter(|_| first.forks == 0).unwrap_or(Account {
            opened: open.len() as u64,
            ..Account::default()
        });
        let (opened, closed) = (account.opened, account.closed);
        let path = CallPath {
            stack: stack.clone(),
            fds: open.iter().map(|open| open.fd).collect(),
            opened,
            closed,
        };
        Some(Self {
            culprit: Culprit::from_stack(&stack),
            leaking_caller: None,
            stack,
            open,
            opened,
            closed,
            paths: vec![path],
        })
    }

    /// Adds another site of the same culprit.
    pub fn absorb(&mut self, other: Self) {
        self.open.extend(other.open);
        self.opened += other.opened;
        self.closed += other.closed;
        self.paths.extend(other.paths);
    }

    /// Finds the caller that leaks, if others use the same line and close what it opens. Names
    /// every stack of the process, so it is for reports, not for each poll.
    pub fn find_leaking_caller(
        &mut self,
        tables: &ProcessTables,
        table: &ProcessTable,
        symbols: &mut Symbols,
    ) {
        let own = self.open.iter().filter(|open| open.descriptor.forks == 0);
        let mut open: BTreeMap<u32, Descriptor> = BTreeMap::new();
        for one in own {
            open.insert(one.descriptor.stack, one.descriptor);
        }
        let is_healthy = |stack: &u32| table.accounts.get(stack).is_some_and(is_used_well);
        let leaking: Vec<Stack> = open
            .iter()
            .filter(|(stack, _)| !is_healthy(stack))
            .map(|(_, one)| symbols.name(&tables.stack(table, one)))
            .collect();
        let healthy = table.accounts.keys().filter(|stack| is_healthy(stack));
        let healthy: Vec<Stack> = healthy
            .map(|stack| symbols.name(&table.raw_frames(*stack)))
            .filter(|stack| Culprit::from_stack(stack) == self.culprit)
            .collect();
        if !healthy.is_empty() {
            self.leaking_caller = leaking_caller_frame(&leaking, &healthy).map(Culprit::from);
        }
    }

    /// As in the JSON output; `now` must be from the same clock as the descriptors' times.
    #[must_use]
    pub fn origin(&self, now: u64) -> Origin {
        let oldest = self.oldest();
        Origin {
            culprit: self.culprit.clone(),
            leaking_caller: self.leaking_caller.clone(),
            through: through(&self.stack),
            partly: self.paths.first().is_some_and(is_partly_closed),
            stack: self.stack.clone(),
            thread: oldest.map(|open| open.descriptor.tid),
            live: self.open.len() as u64,
            opened: self.opened,
            closed: self.closed,
            oldest_age_seconds: self.oldest_age(now),
        }
    }

    /// Seconds that the oldest has been open, to the millisecond.
    #[must_use]
    pub fn oldest_age(&self, now: u64) -> Option<f64> {
        self.oldest().map(|open| open.age(now))
    }

    /// The descriptor that has been open for the longest time.
    #[must_use]
    pub fn oldest(&self) -> Option<&OpenFd> {
        self.open.iter().min_by_key(|open| open.descriptor.ns)
    }

    /// When the oldest was opened, by the monotonic clock.
    fn oldest_at(&self) -> Option<u64> {
        self.oldest().map(|open| open.descriptor.ns)
    }

    /// How many more became open per second; `None` if there are too few to calculate it.
    #[must_use]
    pub fn per_second(&self) -> Option<f64> {
        const ENOUGH: u32 = 4;
        let count = u32::try_from(self.open.len()).unwrap_or(u32::MAX);
        let last = self.open.iter().map(|open| open.descriptor.ns).max()?;
        let span = last.saturating_sub(self.oldest_at()?);
        let seconds = Duration::from_nanos(span).as_secs_f64();
        let is_enough = count >= ENOUGH && seconds >= 1.0;
        is_enough.then(|| f64::from(count - 1) / seconds)
    }
}

/// Whether a stack that left something open closed a good part of what it opened.
fn is_partly_closed(path: &CallPath) -> bool {
    const PART: u64 = 10;
    !path.fds.is_empty() && path.closed > 0 && path.closed * PART >= path.opened
}

/// Whether a stack closes what it opens, except for a few that may be in use right now.
fn is_used_well(account: &Account) -> bool {
    const IN_USE: u64 = 10;
    let open = account.opened.saturating_sub(account.closed);
    account.closed > 0 && open <= (account.opened / IN_USE).max(1)
}

#[cfg(test)]
mod tests {
    use fdguard_wire::{Account, OpenCall};

    use super::{CallPath, Descriptor, OpenFd, Site, is_partly_closed, is_used_well};

    #[test]
    fn r20_a_stack_that_closes_some_and_leaves_some_has_a_path_that_forgets() {
        let path = |live: u32, opened, closed| CallPath {
            stack: Vec::new(),
            fds: (0..live).collect(),
            opened,
            closed,
        };
        assert!(is_partly_closed(&path(30, 100, 70)) && is_partly_closed(&path(90, 100, 10)));
        assert!(!is_partly_closed(&path(30, 30, 0)) && !is_partly_closed(&path(0, 100, 100)));
        assert!(!is_partly_closed(&path(99, 100, 1)), "a stray one");
    }

    #[test]
    fn the_site_of_some_descriptors_has_their_paths_and_counts() {
        let open = |fd: u32, stack: u32| OpenFd {
            fd,
            descriptor: Descriptor {
                generation: 1,
                stack,
                tid: 7,
                ns: u64::from(fd),
                call: OpenCall::Open,
                forks: 0,
                used: 0,
            },
        };
        let path = |fds: &[u32], opened| CallPath {
            stack: Vec::new(),
            fds: fds.to_vec(),
            opened,
            closed: 1,
        };
        let site = Site {
            stack: Vec::new(),
            culprit: None,
            leaking_caller: None,
            open: vec![open(3, 1), open(4, 1), open(5, 2), open(6, 2), open(9, 3)],
            opened: 60,
            closed: 3,
            paths: vec![path(&[3, 4], 10), path(&[5, 6], 20), path(&[9], 30)],
        };
        let some = site.only(|one| [4, 5, 6].contains(&one.fd)).unwrap();
        assert_eq!(some.paths[0].fds, [5, 6], "the path with the most");
        assert_eq!(some.paths[1].fds, [4]);
        assert_eq!((some.open.len(), some.opened, some.closed), (3, 30, 2));
        assert!(site.only(|_| false).is_none());
    }

    #[test]
    fn a_stack_that_closes_nearly_all_is_used_well() {
        let is_well = |opened, closed| {
            is_used_well(&Account {
                opened,
                closed,
                ..Account::default()
            })
        };
        assert!(is_well(500, 495) && is_well(3, 3) && is_well(2, 1));
        assert!(!is_well(500, 300) && !is_well(1, 0) && !is_well(5, 3));
    }
}
