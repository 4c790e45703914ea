//! Shared by the tests of the host.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use fdguard_host::host::{Events, Host, HostHealth, Options};
use fdguard_host::receipt::Receipt;
use fdguard_host::session::{Channel, Exec, ExecOutcome, ExecResult, SessionProgram, SessionSpec};

/// Longer than anything takes on a loaded machine.
pub(super) const LONG: Duration = Duration::from_secs(60);

/// A bash on a terminal.
pub(super) fn bash() -> SessionSpec {
    let mut spec = SessionSpec::new(SessionProgram::Bash);
    spec.ready_within = LONG;
    spec
}

/// A bash on pipes.
pub(super) fn bash_on_pipes() -> SessionSpec {
    let mut spec = bash();
    spec.channel = Channel::Pipes;
    spec
}

/// A spec whose program does not exist.
pub(super) fn missing() -> SessionSpec {
    let mut spec = bash();
    spec.dir = Some("/no/such/folder".into());
    spec
}

/// Times that do not disturb a test; each test changes those that it is about.
pub(super) fn options() -> Options {
    let mut options = Options::default();
    options.warm_python = false;
    options.raise_limit = None;
    options
}

pub(super) async fn start(options: Options) -> Host {
    Host::start(options).await.unwrap()
}

/// Runs a command that must end by itself with status 0, and returns its output.
pub(super) async fn say(host: &Host, id: &str, code: &str) -> String {
    let done = exec(host, id, code).await;
    assert_eq!(done.outcome, ExecOutcome::Exited { status: 0 }, "{done:?}");
    done.stdout.text.trim().to_owned()
}

pub(super) async fn exec(host: &Host, id: &str, code: &str) -> ExecResult {
    host.exec(id, Exec::new(code), None).await.unwrap()
}

/// Nothing of the session is left.
pub(super) fn assert_clean(receipt: &Receipt) {
    assert_eq!(
        (
            receipt.clean,
            receipt.survivors,
            receipt.zombies,
            receipt.descriptors_left
        ),
        (true, Some(0), Some(0), 0),
        "{receipt:?}"
    );
}

/// Polls until the condition holds; `testkit::wait_until` for tests on the runtime.
pub(crate) async fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + LONG;
    while !holds() {
        assert!(Instant::now() < deadline, "not in time: {what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// Events as lines.
#[derive(Clone, Default)]
pub(super) struct Lines(Arc<Mutex<Vec<String>>>);

impl Lines {
    pub(super) fn events(&self) -> Events {
        let lines = self.clone();
        Events::to(move |event| lines.0.lock().unwrap().push(event.line()))
    }

    /// Events that begin with this.
    pub(super) fn of(&self, event: &str) -> Vec<String> {
        let start = format!("fdguard_event event={event} ");
        let lines = self.0.lock().unwrap();
        let these = lines.iter().filter(|line| line.starts_with(&start));
        these.cloned().collect()
    }
}

/// The state that must be the same before and after: descriptors by target (reserved ones may
/// change their numbers), children, zombies.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Baseline {
    descriptors: Vec<PathBuf>,
    children: Option<u64>,
    zombies: Option<u64>,
}

pub(super) fn baseline(host: &Host) -> Baseline {
    let health: HostHealth = host.health();
    Baseline {
        descriptors: targets(),
        children: health.children,
        zombies: health.zombies,
    }
}

/// The open descriptor numbers of this process, without the one that reads them.
pub(super) fn descriptors() -> BTreeSet<u32> {
    let list = fs::read_dir("/proc/self/fd").unwrap();
    let open = list.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let open: BTreeSet<u32> = open.collect();
    let still = |number: &u32| fs::symlink_metadata(format!("/proc/self/fd/{number}")).is_ok();
    open.into_iter().filter(still).collect()
}

/// The targets of this process's open descriptors: sockets and pipes by their inodes.
fn targets() -> Vec<PathBuf> {
    let link = |number: u32| fs::read_link(format!("/proc/self/fd/{number}")).ok();
    let mut targets: Vec<_> = descriptors().into_iter().filter_map(link).collect();
    targets.sort();
    targets
}

/// Whether a process lives: neither gone nor a zombie.
pub(super) fn lives(pid: u32) -> bool {
    fdguard_proc::process::stat(pid, |stat| !stat.is_zombie()).unwrap_or(false)
}
