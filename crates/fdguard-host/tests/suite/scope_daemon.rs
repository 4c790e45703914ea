//! The daemon: heartbeat, one at a time, judgement, and clean-up.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use fdguard_host::Error;
use fdguard_host::scope::daemon::{
    AgentStatus, Daemon, HEARTBEAT, LOCK, Options, ReasonCode, ScanKind, ScopeScan, heartbeat,
};
use fdguard_host::scope::{
    CloseLimits, CloseReason, FileEnd, ResourceRole, ScopeEvent, ScopePhase, Scopes,
};

use super::host_harness::bash;
use super::scope_harness::{Ground, LONG, leave, plan, shell, until};

/// Scans without a pause.
fn quick(ground: &Ground) -> Options {
    let state = ground.dir.path().join("state");
    std::fs::create_dir_all(&state).unwrap();
    let mut options = Options::new(state);
    options.clean_every = Duration::from_millis(20);
    options.health_every = Duration::from_millis(20);
    options
}

/// Only checks the health of agents.
fn only_health(ground: &Ground) -> Options {
    let mut options = quick(ground);
    options.clean_every = LONG;
    options
}

fn age(path: &std::path::Path, by: Duration) {
    let file = std::fs::File::options().append(true).open(path).unwrap();
    file.set_modified(SystemTime::now() - by).unwrap();
}

fn scans(ground: &Ground) -> Vec<Arc<ScopeScan>> {
    let events = ground.events.lock().unwrap();
    let scans = events.iter().filter_map(|event| match event {
        ScopeEvent::Scanned(scan) => Some(Arc::clone(scan)),
        _ => None,
    });
    scans.collect()
}

/// Waits until the next whole scan of this kind has been made.
async fn next(ground: &Ground, kind: ScanKind) {
    let count = || {
        scans(ground)
            .iter()
            .filter(|scan| scan.kind == kind)
            .count()
    };
    let before = count();
    until("two more scans", || count() >= before + 2).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r52_it_beats_it_is_alone_and_it_leaves_nothing() {
    let ground = Ground::new();
    let options = quick(&ground);
    let beat = options.state.join(HEARTBEAT);
    let scopes = Scopes::new(ground.means());
    let daemon = Daemon::start(scopes.clone(), options.clone())
        .await
        .unwrap();
    assert!(!heartbeat::is_stale(&beat));
    heartbeat::write(&beat, SystemTime::UNIX_EPOCH).unwrap();
    until("it beats again", || !heartbeat::is_stale(&beat)).await;
    let second = Daemon::start(scopes.clone(), options.clone())
        .await
        .unwrap_err();
    let text = second.to_string();
    assert!(matches!(second, Error::Files(_)), "{text}");
    let own = format!("pid {}", std::process::id());
    let is_named = text.contains(&own) || text.contains("another thread of this process");
    assert!(is_named, "{text}");
    daemon.stop().await;
    assert!(!beat.exists() && !options.state.join(LOCK).exists());
    assert!(heartbeat::is_stale(&beat));
    let third = Daemon::start(scopes, options).await.unwrap();
    third.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r52_no_time_at_all_is_refused() {
    let ground = Ground::new();
    let mut options = quick(&ground);
    options.limits.read = Duration::ZERO;
    let refused = Daemon::start(Scopes::new(ground.means()), options).await;
    assert_eq!(refused.unwrap_err().code(), "bad-request");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r53_an_agent_that_writes_nothing_is_stuck_and_is_cleaned_up() {
    let ground = Ground::new();
    let scopes = Scopes::new(ground.means());
    let scope = scopes.create(ground.spec()).unwrap();
    scope
        .start(plan(&["sleep", "1000"]), ResourceRole::Main)
        .await
        .unwrap();
    let log = ground.file("log.jsonl", "{\"type\":\"assistant\"}\n");
    scope.take_log(&log).unwrap();
    let mut options = quick(&ground);
    options.rules.stuck_after = Duration::from_millis(300);
    let daemon = Daemon::start(scopes.clone(), options).await.unwrap();
    let clean_up = tokio::time::timeout(LONG, scope.closed()).await.unwrap();
    assert_eq!(
        (clean_up.reason, clean_up.success),
        (CloseReason::Ended, true),
        "{clean_up:#?}"
    );
    let view = scope.view();
    assert_eq!(
        (view.status, view.reasons),
        (AgentStatus::Failed, vec![ReasonCode::AgentStuck])
    );
    daemon.stop().await;
    let scans = scans(&ground);
    let verdict = scans.iter().find_map(|scan| scan.verdicts.first()).unwrap();
    let text = serde_json::to_string(verdict).unwrap();
    assert!(text.contains("\"agent_stuck\""), "{text}");
    let cleaned = scans.iter().find_map(|scan| scan.cleaned.first()).unwrap();
    assert!(cleaned.success);
    assert!(ground.dir.path().join("archive/log.jsonl").exists());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r53_an_old_log_of_a_young_agent_is_no_sign() {
    let ground = Ground::new();
    let scopes = Scopes::new(ground.means());
    let log = ground.file("log", "from before\n");
    age(&log, Duration::from_secs(5000));
    let scope = scopes.create(ground.spec()).unwrap();
    scope.take_log(&log).unwrap();
    let daemon = Daemon::start(scopes, only_health(&ground)).await.unwrap();
    next(&ground, ScanKind::Health).await;
    assert_eq!(scope.status(), AgentStatus::Running);
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r53_what_the_log_says_last_comes_before_the_verdict() {
    let ground = Ground::new();
    let scopes = Scopes::new(ground.means());
    let make = async |name: &str, log: &str, script: &str| {
        let scope = scopes.create(ground.spec()).unwrap();
        let path = ground.file(name, log);
        scope.take_file(&path, FileEnd::Keep).unwrap();
        scope
            .start(shell(script), ResourceRole::Main)
            .await
            .unwrap();
        scope
    };
    let result = "{\"type\":\"result\",\"is_error\":false}\n";
    let bad_result = "{\"type\":\"result\",\"is_error\":true}\n";
    let cases = [
        (
            make("a", result, "exit 1").await,
            AgentStatus::Completed,
            vec![ReasonCode::ResultFound],
        ),
        (
            make("b", bad_result, "exit 0").await,
            AgentStatus::Failed,
            vec![ReasonCode::ProcessDead, ReasonCode::ResultIsError],
        ),
        (
            make("c", "x\n", "exit 1").await,
            AgentStatus::Failed,
            vec![ReasonCode::ProcessDead],
        ),
        (
            make("d", "x\n", "kill -9 $$").await,
            AgentStatus::Failed,
            vec![ReasonCode::ProcessDead],
        ),
        (
            make("e", "x\n", "exit 0").await,
            AgentStatus::Completed,
            vec![ReasonCode::ExitedWithSuccess],
        ),
        (
            make("f", result, "exec sleep 1000").await,
            AgentStatus::Running,
            vec![],
        ),
    ];
    let daemon = Daemon::start(scopes.clone(), only_health(&ground))
        .await
        .unwrap();
    for (scope, status, reasons) in &cases {
        until("a verdict", || scope.status() == *status).await;
        assert_eq!(&scope.view().reasons, reasons);
    }
    next(&ground, ScanKind::Health).await;
    assert_eq!(cases[5].0.status(), AgentStatus::Running);
    daemon.stop().await;
    scopes.shut_down(CloseLimits::default()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r53_completed_is_never_overwritten() {
    let ground = Ground::new();
    let scopes = Scopes::new(ground.means());
    let scope = scopes.create(ground.spec()).unwrap();
    assert!(scope.set_status(AgentStatus::Completed));
    assert!(!scope.set_status(AgentStatus::Failed));
    scope
        .start(shell("exit 1"), ResourceRole::Main)
        .await
        .unwrap();
    let daemon = Daemon::start(scopes.clone(), only_health(&ground))
        .await
        .unwrap();
    next(&ground, ScanKind::Health).await;
    assert_eq!(scope.status(), AgentStatus::Completed);
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r52_what_lives_on_after_the_end_of_an_agent_is_cleaned_up() {
    let ground = Ground::new();
    let scopes = Scopes::new(ground.means());
    let ended = scopes.create(ground.spec()).unwrap();
    let runs = scopes.create(ground.spec()).unwrap();
    for scope in [&ended, &runs] {
        scope
            .start(plan(&["sleep", "1000"]), ResourceRole::Main)
            .await
            .unwrap();
    }
    ended.set_status(AgentStatus::Completed);
    let daemon = Daemon::start(scopes.clone(), quick(&ground)).await.unwrap();
    let clean_up = tokio::time::timeout(LONG, ended.closed()).await.unwrap();
    assert_eq!(
        (clean_up.reason, clean_up.success),
        (CloseReason::Ended, true)
    );
    next(&ground, ScanKind::CleanUp).await;
    assert_eq!(runs.phase(), ScopePhase::Open);
    daemon.stop().await;
    assert_eq!(ended.status(), AgentStatus::Completed);
    scopes.shut_down(CloseLimits::default()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r52_a_scope_that_nobody_uses_is_ended() {
    let ground = Ground::new();
    let scopes = Scopes::new(ground.means());
    let idle = scopes.create(ground.spec()).unwrap();
    idle.start(plan(&["sleep", "1000"]), ResourceRole::Main)
        .await
        .unwrap();
    let used = scopes.create(ground.spec()).unwrap();
    let mut options = quick(&ground);
    options.rules.idle_after = Duration::from_millis(500);
    let daemon = Daemon::start(scopes.clone(), options).await.unwrap();
    let touching = {
        let used = Arc::clone(&used);
        tokio::spawn(async move {
            loop {
                used.touch();
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
    };
    let clean_up = tokio::time::timeout(LONG, idle.closed()).await.unwrap();
    assert_eq!(
        (clean_up.reason, clean_up.success),
        (CloseReason::Idle, true)
    );
    assert_eq!(used.phase(), ScopePhase::Open);
    touching.abort();
    daemon.stop().await;
    scopes.shut_down(CloseLimits::default()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r53_a_session_that_is_gone_is_told_of() {
    let (ground, host) = Ground::with_host(32).await;
    let scopes = Scopes::new(ground.means());
    let scope = scopes.create(ground.spec()).unwrap();
    let main = scope
        .open_session(bash(), ResourceRole::Main)
        .await
        .unwrap();
    let helper = scope
        .open_session(bash(), ResourceRole::Helper)
        .await
        .unwrap();
    let daemon = Daemon::start(scopes.clone(), only_health(&ground))
        .await
        .unwrap();
    leave(&host, &helper).await;
    next(&ground, ScanKind::Health).await;
    assert_eq!(scope.status(), AgentStatus::Running, "a helper may go");
    leave(&host, &main).await;
    until("a verdict", || scope.status() == AgentStatus::Failed).await;
    assert_eq!(scope.view().reasons, [ReasonCode::SessionDead]);
    daemon.stop().await;
}
