use std::time::{Duration, Instant};

use fdguard_process::tree::Exit;

use super::{
    CrashLoop, EndCause, Halt, NextStep, RestartHistory, RestartPolicy, RestartWhen, Spacing,
};

const KILLED: Exit = Exit::Signal(9);

fn policy() -> RestartPolicy {
    RestartPolicy {
        restart: RestartWhen::OnFailure,
        stop_on: vec![3],
        spacing: "100ms..30s".parse().unwrap(),
        min_uptime: Duration::from_secs(1),
        reset_after: Duration::from_secs(10),
        crash_loop: Some("5/60s".parse().unwrap()),
    }
}

/// Runs of this length, each ended by KILL; returns the delay from each end to the next start.
fn delays(policy: &RestartPolicy, up: Duration, runs: usize) -> Vec<Option<Duration>> {
    let mut history = RestartHistory::default();
    let mut now = Instant::now();
    let mut seen = Vec::new();
    for _ in 0..runs {
        history.started(now);
        now += up;
        match history.ended(policy, now, KILLED, EndCause::Itself, 0.5) {
            NextStep::Start { at } => {
                seen.push(Some(at - now));
                now = at;
            }
            _ => seen.push(None),
        }
    }
    seen
}

fn ms(milliseconds: u64) -> Option<Duration> {
    Some(Duration::from_millis(milliseconds))
}

#[test]
fn the_first_restart_is_at_once_then_starts_are_spaced_then_it_stays_down() {
    let seen = delays(&policy(), Duration::from_millis(10), 6);
    assert_eq!(seen, [ms(0), ms(90), ms(190), ms(390), ms(790), None]);
}

#[test]
fn the_spacing_has_a_ceiling() {
    let policy = RestartPolicy {
        crash_loop: None,
        ..policy()
    };
    let seen = delays(&policy, Duration::ZERO, 60);
    assert_eq!(seen.last(), Some(&Some(Duration::from_secs(30))));
}

#[test]
fn a_service_that_ran_for_a_while_is_back_at_once_seven_times() {
    let seen = delays(&policy(), Duration::from_millis(2_200), 7);
    assert_eq!(seen, [ms(0); 7]);
}

#[test]
fn one_that_falls_every_other_second_is_slowed_down_in_the_end() {
    let seen = delays(&policy(), Duration::from_millis(1_500), 60);
    assert_eq!(
        seen.last(),
        Some(&Some(
            Duration::from_secs(30) - Duration::from_millis(1_500)
        ))
    );
}

#[test]
fn a_long_run_forgets() {
    let (policy, mut history, mut now) = (policy(), RestartHistory::default(), Instant::now());
    for _ in 0..4 {
        history.started(now);
        history.ended(&policy, now, KILLED, EndCause::Itself, 0.5);
    }
    history.started(now);
    now += Duration::from_secs(11);
    let next = history.ended(&policy, now, KILLED, EndCause::Itself, 0.5);
    assert_eq!(next, NextStep::Start { at: now });
}

#[test]
fn chance_moves_a_start_by_a_quarter() {
    for (chance, milliseconds) in [(0.0, 75), (0.5, 100), (1.0, 125)] {
        let (policy, mut history, now) = (policy(), RestartHistory::default(), Instant::now());
        history.started(now);
        history.ended(&policy, now, KILLED, EndCause::Itself, chance);
        history.started(now);
        let next = history.ended(&policy, now, KILLED, EndCause::Itself, chance);
        let at = now + Duration::from_millis(milliseconds);
        assert_eq!(next, NextStep::Start { at });
    }
}

fn after(policy: &RestartPolicy, exit: Exit, cause: EndCause) -> NextStep {
    let (mut history, now) = (RestartHistory::default(), Instant::now());
    history.started(now);
    match history.ended(policy, now, exit, cause, 0.5) {
        NextStep::Start { at } => {
            assert_eq!(at, now);
            NextStep::Start { at }
        }
        other => other,
    }
}

#[test]
fn what_follows_which_end() {
    let on_failure = policy();
    let always = RestartPolicy {
        restart: RestartWhen::Always,
        ..policy()
    };
    let never = RestartPolicy {
        restart: RestartWhen::Never,
        ..policy()
    };
    let is_start = |next| matches!(next, NextStep::Start { .. });
    assert_eq!(
        after(&on_failure, Exit::Code(0), EndCause::Itself),
        NextStep::Done
    );
    assert!(is_start(after(
        &on_failure,
        Exit::Code(1),
        EndCause::Itself
    )));
    assert!(is_start(after(&on_failure, Exit::Code(0), EndCause::Sick)));
    assert!(is_start(after(&always, Exit::Code(0), EndCause::Itself)));
    assert!(is_start(after(&never, Exit::Code(0), EndCause::Asked)));
    assert_eq!(
        after(&never, Exit::Code(0), EndCause::Itself),
        NextStep::Done
    );
    assert_eq!(
        after(&never, KILLED, EndCause::Itself),
        NextStep::Halt(Halt::Never)
    );
    assert_eq!(
        after(&always, Exit::Code(3), EndCause::Itself),
        NextStep::Halt(Halt::StopOn)
    );
    for code in [126, 127] {
        assert_eq!(
            after(&always, Exit::Code(code), EndCause::Itself),
            NextStep::Halt(Halt::NotRunnable)
        );
    }
}

#[test]
fn ends_at_once_with_status_0_are_a_crash_loop_under_always() {
    let policy = RestartPolicy {
        restart: RestartWhen::Always,
        ..policy()
    };
    let (mut history, now) = (RestartHistory::default(), Instant::now());
    let mut last = NextStep::Done;
    for _ in 0..6 {
        history.started(now);
        last = history.ended(&policy, now, Exit::Code(0), EndCause::Itself, 0.5);
    }
    let within = Duration::from_secs(60);
    assert_eq!(last, NextStep::Halt(Halt::CrashLoop { ends: 6, within }));
}

#[test]
fn quick_ends_of_long_ago_are_no_loop() {
    let (policy, mut history, mut now) = (policy(), RestartHistory::default(), Instant::now());
    for _ in 0..30 {
        history.started(now);
        let next = history.ended(&policy, now, KILLED, EndCause::Itself, 0.5);
        assert!(matches!(next, NextStep::Start { .. }), "{next:?}");
        now += Duration::from_secs(13);
    }
}

#[test]
fn values_as_people_write_them() {
    let spacing: Spacing = "100ms..30s".parse().unwrap();
    assert_eq!(spacing.most, Duration::from_secs(30));
    assert_eq!("off".parse::<Spacing>().unwrap().most, Duration::ZERO);
    assert!("30s..1s".parse::<Spacing>().is_err());
    let limit: CrashLoop = "5/60s".parse().unwrap();
    assert_eq!((limit.restarts, limit.within.as_secs()), (5, 60));
    for wrong in ["5", "x/60s", "5/", "5/0s"] {
        assert!(wrong.parse::<CrashLoop>().is_err(), "{wrong}");
    }
    assert!("sometimes".parse::<RestartWhen>().is_err());
}
