//! The journal of a scope while it is open.

use std::fs;
use std::sync::Arc;

use fdguard_host::scope::{
    CloseLimits, CloseReason, FileEnd, Journals, ProgramLaunch, ResourceRole, Scopes,
};

use super::scope_harness::{Ground, until};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_will_is_there_while_its_scope_is_and_a_living_host_leaves_none() {
    let ground = Ground::new();
    let state = tempfile::tempdir().unwrap();
    let mut means = ground.means();
    means.wills = Some(Journals::make(state.path()).unwrap());
    let scopes = Scopes::new(means);
    let scope = scopes.create(ground.spec()).unwrap();
    let kept = scope.take_file("kept".as_ref(), FileEnd::Delete).unwrap();
    scope.take_log(&ground.file("log", "x\n")).unwrap();
    scope.release(kept).unwrap();
    let dir = state.path().join("scopes");
    let text = fs::read_to_string(dir.join(format!("{}.jsonl", scope.id()))).unwrap();
    assert_eq!(text.lines().count(), 4, "{text}");
    // The scope belongs to this live host.
    assert!(scopes.inherit(|_| true).await.is_empty());
    assert_eq!(Journals::unfinished(state.path()), []);
    let clean_up = scope
        .close(CloseReason::Asked, CloseLimits::default())
        .await;
    assert!(clean_up.success, "{clean_up:#?}");
    assert_eq!(fs::read_dir(&dir).unwrap().count(), 0);
    drop(scopes);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_will_that_cannot_be_written_is_told_and_stops_nothing() {
    let ground = Ground::new();
    let state = tempfile::tempdir().unwrap();
    let mut means = ground.means();
    means.wills = Some(Journals::make(state.path()).unwrap());
    fs::remove_dir(state.path().join("scopes")).unwrap();
    let scopes = Scopes::new(means);
    let scope = scopes.create(ground.spec()).unwrap();
    let told = format!("{:?}", ground.events.lock().unwrap());
    assert!(
        told.contains("Will") && told.contains("No such file"),
        "{told}"
    );
    scope.take_log(&ground.file("log", "x\n")).unwrap();
    let clean_up = scope
        .close(CloseReason::Asked, CloseLimits::default())
        .await;
    assert!(clean_up.success, "{clean_up:#?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_program_that_is_asked_for_by_words_prints_into_a_log_of_the_scope() {
    let ground = Ground::new();
    let scope = Arc::new(ground.scope());
    let launch = |command: &[&str], log: Option<&str>| ProgramLaunch {
        command: command.iter().map(|&word| word.to_owned()).collect(),
        environment: [("WORD".to_owned(), "said".to_owned())].into(),
        log: log.map(Into::into),
        role: ResourceRole::Main,
    };
    let words = ["sh", "-c", "echo $WORD in $PWD; exec sleep 1000"];
    let taken = scope.launch(launch(&words, Some("log"))).await.unwrap();
    assert!(taken.pid.is_some());
    let dir = ground.dir.path().canonicalize().unwrap();
    let expected = format!("said in {}\n", dir.display());
    until("its words", || {
        fs::read_to_string(dir.join("log")).is_ok_and(|text| text == expected)
    })
    .await;
    for command in [&[][..], &[""], &["a\0b"], &["/no/such/program"]] {
        scope.launch(launch(command, None)).await.unwrap_err();
    }
    for log in ["../out", "/etc/out", "."] {
        scope
            .launch(launch(&["true"], Some(log)))
            .await
            .unwrap_err();
    }
    rustix::fs::mknodat(
        rustix::fs::CWD,
        dir.join("pipe"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o600),
        0,
    )
    .unwrap();
    scope
        .launch(launch(&["true"], Some("pipe")))
        .await
        .unwrap_err();
    let clean_up = scope
        .close(CloseReason::Asked, CloseLimits::default())
        .await;
    assert!(clean_up.success, "{clean_up:#?}");
    assert!(!dir.join("log").exists());
    let archived = fs::read_to_string(dir.join("archive/log")).unwrap();
    assert_eq!(archived, expected);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_program_that_stops_its_keeper_again_and_again_is_ended_with_its_scope() {
    let ground = Ground::new();
    let scope = ground.scope();
    let script = "trap '' TERM; while :; do kill -STOP $PPID; sleep 0.01; done";
    let launch = ProgramLaunch {
        command: ["sh", "-c", script].map(str::to_owned).to_vec(),
        environment: [].into(),
        log: None,
        role: ResourceRole::Main,
    };
    scope.launch(launch).await.unwrap();
    let clean_up = scope
        .close(CloseReason::Asked, CloseLimits::default())
        .await;
    assert!(clean_up.success, "{clean_up:#?}");
}
