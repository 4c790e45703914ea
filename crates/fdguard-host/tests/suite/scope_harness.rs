//! Scopes for tests, with real processes, files and sessions.

use std::ffi::OsString;
use std::fs;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fdguard_host::host::Host;
use fdguard_host::scope::{
    CleanUp, Kind, ResourceOutcome, Scope, ScopeContext, ScopeEvent, ScopeObserver, ScopeSpec,
};
use fdguard_host::session::Exec;
use fdguard_process::plan::Plan;
use rustix::pipe::{PipeFlags, pipe_with};

pub(crate) use super::host_harness::eventually as until;

/// Longer than anything takes on the busiest machine.
pub(crate) const LONG: Duration = Duration::from_secs(60);

/// A directory, and the context of scopes in it.
pub(crate) struct Ground {
    pub(crate) dir: tempfile::TempDir,
    host: Mutex<Option<Host>>,
    pub(crate) events: Arc<Mutex<Vec<ScopeEvent>>>,
}

impl Ground {
    pub(crate) fn new() -> Self {
        Self {
            dir: tempfile::tempdir().expect("a folder"),
            host: Mutex::default(),
            events: Arc::default(),
        }
    }

    /// With a host that may have this many sessions.
    pub(crate) async fn with_host(max_sessions: usize) -> (Self, Host) {
        let ground = Self::new();
        let mut options = super::host_harness::options();
        options.max_sessions = max_sessions;
        let host = Host::start(options).await.expect("a host");
        *ground.host.lock().unwrap() = Some(host.clone());
        (ground, host)
    }

    pub(crate) fn means(&self) -> ScopeContext {
        let events = Arc::clone(&self.events);
        ScopeContext {
            host: self.host.lock().unwrap().clone(),
            registry: None,
            wills: None,
            roots: None,
            observer: ScopeObserver::new(move |event| events.lock().unwrap().push(event.clone())),
        }
    }

    pub(crate) fn spec(&self) -> ScopeSpec {
        ScopeSpec {
            name: "agent".to_owned(),
            root: self.dir.path().to_owned(),
            client: None,
            archive_to: None,
        }
    }

    pub(crate) fn scope(&self) -> Scope {
        Scope::new(self.spec(), Arc::new(self.means())).expect("a scope")
    }

    pub(crate) fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.dir.path().join(name);
        fs::write(&path, text).expect("a file");
        path
    }

    pub(crate) fn closed_events(&self) -> Vec<Arc<CleanUp>> {
        let events = self.events.lock().unwrap();
        let closed = events.iter().filter_map(|event| match event {
            ScopeEvent::Closed(clean_up) => Some(Arc::clone(clean_up)),
            _ => None,
        });
        closed.collect()
    }
}

/// A plan for this command with a small environment.
pub(crate) fn plan(command: &[&str]) -> Plan {
    let path: OsString = std::env::var_os("PATH").unwrap_or_default();
    let command = command.iter().map(OsString::from).collect();
    Plan::new(command, vec![("PATH".into(), path)])
}

/// Lets a session's program end by itself, and waits until the host has noticed.
pub(crate) async fn leave(host: &Host, id: &str) {
    // It has no answer: the program is gone.
    drop(host.exec(id, Exec::new("exit 0"), None).await);
    until("the session is gone", || host.session(id).is_err()).await;
}

/// A plan for a line of shell.
pub(crate) fn shell(script: &str) -> Plan {
    plan(&["bash", "-c", script])
}

/// The plan with its standard output in a pipe.
pub(crate) fn heard(mut plan: Plan) -> (Plan, fs::File) {
    let (ours, theirs) = pipe_with(PipeFlags::CLOEXEC).expect("a pipe");
    plan.stdio[1] = Some(Arc::new(theirs));
    (plan, fs::File::from(ours))
}

/// The next line, read without blocking the runtime.
pub(crate) async fn line(out: &fs::File) -> String {
    use std::io::Read as _;
    let mut out = out.try_clone().expect("a copy");
    let read = move || {
        let mut line = Vec::new();
        let mut byte = [0];
        while out.read(&mut byte).expect("a byte") == 1 && byte != *b"\n" {
            line.push(byte[0]);
        }
        String::from_utf8(line).expect("text")
    };
    let line = tokio::task::spawn_blocking(read);
    tokio::time::timeout(LONG, line)
        .await
        .expect("a line in time")
        .expect("a line")
}

/// An unrelated process that runs until it is ended.
pub(crate) fn stranger(environment: &[(String, String)]) -> Child {
    let own = environment.iter().map(|(name, value)| (name, value));
    Command::new("sleep")
        .arg("1000")
        .envs(own)
        .stdin(Stdio::null())
        .spawn()
        .expect("a process")
}

/// Whether a process lives and is not a zombie.
pub(crate) fn lives(pid: u32) -> bool {
    fdguard_proc::process::stat(pid, |stat| !stat.is_zombie()).unwrap_or(false)
}

/// The outcome of the only resource of this kind.
pub(crate) fn only(clean_up: &CleanUp, kind: Kind) -> &ResourceOutcome {
    let mut all = clean_up.resources.iter().filter(|it| it.kind == kind);
    let first = all
        .next()
        .unwrap_or_else(|| panic!("no {kind:?} in {clean_up:#?}"));
    assert!(all.next().is_none(), "more than one {kind:?}");
    first
}

/// The outcome of a file.
pub(crate) fn of_file<'a>(clean_up: &'a CleanUp, name: &str) -> &'a ResourceOutcome {
    let found = clean_up.resources.iter().find(|it| it.name == name);
    found.unwrap_or_else(|| panic!("no {name} in {clean_up:#?}"))
}

/// Descriptors of this process.
pub(crate) fn descriptors() -> usize {
    fs::read_dir("/proc/self/fd").expect("/proc").count()
}

/// Children of this process, zombies too.
pub(crate) fn children() -> usize {
    fdguard_proc::process::children(std::process::id()).len()
}

/// Threads of this process.
pub(crate) fn threads() -> usize {
    fs::read_dir("/proc/self/task").expect("/proc").count()
}

/// A connected pair of sockets.
pub(crate) fn pair() -> (OwnedFd, std::os::unix::net::UnixStream) {
    let (ours, theirs) = std::os::unix::net::UnixStream::pair().expect("a pair");
    (ours.into(), theirs)
}
