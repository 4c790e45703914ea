//! A host that is killed at random points leaves no process.

use std::fs;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use fdguard_host::receipt::Reason;
use fdguard_host::session::Exec;

use super::host_harness::{LONG, bash, options, start};

/// In the environment of the killed host and of everything that it starts.
const MARK: &str = "FDGUARD_TEST_KILLED_HOST";

/// The host that is killed: this binary once more. As a test of its own it does nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_that_works_until_it_is_killed() {
    if std::env::var_os(MARK).is_none() {
        return;
    }
    let host = start(options()).await;
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
                host.close(&id, Reason::Asked).await.unwrap();
            } else if round > 9 {
                let first = host.sessions().remove(0).id;
                // Another worker may have been faster.
                let _closed = host.close(&first, Reason::Asked).await;
            }
        }
    };
    tokio::join!(work(0), work(1), work(2));
}

fn begin(mark: &str) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "suite::host_killed::a_host_that_works_until_it_is_killed",
        ])
        .arg("--nocapture")
        .env(MARK, mark)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// Processes that live and have the mark in their environment.
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

#[test]
fn r31_a_host_that_is_killed_at_random_points_leaves_no_process() {
    let mut most = 0;
    for round in 0..10_u64 {
        let mark = format!("{}-{round}", std::process::id());
        let mut host = begin(&mark);
        // Once it works, at another moment each time.
        let deadline = Instant::now() + LONG;
        while marked(&mark).len() < 3 {
            assert!(Instant::now() < deadline, "it does not begin to work");
        }
        std::thread::sleep(Duration::from_millis(round * round * 4));
        most = most.max(marked(&mark).len());
        host.kill().unwrap();
        host.wait().unwrap();
        let deadline = Instant::now() + LONG;
        loop {
            let left = marked(&mark);
            if left.is_empty() {
                break;
            }
            assert!(Instant::now() < deadline, "left: {left:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    assert!(most > 5, "nothing to be left was ever there: {most}");
}
