use std::time::{Duration, Instant};

use fdguard_proc::ProcKey;
use proptest::prelude::*;

use super::{
    Breach, DrainResult, Remedy, RemedyAction, RemedyEvent, RemedyLock, RemedyNotice,
    RemedySettings, RepeatPolicy,
};
use crate::budget::{Excess, Measure};

fn breach() -> Breach {
    Breach {
        what: Measure::Fds,
        passed: Excess {
            pid: None,
            value: 950.0,
            level: 900.0,
            wall: Some(1000.0),
            first: None,
        },
        left: None,
    }
}

fn memory(value: f64) -> Breach {
    let mut breach = breach();
    breach.what = Measure::Memory;
    (breach.passed.value, breach.passed.level) = (value, 100.0);
    (breach.passed.wall, breach.left) = (None, None);
    breach
}

/// It used to wait 15 seconds for the evidence, while the program grew.
#[test]
fn memory_that_is_well_exceeded_does_not_wait_for_evidence() {
    let mut story = Story::new(RemedySettings::default());
    let actions = story.after(1, RemedyEvent::Breached(memory(150.0)));
    assert!(has(&actions, &RemedyAction::StopTree), "{actions:?}");
    assert!(
        matches!(
            told(&actions)[..],
            [RemedyNotice::Begun(_), RemedyNotice::Evidence(Err(_))]
        ),
        "{actions:?}"
    );
    let mut story = Story::new(RemedySettings::default());
    let actions = story.after(1, RemedyEvent::Breached(memory(149.0)));
    assert!(!has(&actions, &RemedyAction::StopTree), "{actions:?}");
    assert!(story.relief.waits_for_evidence().is_some());
    let actions = story.after(1, RemedyEvent::Urgent);
    assert_eq!(actions.first(), Some(&RemedyAction::StopEvidence));
    assert!(has(&actions, &RemedyAction::StopTree), "{actions:?}");
    assert!(story.relief.waits_for_evidence().is_none());
    assert!(story.after(1, RemedyEvent::Urgent).is_empty(), "once");
}

fn instance(number: u32) -> ProcKey {
    ProcKey {
        pid: 100 + number,
        start_ticks: u64::from(number) * 100,
    }
}

fn draining() -> RemedySettings {
    RemedySettings {
        drain: Duration::from_secs(10),
        ..RemedySettings::default()
    }
}

/// A remedy and a clock.
struct Story {
    relief: Remedy,
    now: Instant,
    begun: Instant,
}

impl Story {
    /// The program has run for an hour.
    fn new(rules: RemedySettings) -> Self {
        Self::sharing(rules, RemedyLock::default())
    }

    fn sharing(rules: RemedySettings, flight: RemedyLock) -> Self {
        let now = Instant::now();
        let mut relief = Remedy::new(rules, flight);
        assert!(
            relief
                .handle(now, RemedyEvent::Started(instance(1)))
                .is_empty()
        );
        Self {
            relief,
            now: now + Duration::from_secs(3600),
            begun: now,
        }
    }

    fn after(&mut self, seconds: u64, event: RemedyEvent) -> Vec<RemedyAction> {
        self.now += Duration::from_secs(seconds);
        self.relief.handle(self.now, event)
    }

    /// A complete remedy that works; each step takes this many seconds.
    fn relieve(&mut self, seconds: u64, number: u32) -> Vec<RemedyAction> {
        self.after(0, RemedyEvent::Breached(breach()));
        self.after(seconds, RemedyEvent::Evidence(Ok("a".into())));
        if self.relief.rules.drain > Duration::ZERO {
            self.after(seconds, RemedyEvent::Drained(DrainResult::ConnectionsGone));
        }
        self.after(seconds, RemedyEvent::Ended);
        self.after(seconds, RemedyEvent::Started(instance(number)));
        self.after(seconds, RemedyEvent::Answered(instance(number)))
    }
}

fn told(actions: &[RemedyAction]) -> Vec<&RemedyNotice> {
    let told = actions.iter().filter_map(|action| match action {
        RemedyAction::Tell(told) => Some(told),
        _ => None,
    });
    told.collect()
}

fn has(actions: &[RemedyAction], wanted: &RemedyAction) -> bool {
    actions.contains(wanted)
}

#[test]
fn r29_a_breach_goes_by_evidence_drain_stop_and_start_to_a_proof() {
    let mut story = Story::new(draining());
    let begun = story.after(0, RemedyEvent::Breached(breach()));
    assert_eq!(
        begun[1],
        RemedyAction::WriteEvidence(Some(101), Duration::from_secs(30))
    );
    let drain = story.after(3, RemedyEvent::Evidence(Ok("/evidence/1".into())));
    assert_eq!(drain[1], RemedyAction::BeginDrain(Duration::from_secs(10)));
    let stop = story.after(2, RemedyEvent::Drained(DrainResult::ConnectionsGone));
    assert!(has(&stop, &RemedyAction::StopDrain) && has(&stop, &RemedyAction::StopTree));
    assert_eq!(
        story.after(1, RemedyEvent::Ended),
        [RemedyAction::StartTree]
    );
    assert!(story.after(1, RemedyEvent::Started(instance(2))).is_empty());
    assert!(story.relief.is_busy(), "nothing is proven yet");
    let proven = story.after(1, RemedyEvent::Answered(instance(2)));
    let [RemedyNotice::Proven(proof)] = told(&proven)[..] else {
        panic!("{proven:?}")
    };
    assert_eq!(
        (proof.took.as_secs(), proof.down.as_secs(), proof.restarts),
        (8, 5, 1)
    );
    assert_eq!((proof.before, proof.now), (Some(instance(1)), instance(2)));
    assert!(!story.relief.is_busy() && !story.relief.flight.is_taken());
}

#[test]
fn r29_an_answer_of_the_old_process_proves_nothing() {
    let mut story = Story::new(RemedySettings::default());
    story.after(0, RemedyEvent::Breached(breach()));
    story.after(1, RemedyEvent::Evidence(Err("no room".into())));
    story.after(1, RemedyEvent::Ended);
    story.after(1, RemedyEvent::Started(instance(2)));
    assert!(
        story
            .after(1, RemedyEvent::Answered(instance(1)))
            .is_empty()
    );
    let same_tick = ProcKey {
        pid: 900,
        ..instance(1)
    };
    assert!(same_tick.is_newer_than(instance(1)) && !instance(1).is_newer_than(instance(1)));
    let late = story.after(119, RemedyEvent::Time);
    assert!(
        matches!(told(&late)[..], [RemedyNotice::Unproven(_, why)] if why.contains("120 s")),
        "{late:?}"
    );
}

#[test]
fn a_failed_evidence_does_not_hold_up_the_restart() {
    let mut story = Story::new(RemedySettings::default());
    story.after(0, RemedyEvent::Breached(breach()));
    let actions = story.after(1, RemedyEvent::Evidence(Err("disk full".into())));
    assert_eq!(
        told(&actions),
        [&RemedyNotice::Evidence(Err("disk full".into()))]
    );
    assert!(has(&actions, &RemedyAction::StopTree));
    let mut story = Story::new(RemedySettings::default());
    story.after(0, RemedyEvent::Breached(breach()));
    assert!(story.after(29, RemedyEvent::Time).is_empty());
    let late = story.after(1, RemedyEvent::Time);
    assert!(
        has(&late, &RemedyAction::StopEvidence) && has(&late, &RemedyAction::StopTree),
        "{late:?}"
    );
}

#[test]
fn evidence_is_short_when_the_wall_is_near() {
    let near = Breach {
        left: Some(Duration::from_secs(8)),
        ..breach()
    };
    let mut story = Story::new(RemedySettings::default());
    let actions = story.after(0, RemedyEvent::Breached(near));
    assert!(
        has(
            &actions,
            &RemedyAction::WriteEvidence(Some(101), Duration::from_secs(4))
        ),
        "{actions:?}"
    );
}

#[test]
fn a_program_that_ends_by_itself_is_not_stopped_but_started() {
    let mut story = Story::new(draining());
    story.after(0, RemedyEvent::Breached(breach()));
    story.after(1, RemedyEvent::Evidence(Ok("a".into())));
    let actions = story.after(1, RemedyEvent::Ended);
    assert!(
        has(&actions, &RemedyAction::StartTree) && !has(&actions, &RemedyAction::StopTree),
        "{actions:?}"
    );
    let mut story = Story::new(draining());
    story.after(0, RemedyEvent::Breached(breach()));
    let actions = story.after(1, RemedyEvent::Ended);
    assert_eq!(
        actions,
        [RemedyAction::StopEvidence, RemedyAction::StartTree]
    );
}

#[test]
fn a_hook_that_fails_does_not_make_anybody_wait() {
    let mut story = Story::new(draining());
    story.after(0, RemedyEvent::Breached(breach()));
    story.after(1, RemedyEvent::Evidence(Ok("a".into())));
    let failed = DrainResult::HookFailed("refused".into());
    let actions = story.after(0, RemedyEvent::Drained(failed));
    assert!(has(&actions, &RemedyAction::StopTree));
}

#[test]
fn r29_one_service_at_a_time() {
    let flight = RemedyLock::default();
    let mut one = Story::sharing(RemedySettings::default(), flight.clone());
    let mut other = Story::sharing(RemedySettings::default(), flight);
    one.after(0, RemedyEvent::Breached(breach()));
    let waits = other.after(0, RemedyEvent::Breached(breach()));
    assert!(
        matches!(told(&waits)[..], [RemedyNotice::Waits(_)]),
        "{waits:?}"
    );
    assert!(!other.relief.can_begin() && other.after(1, RemedyEvent::Time).is_empty());
    one.after(1, RemedyEvent::Evidence(Ok("a".into())));
    one.after(1, RemedyEvent::Ended);
    one.after(1, RemedyEvent::Started(instance(2)));
    one.after(1, RemedyEvent::Answered(instance(2)));
    assert!(other.relief.can_begin());
    let begun = other.after(1, RemedyEvent::Time);
    assert!(
        matches!(told(&begun)[..], [RemedyNotice::Begun(_)]),
        "{begun:?}"
    );
}

#[test]
fn who_waited_and_recovered_is_left_alone() {
    let flight = RemedyLock::default();
    let mut one = Story::sharing(RemedySettings::default(), flight.clone());
    let mut other = Story::sharing(RemedySettings::default(), flight);
    one.after(0, RemedyEvent::Breached(breach()));
    other.after(0, RemedyEvent::Breached(breach()));
    assert!(
        other
            .after(1, RemedyEvent::Cleared(Measure::Memory))
            .is_empty()
    );
    assert!(
        other
            .after(1, RemedyEvent::Cleared(Measure::Fds))
            .is_empty()
    );
    drop(one);
    assert!(!other.relief.can_begin() && other.after(1, RemedyEvent::Time).is_empty());
}

#[test]
fn r29_breached_again_at_once_it_stops_to_act_and_says_so() {
    let mut story = Story::new(RemedySettings::default());
    story.relieve(1, 2);
    let again = story.after(50, RemedyEvent::Breached(breach()));
    let [RemedyNotice::Again(why)] = told(&again)[..] else {
        panic!("{again:?}")
    };
    assert_eq!(why.after_relief, Some(Duration::from_secs(50)));
    assert_eq!((why.within.as_secs(), why.then), (60, RepeatPolicy::Keep));
    assert_eq!(again.len(), 1, "the service runs on");
    assert!(story.relief.is_resting());
    assert!(
        story.after(100, RemedyEvent::Breached(breach())).is_empty(),
        "told once"
    );
    let later = story.after(600, RemedyEvent::Breached(breach()));
    assert!(
        matches!(told(&later)[..], [RemedyNotice::Begun(_)]),
        "after ten quiet minutes it is another story"
    );
}

#[test]
fn a_restart_that_took_long_must_last_longer() {
    let mut story = Story::new(draining());
    // Drain to answer: four steps of 8 s.
    story.relieve(8, 2);
    let again = story.after(150, RemedyEvent::Breached(breach()));
    assert!(
        matches!(told(&again)[..], [RemedyNotice::Again(why)] if why.within.as_secs() == 160),
        "{again:?}"
    );
    let mut story = Story::new(draining());
    story.relieve(8, 2);
    let begun = story.after(160, RemedyEvent::Breached(breach()));
    assert!(
        matches!(told(&begun)[..], [RemedyNotice::Begun(_)]),
        "{begun:?}"
    );
}

#[test]
fn a_breach_right_after_the_start_is_that_of_a_program_at_rest() {
    let mut story = Story::new(RemedySettings::default());
    story.now = story.begun;
    let again = story.after(9, RemedyEvent::Breached(breach()));
    let [RemedyNotice::Again(why)] = told(&again)[..] else {
        panic!("{again:?}")
    };
    assert_eq!((why.after_relief, why.after_start.as_secs()), (None, 9));
}

#[test]
fn when_again_stop_ends_the_service_for_good() {
    let rules = RemedySettings {
        when_again: RepeatPolicy::Stop,
        ..RemedySettings::default()
    };
    let mut story = Story::new(rules);
    story.relieve(1, 2);
    let actions = story.after(1, RemedyEvent::Breached(breach()));
    assert!(has(&actions, &RemedyAction::StopTree));
    assert!(story.relief.has_given_up());
    assert!(
        story.after(1, RemedyEvent::Ended).is_empty(),
        "nobody starts it again"
    );
}

#[test]
fn who_resumes_acts_again() {
    let mut story = Story::new(RemedySettings::default());
    story.relieve(1, 2);
    story.after(1, RemedyEvent::Breached(breach()));
    story.relief.resume();
    let begun = story.after(30, RemedyEvent::Breached(breach()));
    assert!(
        matches!(told(&begun)[..], [RemedyNotice::Begun(_)]),
        "{begun:?}"
    );
}

#[test]
fn bounds_hold_whatever_is_asked_for() {
    let endless = Duration::from_secs(86_400);
    let rules = RemedySettings {
        evidence: endless,
        drain: endless,
        again_within: Some(Duration::ZERO),
        ..RemedySettings::default()
    };
    let bounded = rules.bounded();
    assert_eq!(
        (bounded.evidence.as_secs(), bounded.drain.as_secs()),
        (30, 300)
    );
    assert_eq!(bounded.again_within, Some(Duration::from_secs(60)));
    assert_eq!(rules.longest().as_secs(), 30 + 300 + 30 + 60 + 120);
}

fn any_event() -> impl Strategy<Value = RemedyEvent> {
    let number = 1..6_u32;
    prop_oneof![
        4 => Just(RemedyEvent::Breached(breach())),
        1 => Just(RemedyEvent::Cleared(Measure::Fds)),
        2 => Just(RemedyEvent::Evidence(Ok("a".into()))),
        1 => Just(RemedyEvent::Evidence(Err("no".into()))),
        2 => Just(RemedyEvent::Drained(DrainResult::ConnectionsGone)),
        3 => Just(RemedyEvent::Ended),
        1 => Just(RemedyEvent::StartFailed("no".into())),
        3 => number.clone().prop_map(|number| RemedyEvent::Started(instance(number))),
        3 => number.prop_map(|number| RemedyEvent::Answered(instance(number))),
        4 => Just(RemedyEvent::Time),
    ]
}

proptest! {
    /// Two services that share a lock, and arbitrary events.
    #[test]
    fn whatever_happens_it_ends_in_time_and_is_never_two_restarts_at_once(
        events in proptest::collection::vec((any_event(), 0..200_u64, any::<bool>()), 0..120),
        stops in any::<bool>(),
    ) {
        let when_again = if stops { RepeatPolicy::Stop } else { RepeatPolicy::Keep };
        let rules = RemedySettings { when_again, ..draining() };
        let flight = RemedyLock::default();
        let mut both = [Remedy::new(rules, flight.clone()), Remedy::new(rules, flight)];
        let mut now = Instant::now();
        let mut busy_since = [None; 2];
        // When the latest remedy of each ended, and whether a stop was requested and not answered
        // yet.
        let mut ended: [Option<Instant>; 2] = [None; 2];
        for (event, seconds, second) in events {
            now += Duration::from_secs(seconds);
            for (at, relief) in both.iter_mut().enumerate() {
                // The loop keeps the deadlines.
                while let Some(due) = relief.deadline().filter(|due| *due <= now) {
                    relief.handle(due, RemedyEvent::Time);
                    if !relief.is_busy() {
                        ended[at] = Some(due);
                        busy_since[at] = None;
                    }
                }
            }
            let at = usize::from(second);
            let was_busy = both[at].is_busy();
            let actions = both[at].handle(now, event);
            if !was_busy && both[at].is_busy() {
                // A remedy begins: not soon after the last one.
                if let Some(ended) = ended[at] {
                    prop_assert!(now - ended >= Duration::from_secs(60), "{:?}", now - ended);
                }
                busy_since[at] = Some(now);
            }
            if was_busy && !both[at].is_busy() {
                ended[at] = Some(now);
                busy_since[at] = None;
            }
            prop_assert!(!(both[0].is_busy() && both[1].is_busy()), "one at a time");
            let starts = actions.iter().filter(|action| **action == RemedyAction::StartTree).count();
            prop_assert!(starts <= 1);
            prop_assert!(starts == 0 || was_busy, "only a relief starts");
            for (since, relief) in busy_since.iter().zip(&both) {
                if let Some(since) = since.filter(|_| relief.is_busy()) {
                    prop_assert!(now - since <= rules.longest());
                }
            }
        }
    }
}
