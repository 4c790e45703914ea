//! `--follow`: a line for each event as it happens. Keys and values as in the lines of `watch`.

use std::collections::{BTreeSet, HashMap};
use std::fs::File;
use std::io::Write;
use std::time::Instant;

use anyhow::Context as _;
use fdguard_core::hazard::{Hazard, Party};
use fdguard_core::judge::Verdict;
use fdguard_core::lint::Severity;
use fdguard_core::origin::Culprit;
use fdguard_core::proof::Clearance;
use fdguard_core::recording::RecordingEntry;
use fdguard_core::rule::RuleSettings;
use fdguard_core::watch::Watch;
use fdguard_diagnose::trace::{GrowingSites, SiteNow};
use fdguard_diagnose::watching::WatchProgress;
use fdguard_trace::StateParts;
use jiff::Timestamp;

use super::PATIENCE;
use super::run_loop::{RunningTrace, TraceObserver};
use crate::cli::TraceArgs;
use crate::output::OutputStream;
use crate::report::diagnosis;
use crate::report::state_line::word;
use crate::terminal::{sanitize, sanitize_str};

/// Seconds between two judgements.
const JUDGED: f64 = 1.0;

/// Prints events, line by line.
pub(super) struct Follower<'s> {
    out: Out,
    settings: &'s RuleSettings,
    clearance: Clearance<'s>,
    sites: GrowingSites,
    verdicts: HashMap<u32, Verdict>,
    /// When they were last judged.
    judged: Option<f64>,
    hazards: BTreeSet<String>,
}

/// Where the lines go.
enum Out {
    Stderr,
    File(File),
}

impl<'s> Follower<'s> {
    /// Lines go to the report's file, unless that is JSON.
    pub(super) fn new(args: &'s TraceArgs, settings: &'s RuleSettings) -> anyhow::Result<Self> {
        let out = match args.output.as_deref().filter(|_| !args.json) {
            Some(path) => {
                let file = File::create(path);
                Out::File(file.with_context(|| path.display().to_string())?)
            }
            None => Out::Stderr,
        };
        Ok(Self {
            out,
            settings,
            clearance: Clearance::new(&args.allow, settings),
            sites: GrowingSites::default(),
            verdicts: HashMap::new(),
            judged: None,
            hazards: BTreeSet::new(),
        })
    }

    /// The file of the lines, for the report at the end.
    pub(super) fn stream(&self) -> anyhow::Result<Option<OutputStream>> {
        match &self.out {
            Out::Stderr => Ok(None),
            Out::File(file) => Ok(Some(OutputStream::to(file.try_clone()?))),
        }
    }

    /// Prints each hazard once, however often it is found, and no accepted one.
    pub(super) fn hazards(&mut self, hazards: &[Hazard]) {
        for hazard in hazards {
            if hazard.cleared.is_some() || self.clearance.of_hazard(hazard, None).is_some() {
                continue;
            }
            let line = hazard_line(hazard);
            if self.hazards.insert(line.clone()) {
                self.emit("fd_hazard", &line);
            }
        }
    }

    fn report_sample(&mut self, running: &mut RunningTrace<'_, '_>, entries: &[RecordingEntry]) {
        let state = running.state(StateParts::OPEN);
        let watch = running.live().watch();
        for entry in entries {
            self.process(watch, entry);
        }
        self.sites.update(watch, &state);
        let new = self.sites.now().iter().filter(|one| one.has_begun);
        let lines: Vec<String> = new.map(site_line).collect();
        for line in lines {
            self.emit("fd_site", &line);
        }
        if self.judged.is_none_or(|at| watch.at() - at >= JUDGED) {
            self.judged = Some(watch.at());
            let state = running.state(StateParts::JUDGED);
            self.judge(running, &running.joined(&state, self.settings).verdicts());
            self.hazards(&state.hazards);
        }
    }

    fn process(&mut self, watch: &Watch, entry: &RecordingEntry) {
        let line = |pid: u32, comm: &str, event: &str| {
            format!("pid={pid} comm={} event={event}", word(comm))
        };
        match entry {
            RecordingEntry::Process(one) => {
                let comm = sanitize(&one.process.comm);
                self.emit("fd_process", &line(one.process.pid, &comm, "started"));
            }
            RecordingEntry::Gone { id, .. } => {
                let Some(subject) = watch.subjects().find(|subject| subject.id == *id) else {
                    return;
                };
                let comm = sanitize(&subject.process.comm);
                self.emit("fd_process", &line(subject.process.pid, &comm, "ended"));
            }
            _ => {}
        }
    }

    fn judge(&mut self, running: &RunningTrace<'_, '_>, traced: &HashMap<u32, Verdict>) {
        let watch = running.live().watch();
        for subject in watch.subjects().filter(|subject| subject.gone.is_none()) {
            let mut opinion = subject.opinion(self.settings);
            if let Some(verdict) = traced.get(&subject.process.pid) {
                opinion.verdict = opinion.verdict.min(Verdict::Bounded).max(*verdict);
            }
            let before = self.verdicts.insert(subject.id, opinion.verdict);
            let before = before.unwrap_or(Verdict::Unknown);
            if before == opinion.verdict {
                continue;
            }
            let count = opinion.last.map_or("unknown".to_owned(), |n| n.to_string());
            let line = format!(
                "pid={} comm={} count={count} verdict={} was={}",
                opinion.pid,
                word(&sanitize(&opinion.comm)),
                diagnosis::word(opinion.verdict),
                diagnosis::word(before),
            );
            self.emit("fd_verdict", &line);
        }
    }

    /// A failure cannot be reported, and the program continues.
    fn emit(&mut self, what: &str, line: &str) {
        let line = format!("{what} time={:.3} {line}\n", Timestamp::now());
        drop(match &mut self.out {
            Out::Stderr => anstream::stderr().write_all(line.as_bytes()),
            Out::File(file) => file.write_all(line.as_bytes()),
        });
    }
}

impl TraceObserver for Follower<'_> {
    fn observe(&mut self, running: &mut RunningTrace<'_, '_>) -> anyhow::Result<()> {
        loop {
            let (progress, entries) = running.step(Instant::now() + PATIENCE)?;
            self.report_sample(running, &entries);
            if progress == WatchProgress::Ended {
                return Ok(());
            }
        }
    }
}

fn site_line(one: &SiteNow) -> String {
    let class = one.class.as_ref().map(ToString::to_string);
    format!(
        "pid={} comm={} live={} opened={} closed={} per_second={} class={} {}",
        one.pid,
        word(&sanitize_str(&one.comm)),
        one.site.open.len(),
        one.site.opened,
        one.site.closed,
        one.rate
            .map_or("unknown".to_owned(), |rate| format!("{rate:.1}")),
        class.map_or("unknown".to_owned(), |class| word(&class)),
        place(one.site.culprit.as_ref()),
    )
}

fn hazard_line(hazard: &Hazard) -> String {
    let party = |name: &str, party: &Option<Party>| {
        let Some(party) = party else {
            return String::new();
        };
        let place = place(party.culprit.as_ref());
        format!(
            " {name}_{}",
            place.replace(" function=", &format!(" {name}_function="))
        )
    };
    let severity = match hazard.severity {
        Severity::Info => "info",
        Severity::Warning => "warning",
        Severity::Critical => "critical",
    };
    let class = hazard.class.as_ref().map(ToString::to_string);
    format!(
        "pid={} rule={} severity={severity} fd={} class={}{}{}{}",
        hazard.pid,
        hazard.rule,
        hazard.fd.map_or("none".to_owned(), |fd| fd.to_string()),
        class.map_or("unknown".to_owned(), |class| word(&class)),
        party("opener", &hazard.opener),
        party("closer", &hazard.closer),
        party("user", &hazard.user),
    )
}

/// `line=main.c:23 function=begin`.
fn place(culprit: Option<&Culprit>) -> String {
    let unknown = || "unknown".to_owned();
    let line = culprit.and_then(|culprit| {
        let file = culprit.file.as_ref()?.base_name();
        Some(format!("{}:{}", word(&sanitize_str(&file)), culprit.line?))
    });
    let function = culprit.and_then(|culprit| culprit.function.as_deref());
    format!(
        "line={} function={}",
        line.unwrap_or_else(unknown),
        function.map_or_else(unknown, |name| word(&sanitize_str(name))),
    )
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeSet, HashMap};
    use std::io::{Read as _, Seek as _};

    use fdguard_core::config::Config;
    use fdguard_core::hazard::Hazard;
    use fdguard_core::playbook::Playbook;
    use fdguard_core::rule::RuleSettings;

    use super::{Clearance, Follower, GrowingSites, Out};

    fn hazard(line: u32) -> Hazard {
        let culprit = serde_json::json!({
            "file": "/srv/pool a.c", "function": "put back", "line": line, "language": "c"});
        let party = serde_json::json!({"thread": 7, "culprit": culprit, "stack": []});
        let hazard = serde_json::json!({
            "pid": 5, "rule": "double-close", "severity": "critical", "fd": 9, "class": "pipe",
            "when": "2026-01-01T00:00:00Z", "count": 1, "opener": null, "closer": party,
            "user": null, "message": "closed twice"});
        serde_json::from_value(hazard).unwrap()
    }

    #[test]
    fn a_hazard_is_told_once_unless_it_was_accepted_and_its_names_forge_nothing() {
        let config = Config::default();
        let settings = RuleSettings {
            levels: config.levels,
            expectations: config.expectations,
            suppressions: config.suppressions,
            playbook: Playbook::embedded(),
            today: jiff::civil::date(2026, 1, 1),
        };
        let allowed = ["stranger-close".parse().unwrap()];
        let mut file = tempfile::tempfile().unwrap();
        let mut follower = Follower {
            out: Out::File(file.try_clone().unwrap()),
            settings: &settings,
            clearance: Clearance::new(&allowed, &settings),
            sites: GrowingSites::default(),
            verdicts: HashMap::new(),
            judged: None,
            hazards: BTreeSet::new(),
        };
        let again = Hazard {
            count: 2,
            ..hazard(3)
        };
        let accepted = Hazard {
            rule: "stranger-close".to_owned(),
            ..hazard(3)
        };
        follower.hazards(&[hazard(3), again, accepted]);
        follower.hazards(&[hazard(3), hazard(4)]);
        let mut said = String::new();
        file.rewind().unwrap();
        file.read_to_string(&mut said).unwrap();
        let line = |line: u32| {
            format!(
                "pid=5 rule=double-close severity=critical fd=9 class=pipe \
                 closer_line=pool_a.c:{line} closer_function=put_back"
            )
        };
        let lines: Vec<&str> = said
            .lines()
            .map(|line| line.splitn(3, ' ').last().unwrap())
            .collect();
        assert_eq!(lines, [line(3), line(4)], "{said}");
        assert!(said.starts_with("fd_hazard time=20"), "{said}");
    }
}
