//! Verdicts on the simplest processes, and with too few looks, blind counts and odd clocks.

use super::{Judgement, Shape, Verdict, judge};
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
