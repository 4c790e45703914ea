//! Sessions for tests, and what this process holds.

use std::collections::BTreeSet;
use std::future::Future;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use fdguard_host::session::{
    Channel, Exec, ExecOutcome, ExecResult, Hub, Session, SessionProgram, SessionSpec,
};
use fdguard_proc::process;

pub(crate) use super::host_harness::eventually as until;

/// Runs a test on the runtime that the host has: two workers.
pub(crate) fn on_host_runtime<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .thread_keep_alive(Duration::from_millis(20))
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(work)
}

/// A session of this program on a terminal, with the hub that it talks through.
pub(crate) async fn open(program: SessionProgram) -> (Session, Arc<Hub>) {
    start(SessionSpec::new(program)).await
}

/// The same on pipes.
pub(crate) async fn open_on_pipes(program: SessionProgram) -> (Session, Arc<Hub>) {
    let mut spec = SessionSpec::new(program);
    spec.channel = Channel::Pipes;
    start(spec).await
}

pub(crate) async fn start(spec: SessionSpec) -> (Session, Arc<Hub>) {
    let hub = Hub::open().unwrap();
    let session = Session::start("test", spec, &hub).await.unwrap();
    (session, hub)
}

/// Runs a command with a limit of 30 seconds.
pub(crate) async fn run(session: &Session, code: &str) -> ExecResult {
    run_for(session, code, Duration::from_secs(30)).await
}

pub(crate) async fn run_for(session: &Session, code: &str, timeout: Duration) -> ExecResult {
    let mut command = Exec::new(code);
    command.timeout = timeout;
    session.exec(command, None).await.unwrap()
}

/// Runs a command that must end by itself; returns its status and its output.
pub(crate) async fn said(session: &Session, code: &str) -> (i32, String) {
    let done = run(session, code).await;
    match done.outcome {
        ExecOutcome::Exited { status } => (status, done.stdout.text),
        other => panic!("{other:?}: {done:?}"),
    }
}

/// This process's descriptor numbers, without the one used for reading them.
pub(crate) fn descriptors() -> BTreeSet<u32> {
    let entries = std::fs::read_dir("/proc/self/fd").unwrap();
    let numbers = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let numbers: Vec<u32> = numbers.map(|number| number.parse().unwrap()).collect();
    let is_open = |number: &u32| Path::new(&format!("/proc/self/fd/{number}")).exists();
    numbers.into_iter().filter(is_open).collect()
}

/// Threads of this process.
pub(crate) fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").unwrap().count()
}

/// Every descendant of this process, zombies included.
pub(crate) fn descendants() -> Vec<u32> {
    let parent = |pid| Some((pid, process::stat(pid, |stat| stat.ppid).ok()?));
    let parents: Vec<(u32, u32)> = process::pids().filter_map(parent).collect();
    let mut found = vec![std::process::id()];
    let mut index = 0;
    while let Some(parent) = found.get(index).copied() {
        found.extend(
            parents
                .iter()
                .filter(|(_, of)| *of == parent)
                .map(|(pid, _)| *pid),
        );
        index += 1;
    }
    found.split_off(1)
}

pub(crate) fn lives(pid: u32) -> bool {
    Path::new(&format!("/proc/{pid}")).exists()
}
