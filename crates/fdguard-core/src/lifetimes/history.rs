//! What one call path did: which of its descriptors are open, and what became of the others.

use super::course::ClosedStats;
use crate::Fd;
use crate::event::OpenCall;

/// A point in time, in seconds since the process began.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd)]
pub struct Moment {
    /// By the monotonic clock.
    pub real: f64,
    /// By the activity clock.
    pub active: f64,
}

/// The life of one descriptor.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Lifetime {
    /// Its number.
    pub fd: Fd,
    /// When it was opened, in nanoseconds of the monotonic clock.
    pub at: u64,
    /// The same since the process began.
    pub opened: Moment,
    /// When it was closed; absent while it is open.
    pub closed: Option<Moment>,
    /// Whether a runtime closed it without any code of the program, as an interpreter does with all
    /// its objects at exit.
    pub is_finalized: bool,
    /// The call that opened it.
    pub call: OpenCall,
    /// The thread that opened it.
    pub thread: u32,
}

/// How many descriptors of a path were open at once, as seen at each open.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PathLevel {
    /// The most.
    pub highest: u64,
    /// When there were that many for the first time.
    pub since: Moment,
    /// The fewest since then.
    pub lowest: u64,
    /// How many were opened since then.
    pub opened: u64,
}

impl PathLevel {
    /// The path opened one at this time, and has this many open now.
    pub(super) fn note_open(&mut self, open: u64, at: Moment) {
        if open > self.highest {
            *self = Self {
                highest: open,
                since: at,
                lowest: open,
                opened: 0,
            };
        } else {
            self.lowest = self.lowest.min(open);
            self.opened += 1;
        }
    }

    /// Both together: an upper bound of the height, and a lower bound of what remained.
    fn add(&mut self, other: &Self) {
        if other.since.real > self.since.real {
            self.since = other.since;
        }
        self.highest += other.highest;
        self.lowest += other.lowest;
        self.opened += other.opened;
    }
}

/// The history of a call path, or of several, until the end of the program began or until now.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PathHistory {
    /// The call that opened them: one line may create an event loop and accept connections.
    pub call: OpenCall,
    /// Descriptors that it ever opened.
    pub opened: u64,
    /// Those of them that were closed.
    pub closed: u64,
    /// What is open, the oldest first.
    pub live: Vec<Lifetime>,
    /// Closed since the path last opened something, the oldest first.
    pub recent: Vec<Lifetime>,
    /// Closed before that.
    pub past: ClosedStats,
    /// When it first opened something.
    pub first_open: Moment,
    /// When it last opened something.
    pub last_open: Moment,
    /// How many it held at once.
    pub level: PathLevel,
    /// How many of the live ones were used after that, other than the youngest.
    pub used_late: usize,
    /// Whether the tracer records no uses: then silence is not proof of idleness.
    pub is_use_unknown: bool,
    /// When the end of the program began, or now.
    pub until: Moment,
    /// Whether the end of the program began.
    pub is_ending: bool,
}

impl PathHistory {
    /// Merges another path of the same process into it.
    pub fn merge(&mut self, other: &Self) {
        let last = if other.last_open.real > self.last_open.real {
            other.last_open
        } else {
            self.last_open
        };
        if other.first_open.real < self.first_open.real {
            self.first_open = other.first_open;
        }
        self.level.add(&other.level);
        self.opened += other.opened;
        self.closed += other.closed;
        self.past.add(&other.past);
        self.live.extend(&other.live);
        self.live
            .sort_by(|a, b| a.opened.real.total_cmp(&b.opened.real));
        let recent: Vec<Lifetime> = self.recent.iter().chain(&other.recent).copied().collect();
        // A close before the other path's last open is not recent for both.
        let (mut kept, before): (Vec<Lifetime>, Vec<Lifetime>) = recent
            .into_iter()
            .partition(|one| one.closed.is_none_or(|closed| closed.real > last.real));
        for one in &before {
            self.past.count(one);
        }
        kept.sort_by(|a, b| a.opened.real.total_cmp(&b.opened.real));
        self.recent = kept;
        self.last_open = last;
        self.used_late += other.used_late;
        self.is_use_unknown |= other.is_use_unknown;
        self.until = Moment {
            real: self.until.real.max(other.until.real),
            active: self.until.active.max(other.until.active),
        };
        self.is_ending |= other.is_ending;
    }

    /// Whether the path closes what it opens, except for a few that may be in use now.
    #[must_use]
    pub fn is_used_well(&self) -> bool {
        const IN_USE: u64 = 10;
        let open = self.opened.saturating_sub(self.closed);
        self.closed > 0 && open <= (self.opened / IN_USE).max(1)
    }
}
