//! The verdict of every traced process from its lifetimes, which replaces the one from sampling.

use std::collections::{BTreeSet, HashMap};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::time::Duration;

use fdguard_core::diagnosis::{Diagnosis, ProcessDiagnosis, ReleasedAtEnd, WatchEnd};
use fdguard_core::evidence::Curves;
use fdguard_core::finding::Finding;
use fdguard_core::forecast::Forecast;
use fdguard_core::judge::Verdict;
use fdguard_core::lifetimes::Lifetime;
use fdguard_core::lifetimes::report::{Conclusion, SiteReport, TracedSubject};
use fdguard_core::opened_before::OpenedBefore;
use fdguard_core::rule::RuleSettings;
use fdguard_core::snapshot::{Limits, Process};
use fdguard_core::timeline::{LiveFd, LiveFds};
use fdguard_core::watch::{Watch, WatchedProcess};
use fdguard_core::{Fd, Gap, Pid, Text};
use fdguard_trace::{Site, TraceState, TracedProcess};
use jiff::{SignedDuration, Timestamp};

use super::names::FdNames;
use super::{ProcessSites, TraceReport, add_coverage, gaps, is_go, members};

/// Rules about the course of counts: for a traced process the lifetimes are more precise.
const BY_COUNT: &[&str] = &["leak", "growth", "plateau"];

/// A program that fdguard launched or attached to: what the tracer recorded, and what the watch saw
/// from outside.
#[derive(Clone, Copy, Debug)]
pub struct LaunchedTrace<'a> {
    /// What the tracer recorded.
    pub state: &'a TraceState,
    /// What the looks from outside saw; `None` if the program ended before the first one.
    pub watch: Option<&'a Watch>,
    /// The descriptors' names at the looks.
    pub names: &'a FdNames,
    /// What the user set.
    pub settings: &'a RuleSettings,
}

/// The program.
#[derive(Clone, Copy, Debug)]
pub struct LaunchedProgram<'a> {
    /// Its process.
    pub pid: Pid,
    /// The program and its arguments; empty if it was already running.
    pub command: &'a [OsString],
    /// When it was started or attached to.
    pub began: Timestamp,
}

impl LaunchedTrace<'_> {
    /// The report: the samples from outside, overruled by what the tracer recorded.
    #[must_use]
    pub fn report(&self, program: &LaunchedProgram<'_>) -> TraceReport {
        let (state, root) = (self.state, program.pid);
        let looked = self.watch.and_then(|watch| watch.diagnosis(self.settings));
        let mut diagnosis = looked.unwrap_or_else(|| unlooked(program, state));
        name_the_command(&mut diagnosis.process, program);
        if diagnosis.process.pid == root
            && let Some(latest) = self.latest(root).filter(|one| !one.comm.is_empty())
        {
            // The looks may have missed what it became.
            diagnosis.process.comm = Text::from(latest.comm.as_str());
        }
        let processes = self.conclude(&mut diagnosis);
        diagnosis.hazards = state.hazards.clone();
        add_coverage(&mut diagnosis, &state.scope, &processes);
        let untraced = self.untraced(root);
        let gaps = gaps::gaps(&state.scope, root, &processes, &untraced);
        diagnosis.gaps.extend(gaps);
        diagnosis.gaps.extend(state.gaps.iter().cloned());
        if self.watch.is_none() && self.latest(root).is_none() {
            diagnosis.gaps.push(Gap::new(
                "whether it leaks",
                "the program ended before the first sample",
                "no action needed: the descriptors it left open are listed",
            ));
        }
        TraceReport {
            diagnosis,
            processes,
            traced: state.processes.clone(),
        }
    }

    /// The verdict of each traced process.
    #[must_use]
    pub fn verdicts(&self) -> HashMap<Pid, Verdict> {
        let processes = self.state.processes.iter();
        processes
            .map(|process| (process.pid, self.conclusion(process).verdict))
            .collect()
    }

    /// The watched processes that did not record.
    fn untraced(&self, root: Pid) -> Vec<&WatchedProcess> {
        let scope = &self.state.scope;
        let traced: BTreeSet<Pid> = self.state.processes.iter().map(|one| one.pid).collect();
        let is_untraced = |one: &&WatchedProcess| {
            let pid = one.process.pid;
            let has_recorded = traced.contains(&pid) || scope.recorded.contains(&pid);
            // A forked shell recorded, and then executed a program that cannot.
            let became = scope.became.get(&pid).map(|became| became.blind);
            let is_blind = became.is_some_and(|blind| !blind.is_by_exec());
            pid != root && (!has_recorded || is_blind) && one.timeline.looks() > 1
        };
        let subjects = self.watch.into_iter().flat_map(Watch::subjects);
        subjects.filter(is_untraced).collect()
    }

    /// Adds the conclusions from lifetimes to a diagnosis from outside looks; returns the sites of
    /// each process.
    fn conclude(&self, diagnosis: &mut Diagnosis) -> Vec<ProcessSites> {
        let root = diagnosis.process.pid;
        let mut sites = Vec::new();
        let mut shown_sites = Vec::new();
        let mut released: Option<(Pid, ReleasedAtEnd)> = None;
        for process in &self.state.processes {
            let conclusion = self.conclusion(process);
            if let Some(release) = conclusion.release
                && (released.is_none() || process.pid == root)
            {
                let at = seconds_after(process.began, release.at);
                let count = release.count;
                let at = self.wall_time(at);
                released = Some((process.pid, ReleasedAtEnd { count, at }));
            }
            // Of a process's earlier program, only leaks are of interest.
            let is_latest = self.is_latest(process);
            let shown = conclusion.sites.iter();
            let is_shown = |one: &&SiteReport| is_latest || one.verdict == Verdict::Leaking;
            sites.extend(shown.filter(is_shown).cloned());
            if is_latest {
                shown_sites.push(self.process_sites(process));
            }
            self.overrule(diagnosis, process, conclusion);
        }
        let peak = self.latest(root).map(|process| process.peak);
        diagnosis.peak = peak.map(|peak| peak.count);
        diagnosis.peak_at = peak.map(|peak| self.wall_time(peak.at));
        diagnosis.released_at_end = released.map(|(_, released)| released);
        sites.sort_by_key(|site| std::cmp::Reverse(site.verdict));
        diagnosis.opened_before_attach = self.opened_before(&sites);
        diagnosis.sites = Some(sites);
        self.set_verdict(diagnosis);
        shown_sites
    }

    /// What the attached processes held before, and still hold.
    fn opened_before(&self, sites: &[SiteReport]) -> Option<Vec<OpenedBefore>> {
        if !self.state.scope.is_late {
            return None;
        }
        // A forked child has what its parent had.
        let roots = self.state.processes.iter();
        let roots = roots.filter(|one| one.parent.is_none() && self.is_latest(one));
        let of_process = |process: &TracedProcess| {
            let live = self.subject(process.pid).map(|one| one.timeline.live());
            let live = live.into_iter().flat_map(LiveFds::iter);
            let before = live.filter(|(fd, _)| process.inherited.contains(fd));
            let before: Vec<_> = before.collect();
            let age = seconds(process.began, process.until);
            let comm = Text::from(process.comm.as_str());
            let fds = before
                .iter()
                .map(|(fd, held)| (*fd, &held.class, &held.target));
            OpenedBefore::group((process.pid, &comm), fds, age, sites)
        };
        Some(roots.flat_map(of_process).collect())
    }

    /// Sets the overall verdict and sorts the findings, the most severe first.
    fn set_verdict(&self, diagnosis: &mut Diagnosis) {
        let everybody = || diagnosis.processes.iter().chain(&diagnosis.predecessors);
        let findings = everybody().flat_map(|opinion| opinion.findings.clone());
        let mut findings: Vec<Finding> = findings.collect();
        findings.sort_by_key(|one| std::cmp::Reverse((one.severity, one.count)));
        let verdict = everybody().map(|opinion| opinion.verdict).max();
        diagnosis.findings = findings;
        diagnosis.verdict = verdict.unwrap_or(Verdict::Unknown);
    }

    /// The conclusion from the lifetimes of a process.
    fn conclusion(&self, process: &TracedProcess) -> Conclusion {
        let subject = self.subject(process.pid);
        let limits = subject.map(|one| one.timeline.limits());
        TracedSubject {
            pid: process.pid,
            comm: Text::from(process.comm.as_str()),
            sites: &process.sites,
            name: &|one: &Lifetime| self.names.name(process, one),
            limit: limits.and_then(|limits| limits.soft),
            count: process.count,
            until: seconds(process.began, process.until),
            settings: self.settings,
        }
        .conclude()
    }

    fn subject(&self, pid: Pid) -> Option<&WatchedProcess> {
        let mut subjects = self.watch?.subjects();
        subjects.find(|one| one.process.pid == pid)
    }

    fn latest(&self, pid: Pid) -> Option<&TracedProcess> {
        let of = self.state.processes.iter().filter(|one| one.pid == pid);
        of.max_by_key(|one| one.began)
    }

    fn is_latest(&self, process: &TracedProcess) -> bool {
        self.latest(process.pid).map(|one| one.began) == Some(process.began)
    }

    /// Replaces the opinion from outside looks with the conclusion. Descriptors whose open the
    /// library did not see keep the outside opinion.
    fn overrule(&self, diagnosis: &mut Diagnosis, process: &TracedProcess, by: Conclusion) {
        let subject = self.subject(process.pid);
        let opinion = diagnosis.processes.iter_mut();
        let opinion = opinion.rev().find(|one| one.pid == process.pid);
        let Some(opinion) = opinion else {
            if !by.findings.is_empty() || process.pid == diagnosis.process.pid {
                diagnosis.processes.push(unwatched(process, by));
            }
            return;
        };
        if !self.is_latest(process) {
            opinion.verdict = opinion.verdict.max(by.verdict);
            opinion.findings.extend(by.findings);
            return;
        }
        let is_unseen = |finding: &Finding| {
            let fds = subject.map(|one| members(&one.timeline, finding));
            let fds = fds.unwrap_or_default();
            let is_unknown =
                |(fd, since): &&(Fd, Option<f64>)| !process.knows(*fd, self.names.time_of(*since));
            let unseen = fds.iter().filter(is_unknown).count();
            finding.rule != "plateau" && unseen * 2 > fds.len()
        };
        opinion
            .findings
            .retain(|one| !BY_COUNT.contains(&one.rule.as_str()) || is_unseen(one));
        let is_left_to_looks = opinion
            .findings
            .iter()
            .any(|one| BY_COUNT.contains(&one.rule.as_str()) && one.cleared.is_none());
        let looked = match is_left_to_looks {
            true => opinion.verdict,
            false => opinion.verdict.min(Verdict::Bounded),
        };
        opinion.verdict = looked.max(by.verdict);
        agree_on_limits(&mut opinion.walls, &by.findings);
        opinion.findings.splice(0..0, by.findings);
        if !process.comm.is_empty() {
            opinion.comm = Text::from(process.comm.as_str());
        }
    }

    /// Converts a time of the monotonic clock to the time of day.
    fn wall_time(&self, at: u64) -> Timestamp {
        let (now, wall) = self.state.now;
        let ago = Duration::from_nanos(now.saturating_sub(at));
        let ago = SignedDuration::try_from(ago).unwrap_or(SignedDuration::ZERO);
        wall.checked_sub(ago).unwrap_or(wall)
    }

    /// The sites of a process when its end began, for the report and its pictures.
    fn process_sites(&self, process: &TracedProcess) -> ProcessSites {
        let subject = self.subject(process.pid);
        let sites: Vec<Site> = process
            .sites
            .iter()
            .filter_map(Site::of_lifetimes)
            .collect();
        let survivors = process.sites.iter().flat_map(|site| {
            let shown = site.paths.iter();
            shown.flat_map(|path| path.judgement.survivors.iter().chain(&path.history.live))
        });
        let mut open = HashMap::new();
        for one in survivors {
            if let (Some(class), target) = self.names.name(process, one) {
                open.insert(one.fd, (class, target.unwrap_or_else(|| Text::from(""))));
            }
        }
        let listed = subject.map(|one| one.timeline.live().iter());
        let unknown = listed.map(|live| {
            let is_unknown = |(fd, held): &(Fd, &LiveFd)| {
                let since = self.names.time_of(held.since);
                !process.knows(*fd, since) && !process.inherited.contains(fd)
            };
            live.filter(is_unknown).count()
        });
        ProcessSites {
            pid: process.pid,
            comm: process.comm.clone(),
            sites,
            open,
            now: process.until,
            inherited: process.inherited.len(),
            unknown: unknown.unwrap_or(0),
            curves: subject.map(|one| Curves::of(&one.timeline)),
            is_go: subject.is_some_and(is_go),
        }
    }
}

/// A limit has one estimate. The one from lifetimes is better than the one from counts, because it
/// leaves out what comes and goes.
fn agree_on_limits(walls: &mut [Forecast], findings: &[Finding]) {
    for wall in walls {
        let estimates = findings.iter().flat_map(|finding| {
            let walls = finding.walls.iter();
            walls.map(|eta| (finding.rate_per_min, eta))
        });
        let estimates = estimates.filter(|(_, eta)| eta.name == wall.name);
        let soonest = estimates.min_by(|(_, a), (_, b)| a.eta_seconds.total_cmp(&b.eta_seconds));
        if let Some((rate, eta)) = soonest {
            wall.rate_per_min = rate;
            wall.eta_seconds = Some(eta.eta_seconds);
            wall.soonest_seconds = Some(eta.soonest_seconds);
            wall.latest_seconds = eta.latest_seconds;
        }
    }
}

/// A process that was never looked at from outside.
fn unwatched(process: &TracedProcess, by: Conclusion) -> ProcessDiagnosis {
    ProcessDiagnosis {
        pid: process.pid,
        comm: Text::from(process.comm.as_str()),
        workload: None,
        verdict: by.verdict,
        samples: 0,
        watched_seconds: seconds(process.began, process.until),
        baseline: None,
        last: Some(process.count),
        highest: None,
        limits: Limits::default(),
        walls: Vec::new(),
        classes: None,
        findings: by.findings,
    }
}

fn seconds(from: u64, to: u64) -> f64 {
    Duration::from_nanos(to.saturating_sub(from)).as_secs_f64()
}

fn seconds_after(began: u64, seconds: f64) -> u64 {
    let passed = Duration::try_from_secs_f64(seconds).unwrap_or_default();
    began.saturating_add(u64::try_from(passed.as_nanos()).unwrap_or(0))
}

/// The diagnosis of a program that ended before the first look from outside.
fn unlooked(program: &LaunchedProgram<'_>, state: &TraceState) -> Diagnosis {
    let times = (program.began, state.now.1);
    let backend = state.scope.backend;
    Diagnosis::new(process(program), times, WatchEnd::ProcessEnded, backend)
}

/// A process that was already exiting at the first look has no command line.
fn name_the_command(process: &mut Process, program: &LaunchedProgram<'_>) {
    if process.pid == program.pid && process.cmdline.is_empty() {
        process.cmdline = words(program.command);
    }
}

fn words(command: &[OsString]) -> Vec<Text> {
    let words = command.iter();
    words.map(|word| Text::from(word.as_bytes())).collect()
}

/// All that is known of a process that was never seen.
fn process(program: &LaunchedProgram<'_>) -> Process {
    let text = |word: &OsStr| Text::from(word.as_bytes());
    let first = program
        .command
        .first()
        .map_or(OsStr::new(""), |first| first);
    let name = Path::new(first).file_name().unwrap_or(first);
    Process {
        pid: program.pid,
        comm: text(name),
        cmdline: words(program.command),
        ..Process::default()
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use fdguard_core::snapshot::Process;

    use super::{Finding, Forecast, LaunchedProgram, agree_on_limits, name_the_command, process};

    fn program(pid: u32, command: &[OsString]) -> LaunchedProgram<'_> {
        LaunchedProgram {
            pid,
            command,
            began: jiff::Timestamp::UNIX_EPOCH,
        }
    }

    fn made(pid: u32, command: &[OsString]) -> Process {
        process(&program(pid, command))
    }

    #[test]
    fn a_limit_has_the_estimate_of_the_nearest_finding() {
        let finding = |name: &str, rate: f64, eta: f64| {
            let wall = serde_json::json!({"name": name, "eta_seconds": eta,
                "soonest_seconds": eta, "latest_seconds": eta});
            let finding = serde_json::json!({"rule": "leak", "pid": 7, "comm": "srv",
                "severity": "warning", "why": "", "class": null, "target": null, "count": 9,
                "grown": 9, "rate_per_min": rate, "confidence": 1.0, "walls": [wall],
                "next_step": "", "origin": null});
            serde_json::from_value::<Finding>(finding).unwrap()
        };
        let wall = |name: &str| Forecast {
            name: name.to_owned(),
            at: 1024,
            used: Some(24),
            left: Some(1000),
            percent: None,
            rate_per_min: Some(1.0),
            eta_seconds: Some(60_000.0),
            soonest_seconds: Some(50_000.0),
            latest_seconds: None,
            only_if: None,
        };
        let mut walls = [wall("soft-limit"), wall("hard-limit")];
        let findings = [
            finding("soft-limit", 6.0, 10_000.0),
            finding("soft-limit", 60.0, 1_000.0),
        ];
        agree_on_limits(&mut walls, &findings);
        assert_eq!(walls[0].eta_seconds, Some(1_000.0));
        assert_eq!(walls[0].rate_per_min, Some(60.0));
        assert_eq!(walls[0].latest_seconds, Some(1_000.0));
        assert_eq!(walls[1], wall("hard-limit"));
    }

    #[test]
    fn a_command_line_that_could_not_be_read_is_the_one_that_was_started() {
        let command = ["sh", "start.sh"].map(OsString::from);
        let whole = made(7, &command);
        let mut blank = made(7, &[]);
        name_the_command(&mut blank, &program(8, &command));
        assert!(blank.cmdline.is_empty(), "another process");
        name_the_command(&mut blank, &program(7, &command));
        assert_eq!(blank.cmdline, whole.cmdline);
        let mut renamed = made(7, &["nginx: master".into()]);
        name_the_command(&mut renamed, &program(7, &command));
        assert_eq!(renamed.cmdline.len(), 1);
    }
}
