//! The cleanup daemon of a host: it judges the status of agents and cleans up after those that
//! ended or are idle.
//!
//! One daemon runs per state directory: it holds a lock there that names it, and writes a heartbeat
//! that anyone can check ([`heartbeat::is_stale`]). It accesses files only below the root of each
//! scope. Each step has a time limit; a step that exceeds it gets code 124, and the daemon
//! continues.

pub mod heartbeat;
mod judge;
mod look;
mod marker;
mod scan;
mod step;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use fdguard_files::LockFile;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

pub use judge::{
    AgentFacts, AgentRules, AgentStatus, MainResource, ReasonCode, due, unhealthy, verdict,
};
pub use marker::{LastEntry, parse as last_entry};
pub use scan::{AgentVerdict, CleanedScope, ScanKind, ScopeScan};
pub use step::{DaemonStep, TOO_LONG, limited};

use super::{CloseLimits, ScopeEvent, Scopes};
use crate::Error;
use scan::Scanner;

/// The heartbeat file in the state directory.
pub const HEARTBEAT: &str = "cleanup-daemon.heartbeat";
/// The lock file in the state directory.
pub const LOCK: &str = "cleanup-daemon.lock";

/// The schedule of the daemon.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Options {
    /// The directory of the heartbeat and the lock.
    pub state: PathBuf,
    /// From one clean-up scan to the next.
    pub clean_every: Duration,
    /// From one health scan to the next.
    pub health_every: Duration,
    /// When something is too long.
    pub rules: AgentRules,
    /// How long each step may take.
    pub limits: DaemonLimits,
    /// How long to wait for another daemon to end.
    pub lock_wait: Duration,
    /// How scopes are closed.
    pub how: CloseLimits,
}

/// How long steps may take.
#[derive(Clone, Copy, Debug)]
pub struct DaemonLimits {
    /// Looking at sessions and processes.
    pub look: Duration,
    /// Reading the ends of logs.
    pub read: Duration,
    /// Looking at files, and closing scopes.
    pub files: Duration,
}

impl Options {
    /// Clean-up every 60 s, health every 30 s, stuck after 900 s, idle after 110 min, steps of 10,
    /// 30 and 60 s.
    #[must_use]
    pub fn new(state: PathBuf) -> Self {
        Self {
            state,
            clean_every: Duration::from_secs(60),
            health_every: Duration::from_secs(30),
            rules: AgentRules {
                stuck_after: Duration::from_secs(900),
                idle_after: Duration::from_secs(110 * 60),
            },
            limits: DaemonLimits {
                look: Duration::from_secs(10),
                read: Duration::from_secs(30),
                files: Duration::from_secs(60),
            },
            lock_wait: Duration::ZERO,
            how: CloseLimits::default(),
        }
    }

    fn check(&self) -> Result<(), Error> {
        let DaemonLimits { look, read, files } = self.limits;
        let times = [self.clean_every, self.health_every, look, read, files];
        if times.iter().any(Duration::is_zero) {
            let text = "intervals and limits of the cleanup daemon must be greater than 0";
            return Err(Error::Bad(text.to_owned()));
        }
        Ok(())
    }
}

/// The daemon. When dropped, it ends after its current step.
#[derive(Debug)]
pub struct Daemon {
    end: CancellationToken,
    task: Option<JoinHandle<()>>,
    last: watch::Receiver<Option<Arc<ScopeScan>>>,
}

impl Daemon {
    /// Starts it on the current runtime. If another one runs, the error names it.
    pub async fn start(scopes: Scopes, options: Options) -> Result<Self, Error> {
        options.check()?;
        let (path, wait) = (options.state.join(LOCK), options.lock_wait);
        let lock = tokio::task::spawn_blocking(move || LockFile::acquire(&path, wait)).await;
        let lock = lock.map_err(|error| Error::Bad(error.to_string()))??;
        let path = options.state.join(HEARTBEAT);
        heartbeat::write(&path, SystemTime::now())
            .map_err(Error::io("cannot write the heartbeat"))?;
        let end = CancellationToken::new();
        let (tell, last) = watch::channel(None);
        let work = Loop {
            scanner: Arc::new(Scanner::new(scopes, options)),
            tell,
            heartbeat: path,
            _lock: lock,
        };
        Ok(Self {
            task: Some(tokio::spawn(work.run(end.clone()))),
            end,
            last,
        })
    }

    /// The result of the last scan; changes with each scan.
    #[must_use]
    pub fn scans(&self) -> watch::Receiver<Option<Arc<ScopeScan>>> {
        self.last.clone()
    }

    /// Ends it after the step that it is at, and waits for that.
    pub async fn stop(mut self) {
        self.end.cancel();
        if let Some(task) = self.task.take() {
            drop(task.await);
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.end.cancel();
    }
}

struct Loop {
    scanner: Arc<Scanner>,
    tell: watch::Sender<Option<Arc<ScopeScan>>>,
    heartbeat: PathBuf,
    _lock: LockFile,
}

impl Loop {
    async fn run(self, end: CancellationToken) {
        let (health, clean) = self.scanner.intervals();
        let start = Instant::now();
        let (mut next_health, mut next_clean) = (start + health, start + clean);
        loop {
            let next = next_health.min(next_clean);
            tokio::select! {
                () = end.cancelled() => break,
                () = tokio::time::sleep_until(next) => {}
            }
            // A missed scan is not made up for.
            if Instant::now() >= next_health {
                self.scan(ScanKind::Health).await;
                next_health = Instant::now() + health;
            }
            if Instant::now() >= next_clean && !end.is_cancelled() {
                self.scan(ScanKind::CleanUp).await;
                next_clean = Instant::now() + clean;
            }
        }
        // A missing file means that no daemon is expected.
        let path = self.heartbeat.clone();
        drop(tokio::task::spawn_blocking(move || std::fs::remove_file(path)).await);
        // The lock's file is removed by its drop: that is I/O, too.
        drop(tokio::task::spawn_blocking(move || drop(self)).await);
    }

    async fn scan(&self, kind: ScanKind) {
        let scanner = Arc::clone(&self.scanner);
        let work = tokio::spawn(async move { scanner.scan(kind).await });
        let mut scan = match work.await {
            Ok(scan) => scan,
            Err(error) => ScopeScan::broken(kind, &error),
        };
        let path = self.heartbeat.clone();
        let beat = move || heartbeat::write(&path, SystemTime::now());
        let beaten = tokio::task::spawn_blocking(beat).await;
        let failed = beaten.map_err(std::io::Error::other).and_then(|it| it);
        if let Err(error) = failed {
            scan.errors
                .push(format!("cannot write the heartbeat: {error}"));
        }
        let scan = Arc::new(scan);
        let observer = self.scanner.observer();
        observer.tell(&ScopeEvent::Scanned(Arc::clone(&scan)));
        self.tell.send_replace(Some(scan));
    }
}
