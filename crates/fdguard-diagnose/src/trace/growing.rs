//! The sites of a trace over time: how many descriptors each holds, and whether it is growing.

use std::collections::{HashMap, VecDeque};

use fdguard_core::origin::Culprit;
use fdguard_core::watch::Watch;
use fdguard_core::{Class, Text};
use fdguard_trace::{Site, TraceState};

use super::ProcessSites;

/// The current rate is taken over this many seconds.
const NOW: f64 = 10.0;
/// How far back the history of a site reaches, in seconds.
const KEPT: f64 = 60.0;
/// Growth is reported from this many more descriptors on, and after this many seconds.
const ENOUGH: usize = 4;
const SHORTEST: f64 = 2.0;

/// Identifies a site: the process, and the line if known.
type Key = (u32, Option<Culprit>);

/// A site at the last look.
#[derive(Clone, Debug)]
pub struct SiteNow {
    /// The process.
    pub pid: u32,
    /// Its command name.
    pub comm: String,
    /// The site.
    pub site: Site,
    /// The class of most of its descriptors.
    pub class: Option<Class>,
    /// Their target, if all have the same.
    pub target: Option<Text>,
    /// Growth per second, over the last seconds.
    pub rate: Option<f64>,
    /// Whether it has been growing for a while.
    pub is_growing: bool,
    /// Whether that is new.
    pub has_begun: bool,
    /// How long the oldest has been open, in seconds.
    pub oldest: f64,
}

/// All of them.
#[derive(Debug, Default)]
pub struct GrowingSites {
    histories: HashMap<Key, History>,
    /// The time of the previous look, by both clocks.
    last: Option<(f64, u64)>,
    now: Vec<SiteNow>,
}

impl GrowingSites {
    /// Adds a look, and what was open just after it.
    pub fn update(&mut self, watch: &Watch, state: &TraceState) {
        let (at, now) = (watch.at(), state.now.0);
        let (last, looked) = self.last.unwrap_or((at, 0));
        self.last = Some((at, now));
        self.now.clear();
        for history in self.histories.values_mut() {
            history.add(at, 0);
        }
        let running = watch.subjects().filter(|subject| subject.gone.is_none());
        for subject in running {
            let Some(open) = state.sites_of(subject.process.pid) else {
                continue;
            };
            let process = ProcessSites::from_open((open, open), subject, looked);
            for site in &process.sites {
                let key = (process.pid, site.culprit.clone());
                let history = self.histories.entry(key).or_insert_with(|| {
                    let mut history = History::default();
                    if last < at {
                        history.add(last, 0);
                    }
                    history
                });
                history.add(at, site.open.len());
                self.now.push(SiteNow::of(site, &process, history, now));
            }
        }
        self.histories.retain(|_, history| !history.is_empty());
        self.now.sort_by(|a, b| {
            let by_rate = b.rate.unwrap_or(0.0).total_cmp(&a.rate.unwrap_or(0.0));
            by_rate.then(b.site.open.len().cmp(&a.site.open.len()))
        });
    }

    /// Sites that hold something, by current growth.
    #[must_use]
    pub fn now(&self) -> &[SiteNow] {
        &self.now
    }
}

impl SiteNow {
    fn of(site: &Site, process: &ProcessSites, history: &mut History, now: u64) -> Self {
        let what = process.class_and_target(site);
        let is_growing = history.is_growing();
        Self {
            pid: process.pid,
            comm: process.comm.clone(),
            class: what.map(|(class, _)| class.clone()),
            target: what.and_then(|(_, target)| target.cloned()),
            rate: history.rate(),
            is_growing,
            has_begun: history.begins(is_growing),
            oldest: site.oldest_age(now).unwrap_or(0.0),
            site: site.clone(),
        }
    }
}

/// How many a site held, look by look.
#[derive(Debug, Default)]
struct History {
    looks: VecDeque<(f64, usize)>,
    /// When it last grew.
    grew: Option<f64>,
}

impl History {
    /// Of several counts in one look the last one counts.
    fn add(&mut self, at: f64, live: usize) {
        self.looks
            .retain(|(then, _)| *then < at && at - then <= KEPT);
        self.looks.push_back((at, live));
    }

    /// Whether it held nothing in the whole history.
    fn is_empty(&self) -> bool {
        self.looks.iter().all(|(_, live)| *live == 0)
    }

    fn rate(&self) -> Option<f64> {
        let (at, live) = *self.looks.back()?;
        let (then, before) = *self.looks.iter().find(|(then, _)| at - then <= NOW)?;
        let seconds = at - then;
        (seconds >= 1.0).then(|| (live as f64 - before as f64) / seconds)
    }

    /// Whether each third of the history held more than the one before, which excludes a single
    /// burst and a fluctuating number.
    fn is_growing(&self) -> bool {
        let looks: Vec<usize> = self.looks.iter().map(|(_, live)| *live).collect();
        let span = match (self.looks.front(), self.looks.back()) {
            (Some(first), Some(last)) => last.0 - first.0,
            _ => 0.0,
        };
        let third = looks.len() / 3;
        if third < 2 || span < SHORTEST {
            return false;
        }
        let most = |part: &[usize]| part.iter().copied().max().unwrap_or(0);
        let (first, rest) = looks.split_at(third);
        let (middle, last) = rest.split_at(rest.len() - third);
        let least = last.iter().copied().min().unwrap_or(0);
        most(first) < most(middle)
            && most(middle) < most(last)
            && least > most(first)
            && most(last) - most(first) >= ENOUGH
    }

    /// Whether it starts to grow: it did not in the whole history before.
    fn begins(&mut self, is_growing: bool) -> bool {
        let Some((at, _)) = self.looks.back().copied().filter(|_| is_growing) else {
            return false;
        };
        let before = self.grew.replace(at);
        before.is_none_or(|before| at - before > KEPT)
    }
}

#[cfg(test)]
mod tests {
    use super::History;

    fn history(counts: impl IntoIterator<Item = usize>) -> History {
        let mut history = History::default();
        for (nth, live) in counts.into_iter().enumerate() {
            history.add(nth as f64 * 0.25, live);
        }
        history
    }

    #[test]
    fn a_steady_rise_is_growth_also_with_some_that_come_and_go() {
        assert!(history(0..40).is_growing());
        assert!(history((0..60).map(|n| n / 2 + n % 3)).is_growing());
        assert_eq!(history(0..40).rate(), Some(4.0));
    }

    #[test]
    fn a_burst_a_level_and_a_churn_are_none() {
        for burst in [5, 15, 25, 35] {
            let counts = (0..40).map(|n| if n < burst { 3 } else { 30 });
            assert!(!history(counts).is_growing(), "{burst}");
        }
        assert!(!history([7; 40]).is_growing());
        assert!(!history((0..40).map(|n| n % 7 * 3)).is_growing());
        assert!(!history(0..4).is_growing(), "too early");
        assert!(!history((0..40).map(|n| n / 13)).is_growing(), "too few");
    }

    #[test]
    fn growth_is_told_once_until_it_has_rested() {
        let mut history = history(0..40);
        assert!(history.begins(true));
        assert!(!history.begins(true));
        history.add(30.0, 50);
        assert!(!history.begins(true));
        history.add(200.0, 50);
        assert!(!history.begins(false) && history.begins(true));
    }

    #[test]
    fn a_site_that_holds_nothing_is_forgotten_in_time() {
        let mut history = history([3, 2]);
        history.add(30.0, 0);
        assert!(!history.is_empty());
        history.add(100.0, 0);
        assert!(history.is_empty());
        assert_eq!(history.rate(), None);
    }
}
