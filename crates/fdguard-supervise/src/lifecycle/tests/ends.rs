//! How a service ends: by request, by itself, by what it leaves behind, or for good.

use std::time::{Duration, Instant};

use fdguard_process::tree::Exit;

use super::super::{
    Action, Input, LeftProcesses, Lifecycle, Notice, RemedyLock, RemedySettings, Request,
    RestartWhen, State, Unhealthy,
};
use super::{STOP, Story, breach, exited, instance, restart_reason, server, settings};
use crate::config::Background;

#[test]
fn a_request_to_stop_overrides_everything_else() {
    let mut story = Story::new(RemedySettings::default());
    let how = Unhealthy::Check {
        why: "refused".into(),
        failures: 3,
    };
    story.after(0, Input::Unhealthy(how));
    assert!(story.ask(Request::Stop).is_empty(), "it is ending already");
    assert_eq!(story.ask(Request::Kill), [Action::Kill]);
    assert_eq!(story.ended(1).len(), 1, "only its end is logged");
    assert_eq!(
        (story.life.state(), story.life.outcome()),
        (State::Stopped, Some(0))
    );
    let mut story = Story::new(RemedySettings::default());
    story.after(0, Input::Breached(breach()));
    assert_eq!(story.ask(Request::Stop), [Action::StopEvidence, STOP]);
    assert!(!story.is_active());
}

#[test]
fn a_reload_begins_again_after_any_other_end() {
    let mut story = Story::new(RemedySettings::default());
    story.after(0, Input::Left(LeftProcesses::default()));
    let fresh = || Request::Reload(Box::new(settings(RemedySettings::default())));
    assert!(story.ask(fresh()).is_empty());
    let actions = story.after(1, exited(Exit::Code(0)));
    assert_eq!(restart_reason(&actions), Some("reload"));
    let mut story = Story::new(RemedySettings::default());
    story.after(0, exited(Exit::Code(3)));
    assert_eq!(story.life.state(), State::Failed);
    assert!(story.ask(fresh()).is_empty());
    assert_eq!(
        (story.life.state(), story.life.outcome()),
        (State::Waiting, None)
    );
    assert_eq!(story.ask(Request::Start), [Action::Start]);
}

#[test]
fn what_a_program_leaves_is_ended_and_a_server_is_kept() {
    let short = Action::End(Duration::from_millis(500));
    let orphans = Action::Log(Notice::Orphans);
    let mut story = Story::new(RemedySettings::default());
    let actions = story.after(0, Input::Left(LeftProcesses::default()));
    assert_eq!(actions, [orphans.clone(), short]);
    let background = Action::Log(Notice::Background(server()));
    let mut story = Story::new(RemedySettings::default());
    let actions = story.after(0, Input::Left(server()));
    assert_eq!(actions, [background.clone(), Action::Adopt]);
    story.after(0, Input::Adopted(Some(instance(2))));
    assert_eq!(story.life.state(), State::Ready);
    for (choice, state) in [
        (Background::End, State::Stopped),
        (Background::Fail, State::Failed),
    ] {
        let mut rules = settings(RemedySettings::default());
        rules.background = choice;
        let mut story = Story::with(rules, &RemedyLock::default());
        let actions = story.after(0, Input::Left(server()));
        assert_eq!(actions, [background.clone(), orphans.clone(), STOP]);
        story.after(1, exited(Exit::Code(0)));
        assert_eq!(story.life.state(), state);
    }
}

#[test]
fn with_once_the_status_is_the_programs_own() {
    let mut rules = settings(RemedySettings::default());
    (rules.policy.restart, rules.once) = (RestartWhen::Never, true);
    let mut story = Story::with(rules.clone(), &RemedyLock::default());
    story.ask(Request::Kill);
    story.after(0, exited(Exit::Signal(9)));
    assert_eq!(story.life.outcome(), Some(137));
    let mut story = Story::with(rules, &RemedyLock::default());
    story.after(0, exited(Exit::Code(42)));
    assert_eq!(story.life.outcome(), Some(42));
}

#[test]
fn a_service_whose_dependency_is_down_fails_without_a_start() {
    let rules = settings(RemedySettings::default());
    let mut life = Lifecycle::new(rules, RemedyLock::default());
    let request = Request::FailWaiting("db".into());
    let actions = life.step(Instant::now(), Input::Asked(request));
    assert_eq!(
        actions,
        [Action::Log(Notice::DependencyFailed("db".into()))]
    );
    assert_eq!((life.state(), life.outcome()), (State::Failed, Some(1)));
}

#[test]
fn crashes_are_spaced_until_the_service_stays_down() {
    let mut story = Story::restarting(RestartWhen::Always);
    let mut delays = Vec::new();
    for number in 2.. {
        let actions = story.after(0, exited(Exit::Code(1)));
        let delay = actions.iter().find_map(|action| match action {
            Action::Log(Notice::BackOff(delay)) => Some(*delay),
            _ => None,
        });
        delays.push(delay.unwrap_or_default().as_millis());
        if story.life.state().is_final() {
            break;
        }
        if let Some(delay) = delay {
            assert_eq!(story.life.deadline(), Some(story.now + delay));
            assert!(story.after(0, Input::Time).is_empty());
            story.now += delay;
            assert_eq!(story.after(0, Input::Time), [Action::Start]);
        }
        story.after(0, Input::Started(Some(instance(number))));
    }
    // The first run lasted an hour.
    assert_eq!(delays, [0, 0, 100, 200, 400, 800, 0]);
    assert_eq!(story.life.outcome(), Some(1));
    assert_eq!(story.life.restarts(), 6);
}
