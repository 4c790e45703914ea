//! Python sessions of a host come from its warm interpreter.

use std::path::PathBuf;

use fdguard_host::receipt::SessionEndReason;
use fdguard_host::session::{ExecOutcome, SessionProgram, SessionSpec};

use super::host_harness::{
    LONG, Lines, assert_clean, baseline, descriptors, eventually, exec, options, say, start,
};

fn keeper() -> PathBuf {
    let exe = std::env::current_exe().unwrap();
    let dir = exe.ancestors().nth(2).unwrap().join("examples");
    let path = dir.join("session_keeper");
    assert!(path.is_file(), "{} is not built", path.display());
    path
}

fn python() -> SessionSpec {
    let mut spec = SessionSpec::new(SessionProgram::Python);
    spec.ready_within = LONG;
    spec
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn python_sessions_come_from_the_warm_interpreter_and_leave_nothing() {
    let lines = Lines::default();
    let start_of_all = descriptors();
    let mut options = options();
    options.warm_python = true;
    options.keeper_program = Some(keeper());
    options.events = lines.events();
    let host = start(options).await;
    let is_ready = || host.health().warm.is_some_and(|warm| warm.ready);
    eventually("it is warm", is_ready).await;
    let before = baseline(&host);
    for round in 0..5 {
        let id = host.open(None, python()).await.unwrap();
        let said = say(&host, &id, &format!("x = {round}\nprint(x * 2)")).await;
        assert_eq!(said, (round * 2).to_string());
        // Forked and not started: it has the command line of the interpreter that it was forked
        // from.
        let pid = host.session(&id).unwrap().pid.unwrap();
        let words = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap();
        let has_driver = String::from_utf8_lossy(&words).contains("_fdguard_drive(3, b'");
        assert!(!has_driver, "it was started cold");
        if round == 3 {
            let receipt = host.reset(&id).await.unwrap();
            assert_eq!(receipt.survivors, Some(0));
            let done = exec(&host, &id, "x").await;
            assert_eq!(done.outcome, ExecOutcome::Exited { status: 1 }, "{done:?}");
        }
        assert_clean(&host.close(&id, SessionEndReason::Asked).await.unwrap());
    }
    assert_eq!(baseline(&host), before);
    host.shut_down().await;
    assert_eq!(host.health().children, Some(0));
    drop(host);
    eventually("all is released", || descriptors().is_subset(&start_of_all)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_warm_interpreter_that_cannot_keep_sessions_is_no_obstacle() {
    let mut options = options();
    options.warm_python = true;
    options.keeper_program = Some("/bin/false".into());
    let host = start(options).await;
    let is_ready = || host.health().warm.is_some_and(|warm| warm.ready);
    eventually("it is warm", is_ready).await;
    let id = host.open(None, python()).await.unwrap();
    assert_eq!(say(&host, &id, "print(6 * 7)").await, "42");
    assert_clean(&host.close(&id, SessionEndReason::Asked).await.unwrap());
    host.shut_down().await;
    assert_eq!(host.health().children, Some(0));
}
