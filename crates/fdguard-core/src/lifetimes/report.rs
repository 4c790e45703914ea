//! The conclusion from the lifetimes of one process: a verdict, its findings and every site.

use std::collections::{BTreeMap, HashMap};

use serde::{Deserialize, Serialize};

use super::advice::{LeakSuspicion, advice};
use super::history::Lifetime;
use super::site::{JudgedPath, JudgedSite};
use crate::blame::own_frames;
use crate::collapse;
use crate::count::as_f64;
use crate::dependency_path::through;
use crate::event::OpenCall;
use crate::finding::{ClearedNote, Finding, WallEta};
use crate::judge::Verdict;
use crate::lint::Severity;
use crate::origin::{Culprit, Origin, Stack};
use crate::rule::{RuleSettings, wording};
use crate::units::{self, plural};
use crate::{Class, Pid, TcpState, Text};

/// The class and target of a descriptor, as far as they are known.
pub type FdName = (Option<Class>, Option<Text>);

/// A limit closer than this is an emergency.
const SOON: f64 = 3600.0;
/// The most sites that are listed although they hold nothing.
const MOST_SPENT: usize = 200;

/// A process whose lifetimes are known.
pub struct TracedSubject<'a> {
    /// Its number.
    pub pid: Pid,
    /// Its command.
    pub comm: Text,
    /// Its lines.
    pub sites: &'a [JudgedSite],
    /// What each descriptor is.
    pub name: &'a dyn Fn(&Lifetime) -> FdName,
    /// Its soft limit; absent if unknown.
    pub limit: Option<u64>,
    /// How many it holds.
    pub count: u64,
    /// Seconds from its beginning until the judgement.
    pub until: f64,
    /// What the user set.
    pub settings: &'a RuleSettings,
}

/// A site, as shown in the public JSON.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SiteReport {
    /// The process.
    pub pid: Pid,
    /// The line.
    pub culprit: Option<Culprit>,
    /// The only caller that leaks, where other callers close what they open.
    pub leaking_caller: Option<Culprit>,
    /// The call paths to it.
    pub paths: Vec<PathReport>,
    /// The class of most descriptors that it holds.
    pub class: Option<Class>,
    /// What they refer to, numbers collapsed; absent where it differs.
    pub target: Option<Text>,
    /// How many it opened.
    pub opened: u64,
    /// How many of them were closed before the end began.
    pub closed: u64,
    /// How many were open when the end began, or are now.
    pub live: u64,
    /// How long the oldest of them had been open.
    pub oldest_age_seconds: Option<f64>,
    /// Its verdict.
    pub verdict: Verdict,
    /// Which object keeps it open: only `why` finds out.
    pub why: Option<serde_json::Value>,
}

/// One call path to a site.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PathReport {
    /// Innermost first.
    pub stack: Stack,
    /// How many it opened.
    pub opened: u64,
    /// How many of them were closed before the end began.
    pub closed: u64,
    /// How many were open when the end began, or are now.
    pub live: u64,
}

/// Descriptors that were closed in a final sweep, or after the end began.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Release {
    /// How many.
    pub count: u64,
    /// When the last was closed, in seconds since the process began.
    pub at: f64,
}

/// The verdict of a process, with its findings and sites.
#[derive(Clone, Debug, PartialEq)]
pub struct Conclusion {
    /// The verdict.
    pub verdict: Verdict,
    /// What leaks or grows, the largest first.
    pub findings: Vec<Finding>,
    /// Every site: those that leak first, then the application's own.
    pub sites: Vec<SiteReport>,
    /// What was released at the end.
    pub release: Option<Release>,
}

impl TracedSubject<'_> {
    /// Draws the conclusion.
    #[must_use]
    pub fn conclude(&self) -> Conclusion {
        let leaking = self.sites.iter().filter(|site| site.is_leaking());
        let mut findings: Vec<Finding> = leaking.flat_map(|site| self.findings(site)).collect();
        findings.sort_by_key(|one| {
            (
                std::cmp::Reverse(one.severity),
                std::cmp::Reverse(one.count),
            )
        });
        let counts = |rule: &str| {
            let mut of = findings.iter().filter(|one| one.rule == rule);
            of.any(|one| one.cleared.is_none())
        };
        let holds = self.sites.iter().any(|site| site.live() > 0);
        let verdict = if counts("leak") {
            Verdict::Leaking
        } else if counts("growth") {
            Verdict::Growing
        } else if holds {
            Verdict::Bounded
        } else {
            Verdict::Stable
        };
        Conclusion {
            verdict,
            sites: self.reports(&findings),
            release: self.release(),
            findings,
        }
    }

    /// One finding for each kind of descriptor that a site leaves open.
    fn findings(&self, site: &JudgedSite) -> Vec<Finding> {
        let mut kinds: BTreeMap<Option<Class>, Vec<(Lifetime, FdName)>> = BTreeMap::new();
        for one in site.survivors() {
            let name = (self.name)(&one);
            let family = name.0.as_ref().map(Class::family);
            kinds.entry(family).or_default().push((one, name));
        }
        // A few of unknown kind are counted with the others.
        let named = kinds.len() > 1;
        if let Some(unknown) = kinds.remove(&None).filter(|_| named)
            && let Some(most) = kinds.values_mut().max_by_key(|members| members.len())
        {
            most.extend(unknown);
        }
        let kinds = kinds.into_values().filter(|members| !members.is_empty());
        kinds.map(|members| self.finding(site, &members)).collect()
    }

    fn finding(&self, site: &JudgedSite, members: &[(Lifetime, FdName)]) -> Finding {
        let (class, target) = common(members.iter().map(|(_, name)| name));
        let count = members.len() as u64;
        let origin = self.origin(site, count);
        let is_clients = is_clients(members);
        let rate = rate(members);
        let walls = self.walls(rate);
        let is_urgent = walls.iter().any(|wall| wall.eta_seconds < SOON);
        let severity = match (is_clients, is_urgent) {
            (true, _) => Severity::Info,
            (false, true) => Severity::Critical,
            (false, false) => Severity::Warning,
        };
        let suspicion = LeakSuspicion {
            culprit: origin.culprit.as_ref(),
            through: &origin.through,
            class: class.as_ref(),
        };
        let next_step = if is_clients {
            "No action needed while these clients are expected. A limit on connections keeps the rest of the program running.".to_owned()
        } else {
            sentence(advice(&suspicion))
        };
        let rule = if is_clients { "growth" } else { "leak" };
        let mut finding = Finding {
            why: why(site, members, class.as_ref(), target.as_ref(), is_clients),
            class,
            target,
            count: Some(count),
            grown: i64::try_from(count).ok(),
            rate_per_min: rate.map(|rate| wording::rounded(rate * 60.0)),
            walls,
            next_step,
            origin: Some(origin),
            ..Finding::new(rule, self.pid, self.comm.clone(), severity)
        };
        self.clear(&mut finding);
        finding
    }

    fn origin(&self, site: &JudgedSite, live: u64) -> Origin {
        let first = site.leaking().next().or(site.paths.first());
        let stack = first.map(|path| path.stack.clone()).unwrap_or_default();
        let (opened, closed) = site.leaking().fold((0, 0), |(opened, closed), path| {
            (opened + path.history.opened, closed + closed_before(path))
        });
        let survivors = site.survivors();
        let oldest = survivors.first();
        Origin {
            culprit: site.culprit.clone(),
            leaking_caller: site.leaking_caller.clone(),
            through: through(&stack),
            partly: closed > 0 && closed * 10 >= opened,
            stack,
            thread: oldest.map(|one| one.thread),
            live,
            opened,
            closed,
            oldest_age_seconds: oldest.map(|one| milliseconds(self.until - one.opened.real)),
        }
    }

    /// The limits that it approaches, at its own rate.
    fn walls(&self, rate: Option<f64>) -> Vec<WallEta> {
        let eta = self.limit.zip(rate).map(|(limit, rate)| {
            let seconds = as_f64(limit.saturating_sub(self.count)) / rate;
            WallEta {
                name: "soft-limit".to_owned(),
                eta_seconds: seconds,
                soonest_seconds: seconds,
                latest_seconds: Some(seconds),
            }
        });
        eta.into_iter().collect()
    }

    /// A finding that the user accepted is shown but does not count.
    fn clear(&self, finding: &mut Finding) {
        let (suppressions, today) = (&self.settings.suppressions, self.settings.today);
        let Some(class) = &finding.class else {
            return;
        };
        let target = finding.target.as_ref().map(Text::as_bytes);
        let count = finding.count.unwrap_or(u64::MAX);
        let entry = suppressions.find(class, target, self.comm.as_bytes(), count, today);
        if let Some(entry) = entry {
            finding.severity = Severity::Info;
            finding.cleared = Some(ClearedNote {
                reason: entry.reason.clone(),
                date: entry.date.to_string(),
            });
        }
    }

    fn reports(&self, findings: &[Finding]) -> Vec<SiteReport> {
        let mut spent = 0;
        let is_listed = |site: &&JudgedSite| {
            let holds = site.live() > 0 || site.is_leaking();
            spent += usize::from(!holds);
            holds || spent <= MOST_SPENT
        };
        let listed = self.sites.iter().filter(is_listed);
        let mut reports: Vec<SiteReport> = listed.map(|site| self.report(site, findings)).collect();
        let is_own = |report: &SiteReport| {
            let first = report.paths.first();
            first.is_some_and(|path| own_frames(&path.stack).next().is_some())
        };
        reports.sort_by_key(|report| {
            let rank = std::cmp::Reverse((report.verdict, is_own(report)));
            (rank, std::cmp::Reverse(report.live))
        });
        reports
    }

    fn report(&self, site: &JudgedSite, findings: &[Finding]) -> SiteReport {
        let shown: Vec<Lifetime> = site
            .paths
            .iter()
            .flat_map(|path| path.open_at_end().iter().copied())
            .collect();
        let names: Vec<FdName> = shown.iter().map(self.name).collect();
        let (class, target) = common(names.iter());
        let mut of_site = findings.iter().filter(|one| {
            let culprit = one
                .origin
                .as_ref()
                .and_then(|origin| origin.culprit.as_ref());
            culprit == site.culprit.as_ref()
        });
        let verdict = match site.is_leaking() {
            true if of_site.all(|one| one.rule == "growth") => Verdict::Growing,
            true => Verdict::Leaking,
            false if shown.is_empty() => Verdict::Stable,
            false => Verdict::Bounded,
        };
        let oldest = shown.iter().map(|one| one.opened.real).reduce(f64::min);
        SiteReport {
            pid: self.pid,
            culprit: site.culprit.clone(),
            leaking_caller: site.leaking_caller.clone(),
            paths: site.paths.iter().map(path_report).collect(),
            class,
            target,
            opened: site.opened(),
            closed: site.paths.iter().map(closed_before).sum(),
            live: site.live(),
            oldest_age_seconds: oldest.map(|oldest| milliseconds(self.until - oldest)),
            verdict,
            why: None,
        }
    }

    fn release(&self) -> Option<Release> {
        let leaking = self.sites.iter().filter(|site| site.is_leaking());
        let closed: Vec<f64> = leaking
            .flat_map(JudgedSite::survivors)
            .filter_map(|one| one.closed.map(|closed| closed.real))
            .collect();
        let at = closed.iter().copied().reduce(f64::max)?;
        Some(Release {
            count: closed.len() as u64,
            at,
        })
    }
}

/// What was closed before the end began.
fn closed_before(path: &JudgedPath) -> u64 {
    let released = match path.judgement.is_released {
        true => path.history.recent.len() as u64,
        false => 0,
    };
    path.history.closed.saturating_sub(released)
}

fn path_report(path: &JudgedPath) -> PathReport {
    PathReport {
        stack: path.stack.clone(),
        opened: path.history.opened,
        closed: closed_before(path),
        live: path.open_at_end().len() as u64,
    }
}

/// The class of most of them, and the target of these if it is the same.
fn common<'a, I>(names: I) -> FdName
where
    I: Iterator<Item = &'a FdName> + Clone,
{
    let mut classes: HashMap<&Class, usize> = HashMap::new();
    for class in names.clone().filter_map(|name| name.0.as_ref()) {
        *classes.entry(class).or_default() += 1;
    }
    let most = classes
        .into_iter()
        .max_by_key(|(class, count)| (*count, std::cmp::Reverse(*class)));
    let Some((class, _)) = most else {
        return (None, None);
    };
    let of_class = names.filter(|name| name.0.as_ref() == Some(class));
    let mut targets = of_class
        .filter_map(|name| name.1.as_ref())
        .map(|target| Text::from(&*collapse::collapse(target.as_bytes())));
    let first = targets.next();
    let is_one = targets.all(|target| Some(&target) == first.as_ref());
    (Some(class.clone()), first.filter(|_| is_one))
}

/// Accepted connections whose peers are connected: users, not a leak.
fn is_clients(members: &[(Lifetime, FdName)]) -> bool {
    let accepted = members
        .iter()
        .filter(|(one, _)| one.call == OpenCall::Accept)
        .count();
    let is_alive =
        |(_, (class, _)): &&(Lifetime, FdName)| *class == Some(Class::Tcp(TcpState::Established));
    let alive = members.iter().filter(is_alive).count();
    accepted * 4 >= members.len() * 3 && alive * 4 >= members.len() * 3
}

/// The rate per second, from the first to the last.
fn rate(members: &[(Lifetime, FdName)]) -> Option<f64> {
    let (first, last) = (members.first()?, members.last()?);
    let seconds = last.0.opened.real - first.0.opened.real;
    (seconds > 0.0).then(|| as_f64(members.len() as u64 - 1) / seconds)
}

/// `60 files opened from 2 s to 15 s (4.0/s), none closed`.
fn why(
    site: &JudgedSite,
    members: &[(Lifetime, FdName)],
    class: Option<&Class>,
    target: Option<&Text>,
    is_clients: bool,
) -> String {
    let count = members.len() as u64;
    let (Some((first, _)), Some((last, _))) = (members.first(), members.last()) else {
        return String::new();
    };
    let (from, to) = (first.opened.real, last.opened.real);
    let speed = rate(members).map_or(String::new(), |rate| {
        format!(" ({})", units::short_rate(rate))
    });
    let on = target
        .filter(|target| target.as_bytes().first() == Some(&b'/'))
        .map_or(String::new(), |target| format!(" on {}", target.to_lossy()));
    let what = things(class, count);
    let (from, to) = (units::moment(from), units::moment(to));
    let mut text = format!("{count} {what}{on} opened from {from} to {to}{speed}");
    if is_clients {
        text.push_str("; they belong to clients that are still connected");
        return text;
    }
    let opened: u64 = site.leaking().map(|path| path.history.opened).sum();
    let closed: u64 = site.leaking().map(closed_before).sum();
    text.push_str(&match closed {
        0 => ", none closed".to_owned(),
        closed if closed * 10 >= opened => format!(
            " and never closed, although {closed} of {opened} from the same call path were: they stay open only on some paths, such as after a failed start, an exception or a timeout"
        ),
        closed => format!(" and never closed, although {closed} of {opened} from the same call path were"),
    });
    let closed = members.iter().filter_map(|(one, _)| one.closed);
    let Some(at) = closed.map(|at| at.real).reduce(f64::max) else {
        return text;
    };
    let released = members.iter().filter(|(one, _)| one.closed.is_some());
    let released = released.count() as u64;
    let how_many = if released == count {
        "all".to_owned()
    } else {
        released.to_string()
    };
    let is_finalized = members.iter().any(|(one, _)| one.is_finalized);
    text.push_str(&if is_finalized {
        " while it ran; the interpreter closed them at exit".to_owned()
    } else {
        let at = units::moment(at);
        format!(" while it ran; at most {count} open, {how_many} closed at shutdown, at {at}")
    });
    text
}

/// `files`, `TCP connections`: the word for a class.
#[must_use]
pub fn things(class: Option<&Class>, count: u64) -> String {
    let Some(class) = class else {
        return plural(count, "descriptor");
    };
    let word = match class {
        Class::Regular | Class::Deleted => "file",
        Class::Directory => "directory",
        Class::Pipe | Class::Fifo => "pipe end",
        Class::Tcp(TcpState::Listen) => "listening socket",
        Class::Tcp(_) => "TCP socket",
        Class::Udp => "UDP socket",
        Class::Unix => "unix socket",
        Class::Eventpoll => "epoll instance",
        Class::PtyMaster => "terminal",
        Class::SqliteDb => "SQLite database handle",
        other => return plural(count, &format!("{other} descriptor")),
    };
    plural(count, word)
}

/// With a capital letter and a full stop.
fn sentence(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters
        .next()
        .map(|letter| letter.to_uppercase().to_string());
    format!("{}{}.", first.unwrap_or_default(), letters.as_str())
}

fn milliseconds(seconds: f64) -> f64 {
    (seconds.max(0.0) * 1e3).round() / 1e3
}

impl std::fmt::Debug for TracedSubject<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Subject")
            .field("pid", &self.pid)
            .field("sites", &self.sites)
            .finish_non_exhaustive()
    }
}
