//! What a trace has found, as a plain value: every report is made from it.

use std::collections::{BTreeMap, BTreeSet};

use fdguard_core::Gap;
use fdguard_core::children::finding::ChildPile;
use fdguard_core::hazard::Hazard;
use jiff::Timestamp;

use crate::BlindReason;
use crate::lifetimes::{SiteDetail, TracedProcess};
use crate::observed_trace::UntracedProgram;
use crate::site::{OpenFd, Site};
use crate::symbol::Symbols;
use crate::table::{ProcessTable, ProcessTables};

/// A trace at one moment.
#[derive(Clone, Debug)]
pub struct TraceState {
    /// What each process holds, by line.
    pub sites: Vec<OpenSites>,
    /// The lifetimes of descriptors in every process, including processes that are gone.
    pub processes: Vec<TracedProcess>,
    /// Misuse of descriptors.
    pub hazards: Vec<Hazard>,
    /// Lines that repeatedly start children without waiting for them.
    pub piles: Vec<ChildPile>,
    /// What could not be checked.
    pub gaps: Vec<Gap>,
    /// Which processes were seen, and how.
    pub scope: TraceScope,
    /// When the tables were read, by the monotonic clock, in nanoseconds.
    pub read_at: u64,
    /// The moment itself, by the monotonic clock and as the time of day.
    pub now: (u64, Timestamp),
}

/// Which parts of a state are wanted: naming a stack takes longer than most programs take to start.
#[derive(Clone, Copy, Debug, Default)]
pub struct StateParts {
    /// What each process held at the last poll, by line.
    pub sites: bool,
    /// With these, the caller that leaks where other callers close what they open: names every
    /// stack, so it is for reports, not for each poll.
    pub callers: bool,
    /// The lifetimes.
    pub lifetimes: Option<SiteDetail>,
    /// The hazards, and what could not be checked.
    pub hazards: bool,
    /// No further events are expected.
    pub is_end: bool,
}

impl StateParts {
    /// What is open now, for each poll.
    pub const OPEN: Self = Self {
        sites: true,
        callers: false,
        lifetimes: None,
        hazards: false,
        is_end: false,
    };
    /// Everything that can be read of a trace that another fdguard runs.
    pub const OBSERVED: Self = Self {
        callers: true,
        ..Self::OPEN
    };
    /// Verdicts and hazards, now and then.
    pub const JUDGED: Self = Self {
        lifetimes: Some(SiteDetail::Held),
        ..Self::HAZARDS
    };
    /// Hazards alone.
    pub const HAZARDS: Self = Self {
        sites: false,
        hazards: true,
        ..Self::OPEN
    };
}

/// Which processes a trace sees.
#[derive(Clone, Debug, Default)]
pub struct TraceScope {
    /// The name of the source.
    pub backend: &'static str,
    /// Whether its processes ran before the trace.
    pub is_late: bool,
    /// Why it does not see into the program.
    pub blind: Option<BlindReason>,
    /// The programs of processes that do not record, as far as they were examined.
    pub became: BTreeMap<u32, UntracedProgram>,
    /// Processes that recorded at some poll.
    pub recorded: BTreeSet<u32>,
    /// Processes whose current or last program records.
    pub recording: BTreeSet<u32>,
    /// Opens and closes that were not recorded.
    pub lost_events: u64,
    /// Stacks that did not fit.
    pub lost_stacks: u64,
}

/// What one process holds, by line.
#[derive(Clone, Debug)]
pub struct OpenSites {
    /// The process.
    pub pid: u32,
    /// The places that opened what is open, the one with the most first.
    pub sites: Vec<Site>,
    /// The numbers that were open once and are closed now.
    pub closed: BTreeSet<u32>,
    /// Numbers below 1024 that were open before its first instruction.
    pub inherited: Vec<u32>,
}

impl OpenSites {
    pub(crate) fn new(
        tables: &ProcessTables,
        table: &ProcessTable,
        symbols: &mut Symbols,
        with_callers: bool,
    ) -> Self {
        let open = table.open.keys().copied();
        let mut sites = Site::rank(tables, table, open, symbols);
        if with_callers {
            for site in &mut sites {
                site.find_leaking_caller(tables, table, symbols);
            }
        }
        Self {
            pid: table.pid,
            sites,
            closed: table.closed.clone(),
            inherited: table.inherited.clone(),
        }
    }

    /// The numbers that are open.
    #[must_use]
    pub fn open(&self) -> BTreeSet<u32> {
        let open = self.sites.iter().flat_map(|site| &site.open);
        open.map(|open| open.fd).collect()
    }

    /// The sites of some of the open descriptors, the one with the most first.
    #[must_use]
    pub fn only(&self, wanted: impl Fn(&OpenFd) -> bool) -> Vec<Site> {
        let sites = self.sites.iter().filter_map(|site| site.only(&wanted));
        let mut sites: Vec<Site> = sites.collect();
        Site::sort(&mut sites);
        sites
    }
}

impl TraceState {
    /// What a process holds; `None` if it did not record.
    #[must_use]
    pub fn sites_of(&self, pid: u32) -> Option<&OpenSites> {
        self.sites.iter().find(|one| one.pid == pid)
    }
}
