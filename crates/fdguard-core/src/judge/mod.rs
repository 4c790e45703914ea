//! The judgement of a timeline: which of its tracks leak, and how fast.

mod arrivals;
mod assess;
mod envelope;
mod shape;

pub use assess::Verdict;
pub use shape::Shape;

use assess::{Assessment, Window};

use crate::slope::{self, Slope};
use crate::timeline::{BUCKETS, BucketSeries, PastBuckets, RINGS, Timeline, Track};

/// The judgement of one track.
#[derive(Clone, Debug, PartialEq)]
pub struct Judgement {
    /// The group of the timeline; absent for all descriptors together.
    pub group: Option<usize>,
    /// The verdict.
    pub verdict: Verdict,
    /// Its shape.
    pub shape: Shape,
    /// The lasting rise.
    pub rise: u64,
    /// In how many seconds.
    pub span: f64,
    /// How many of the same age were closed in that time.
    pub died: u64,
    /// In how many steps.
    pub steps: usize,
    /// How fast it rises, with a range; absent where it does not.
    pub slope: Option<Slope>,
    /// Confidence in the verdict, 0 to 1.
    pub confidence: f64,
}

/// Judges every track of a timeline: first everything together, then each group.
#[must_use]
pub fn judge(timeline: &Timeline) -> Vec<Judgement> {
    let births = births_by_group(timeline);
    let times: Vec<Vec<f64>> = (0..RINGS).map(|ring| timeline.grid().ends(ring)).collect();
    let listed = timeline.is_listed();
    let everything = judge_track(&times, timeline.total(), listed.then_some(&births.all));
    let groups = timeline.groups().map(|(index, group)| {
        let births = births.groups.get(index).map(Vec::as_slice);
        Judgement {
            group: Some(index),
            ..judge_track(&times, &group.track, births)
        }
    });
    std::iter::once(everything).chain(groups).collect()
}

struct Births {
    all: Vec<f64>,
    groups: Vec<Vec<f64>>,
}

/// When the open descriptors were opened, ascending.
fn births_by_group(timeline: &Timeline) -> Births {
    let mut groups: Vec<Vec<f64>> = vec![Vec::new(); timeline.groups().count()];
    let mut all = Vec::new();
    for (_, held) in timeline.live().iter() {
        let Some(since) = held.since else { continue };
        all.push(since);
        for group in held.groups() {
            groups[group].push(since);
        }
    }
    for births in groups.iter_mut().chain([&mut all]) {
        births.sort_unstable_by(f64::total_cmp);
    }
    Births { all, groups }
}

/// The worst judgement of all time scales; among equals the one of the finest scale.
fn judge_track(times: &[Vec<f64>], track: &Track, births: Option<&[f64]>) -> Judgement {
    // A coarser ring that covers no more than the finer one adds nothing.
    let rings = times.iter().skip(1);
    let rings = 1 + rings
        .take_while(|times| times.len() >= LEAST_BUCKETS)
        .count();
    let windows: Vec<Window<'_>> = (0..rings)
        .map(|ring| window(track, ring, times, births))
        .collect();
    let mut worst: Option<Assessment> = None;
    for (ring, window) in windows.iter().enumerate() {
        let mut found = window.assess();
        if found.verdict >= Verdict::Growing && fades_beyond(&windows, ring) {
            found = window.describe();
        }
        if worst
            .as_ref()
            .is_none_or(|worst| found.verdict > worst.verdict)
        {
            worst = Some(found);
        }
    }
    judgement(worst)
}

/// Whether a scale that covers at least as much time shows this rise as the end of a fading one.
/// Without its beginning, the tail of a filling cache looks like a drip.
fn fades_beyond(windows: &[Window<'_>], ring: usize) -> bool {
    let before = ring
        .checked_sub(1)
        .filter(|finer| windows[*finer].times.len() < BUCKETS);
    let coarser = windows.iter().skip(ring + 1);
    coarser
        .chain(before.map(|finer| &windows[finer]))
        .any(Window::fades)
}

/// In the finest ring a bucket is a single look, and every start of a program is a rise.
pub const LEAST_LOOKS: usize = 40;
/// A bucket of a coarser ring has eight of the finer one.
const LEAST_BUCKETS: usize = 10;
/// Up to this many buckets the young age is much of the window: the finer ring shows what happened
/// lately.
const SHORT: usize = 32;

fn window<'a>(
    track: &Track,
    ring: usize,
    times: &'a [Vec<f64>],
    births: Option<&'a [f64]>,
) -> Window<'a> {
    let least = if ring == 0 {
        LEAST_LOOKS
    } else {
        LEAST_BUCKETS
    };
    let finer = ring
        .checked_sub(1)
        .filter(|_| times[ring].len() <= SHORT)
        .map(|finer| {
            let young = track.ring(finer).young.padded(times[finer].len());
            (times[finer].as_slice(), young)
        });
    let times = times[ring].as_slice();
    let ring = track.ring(ring);
    let length = times.len();
    let padded = |series: &BucketSeries| series.padded(length);
    Window {
        all: padded(&ring.all),
        young: padded(&ring.young),
        old: padded(&ring.old),
        past_all: ring.all.past().map(PastBuckets::usual_max),
        past_old: ring.old.past().map(PastBuckets::usual_max),
        past_young: ring.young.past().map(PastBuckets::usual_max),
        times,
        births,
        finer,
        least,
    }
}

fn judgement(found: Option<Assessment>) -> Judgement {
    let Some(found) = found else {
        return Judgement {
            group: None,
            verdict: Verdict::Unknown,
            shape: Shape::Unseen,
            rise: 0,
            span: 0.0,
            died: 0,
            steps: 0,
            slope: None,
            confidence: 0.0,
        };
    };
    let rises = found.verdict >= Verdict::Growing;
    Judgement {
        group: None,
        verdict: found.verdict,
        shape: found.shape,
        rise: found.rise.into(),
        span: found.span,
        died: found.died.into(),
        steps: found.steps,
        slope: rises.then(|| slope_of(&found.points)).flatten(),
        confidence: found.confidence,
    }
}

/// The most points of a slope: every pair is compared, and a hundred groups may rise at once.
const POINTS: usize = 48;

fn slope_of(points: &[(f64, f64)]) -> Option<Slope> {
    let step = points.len().div_ceil(POINTS).max(1);
    let some: Vec<(f64, f64)> = points.iter().rev().step_by(step).copied().collect();
    slope::theil_sen(&some)
}

#[cfg(test)]
mod tests;
