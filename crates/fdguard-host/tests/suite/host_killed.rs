//! A host that is killed at random points leaves no process.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use fdguard_files::registry::{Kind, Registry, RowFilter, RowState};
use fdguard_host::receipt::SessionEndReason;
use fdguard_host::session::Exec;
use fdguard_proc::ProcessId;

use super::host_harness::{bash, options, start};

/// In the environment of the killed host and of everything that it starts.
const MARK: &str = "FDGUARD_TEST_KILLED_HOST";

/// The state directory of the killed host.
const STATE: &str = "FDGUARD_TEST_KILLED_HOST_STATE";

/// The host that is killed: this binary run again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a role that another test starts"]
async fn a_host_that_works_until_it_is_killed() {
    if std::env::var_os(MARK).is_none() {
        return testkit::skip("no role was given");
    }
    let mut options = options();
    options.state = std::env::var_os(STATE).map(Into::into);
    let host = start(options).await;
    let work = async |kind: usize| {
        for round in 0.. {
            let id = host.open(None, bash()).await.unwrap();
            let code = match (kind + round) % 3 {
                0 => "setsid sleep 100 & (setsid sh -c 'trap \"\" TERM HUP; sleep 100' &)",
                1 => "sleep 100 & sleep 0.02",
                _ => "echo \"$BASHPID\"",
            };
            host.exec(&id, Exec::new(code), None).await.unwrap();
            if round % 2 == 0 {
                host.close(&id, SessionEndReason::Asked).await.unwrap();
            } else if round > 9 {
                let first = host.sessions().remove(0).id;
                // Another worker may have been faster.
                let _closed = host.close(&first, SessionEndReason::Asked).await;
            }
        }
    };
    tokio::join!(work(0), work(1), work(2));
}

fn begin(mark: &str, state: &Path) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args([
            "--ignored",
            "--exact",
            "suite::host_killed::a_host_that_works_until_it_is_killed",
        ])
        .arg("--nocapture")
        .env(MARK, mark)
        .env(STATE, state)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// Live processes with the mark in their environment.
fn marked(mark: &str) -> Vec<u32> {
    let wanted = format!("{MARK}={mark}");
    let pids = fs::read_dir("/proc").unwrap();
    let pids = pids.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
    let has_it = |pid: &u32| {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        let mut variables = environment.split(|byte| *byte == 0);
        variables.any(|variable| variable == wanted.as_bytes())
    };
    pids.filter(has_it).collect()
}

/// Kills a host after it has worked for this long; returns how many processes there were.
fn kill_after(work: Duration, mark: &str, state: &Path) -> usize {
    let mut host = begin(mark, state);
    testkit::wait_until("it works", || marked(mark).len() >= 3);
    std::thread::sleep(work);
    let there = marked(mark).len();
    host.kill().unwrap();
    host.wait().unwrap();
    testkit::wait_until("no process is left", || marked(mark).is_empty());
    there
}

/// The code that a session runs to stop its keeper before the host is killed.
const HOLDS: &str = "FDGUARD_TEST_HOLDS";

/// The host that is killed: this binary run again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a role that another test starts"]
async fn a_host_whose_session_holds_its_keeper() {
    let Ok(code) = std::env::var(HOLDS) else {
        return testkit::skip("no role was given");
    };
    let mut options = options();
    options.state = std::env::var_os(STATE).map(Into::into);
    let host = start(options).await;
    let id = host.open(None, bash()).await.unwrap();
    host.exec(&id, Exec::new(code), None).await.unwrap();
    println!("holds");
    std::future::pending::<()>().await;
}

/// Regression: the whole tree survived, and the next host with the same state killed nothing.
#[tokio::test]
async fn what_a_killed_host_left_behind_a_held_keeper_is_ended_by_the_next() {
    let codes = [
        "(setsid sleep 100 &); kill -STOP $PPID",
        "(setsid sleep 100 &); (while :; do kill -STOP $PPID; done) & sleep 0.1",
        // Its program is gone, and its stopped keeper cannot report it.
        "(setsid sleep 100 &); (trap '' HUP TERM; while :; do kill -STOP $PPID; done) & disown; kill -9 $$",
    ];
    for (number, code) in codes.into_iter().enumerate() {
        let dir = tempfile::tempdir().unwrap();
        let mark = format!("{}-held-{number}", std::process::id());
        let mut host = Command::new(std::env::current_exe().unwrap())
            .args([
                "--ignored",
                "--exact",
                "suite::host_killed::a_host_whose_session_holds_its_keeper",
                "--nocapture",
            ])
            .envs([(MARK, mark.as_str()), (HOLDS, code)])
            .env(STATE, dir.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(host.stdout.as_mut().unwrap()).lines();
        assert!(lines.any(|line| line.unwrap().contains("holds")), "{code}");
        host.kill().unwrap();
        host.wait().unwrap();
        let mut options = options();
        options.state = Some(dir.path().to_owned());
        let next = start(options).await;
        testkit::wait_until(code, || marked(&mark).is_empty());
        assert!(next.reconcile(false).await.unwrap().left.is_empty());
        next.shut_down().await;
    }
}

#[tokio::test]
async fn r31_hosts_that_are_killed_at_random_points_leave_no_process_and_the_next_one_knows() {
    // Most of the time is the grace period of keepers whose owner is gone: five wait in parallel.
    let dirs: Vec<_> = (0..5).map(|_| tempfile::tempdir().unwrap()).collect();
    let rounds = |lane: u64, state: &Path| {
        let round = |round: u64| {
            let mark = format!("{}-{lane}-{round}", std::process::id());
            kill_after(Duration::from_millis((lane * 2 + round) * 30), &mark, state)
        };
        round(0).max(round(1))
    };
    let most = std::thread::scope(|scope| {
        let lanes = (0..5).zip(&dirs);
        let lanes = lanes.map(|(lane, dir)| scope.spawn(move || rounds(lane, dir.path())));
        let lanes: Vec<_> = lanes.collect();
        lanes.into_iter().map(|lane| lane.join().unwrap()).max()
    });
    assert!(
        most > Some(5),
        "nothing to be left was ever there: {most:?}"
    );
    for dir in &dirs {
        assert_reconciled(dir.path()).await;
    }
}

/// The next host ends the entries of two killed ones, and has its own.
async fn assert_reconciled(dir: &Path) {
    let mut options = options();
    options.state = Some(dir.to_owned());
    let host = start(options).await;
    let registry = Registry::open(&dir.join("registry.db")).unwrap();
    let open = registry.list(&RowFilter::open()).unwrap();
    assert_eq!(open.len(), 1, "{open:?}");
    assert_eq!(open[0].process, ProcessId::current().ok());
    let failed = RowFilter {
        states: vec![RowState::Failed],
        ..RowFilter::default()
    };
    let failed = registry.list(&failed).unwrap();
    assert!(
        failed.iter().any(|row| row.kind == Kind::Session),
        "{failed:?}"
    );
    let hosts = failed.iter().filter(|row| row.kind == Kind::Host);
    let reasons: Vec<_> = hosts.map(|row| row.reason.as_deref()).collect();
    assert_eq!(reasons, [Some("host_gone"), Some("host_gone")]);
    host.shut_down().await;
}
