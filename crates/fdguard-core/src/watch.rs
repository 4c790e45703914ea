//! A watch over one or several processes: entries in, a diagnosis out.

use jiff::{SignedDuration, Timestamp};

use crate::diagnosis::{Diagnosis, ProcessDiagnosis, WatchEnd};
use crate::finding::Finding;
use crate::judge::Verdict;
use crate::recording::{Appearance, RecordingEntry, RecordingHeader};
use crate::rule::RuleSettings;
use crate::select_use::SelectUse;
use crate::snapshot::Process;
use crate::timeline::Timeline;
use crate::units::counted;
use crate::{Gap, Tier};

/// The most exited processes that are kept. A tree may start thousands of them in an hour, and most
/// have nothing to report.
const ENDED_KEPT: usize = 256;

/// All observations so far.
#[derive(Clone, Debug)]
pub struct Watch {
    header: RecordingHeader,
    subjects: Vec<WatchedProcess>,
    /// How many exited processes were dropped.
    forgotten: u64,
    gaps: Vec<Gap>,
    ended: Option<(WatchEnd, Timestamp)>,
    /// Seconds since the watch began, at the latest entry.
    at: f64,
}

/// One process under watch.
#[derive(Clone, Debug)]
pub struct WatchedProcess {
    /// Its number in this watch.
    pub id: u32,
    /// The process.
    pub process: Process,
    /// Its history.
    pub timeline: Timeline,
    /// How much can be observed.
    pub tier: Tier,
    /// Whether it can call `select()`; absent where that was not checked.
    pub select: Option<SelectUse>,
    /// When it ended, in seconds since the watch began.
    pub gone: Option<f64>,
    /// Whether another process replaced it.
    pub replaced: bool,
}

impl WatchedProcess {
    /// It called exec, and is still the same process.
    fn rename(&mut self, now: Option<&Process>) {
        let is_same = |now: &&Process| now.row_key() == self.process.row_key();
        if let Some(now) = now.filter(is_same) {
            self.process = now.clone();
        }
    }

    /// The verdict on it.
    #[must_use]
    pub fn opinion(&self, settings: &RuleSettings) -> ProcessDiagnosis {
        ProcessDiagnosis::of(
            &self.process,
            &self.timeline,
            self.select.as_ref(),
            settings,
        )
    }
}

impl Watch {
    /// Nothing seen yet.
    #[must_use]
    pub fn new(header: RecordingHeader) -> Self {
        Self {
            header,
            subjects: Vec::new(),
            forgotten: 0,
            gaps: Vec::new(),
            ended: None,
            at: 0.0,
        }
    }

    /// Takes in one entry.
    pub fn record(&mut self, entry: &RecordingEntry) {
        match entry {
            RecordingEntry::Process(appearance) => self.appear(appearance),
            RecordingEntry::Look { id, look } => {
                self.at = self.at.max(look.at);
                if let Some(subject) = self.subject_mut(*id) {
                    subject.timeline.observe(look);
                    subject.rename(look.process.as_deref());
                }
            }
            RecordingEntry::Gone { id, at } => {
                self.at = self.at.max(*at);
                if let Some(subject) = self.subject_mut(*id) {
                    subject.gone = Some(*at);
                }
                self.forget(*id);
            }
            RecordingEntry::Gap(gap) => {
                if !self.gaps.contains(gap) {
                    self.gaps.push(gap.clone());
                }
            }
            RecordingEntry::End { ended, ended_at } => self.ended = Some((*ended, *ended_at)),
        }
    }

    fn appear(&mut self, appearance: &Appearance) {
        self.at = self.at.max(appearance.at);
        // Each number identifies one process: a damaged recording that repeats one is not believed.
        if self.subject_mut(appearance.id).is_some() {
            return;
        }
        let mut subjects = self.subjects.iter();
        let before = appearance
            .successor_of
            .and_then(|id| subjects.position(|subject| subject.id == id));
        // It replaces the one before: the process that was named first stays first.
        let place = before.map_or(self.subjects.len(), |at| at + 1);
        if let Some(at) = before {
            self.subjects[at].replaced = true;
        }
        let subject = WatchedProcess {
            id: appearance.id,
            process: appearance.process.clone(),
            timeline: Timeline::new(),
            tier: appearance.tier,
            select: appearance.select.clone(),
            gone: None,
            replaced: false,
        };
        self.subjects.insert(place, subject);
    }

    /// Drops the exited process with the fewest looks, but neither the first one nor `latest`.
    fn forget(&mut self, latest: u32) {
        let ended = self.subjects.iter().enumerate().skip(1);
        let ended = ended.filter(|(_, one)| one.gone.is_some() && one.id != latest);
        if ended.clone().count() < ENDED_KEPT {
            return;
        }
        if let Some((index, _)) = ended.min_by_key(|(_, one)| one.timeline.looks()) {
            self.subjects.remove(index);
            self.forgotten += 1;
        }
    }

    /// What could not be observed, and what was not kept.
    fn all_gaps(&self) -> Vec<Gap> {
        let mut gaps = self.gaps.clone();
        if self.forgotten > 0 {
            gaps.push(Gap::new(
                format!(
                    "{} that ended during the watch",
                    counted(self.forgotten, "process")
                ),
                format!("only {ENDED_KEPT} ended processes are kept: those observed longest"),
                "name the processes that matter instead of their ancestor",
            ));
        }
        gaps
    }

    fn subject_mut(&mut self, id: u32) -> Option<&mut WatchedProcess> {
        self.subjects.iter_mut().find(|subject| subject.id == id)
    }

    /// The first line of its recording.
    #[must_use]
    pub fn header(&self) -> &RecordingHeader {
        &self.header
    }

    /// Seconds since it began, at the latest entry.
    #[must_use]
    pub fn at(&self) -> f64 {
        self.at
    }

    /// The watched processes, the named ones first, without those that were replaced.
    pub fn subjects(&self) -> impl Iterator<Item = &WatchedProcess> {
        self.subjects.iter().filter(|subject| !subject.replaced)
    }

    /// What could not be observed so far.
    #[must_use]
    pub fn gaps(&self) -> &[Gap] {
        &self.gaps
    }

    /// Why it ended, once it has.
    #[must_use]
    pub fn ended(&self) -> Option<WatchEnd> {
        self.ended.map(|(ended, _)| ended)
    }

    /// The diagnosis; absent before any process appeared.
    #[must_use]
    pub fn diagnosis(&self, settings: &RuleSettings) -> Option<Diagnosis> {
        let first = self.subjects().next()?;
        let opinions = |replaced: bool| -> Vec<ProcessDiagnosis> {
            let chosen = self.subjects.iter();
            let chosen = chosen.filter(|subject| subject.replaced == replaced);
            chosen.map(|subject| subject.opinion(settings)).collect()
        };
        let (processes, predecessors) = (opinions(false), opinions(true));
        let everybody = processes.iter().chain(&predecessors);
        let mut findings: Vec<Finding> = everybody
            .flat_map(|opinion| opinion.findings.clone())
            .collect();
        findings.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
        let verdicts = processes.iter().chain(&predecessors);
        let verdict = verdicts.map(|opinion| opinion.verdict).max();
        let (ended, ended_at) = self
            .ended
            .unwrap_or((WatchEnd::RecordingCut, self.wall_time()));
        let times = (self.header.started_at, ended_at);
        let mut found = Diagnosis {
            samples: first.timeline.looks(),
            baseline: first.timeline.baseline(),
            last: first.timeline.count(),
            verdict: verdict.unwrap_or(Verdict::Unknown),
            findings,
            processes,
            predecessors,
            gaps: self.all_gaps(),
            ..Diagnosis::new(first.process.clone(), times, ended, "probe")
        };
        let listed = self.subjects().filter(|one| one.timeline.is_listed());
        let counts = listed.map(|one| one.timeline.live().len() as u64);
        found.coverage.live_fds = counts.reduce(|all, one| all + one);
        Some(found)
    }

    /// The time of the latest entry, relative to the start time: no other clock is recorded.
    #[must_use]
    pub fn wall_time(&self) -> Timestamp {
        let passed = SignedDuration::try_from_secs_f64(self.at).unwrap_or_default();
        let started = self.header.started_at;
        started.checked_add(passed).unwrap_or(started)
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::{ENDED_KEPT, Watch};
    use crate::diagnosis::{Diagnosis, WatchEnd};
    use crate::judge::Verdict;
    use crate::recording::{Appearance, RecordingEntry, RecordingHeader};
    use crate::snapshot::Process;
    use crate::testing::watch_script::{WatchScript, header, leak, settings, watched};
    use crate::testing::{PID, snapshot};
    use crate::timeline::Look;
    use crate::{Class, Gap, Pid, Tier};

    fn quiet() -> WatchScript {
        watched(|t| {
            t.open(Class::Regular, "/srv/a", 10);
            t.looks(80);
        })
    }

    fn taken(entries: impl IntoIterator<Item = Vec<RecordingEntry>>) -> Watch {
        let mut watch = Watch::new(header());
        for entry in entries.into_iter().flatten() {
            watch.record(&entry);
        }
        watch
    }

    fn diagnosis(watch: &Watch) -> Diagnosis {
        watch.diagnosis(&settings()).unwrap()
    }

    #[test]
    fn of_several_processes_the_worst_counts_and_each_finding_has_its_own() {
        let pipes = leak(&Class::Pipe, "pipe:[7]", 80);
        let watch = taken([quiet().entries(0, None), pipes.entries(1, None)]);
        let diagnosis = diagnosis(&watch);
        assert_eq!(diagnosis.verdict, Verdict::Leaking);
        assert_eq!(diagnosis.process.pid, PID);
        assert_eq!(diagnosis.findings[0].pid, PID + 1);
        let verdicts: Vec<_> = diagnosis.processes.iter().map(|one| one.verdict).collect();
        assert_eq!(verdicts, [Verdict::Stable, Verdict::Leaking]);
        assert_eq!(diagnosis.coverage.live_fds, Some(100));
    }

    #[test]
    fn a_restart_keeps_the_opinion_of_the_one_before_and_the_place_in_the_list() {
        let pipes = leak(&Class::Pipe, "pipe:[7]", 80);
        let watch = taken([
            pipes.entries(0, None),
            quiet().entries(1, None),
            quiet().entries(2, Some(0)),
        ]);
        let diagnosis = diagnosis(&watch);
        assert_eq!(
            diagnosis.process.pid,
            PID + 2,
            "the named one, not its neighbour"
        );
        let pids = |list: &[crate::diagnosis::ProcessDiagnosis]| -> Vec<u32> {
            list.iter().map(|one| one.pid).collect()
        };
        assert_eq!(pids(&diagnosis.processes), [PID + 2, PID + 1]);
        assert_eq!(pids(&diagnosis.predecessors), [PID]);
        assert_eq!(diagnosis.predecessors[0].verdict, Verdict::Leaking);
        assert_eq!(diagnosis.verdict, Verdict::Leaking);
        assert_eq!(watch.subjects().count(), 2);
    }

    #[test]
    fn a_gap_is_not_repeated() {
        let gap = || RecordingEntry::Gap(Gap::new("the links", "permission denied", "run as root"));
        let other =
            RecordingEntry::Gap(Gap::new("the children", "permission denied", "run as root"));
        let watch = taken([quiet().entries(0, None), vec![gap(), other, gap()]]);
        assert_eq!(watch.gaps().len(), 2);
        assert_eq!(diagnosis(&watch).gaps, watch.gaps());
    }

    #[test]
    fn a_number_that_is_there_already_is_not_taken_again() {
        let watch = taken([quiet().entries(0, None), quiet().entries(0, None)]);
        assert_eq!(watch.subjects().count(), 1);
        let itself = taken([quiet().entries(3, Some(3))]);
        assert_eq!(itself.subjects().count(), 1);
    }

    #[test]
    fn without_its_end_a_watch_ends_at_its_last_entry() {
        let mut watch = taken([quiet().entries(0, None)]);
        assert_eq!(watch.ended(), None);
        let cut = diagnosis(&watch);
        assert_eq!(cut.ended, WatchEnd::RecordingCut);
        assert_eq!(cut.ended_at.as_second(), 79);
        watch.record(&RecordingEntry::Gone { id: 0, at: 90.5 });
        assert_eq!(watch.subjects().next().unwrap().gone, Some(90.5));
        assert_eq!(watch.wall_time().as_second(), 90);
    }

    #[test]
    fn nobody_in_view_is_no_diagnosis() {
        let mut watch = Watch::new(header());
        watch.record(&RecordingEntry::Gone { id: 7, at: 1.0 });
        assert!(watch.diagnosis(&settings()).is_none());
    }

    fn come(watch: &mut Watch, id: u32, successor_of: Option<u32>, looks: u32) {
        let mut process = snapshot(Vec::new()).process;
        process.pid = Pid::from(1000 + id);
        watch.record(&RecordingEntry::Process(Box::new(Appearance {
            id,
            at: f64::from(id),
            process,
            tier: Tier::Full,
            select: None,
            successor_of,
        })));
        for look in 0..looks {
            let look = Look {
                at: f64::from(id) + f64::from(look) / 100.0,
                count: Some(3),
                ..Look::default()
            };
            let look = Box::new(look);
            watch.record(&RecordingEntry::Look { id, look });
        }
    }

    fn go(watch: &mut Watch, id: u32) {
        let at = f64::from(id) + 0.9;
        watch.record(&RecordingEntry::Gone { id, at });
    }

    #[test]
    fn findings_carry_the_name_that_a_process_has_after_exec() {
        let mut told = leak(&Class::Pipe, "pipe:[7]", 80).entries(0, None);
        let Some(RecordingEntry::Process(first)) = told.first() else {
            panic!("who it is comes first");
        };
        let mut now = first.process.clone();
        now.comm = "python3".into();
        let stranger = Process {
            pid: now.pid + 1,
            comm: "stranger".into(),
            ..now.clone()
        };
        let renamed = |process: Process| RecordingEntry::Look {
            id: 0,
            look: Box::new(Look {
                at: 200.0,
                process: Some(Box::new(process)),
                ..Look::default()
            }),
        };
        told.extend([renamed(now), renamed(stranger)]);
        let found = diagnosis(&taken([told]));
        assert_eq!(found.process.comm, "python3".into());
        assert_eq!(found.findings[0].comm, "python3".into());
    }

    #[test]
    fn thousands_of_children_that_come_and_go_do_not_fill_the_memory() {
        let mut watch = Watch::new(RecordingHeader::new(Timestamp::UNIX_EPOCH, 1.0));
        come(&mut watch, 0, None, 1);
        for id in 1..2000 {
            come(&mut watch, id, None, if id == 77 { 50 } else { 2 });
            go(&mut watch, id);
        }
        let found = watch.diagnosis(&settings()).unwrap();
        assert_eq!(found.processes.len(), 2 + ENDED_KEPT - 1);
        let pids: Vec<Pid> = found.processes.iter().map(|one| one.pid).collect();
        assert_eq!(pids[..2], [1000, 1077], "who was seen longest is kept");
        assert_eq!(pids.last(), Some(&2999));
        assert_eq!(found.gaps.len(), 1);
        let what = &found.gaps[0].what;
        assert!(what.starts_with("1743 processes"), "{what}");
    }

    #[test]
    fn r25_of_a_long_row_of_successors_the_last_is_never_forgotten() {
        let mut watch = Watch::new(RecordingHeader::new(Timestamp::UNIX_EPOCH, 1.0));
        for id in 0..1000_u32 {
            come(&mut watch, id, id.checked_sub(1), 1);
            go(&mut watch, id);
            let found = watch.diagnosis(&settings());
            assert_eq!(found.unwrap().process.pid, 1000 + id);
        }
    }
}
