//! Random stories: two services that share a lock, in a world that performs their actions and
//! checks each of them.

use std::time::{Duration, Instant};

use fdguard_process::tree::Exit;
use proptest::prelude::*;

use super::tests::{breach, draining, exited, instance, memory, settings};
use super::{
    Action, DrainResult, Input, LeftProcesses, Lifecycle, LifecycleSettings, Notice, RemedyLock,
    RemedyNotice, RemedySettings, RepeatPolicy, Request, RestartWhen, State, Unhealthy,
};
use crate::budget::Measure;
use crate::config::Background;

/// Something that may happen; what cannot happen now is skipped.
#[derive(Clone, Debug)]
enum Happening {
    /// Any input that no action requested: it may be stale.
    Reported(Input),
    Exited(Exit),
    EvidenceDone,
    Drained,
}

/// What the actions brought about.
struct World {
    life: Lifecycle,
    now: Instant,
    /// Whether the run is being ended, while there is one.
    run: Option<bool>,
    /// Started so far.
    started: u32,
    evidence: bool,
    drain: bool,
    /// A breach whose evidence must be reported before the service is ended for it.
    owes_evidence: bool,
    /// The next start is not before this.
    not_before: Option<Instant>,
    remedy_since: Option<Instant>,
    remedy_ended: Option<Instant>,
    /// Starts and steps fail, by turns.
    failures: Vec<bool>,
}

impl World {
    fn new(settings: LifecycleSettings, lock: &RemedyLock, failures: Vec<bool>) -> Self {
        Self {
            life: Lifecycle::new(settings, lock.clone()),
            now: Instant::now(),
            run: None,
            started: 0,
            evidence: false,
            drain: false,
            owes_evidence: false,
            not_before: None,
            remedy_since: None,
            remedy_ended: None,
            failures,
        }
    }

    fn fails(&mut self) -> bool {
        self.failures.rotate_left(1);
        self.failures[0]
    }

    fn is_active(&self) -> bool {
        self.life.remedy.deadline().is_some()
    }

    fn happen(&mut self, happening: Happening) {
        match happening {
            Happening::Reported(input) => self.step(input),
            Happening::Exited(exit) if self.run.is_some() => {
                self.run = None;
                self.step(exited(exit));
            }
            Happening::EvidenceDone if self.evidence => {
                self.evidence = false;
                self.step(Input::EvidenceDone(Ok("a".into())));
            }
            Happening::Drained if self.drain => {
                self.step(Input::Drained(DrainResult::ConnectionsGone));
            }
            _ => {}
        }
    }

    /// Time passes; the loop keeps the deadlines.
    fn pass(&mut self, length: Duration) {
        let until = self.now + length;
        while let Some(due) = self.life.deadline().filter(|due| *due <= until) {
            self.now = self.now.max(due);
            self.step(Input::Time);
            assert!(
                self.life.deadline().is_none_or(|next| next > due),
                "a deadline that stays keeps the loop busy"
            );
        }
        self.now = until;
        if self.life.is_due(self.now) {
            self.step(Input::Time);
        }
    }

    fn step(&mut self, input: Input) {
        let mut inputs = vec![input];
        while !inputs.is_empty() {
            let input = inputs.remove(0);
            let was_final = self.life.state().is_final();
            let is_reload = matches!(input, Input::Asked(Request::Reload(_)));
            if is_reload {
                // What happened before does not count any more.
                self.remedy_ended = None;
            }
            let actions = self.life.step(self.now, input);
            assert!(
                !was_final || is_reload || actions.is_empty(),
                "no action after the end: {actions:?}"
            );
            for action in actions {
                inputs.extend(self.perform(action));
            }
        }
        self.check();
    }

    fn perform(&mut self, action: Action) -> Vec<Input> {
        match action {
            Action::Start => return vec![self.start()],
            Action::Serve | Action::Abort => assert_eq!(self.run, Some(false)),
            Action::Adopt => {
                assert_eq!(self.run, Some(false));
                self.started += 1;
                return vec![Input::Adopted(Some(instance(self.started)))];
            }
            Action::End(grace) => {
                assert!(grace <= self.life.settings.grace);
                assert_eq!(self.run.replace(true), Some(false), "ended once");
                assert!(!self.owes_evidence, "evidence comes before the end");
            }
            Action::Kill => assert!(self.run.replace(true).is_some()),
            Action::WriteEvidence(pid, within) => {
                assert_eq!(self.run, Some(false));
                assert!(pid.is_some() && within <= self.life.settings.remedy.evidence);
                assert!(!self.evidence && !self.drain);
                if self.fails() {
                    return vec![Input::EvidenceDone(Err("no".into()))];
                }
                self.evidence = true;
            }
            Action::StopEvidence => {
                (self.evidence, self.owes_evidence) = (false, false);
            }
            Action::BeginDrain(within) => {
                assert_eq!(self.run, Some(false));
                assert!(within <= self.life.settings.remedy.drain);
                assert!(!self.evidence && !self.drain && !self.owes_evidence);
                if self.fails() {
                    return vec![Input::Drained(DrainResult::None)];
                }
                self.drain = true;
            }
            Action::StopDrain => self.drain = false,
            Action::Log(notice) => self.log(&notice),
        }
        Vec::new()
    }

    fn start(&mut self) -> Input {
        assert_eq!(self.run, None, "never two runs at once");
        assert!(self.not_before.take().is_none_or(|at| at <= self.now));
        if self.fails() {
            let code = if self.fails() { 127 } else { 125 };
            return Input::StartFailed { code, chance: 0.5 };
        }
        self.run = Some(false);
        self.started += 1;
        Input::Started(Some(instance(self.started)))
    }

    fn log(&mut self, notice: &Notice) {
        match notice {
            Notice::Restart { .. } | Notice::Exited(_) | Notice::Halted { .. } => {
                assert_eq!(self.run, None, "a restart follows an exit");
            }
            Notice::BackOff(delay) => {
                assert!(*delay > Duration::ZERO && *delay <= Duration::from_secs(38));
                self.not_before = Some(self.now + *delay);
            }
            Notice::Remedy(RemedyNotice::Begun(_)) => {
                // Not soon after the last one.
                let quiet = self.remedy_ended.map(|ended| self.now - ended);
                assert!(
                    quiet.is_none_or(|quiet| quiet >= Duration::from_secs(60)),
                    "{quiet:?}"
                );
                self.owes_evidence = !self.life.settings.remedy.evidence.is_zero();
                self.remedy_since = Some(self.now);
            }
            Notice::Remedy(RemedyNotice::Evidence(_)) => self.owes_evidence = false,
            Notice::Remedy(RemedyNotice::Proven(proof)) => {
                assert_eq!(self.run, Some(false));
                let before = proof.before.unwrap();
                assert!(proof.now.is_newer_than(before));
                self.remedy_ended = Some(self.now);
            }
            Notice::Remedy(RemedyNotice::Unproven(..)) => self.remedy_ended = Some(self.now),
            _ => {}
        }
    }

    /// State and world agree.
    fn check(&mut self) {
        let state = self.life.state();
        let run = match state {
            State::Starting | State::Ready | State::Draining => Some(false),
            State::Stopping => Some(true),
            State::Waiting | State::BackingOff | State::Stopped | State::Failed => None,
        };
        assert_eq!(self.run, run, "{state:?}");
        assert_eq!(self.drain, state == State::Draining);
        assert_eq!(self.evidence, self.life.waits_for_evidence().is_some());
        match state {
            State::BackingOff => assert!(self.not_before.is_some()),
            _ => self.not_before = None,
        }
        if state.is_final() {
            assert_eq!(self.life.deadline(), None);
            assert!(state == State::Stopped || self.life.outcome().is_some());
        }
        let since = self.remedy_since.filter(|_| self.is_active());
        let longest = self.life.settings.remedy.longest();
        assert!(
            since.is_none_or(|since| self.now - since <= longest),
            "a remedy ends in time"
        );
    }

    /// A stop that was asked for ends, whatever the program does.
    fn stop(&mut self, exit: Exit, at_once: bool) {
        let restarts = self.life.restarts();
        let request = if at_once {
            Request::Kill
        } else {
            Request::Stop
        };
        self.step(Input::Asked(request));
        self.step(Input::Asked(Request::Stop));
        self.step(Input::Breached(breach()));
        self.pass(Duration::from_secs(3600));
        self.happen(Happening::Exited(exit));
        assert!(self.life.state().is_final());
        assert_eq!(self.life.restarts(), restarts);
        assert!(!self.is_active());
    }
}

fn any_exit() -> impl Strategy<Value = Exit> {
    prop_oneof![
        1 => Just(Exit::Code(0)),
        4 => Just(Exit::Code(1)),
        1 => Just(Exit::Code(3)),
        1 => Just(Exit::Code(127)),
        4 => Just(Exit::Signal(9)),
    ]
}

fn any_unhealthy() -> impl Strategy<Value = Unhealthy> {
    prop_oneof![
        Just(Unhealthy::Check {
            why: "refused".into(),
            failures: 3
        }),
        Just(Unhealthy::Watchdog("silent")),
        Just(Unhealthy::NotReady),
    ]
}

fn any_settings() -> impl Strategy<Value = LifecycleSettings> {
    let restart = prop_oneof![
        4 => Just(RestartWhen::Always),
        4 => Just(RestartWhen::OnFailure),
        1 => Just(RestartWhen::Never),
    ];
    let background = prop_oneof![
        Just(Background::Adopt),
        Just(Background::End),
        Just(Background::Fail)
    ];
    (restart, background, any::<[bool; 4]>()).prop_map(|(restart, background, flags)| {
        let [stops, drains, loops, has_evidence] = flags;
        let remedy = RemedySettings {
            when_again: match stops {
                true => RepeatPolicy::Stop,
                false => RepeatPolicy::Keep,
            },
            ..if drains {
                draining()
            } else {
                RemedySettings::default()
            }
        };
        let mut settings = settings(remedy);
        if !has_evidence {
            settings.remedy.evidence = Duration::ZERO;
        }
        settings.background = background;
        settings.policy.restart = restart;
        settings.policy.crash_loop = settings.policy.crash_loop.filter(|_| loops);
        settings
    })
}

fn any_happening() -> impl Strategy<Value = Happening> {
    let reported = prop_oneof![
        6 => Just(Input::Asked(Request::Start)),
        1 => Just(Input::Asked(Request::Stop)),
        1 => any_settings().prop_map(|one| Input::Asked(Request::Reload(Box::new(one)))),
        1 => Just(Input::Asked(Request::FailWaiting("db".into()))),
        8 => (1..9_u32).prop_map(|number| Input::Ready(Some(instance(number)))),
        1 => any_unhealthy().prop_map(Input::Unhealthy),
        2 => any::<bool>().prop_map(|listens| Input::Left(LeftProcesses {
            pids: vec![7],
            listening: listens.then(|| "unix:/run/a".to_owned()).into_iter().collect(),
        })),
        8 => Just(Input::Breached(breach())),
        1 => Just(Input::Breached(memory(500.0))),
        1 => Just(Input::Urgent),
        1 => Just(Input::Cleared(Measure::Fds)),
        1 => Just(Input::Time),
    ];
    prop_oneof![
        5 => reported.prop_map(Happening::Reported),
        2 => any_exit().prop_map(Happening::Exited),
        1 => Just(Happening::EvidenceDone),
        1 => Just(Happening::Drained),
    ]
}

proptest! {
    #[test]
    fn whatever_happens_a_service_obeys_its_rules(
        both in [any_settings(), any_settings()],
        failures in proptest::collection::vec(proptest::bool::weighted(0.2), 1..8),
        story in proptest::collection::vec(
            (any_happening(), 0..120_u64, any::<bool>()), 0..160
        ),
        last in (any_exit(), any::<bool>()),
    ) {
        let lock = RemedyLock::default();
        let mut worlds = both.map(|settings| World::new(settings, &lock, failures.clone()));
        for (happening, seconds, second) in story {
            for world in &mut worlds {
                world.pass(Duration::from_secs(seconds));
            }
            worlds[usize::from(second)].happen(happening);
            let active = worlds.iter().filter(|world| world.is_active()).count();
            prop_assert!(active <= 1, "one remedy at a time");
            prop_assert_eq!(lock.is_taken(), active == 1);
        }
        for world in &mut worlds {
            world.stop(last.0, last.1);
        }
        prop_assert!(!lock.is_taken());
    }

    #[test]
    fn crashes_are_ever_further_apart_and_never_too_many(
        runs in proptest::collection::vec(0..1500_u64, 1..60),
        allowed in 1..8_u32,
    ) {
        let mut rules = settings(RemedySettings::default());
        let within = Duration::from_secs(60);
        rules.policy.crash_loop = Some(format!("{allowed}/60s").parse().unwrap());
        let mut world = World::new(rules, &RemedyLock::default(), vec![false]);
        world.step(Input::Asked(Request::Start));
        let (mut crashes, mut apart) = (Vec::new(), Duration::ZERO);
        for up in runs {
            let began = world.now;
            world.pass(Duration::from_millis(up));
            if up < 1000 {
                crashes.push(world.now);
            }
            world.happen(Happening::Exited(Exit::Code(1)));
            let recent = crashes.iter().filter(|at| world.now - **at <= within).count();
            let is_loop = recent > usize::try_from(allowed).unwrap();
            prop_assert_eq!(world.life.state() == State::Failed, is_loop && up < 1000);
            if world.life.state() == State::Failed {
                break;
            }
            if let Some(at) = world.not_before {
                prop_assert!(at - began >= apart, "{:?} after {:?}", at - began, apart);
                apart = at - began;
            }
            world.pass(world.life.deadline().map_or(Duration::ZERO, |at| at - world.now));
        }
    }
}
