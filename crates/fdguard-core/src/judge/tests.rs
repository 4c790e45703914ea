//! Verdicts on the simplest processes, and with too few looks, blind counts and odd clocks.

use super::{Judgement, Shape, Verdict, judge};
use crate::snapshot::Limits;
use crate::timeline::{Look, LookChange, Sighting, Timeline};
use crate::{Class, Fd};

fn sighting(fd: Fd, target: &str) -> Sighting {
    Sighting {
        fd,
        class: Class::Regular,
        target: target.into(),
        group: None,
    }
}

/// A process with a given table after each look: number and target of each descriptor. A descriptor
/// listed twice in a row is the same one.
#[derive(Default)]
struct Watch {
    timeline: Timeline,
    held: Vec<(Fd, &'static str)>,
    at: f64,
    limits: Option<Limits>,
}

impl Watch {
    fn look(&mut self, after: f64, held: Vec<(Fd, &'static str)>) {
        self.at += after;
        let change = LookChange {
            opened: held
                .iter()
                .filter(|it| !self.held.contains(it))
                .map(|(fd, target)| sighting(*fd, target))
                .collect(),
            closed: self
                .held
                .iter()
                .filter(|it| !held.contains(it))
                .map(|(fd, _)| *fd)
                .collect(),
            changed: Vec::new(),
        };
        self.held = held;
        self.timeline.observe(&Look {
            at: self.at,
            count: Some(self.held.len() as u64),
            table: Some(change),
            limits: self.limits,
            ..Look::default()
        });
    }

    fn everything(&self) -> Judgement {
        judge(&self.timeline).swap_remove(0)
    }
}

/// This many descriptors of `/a` at each look; the newest are closed first.
fn watched(every: f64, counts: impl IntoIterator<Item = u32>) -> Watch {
    let mut watch = Watch::default();
    for count in counts {
        watch.look(every, (0..count).map(|fd| (fd, "/a")).collect());
    }
    watch
}

/// The same where only the count is known.
fn counted(counts: impl IntoIterator<Item = Option<u64>>) -> Judgement {
    let mut timeline = Timeline::new();
    for (at, count) in (0..).map(f64::from).zip(counts) {
        timeline.observe(&Look {
            at,
            count,
            ..Look::default()
        });
    }
    judge(&timeline).swap_remove(0)
}

#[test]
fn nothing_is_said_after_too_few_looks() {
    for looks in [0, 1, 3] {
        let watch = watched(1.0, (0..looks).map(|look| 10 * look));
        let found = judge(&watch.timeline);
        assert!(
            found.iter().all(|it| it.verdict == Verdict::Unknown),
            "{looks}: {found:?}"
        );
        assert_eq!(found[0].shape, Shape::Unseen);
    }
}

#[test]
fn what_holds_still_is_stable() {
    let found = watched(1.0, [7; 100]).everything();
    assert_eq!((found.verdict, found.shape), (Verdict::Stable, Shape::Flat));
    assert_eq!((found.rise, found.slope), (0, None));
}

#[test]
fn a_drip_is_leaking_with_its_rate_and_in_its_group() {
    let watch = watched(0.5, (0..120).map(|look| 3 + look / 4));
    let judged = judge(&watch.timeline);
    for found in &judged {
        assert_eq!(
            (found.verdict, found.shape),
            (Verdict::Leaking, Shape::Drip)
        );
        let slope = found.slope.expect("a slope");
        assert!((slope.per_second - 0.5).abs() < 0.05, "{slope:?}");
        assert!(found.confidence > 0.8, "{}", found.confidence);
        assert_eq!(found.died, 0);
    }
    // Everything, the family, the target.
    assert_eq!(judged.len(), 3);
    assert_eq!(judged[0].group, None);
    assert_eq!(judged[2].group, Some(1));
}

#[test]
fn a_short_rise_is_growing_and_a_longer_one_leaking() {
    let verdict = |looks| watched(1.0, 0..looks).everything().verdict;
    assert_eq!(verdict(20), Verdict::Growing);
    assert_eq!(verdict(39), Verdict::Growing);
    assert_eq!(verdict(40), Verdict::Leaking);
}

#[test]
fn a_pool_that_is_full_is_a_plateau() {
    let counts = (0..80).map(|look: u32| look.min(40));
    let found = watched(1.0, counts).everything();
    assert_eq!(
        (found.verdict, found.shape),
        (Verdict::Bounded, Shape::Plateau)
    );
}

#[test]
fn a_leak_that_has_reached_the_limit_does_not_become_a_plateau() {
    let limits = Limits {
        soft: Some(64),
        hard: Some(64),
    };
    for is_listed in [true, false] {
        let mut watch = Watch::default();
        for look in 0..600_u32 {
            let count = (4 + look).min(64);
            if is_listed {
                watch.limits = Some(limits);
                watch.look(0.25, (0..count).map(|fd| (fd, "/a")).collect());
            } else {
                watch.timeline.observe(&Look {
                    at: f64::from(look),
                    count: Some(count.into()),
                    limits: Some(limits),
                    ..Look::default()
                });
            }
        }
        assert_eq!(watch.everything().verdict, Verdict::Leaking, "{is_listed}");
        assert_eq!(watch.timeline.looks(), 600);
    }
}

#[test]
fn a_process_that_goes_on_below_its_limit_is_judged_again() {
    let mut watch = Watch {
        limits: Some(Limits {
            soft: Some(64),
            hard: Some(64),
        }),
        ..Watch::default()
    };
    for look in 0..600_u32 {
        let count = if look < 200 { (4 + look).min(64) } else { 9 };
        watch.look(0.25, (0..count).map(|fd| (fd, "/a")).collect());
    }
    assert!(watch.everything().verdict <= Verdict::Bounded);
}

#[test]
fn a_leak_beside_a_pool_that_took_a_third_of_the_watch_to_fill_is_found() {
    for (pool, every) in [(30, 2), (60, 2), (60, 1), (90, 1)] {
        let filling = |look: u32| (pool * look.saturating_sub(4) / 20).min(pool);
        let counts = (0..81).map(|look| 4 + filling(look) + look / every);
        let found = watched(0.25, counts).everything().verdict;
        assert_eq!(found, Verdict::Leaking, "{pool} {every}");
    }
}

/// Fifty descriptors that live for four looks on average, from the fourth look on, and `leak` looks
/// between two that stay.
fn under_short_lives(seed: u32, leak: u32) -> Verdict {
    let mut watch = Watch::default();
    let mut state = seed;
    let mut tide = [0_usize; 50];
    for look in 0..81_u32 {
        for one in &mut tide {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            *one = if (state >> 16).is_multiple_of(4) {
                (*one + 1) % 3
            } else {
                *one
            };
        }
        let short = (0..).zip(tide.map(|one| ["/a", "/b", "/c"][one]));
        let short = short.filter(|_| look >= 4);
        let lost = (0..look / leak).map(|fd| (100 + fd, "/a"));
        watch.look(0.25, short.chain(lost).collect());
    }
    judge(&watch.timeline)[0].verdict
}

#[test]
fn a_slow_leak_under_fifty_short_lives_is_found_and_the_short_lives_are_no_leak() {
    for seed in 1..=20 {
        assert_eq!(under_short_lives(seed, 4), Verdict::Leaking, "{seed}");
        assert!(under_short_lives(seed, 1000) <= Verdict::Bounded, "{seed}");
    }
}

#[test]
fn what_stopped_arriving_is_not_a_leak_at_the_coarser_scale() {
    // Handles that are opened when they are first needed; the last one after 12 of 20 seconds.
    let births = [
        1.3, 2.4, 6.6, 8.5, 8.8, 9.9, 9.9, 10.5, 11.8, 12.1, 12.3, 12.3,
    ];
    for shift in [0.0, 0.1, 0.3, 0.5] {
        let counts = (0..81).map(|look| {
            let at = f64::from(look) * 0.25;
            births
                .iter()
                .fold(4, |count, born| count + u32::from(born + shift <= at))
        });
        let found = judge(&watched(0.25, counts).timeline);
        let worst = found.iter().map(|one| one.verdict).max();
        assert_eq!(worst, Some(Verdict::Bounded), "{shift}");
    }
}

#[test]
fn a_step_a_burst_a_fall_and_a_saw_tooth_have_their_names() {
    let shape = |count: fn(u32) -> u32| watched(1.0, (0..100).map(count)).everything().shape;
    assert_eq!(shape(|look| if look < 50 { 5 } else { 25 }), Shape::Step);
    assert_eq!(
        shape(|look| if look / 10 == 5 { 25 } else { 5 }),
        Shape::Burst
    );
    assert_eq!(shape(|look| if look < 50 { 25 } else { 5 }), Shape::Fall);
    assert_eq!(shape(|look| 5 + look % 17), Shape::SawTooth);
}

#[test]
fn one_file_in_place_of_another_is_no_leak() {
    let mut watch = Watch::default();
    for look in 0..200 {
        let name = ["/log.0", "/log.1"][look / 7 % 2];
        watch.look(1.0, vec![(3, name), (4, "/a")]);
    }
    let found = judge(&watch.timeline);
    assert!(
        found.iter().all(|it| it.verdict <= Verdict::Bounded),
        "{found:?}"
    );
}

#[test]
fn a_leak_is_found_in_its_target_among_quiet_ones() {
    let mut watch = Watch::default();
    for look in 0..100_u32 {
        let quiet = (0..20).map(|fd| (fd, "/quiet"));
        let leak = (0..look / 5).map(|fd| (100 + fd, "/leak"));
        watch.look(1.0, quiet.chain(leak).collect());
    }
    for found in judge(&watch.timeline) {
        let target = found.group.and_then(|group| {
            let (_, group) = watch.timeline.groups().nth(group)?;
            group.key.target.clone()
        });
        let is_quiet = target == Some("/quiet".into());
        let expected = if is_quiet {
            Verdict::Stable
        } else {
            Verdict::Leaking
        };
        assert_eq!(found.verdict, expected, "{target:?}");
    }
}

#[test]
fn a_count_alone_can_tell_a_clear_leak_with_less_confidence() {
    let found = counted((0..120).map(|look| Some(5 + look / 2)));
    assert_eq!(found.verdict, Verdict::Leaking);
    assert!(found.confidence <= 0.8, "{}", found.confidence);
    let found = counted((0..120).map(|look| Some(5 + look.min(60))));
    assert_eq!(found.verdict, Verdict::Bounded);
    let found = counted((0..120).map(|look| Some(5 + look % 10)));
    assert_eq!(found.verdict, Verdict::Bounded);
}

#[test]
fn looks_that_saw_nothing_prove_nothing() {
    assert_eq!(counted([None; 100]).verdict, Verdict::Unknown);
    let known = [Some(500); 100].into_iter();
    let found = counted([None; 10].into_iter().chain(known));
    assert_eq!(found.verdict, Verdict::Stable);
    // A leak continues while looks fail.
    let leak = (0..160).map(|look| (!(100..150).contains(&look)).then_some(5 + look / 2));
    assert_eq!(counted(leak).verdict, Verdict::Leaking);
}

#[test]
fn time_may_go_by_in_uneven_steps() {
    let mut watch = Watch::default();
    for look in 0..120_u32 {
        let after = [0.1, 0.4, 1.5, 0.25][look as usize % 4];
        watch.look(after, (0..3 + look / 3).map(|fd| (fd, "/a")).collect());
    }
    assert_eq!(watch.everything().verdict, Verdict::Leaking);
}

#[test]
fn a_machine_that_slept_for_hours_wakes_to_the_same_verdict() {
    for (leaks, expected) in [(true, Verdict::Leaking), (false, Verdict::Stable)] {
        let mut watch = Watch::default();
        for look in 0..120_u32 {
            let after = if look == 60 { 6.0 * 3600.0 } else { 1.0 };
            let count = if leaks { 3 + look / 3 } else { 9 };
            watch.look(after, (0..count).map(|fd| (fd, "/a")).collect());
        }
        assert_eq!(watch.everything().verdict, expected);
    }
}

#[test]
fn the_same_looks_give_the_same_judgement() {
    let counts = || (0..150).map(|look| 3 + look / 7 + look % 5);
    let (one, other) = (watched(0.5, counts()), watched(0.5, counts()));
    assert_eq!(judge(&one.timeline), judge(&other.timeline));
    assert_eq!(judge(&one.timeline), judge(&one.timeline));
}
