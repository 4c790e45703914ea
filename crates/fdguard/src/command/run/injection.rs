//! `run --trace` and `run --protect`: injects the library at every start; the loop reports its
//! results.
//!
//! Each start has its own injection with a directory and two threads, which end with the run:
//! nothing grows over restarts.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::time::{Duration, Instant};

use fdguard_core::Gap;
use fdguard_supervise::event::LogEvent;
use fdguard_supervise::inject::Injector;
use fdguard_trace::{Error, GO, PreloadSource, Protection, TracedProgram};

use super::prevention::PreventionReporter;
use super::service_watch::{ServiceWatch, prevented_event, unprotected_event};
use super::worker::{Counts, Worker, WorkerFindings, add};

/// When a run ends, wait this long for its report so that it appears before the restart; a later
/// report appears after it.
const SHORT: Duration = Duration::from_millis(300);
/// The same at the very end.
const LAST: Duration = Duration::from_secs(10);
/// At most this many ended runs may still be under examination.
const MOST_LEAVING: usize = 4;

/// The library in every service.
#[derive(Debug)]
pub(super) struct InjectedTrace {
    protection: Option<Protection>,
    /// For a single program, reports are printed for people, not as event lines.
    teller: Option<PreventionReporter>,
    runs: BTreeMap<String, ServiceWatch>,
    /// Ended runs whose last look is still in progress.
    leaving: Vec<ServiceWatch>,
    /// Services already reported as untraceable.
    blind: BTreeSet<String>,
    /// Counts of ended runs.
    past: Counts,
    gaps: Vec<Gap>,
}

impl InjectedTrace {
    /// With this protection, or only for opening lines.
    pub(super) fn new(protection: Option<Protection>, is_once: bool) -> Self {
        let report = protection.as_ref().map(|protection| protection.report);
        Self {
            protection,
            teller: report.filter(|_| is_once).map(PreventionReporter::new),
            runs: BTreeMap::new(),
            leaving: Vec::new(),
            blind: BTreeSet::new(),
            past: Counts::new(),
            gaps: Vec::new(),
        }
    }

    /// Prepares the library for a start; `None` for a program that cannot be run at all, which the
    /// start itself reports.
    fn prepare(&self, command: &[OsString]) -> Result<Option<PreloadSource>, String> {
        let told = |error: Error| match error {
            Error::NotFound { .. } | Error::NotRunnable { .. } => Ok(None),
            other => Err(format!("{:#}", anyhow::Error::new(other))),
        };
        if let Some(name) = command.first() {
            match TracedProgram::find(name).map(|program| blindness(&program)) {
                Ok(Some(why)) => return Err(why.to_owned()),
                Ok(None) => {}
                Err(error) => return told(error),
            }
        }
        PreloadSource::prepare(command, self.protection.clone())
            .map_or_else(told, |one| Ok(Some(one)))
    }

    /// Returns what a look found as events, or prints it at once.
    fn tell(&mut self, watched: &mut ServiceWatch, found: &WorkerFindings) -> Vec<LogEvent> {
        if let Some(teller) = &mut self.teller {
            teller.tell_unprotected(&found.became);
            teller.tell(&found.hazards);
            return Vec::new();
        }
        let Some(protection) = &self.protection else {
            return Vec::new();
        };
        let news = watched.told.news(protection.report, &found.hazards);
        let mut events: Vec<LogEvent> = news
            .iter()
            .map(|news| prevented_event(&watched.service, news))
            .collect();
        for (pid, became) in &found.became {
            if watched.unprotected.insert(became.comm.clone()) {
                events.push(unprotected_event(&watched.service, *pid, became));
            }
        }
        events
    }

    /// Takes the replies that arrive until then and reports them.
    fn take(&mut self, watched: &mut ServiceWatch, until: Instant) -> Vec<LogEvent> {
        watched.hear(until);
        let mut events = Vec::new();
        for found in std::mem::take(&mut watched.found) {
            events.extend(self.tell(watched, &found));
            if !found.gaps.is_empty() {
                self.gaps = found.gaps;
            }
            watched.counts = found.counts;
        }
        events
    }

    /// Waits for the last reply of an ended run. Returns the run if there is none yet.
    fn leave(
        &mut self,
        mut watched: ServiceWatch,
        until: Instant,
    ) -> (Vec<LogEvent>, Option<ServiceWatch>) {
        let events = self.take(&mut watched, until);
        if !watched.is_over {
            return (events, Some(watched));
        }
        add(&mut self.past, &watched.counts);
        watched.worker.join();
        (events, None)
    }

    fn leave_all(&mut self, until: Instant) -> Vec<LogEvent> {
        let mut events = Vec::new();
        for watched in std::mem::take(&mut self.leaving) {
            let (told, still) = self.leave(watched, until);
            events.extend(told);
            self.leaving.extend(still);
        }
        events
    }

    fn counts(&self) -> Counts {
        let mut sums = self.past.clone();
        for watched in self.runs.values().chain(&self.leaving) {
            add(&mut sums, &watched.counts);
        }
        sums
    }
}

/// Why a program cannot be traced.
pub(super) fn blindness(program: &TracedProgram) -> Option<&'static str> {
    match program.blind {
        Some(blind) => Some(blind.why()),
        // A Go program with a C part has a loader, but still makes its calls past the library.
        None => program.is_go.then_some(GO),
    }
}

impl Injector for InjectedTrace {
    fn start(
        &mut self,
        service: &str,
        command: &[OsString],
        environment: &mut Vec<(OsString, OsString)>,
    ) -> Vec<LogEvent> {
        let mut events = self.ended(service);
        let prepared = self.prepare(command).and_then(|source| {
            let Some(source) = source else {
                return Ok(None);
            };
            let mut variables = environment.clone();
            source.environment(&mut variables);
            let worker = Worker::start(source)?;
            Ok(Some((variables, worker)))
        });
        match prepared {
            Ok(Some((variables, worker))) => {
                *environment = variables;
                let is_protected = self.protection.is_some();
                let is_eager = self.teller.is_some();
                let watched = ServiceWatch::new(service, worker, is_protected, is_eager);
                self.runs.insert(service.to_owned(), watched);
                self.blind.remove(service);
            }
            Ok(None) => {}
            // Reported once, and again if it worked in between.
            Err(why) if self.blind.insert(service.to_owned()) => {
                let (name, what) = match &self.protection {
                    Some(_) => ("unprotected", "running without protection"),
                    None => ("untraced", "cannot trace the lines that open descriptors"),
                };
                events.push(
                    LogEvent::for_service(name, service).with("text", format!("{what}: {why}")),
                );
            }
            Err(_) => {}
        }
        events
    }

    fn line(&mut self, service: &str, pid: u32) -> Option<String> {
        self.runs.get_mut(service)?.line(pid)
    }

    fn ended(&mut self, service: &str) -> Vec<LogEvent> {
        let Some(watched) = self.runs.remove(service) else {
            return Vec::new();
        };
        watched.worker.end();
        let (mut events, still) = self.leave(watched, Instant::now() + SHORT);
        self.leaving.extend(still);
        if self.leaving.len() > MOST_LEAVING {
            // Its thread continues alone and removes its directory when it is done.
            let oldest = self.leaving.remove(0);
            let (told, still) = self.leave(oldest, Instant::now() + SHORT);
            events.extend(told);
            if let Some(still) = still {
                add(&mut self.past, &still.counts);
            }
        }
        events
    }

    fn deadline(&self) -> Option<Instant> {
        let all = self.runs.values().chain(&self.leaving);
        all.map(|watched| watched.next).min()
    }

    fn poll(&mut self, now: Instant) -> Vec<LogEvent> {
        if self.deadline().is_none_or(|at| at > now) {
            return Vec::new();
        }
        let mut events = self.leave_all(now);
        for (service, mut watched) in std::mem::take(&mut self.runs) {
            events.extend(self.take(&mut watched, now));
            watched.go_on(now);
            self.runs.insert(service, watched);
        }
        for watched in &mut self.leaving {
            watched.go_on(now);
        }
        events
    }

    fn finish(&mut self) -> Vec<LogEvent> {
        let names: Vec<String> = self.runs.keys().cloned().collect();
        let mut events: Vec<LogEvent> = names.iter().flat_map(|name| self.ended(name)).collect();
        events.extend(self.leave_all(Instant::now() + LAST));
        if let Some(teller) = &self.teller {
            teller.conclude(&self.counts(), &self.gaps);
        }
        events
    }

    fn prevented(&self) -> BTreeMap<String, u64> {
        let counts = self.counts().into_iter();
        counts
            .map(|(rule, count)| (rule.to_owned(), count))
            .collect()
    }
}
