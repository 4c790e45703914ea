mod ends;

use std::time::{Duration, Instant};

use fdguard_proc::ProcKey;
use fdguard_process::tree::Exit;

use super::{
    Action, Again, Breach, DrainResult, Input, LeftProcesses, Lifecycle, LifecycleSettings, Notice,
    RemedyLock, RemedyNotice, RemedySettings, RepeatPolicy, Request, RestartPolicy, RestartWhen,
    RunEnd, State, Unhealthy,
};
use crate::budget::{Excess, Measure};
use crate::config::Background;

pub(super) const GRACE: Duration = Duration::from_secs(10);
const STOP: Action = Action::End(GRACE);

pub(super) fn settings(remedy: RemedySettings) -> LifecycleSettings {
    LifecycleSettings {
        policy: RestartPolicy {
            restart: RestartWhen::OnFailure,
            stop_on: vec![3],
            spacing: "100ms..30s".parse().unwrap(),
            min_uptime: Duration::from_secs(1),
            reset_after: Duration::from_secs(10),
            crash_loop: Some("5/60s".parse().unwrap()),
        },
        remedy: remedy.bounded(),
        background: Background::Adopt,
        grace: GRACE,
        once: false,
        is_supervised: false,
    }
}

pub(super) fn breach() -> Breach {
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

pub(super) fn memory(value: f64) -> Breach {
    let mut breach = breach();
    breach.what = Measure::Memory;
    (breach.passed.value, breach.passed.level) = (value, 100.0);
    breach.passed.wall = None;
    breach
}

pub(super) fn instance(number: u32) -> ProcKey {
    ProcKey {
        pid: 100 + number,
        start_ticks: u64::from(number) * 100,
    }
}

pub(super) fn draining() -> RemedySettings {
    RemedySettings {
        drain: Duration::from_secs(10),
        ..RemedySettings::default()
    }
}

pub(super) fn exited(exit: Exit) -> Input {
    Input::Exited {
        end: RunEnd {
            pid: 1,
            exit: Some(exit),
            up: Duration::ZERO,
            killed: 0,
            reaped: 0,
        },
        chance: 0.5,
    }
}

fn server() -> LeftProcesses {
    LeftProcesses {
        pids: vec![7],
        listening: vec!["127.0.0.1:80".into()],
    }
}

/// A lifecycle and a clock.
struct Story {
    life: Lifecycle,
    now: Instant,
    begun: Instant,
}

impl Story {
    /// The program has run for an hour.
    fn new(remedy: RemedySettings) -> Self {
        Self::sharing(remedy, &RemedyLock::default())
    }

    fn sharing(remedy: RemedySettings, lock: &RemedyLock) -> Self {
        Self::with(settings(remedy), lock)
    }

    fn restarting(restart: RestartWhen) -> Self {
        let mut settings = settings(RemedySettings::default());
        settings.policy.restart = restart;
        Self::with(settings, &RemedyLock::default())
    }

    fn with(settings: LifecycleSettings, lock: &RemedyLock) -> Self {
        let mut life = Lifecycle::new(settings, lock.clone());
        let now = Instant::now();
        let actions = life.step(now, Input::Asked(Request::Start));
        assert_eq!(actions, [Action::Start]);
        assert!(life.step(now, Input::Started(Some(instance(1)))).is_empty());
        let actions = life.step(now, Input::Ready(Some(instance(1))));
        assert_eq!(actions, [Action::Serve]);
        Self {
            life,
            now: now + Duration::from_secs(3600),
            begun: now,
        }
    }

    fn after(&mut self, seconds: u64, input: Input) -> Vec<Action> {
        self.now += Duration::from_secs(seconds);
        self.life.step(self.now, input)
    }

    fn ask(&mut self, request: Request) -> Vec<Action> {
        self.after(0, Input::Asked(request))
    }

    fn ended(&mut self, seconds: u64) -> Vec<Action> {
        self.after(seconds, exited(Exit::Signal(15)))
    }

    /// A complete remedy that works; each step takes this many seconds.
    fn remedy(&mut self, seconds: u64, number: u32) -> Vec<Action> {
        let next = Some(instance(number));
        self.after(0, Input::Breached(breach()));
        self.after(seconds, Input::EvidenceDone(Ok("a".into())));
        if self.life.settings.remedy.drain > Duration::ZERO {
            self.after(seconds, Input::Drained(DrainResult::ConnectionsGone));
        }
        self.ended(seconds);
        self.after(seconds, Input::Started(next));
        self.after(seconds, Input::Ready(next))
    }

    fn is_active(&self) -> bool {
        self.life.remedy.deadline().is_some()
    }
}

fn told(actions: &[Action]) -> Vec<&RemedyNotice> {
    let told = actions.iter().filter_map(|action| match action {
        Action::Log(Notice::Remedy(notice)) => Some(notice),
        _ => None,
    });
    told.collect()
}

fn again(actions: &[Action]) -> &Again {
    match told(actions)[..] {
        [RemedyNotice::Again(again)] => again,
        _ => panic!("{actions:?}"),
    }
}

fn is_begun(actions: &[Action]) -> bool {
    matches!(told(actions)[..], [RemedyNotice::Begun(_)])
}

fn restart_reason(actions: &[Action]) -> Option<&'static str> {
    actions.iter().find_map(|action| match action {
        Action::Log(Notice::Restart { reason, .. }) => Some(*reason),
        _ => None,
    })
}

/// It used to wait 15 seconds for the evidence, while the program grew.
#[test]
fn memory_that_is_well_exceeded_does_not_wait_for_evidence() {
    let mut story = Story::new(RemedySettings::default());
    let actions = story.after(1, Input::Breached(memory(150.0)));
    assert!(actions.contains(&STOP), "{actions:?}");
    assert!(
        matches!(
            told(&actions)[..],
            [RemedyNotice::Begun(_), RemedyNotice::Evidence(Err(_))]
        ),
        "{actions:?}"
    );
    let mut story = Story::new(RemedySettings::default());
    let actions = story.after(1, Input::Breached(memory(149.0)));
    assert!(!actions.contains(&STOP), "{actions:?}");
    assert!(story.life.waits_for_evidence().is_some());
    let actions = story.after(1, Input::Urgent);
    assert_eq!(actions.first(), Some(&Action::StopEvidence));
    assert!(actions.contains(&STOP), "{actions:?}");
    assert!(story.life.waits_for_evidence().is_none());
    assert!(story.after(1, Input::Urgent).is_empty(), "once");
}

#[test]
fn r29_a_breach_goes_by_evidence_drain_stop_and_start_to_a_proof() {
    let lock = RemedyLock::default();
    let mut story = Story::sharing(draining(), &lock);
    let begun = story.after(0, Input::Breached(breach()));
    assert_eq!(
        begun[1],
        Action::WriteEvidence(Some(101), Duration::from_secs(30))
    );
    let drain = story.after(3, Input::EvidenceDone(Ok("/evidence/1".into())));
    assert_eq!(drain[1], Action::BeginDrain(Duration::from_secs(10)));
    assert_eq!(story.life.state(), State::Draining);
    let stop = story.after(2, Input::Drained(DrainResult::ConnectionsGone));
    assert!(stop.contains(&Action::StopDrain) && stop.contains(&STOP));
    assert_eq!(story.life.state(), State::Stopping);
    let start = story.ended(1);
    assert_eq!(start.last(), Some(&Action::Start));
    assert_eq!(restart_reason(&start), Some("fd_budget"));
    let next = Some(instance(2));
    assert!(story.after(1, Input::Started(next)).is_empty());
    assert!(story.is_active(), "nothing is proven yet");
    let proven = story.after(1, Input::Ready(next));
    let [RemedyNotice::Proven(proof)] = told(&proven)[..] else {
        panic!("{proven:?}")
    };
    assert_eq!(
        (proof.took.as_secs(), proof.down.as_secs(), proof.restarts),
        (8, 5, 1)
    );
    assert_eq!((proof.before, proof.now), (Some(instance(1)), instance(2)));
    assert!(!story.is_active() && !lock.is_taken());
    assert_eq!(story.life.reasons().get("fd_budget"), Some(&1));
}

#[test]
fn r29_an_answer_of_the_old_process_proves_nothing() {
    let mut story = Story::new(RemedySettings::default());
    story.after(0, Input::Breached(breach()));
    story.after(1, Input::EvidenceDone(Err("no room".into())));
    story.ended(1);
    story.after(1, Input::Started(Some(instance(2))));
    let actions = story.after(1, Input::Ready(Some(instance(1))));
    assert_eq!(actions, [Action::Serve]);
    let same_tick = ProcKey {
        pid: 900,
        ..instance(1)
    };
    assert!(same_tick.is_newer_than(instance(1)) && !instance(1).is_newer_than(instance(1)));
    let late = story.after(119, Input::Time);
    assert!(
        matches!(told(&late)[..], [RemedyNotice::Unproven(_, why)] if why.contains("120 s")),
        "{late:?}"
    );
    assert!(!story.life.holds(), "the parent may restart fdguard");
}

#[test]
fn a_failed_evidence_does_not_hold_up_the_restart() {
    let mut story = Story::new(RemedySettings::default());
    story.after(0, Input::Breached(breach()));
    let actions = story.after(1, Input::EvidenceDone(Err("disk full".into())));
    assert_eq!(
        told(&actions),
        [&RemedyNotice::Evidence(Err("disk full".into()))]
    );
    assert!(actions.contains(&STOP));
    let mut story = Story::new(RemedySettings::default());
    story.after(0, Input::Breached(breach()));
    assert!(story.after(29, Input::Time).is_empty());
    let late = story.after(1, Input::Time);
    assert!(
        late.contains(&Action::StopEvidence) && late.contains(&STOP),
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
    let actions = story.after(0, Input::Breached(near));
    let evidence = Action::WriteEvidence(Some(101), Duration::from_secs(4));
    assert!(actions.contains(&evidence), "{actions:?}");
}

#[test]
fn a_program_that_ends_by_itself_is_not_stopped_but_started() {
    let mut story = Story::new(draining());
    story.after(0, Input::Breached(breach()));
    story.after(1, Input::EvidenceDone(Ok("a".into())));
    let actions = story.after(1, exited(Exit::Code(0)));
    assert!(
        actions.contains(&Action::Start) && !actions.contains(&STOP),
        "{actions:?}"
    );
    assert!(
        matches!(
            told(&actions)[..],
            [RemedyNotice::Drained(DrainResult::Ended, _)]
        ),
        "{actions:?}"
    );
    let mut story = Story::new(draining());
    story.after(0, Input::Breached(breach()));
    let actions = story.after(1, exited(Exit::Code(0)));
    assert_eq!(actions.first(), Some(&Action::StopEvidence));
    assert_eq!(actions.last(), Some(&Action::Start));
    assert_eq!(restart_reason(&actions), Some("fd_budget"));
}

#[test]
fn a_hook_that_fails_does_not_make_anybody_wait() {
    let mut story = Story::new(draining());
    story.after(0, Input::Breached(breach()));
    story.after(1, Input::EvidenceDone(Ok("a".into())));
    let failed = DrainResult::HookFailed("refused".into());
    let actions = story.after(0, Input::Drained(failed));
    assert!(actions.contains(&STOP));
}

#[test]
fn r29_one_service_at_a_time() {
    let lock = RemedyLock::default();
    let mut one = Story::sharing(RemedySettings::default(), &lock);
    let mut other = Story::sharing(RemedySettings::default(), &lock);
    one.after(0, Input::Breached(breach()));
    let waits = other.after(0, Input::Breached(breach()));
    assert!(
        matches!(told(&waits)[..], [RemedyNotice::Waits(_)]),
        "{waits:?}"
    );
    assert!(!other.life.is_due(other.now) && other.after(1, Input::Time).is_empty());
    one.after(1, Input::EvidenceDone(Ok("a".into())));
    one.ended(1);
    one.after(1, Input::Started(Some(instance(2))));
    one.after(1, Input::Ready(Some(instance(2))));
    assert!(other.life.is_due(other.now));
    let begun = other.after(1, Input::Time);
    assert!(is_begun(&begun), "{begun:?}");
}

#[test]
fn who_waited_and_recovered_is_left_alone() {
    let lock = RemedyLock::default();
    let mut one = Story::sharing(RemedySettings::default(), &lock);
    let mut other = Story::sharing(RemedySettings::default(), &lock);
    one.after(0, Input::Breached(breach()));
    other.after(0, Input::Breached(breach()));
    assert!(other.after(1, Input::Cleared(Measure::Memory)).is_empty());
    assert!(other.after(1, Input::Cleared(Measure::Fds)).is_empty());
    drop(one);
    assert!(!other.life.is_due(other.now) && other.after(1, Input::Time).is_empty());
}

#[test]
fn r29_breached_again_at_once_it_stops_to_act_and_says_so() {
    let mut story = Story::new(RemedySettings::default());
    story.remedy(1, 2);
    let actions = story.after(50, Input::Breached(breach()));
    let why = again(&actions);
    assert_eq!(why.after_remedy, Some(Duration::from_secs(50)));
    assert_eq!((why.within.as_secs(), why.then), (60, RepeatPolicy::Keep));
    assert_eq!(actions.len(), 1, "the service runs on");
    assert_eq!(story.life.state(), State::Ready);
    assert!(!story.life.holds());
    assert!(
        story.after(100, Input::Breached(breach())).is_empty(),
        "told once"
    );
    let later = story.after(600, Input::Breached(breach()));
    assert!(
        is_begun(&later),
        "after ten quiet minutes it is another story"
    );
}

#[test]
fn a_restart_that_took_long_must_last_longer() {
    let mut story = Story::new(draining());
    // Drain to answer: four steps of 8 s.
    story.remedy(8, 2);
    let actions = story.after(150, Input::Breached(breach()));
    assert_eq!(again(&actions).within.as_secs(), 160);
    let mut story = Story::new(draining());
    story.remedy(8, 2);
    let begun = story.after(160, Input::Breached(breach()));
    assert!(is_begun(&begun), "{begun:?}");
}

#[test]
fn a_breach_right_after_the_start_is_that_of_a_program_at_rest() {
    let mut story = Story::new(RemedySettings::default());
    story.now = story.begun;
    let actions = story.after(9, Input::Breached(breach()));
    let why = again(&actions);
    assert_eq!((why.after_remedy, why.after_start.as_secs()), (None, 9));
}

#[test]
fn when_again_stop_ends_the_service_for_good() {
    let rules = RemedySettings {
        when_again: RepeatPolicy::Stop,
        ..RemedySettings::default()
    };
    let mut story = Story::new(rules);
    story.remedy(1, 2);
    let actions = story.after(1, Input::Breached(breach()));
    assert!(actions.contains(&STOP));
    let actions = story.ended(1);
    assert!(
        matches!(actions[..], [Action::Log(Notice::Exited(_))]),
        "nobody starts it again"
    );
    assert_eq!(story.life.state(), State::Failed);
    assert_eq!(story.life.outcome(), Some(1));
}

#[test]
fn a_reload_acts_again() {
    let mut story = Story::new(RemedySettings::default());
    story.remedy(1, 2);
    story.after(1, Input::Breached(breach()));
    let fresh = Box::new(settings(RemedySettings::default()));
    assert_eq!(story.ask(Request::Reload(fresh)), [STOP]);
    assert!(story.life.holds());
    assert_eq!(restart_reason(&story.ended(1)), Some("reload"));
    story.after(1, Input::Started(Some(instance(3))));
    let begun = story.after(30, Input::Breached(breach()));
    assert!(is_begun(&begun), "{begun:?}");
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
}

#[test]
fn without_restarts_a_breach_asks_the_parent_for_one() {
    for (is_supervised, code) in [(true, 75), (false, 1)] {
        let mut rules = settings(RemedySettings::default());
        (rules.policy.restart, rules.is_supervised) = (RestartWhen::Never, is_supervised);
        let mut story = Story::with(rules, &RemedyLock::default());
        story.after(0, Input::Breached(breach()));
        story.after(1, Input::EvidenceDone(Ok("a".into())));
        let actions = story.ended(1);
        assert!(
            told(&actions).is_empty() && !actions.contains(&Action::Start),
            "{actions:?}"
        );
        assert_eq!(story.life.outcome(), Some(code));
    }
}

/// It used to be started again, although restarts are disabled.
#[test]
fn without_restarts_a_program_that_ends_during_its_remedy_keeps_its_status() {
    let mut story = Story::restarting(RestartWhen::Never);
    story.after(0, Input::Breached(breach()));
    let actions = story.after(1, exited(Exit::Code(4)));
    assert!(!actions.contains(&Action::Start), "{actions:?}");
    assert_eq!(story.life.outcome(), Some(4));
}

/// The lock used to be held for another minute.
#[test]
fn a_remedy_whose_program_cannot_be_started_ends_at_once() {
    let lock = RemedyLock::default();
    let mut story = Story::sharing(RemedySettings::default(), &lock);
    story.after(0, Input::Breached(breach()));
    story.after(1, Input::EvidenceDone(Ok("a".into())));
    story.ended(1);
    let failed = |code| Input::StartFailed { code, chance: 0.5 };
    let actions = story.after(0, failed(125));
    assert_eq!(restart_reason(&actions), Some("start_failed"));
    assert!(story.is_active(), "it is tried again");
    let actions = story.after(1, failed(127));
    assert!(
        matches!(told(&actions)[..], [RemedyNotice::Unproven(..)]),
        "{actions:?}"
    );
    assert_eq!(story.life.outcome(), Some(127));
    assert!(!lock.is_taken());
}

#[test]
fn a_service_that_fails_while_it_is_drained_still_has_to_prove_its_restart() {
    let mut story = Story::new(draining());
    story.after(0, Input::Breached(breach()));
    story.after(1, Input::EvidenceDone(Ok("a".into())));
    assert!(
        story
            .after(1, Input::Unhealthy(Unhealthy::NotReady))
            .is_empty(),
        "readiness does not matter any more"
    );
    let silent = Unhealthy::Watchdog("silent");
    let actions = story.after(1, Input::Unhealthy(silent.clone()));
    assert_eq!(
        actions[..3],
        [
            Action::Log(Notice::Unhealthy(silent)),
            Action::Abort,
            Action::StopDrain
        ]
    );
    assert_eq!(actions.last(), Some(&STOP));
    assert_eq!(restart_reason(&story.ended(1)), Some("watchdog"));
    story.after(0, Input::Started(Some(instance(2))));
    let proven = story.after(1, Input::Ready(Some(instance(2))));
    assert!(
        matches!(told(&proven)[..], [RemedyNotice::Proven(_)]),
        "{proven:?}"
    );
}
