//! The judgement of one track at one scale: does it leak, grow, or hold its level?
//!
//! A leak opens descriptors again and again that stay open. So the test uses not the count but the
//! descriptors that have grown old, and asks: has their lower envelope risen by more than it ever
//! fell, in many steps, and were those still open opened throughout the whole time, until now? A
//! pool that fills stops; a cache fades; a collector's saw-tooth falls as far as it rose; a tide
//! never grows old. docs/accuracy.md explains the details and the error rates.

use serde::{Deserialize, Serialize};

use super::arrivals::{Arrivals, is_dying_away};
use super::envelope::{Envelope, highest_rise};
use super::shape::Shape;
use crate::timeline::{BUCKETS, Bucket, OLD, YOUNG};

/// The verdict on a process, a class or a target.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Too few observations.
    #[default]
    Unknown,
    /// Unchanged since the beginning.
    Stable,
    /// It fluctuates within bounds.
    Bounded,
    /// It grows, and it is too early to know whether that stops.
    Growing,
    /// It rises steadily, and what is opened stays open.
    Leaking,
}

/// A rise smaller than this proves nothing.
const LEAST_RISE: u32 = 5;
/// Fewer steps than this are a change, not a trend.
const LEAST_STEPS: usize = 4;
/// The minimum number of samples.
const LEAST_LOOKS: usize = 4;
/// Without a list it is unknown what stayed open, so the count must be clearer.
const LEAST_RISE_BLIND: u32 = 10;

/// The tail of a warm-up can look like a leak of a few.
const LEAST_RISE_LATE: u32 = 8;

/// A half of fewer buckets than this would leave too little to judge.
const LEAST_TO_HALVE: usize = 64;

/// The later half of a rise must exceed what turnover alone does by this many standard deviations.
const STRAY: f64 = 2.5;

/// One scale of one track, cut to the same length.
#[derive(Clone, Debug)]
pub(super) struct Window<'a> {
    pub(super) times: &'a [f64],
    pub(super) all: Vec<Bucket>,
    pub(super) young: Vec<Bucket>,
    pub(super) old: Vec<Bucket>,
    /// The maximum before the window began, which is not new: of all, of the old and of the young.
    pub(super) past_all: Option<u32>,
    pub(super) past_old: Option<u32>,
    pub(super) past_young: Option<u32>,
    /// When each open descriptor was opened, ascending; absent where they could not be listed.
    pub(super) births: Option<&'a [f64]>,
    /// Those past the young age of the next finer scale, with their times; absent at the finest.
    pub(super) finer: Option<(&'a [f64], Vec<Bucket>)>,
    /// Buckets required to call something a leak.
    pub(super) least: usize,
}

/// A series that can prove a leak.
#[derive(Clone, Copy, Debug)]
struct Deciding<'a> {
    series: &'a [Bucket],
    /// The first bucket that counts.
    start: usize,
    /// The maximum before the window.
    past: Option<u32>,
}

/// The result for one window.
#[derive(Clone, Debug)]
pub(super) struct Assessment {
    pub(super) verdict: Verdict,
    pub(super) shape: Shape,
    /// How many stayed open.
    pub(super) rise: u32,
    /// Seconds in which they did.
    pub(super) span: f64,
    /// Confidence in the verdict, 0 to 1.
    pub(super) confidence: f64,
    /// Points for the slope.
    pub(super) points: Vec<(f64, f64)>,
    pub(super) steps: usize,
    /// How many of the same age were closed in that time.
    pub(super) died: u32,
}

impl Window<'_> {
    /// Judges the whole window, and the later half alone, because a warm-up may hide a leak.
    pub(super) fn assess(&self) -> Assessment {
        let whole = self.assess_from(0);
        let length = self.times.len();
        if whole.verdict == Verdict::Leaking || length < LEAST_TO_HALVE {
            return whole;
        }
        match self.proven(length / 2) {
            Some(half) if !self.fades() => half,
            _ => whole,
        }
    }

    /// Whether arrivals that stay open decline over the whole window.
    pub(super) fn fades(&self) -> bool {
        match self.arrivals(0) {
            Some(arrivals) => arrivals.fade(),
            None => is_dying_away(Envelope::of(self.times, &self.all, 0).quarters()),
        }
    }

    /// The open descriptors that are no longer new, by opening time.
    fn arrivals(&self, from: usize) -> Option<Arrivals> {
        let until = self.times.len().saturating_sub(self.newest());
        let births = self.births?;
        Some(Arrivals::of(births, self.times, from.min(until)..until))
    }

    /// How many of the last buckets hold descriptors too new to count. In the finest scale and in a
    /// long window this is the young age, otherwise the young age of the finer scale, which is half
    /// a bucket.
    fn newest(&self) -> usize {
        match self.finer {
            Some(_) => 1,
            None => bucket_count(YOUNG),
        }
    }

    fn assess_from(&self, from: usize) -> Assessment {
        let all = Envelope::of(self.times, &self.all, from);
        if self.times.len() - from < LEAST_LOOKS {
            return quiet(&all, Verdict::Unknown, Shape::Unseen);
        }
        if let Some(proven) = self.proven(from) {
            return proven;
        }
        if self.still_rises(from, &all) {
            return quiet(&all, Verdict::Growing, Shape::Rise);
        }
        let (verdict, shape) = Shape::of(&self.all[from..], &all);
        quiet(&all, verdict, shape)
    }

    /// The shape of a series that is known not to rise for good.
    pub(super) fn describe(&self) -> Assessment {
        let all = Envelope::of(self.times, &self.all, 0);
        let (verdict, shape) = Shape::of(&self.all, &all);
        quiet(&all, verdict, shape)
    }

    /// The series to judge by, the surest first, each with the bucket where it becomes meaningful:
    /// nothing opened during the watch can be old before that.
    fn deciding(&self, from: usize) -> Vec<Deciding<'_>> {
        let length = self.times.len();
        let (old, young) = (bucket_count(OLD), bucket_count(YOUNG));
        if length < self.least {
            return Vec::new();
        }
        let begin = |age: usize| from.max(age.min(length));
        let deciding = |series, start, past| Deciding {
            series,
            start,
            past,
        };
        if self.births.is_none() {
            return vec![deciding(&self.all, from, None)];
        }
        let the_old = deciding(&self.old, begin(old), self.past_old);
        let the_young = deciding(&self.young, begin(young), self.past_young);
        match length - from {
            long if long >= 4 * old => vec![the_old],
            // Where the young turn over, the old may still show a trend.
            short if short >= 2 * old && from == 0 => vec![the_young, the_old],
            _ => vec![the_young],
        }
    }

    fn proven(&self, from: usize) -> Option<Assessment> {
        let deciding = self.deciding(from);
        deciding.iter().find_map(|by| self.proven_by(by, from))
    }

    fn proven_by(&self, by: &Deciding<'_>, from: usize) -> Option<Assessment> {
        let Deciding {
            series,
            start,
            past,
        } = *by;
        let least = match (self.births, from) {
            (None, _) => LEAST_RISE_BLIND,
            (Some(_), 0) => LEAST_RISE,
            (Some(_), _) => LEAST_RISE_LATE,
        };
        if highest_rise(&series[start.min(series.len())..]) < least {
            return None;
        }
        // A level that was reached before is not new, whatever the climb looks like.
        let before = series[..from].iter().map(|bucket| bucket.max).max();
        let past = past.max(before);
        let envelope = Envelope::of(self.times, series, start);
        let rise = envelope.rise();
        let steps = envelope.steps();
        // Where descriptors of this age come and go, their number fluctuates by chance alone.
        let chance = 3.0 * (2.0 * f64::from(envelope.died)).sqrt();
        let is_clear = rise >= least && f64::from(rise) >= chance;
        let is_new = past.is_none_or(|past| envelope.end > past);
        if !is_clear || !is_new || steps.len() < LEAST_STEPS {
            return None;
        }
        if !self.is_spread(&envelope, from) || !self.goes_on(&envelope, from) {
            return None;
        }
        if self.is_full(&envelope, from) {
            return None;
        }
        Some(Assessment {
            verdict: Verdict::Leaking,
            shape: Shape::Drip,
            rise,
            span: envelope.span(),
            confidence: confidence(rise, &envelope, steps.len(), self.births.is_some()),
            points: envelope.points(),
            steps: steps.len(),
            died: envelope.died,
        })
    }

    /// Whether the rise is spread over the whole time and does not decline.
    fn is_spread(&self, envelope: &Envelope<'_>, from: usize) -> bool {
        let arrivals = self.arrivals(from);
        let quarters = match &arrivals {
            Some(arrivals) => arrivals.quarters(),
            None => envelope.quarters(),
        };
        let all: u32 = quarters.iter().sum();
        let is_even = quarters.iter().filter(|rise| **rise > 0).count() >= 3
            && 4 * (quarters[2] + quarters[3]) >= all;
        let fades = match arrivals {
            Some(arrivals) if from > 0 => arrivals.get_fewer(),
            Some(arrivals) => arrivals.fade(),
            None => is_dying_away(quarters),
        };
        is_even && !fades
    }

    /// Whether it has not stopped: neither the envelope of the old, nor that of the young, nor the
    /// opening times of the open descriptors show a longer silence than usual.
    fn goes_on(&self, envelope: &Envelope<'_>, from: usize) -> bool {
        let patience = patience(envelope);
        if envelope.silence() > patience {
            return false;
        }
        let Some(arrivals) = self.arrivals(from) else {
            return true;
        };
        let young_goes_on = match &self.finer {
            Some((times, young)) => {
                let young = Envelope::of(times, young, bucket_count(YOUNG));
                young.silence() <= self::patience(&young)
            }
            None => {
                let begin = from.max(bucket_count(YOUNG));
                let young = Envelope::of(self.times, &self.young, begin);
                young.silence() <= patience.max(self::patience(&young))
            }
        };
        young_goes_on && !arrivals.have_stopped() && !self.have_stopped_finer()
    }

    /// Whether the finer scale, which shows better when the last one arrived, shows that they have
    /// stopped. It decides only while it covers the whole time.
    fn have_stopped_finer(&self) -> bool {
        let finer = self.finer.as_ref().zip(self.births);
        finer.is_some_and(|((times, _), births)| {
            let until = times.len().saturating_sub(bucket_count(YOUNG));
            let arrivals = || Arrivals::of(births, times, 0..until);
            times.len() < BUCKETS && arrivals().have_stopped()
        })
    }

    /// Whether each new descriptor is offset by a close, as in a full cache: its content still
    /// ages, and more of it is old, but it holds no more.
    fn is_full(&self, deciding: &Envelope<'_>, from: usize) -> bool {
        let total = Envelope::of(self.times, &self.all, from);
        2 * deciding.died > deciding.rise() && total.quarters()[3] == 0
    }

    /// Whether the count itself rises, clearly and until now, without proof that what is opened
    /// stays open.
    fn still_rises(&self, from: usize, all: &Envelope<'_>) -> bool {
        // The finer scale covers the same time in more detail.
        if self.finer.is_some() {
            return false;
        }
        let rise = all.rise();
        if rise < LEAST_RISE {
            return false;
        }
        let quarters = all.quarters();
        let is_clear = rise >= LEAST_RISE + all.fall && all.steps().len() >= LEAST_STEPS;
        let fades = is_dying_away(quarters) && 7 * quarters[3] <= rise;
        // A number that turns over fluctuates by its square root; one that never closes does not.
        let stray = f64::from(all.end.min(all.died)).sqrt();
        let is_late = f64::from(quarters[2] + quarters[3]) >= STRAY * stray;
        let patience = patience(all).min(all.span() * 0.2);
        let is_alive = self
            .arrivals(from)
            .is_none_or(|arrivals| !arrivals.have_stopped() && !arrivals.fade());
        is_clear
            && self.past_all.is_none_or(|past| all.end > past)
            && is_late
            && self.young_rise(from)
            && !fades
            && is_alive
            && quarters[3] > 0
            && all.silence() <= patience
    }

    /// Whether those that are no longer new have increased until now. In a short watch no
    /// descriptor is old.
    fn young_rise(&self, from: usize) -> bool {
        let age = bucket_count(YOUNG);
        if self.births.is_none() || self.times.len() < from + 4 * age {
            return true;
        }
        let young = Envelope::of(self.times, &self.young, from.max(age));
        young.quarters()[3] > 0 && young.silence() <= patience(&young)
    }
}

/// An assessment without proof.
fn quiet(all: &Envelope<'_>, verdict: Verdict, shape: Shape) -> Assessment {
    Assessment {
        verdict,
        shape,
        rise: all.rise(),
        span: all.span(),
        confidence: 0.5,
        // Only growth has a slope.
        points: if verdict == Verdict::Growing {
            all.points()
        } else {
            Vec::new()
        },
        steps: all.steps().len(),
        died: all.died,
    }
}

/// How long a silence means nothing yet: several usual gaps between two steps, or as long as an
/// earlier pause.
fn patience(envelope: &Envelope<'_>) -> f64 {
    let steps = envelope.steps();
    let span = envelope.span();
    let usual = span / (steps.len().max(1) as f64);
    let longest = steps
        .windows(2)
        .map(|pair| pair[1].at - pair[0].at)
        .fold(0.0, f64::max);
    // What was taken off the end took its time to rise.
    let taken = f64::from(envelope.fall) * span / f64::from(envelope.rise().max(1));
    (3.5 * usual + taken)
        .max(0.15 * span)
        .max((1.5 * longest).min(0.3 * span))
}

fn confidence(rise: u32, envelope: &Envelope<'_>, steps: usize, listed: bool) -> f64 {
    let clear = f64::from(rise) / 20.0;
    let often = steps as f64 / 12.0;
    let stays = f64::from(rise) / (f64::from(rise) + f64::from(envelope.died));
    let sum = clear.min(1.0) + often.min(1.0) + stays;
    let most = if listed { 0.99 } else { 0.8 };
    (0.5 + sum / 6.0).min(most)
}

fn bucket_count(age: u64) -> usize {
    usize::try_from(age).unwrap_or(usize::MAX)
}
