//! The server under test: launched under the tracer, or already running.

use std::os::fd::OwnedFd;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use fdguard_core::glob::Glob;
use fdguard_core::proof::process::LeftoverProcess;
use fdguard_core::{Gap, Pid};
use fdguard_probe::Probe;
use fdguard_process::signals::Signals;
use fdguard_trace::{AttachedTrace, Options, StateParts, TraceSession, TraceState, TracedCommand};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{PidfdFlags, Signal, kill_process_group, pidfd_open};

use super::super::family::Family;
use super::super::start;
use super::super::whole::limited;
use super::Plan;
use super::tee::Tee;
use crate::cli::{LeaveArgs, ReadyArg};
use crate::command::trace::{attach, source};
use crate::exit;
use crate::progress::ProgressLine;

/// How long a server may take to end after a request to stop.
const GRACE: Duration = Duration::from_secs(5);

/// A server.
#[derive(Debug)]
pub(super) enum Server {
    /// Started by this check.
    Launched(Box<LaunchedServer>),
    /// Already running.
    Attached(Box<RunningServer>),
}

/// A server that was already running; dropping it detaches from it.
#[derive(Debug)]
pub(super) struct RunningServer {
    pid: Pid,
    /// The trace of its processes; `None` if it refused.
    traced: Option<AttachedTrace>,
    /// Why its lines are unknown, then.
    refused: Option<Gap>,
}

impl RunningServer {
    /// Attaches to a server and its children, if they allow it. A signal is an error.
    pub(super) fn attach(
        probe: &Probe,
        pid: Pid,
        (no_inspector, is_why): (bool, bool),
        signals: &Signals,
    ) -> anyhow::Result<Self> {
        let tree = probe.tree(pid).unwrap_or_else(|_| vec![pid]);
        let options = Options {
            keep_ended: true,
            no_inspector,
            users: is_why,
            ..Options::default()
        };
        match attach::attach_to(&tree, &options, signals) {
            Ok(traced) => Ok(Self {
                pid,
                traced: Some(traced),
                refused: None,
            }),
            Err(error) if exit::is_signalled(&error) => Err(error),
            Err(error) => Ok(Self {
                pid,
                traced: None,
                refused: Some(attach::error_gap(&error)),
            }),
        }
    }
}

/// A server started by this check; dropping it ends the server.
#[derive(Debug)]
pub(super) struct LaunchedServer {
    pub(super) traced: TracedCommand,
    pub(super) tee: Tee,
    family: Family,
    handle: Option<OwnedFd>,
    has_ended: bool,
}

impl Server {
    pub(super) fn pid(&self) -> Pid {
        match self {
            Self::Launched(one) => one.traced.pid(),
            Self::Attached(one) => one.pid,
        }
    }

    /// What its processes hold, by line, and its hazards; `None` if it is not traced.
    pub(super) fn state(&mut self) -> anyhow::Result<Option<TraceState>> {
        let Some(session) = self.session() else {
            return Ok(None);
        };
        session.poll()?;
        Ok(Some(session.state(StateParts {
            hazards: true,
            ..StateParts::OPEN
        })))
    }

    /// Its trace; `None` if it could not be attached to.
    pub(super) fn session(&mut self) -> Option<&mut TraceSession> {
        match self {
            Self::Launched(one) => Some(&mut one.traced.session),
            Self::Attached(one) => one.traced.as_mut().map(|traced| &mut traced.session),
        }
    }

    /// Why its lines are unknown, if they are.
    pub(super) fn refused(&self) -> Option<Gap> {
        match self {
            Self::Launched(_) => None,
            Self::Attached(one) => one.refused.clone(),
        }
    }

    /// Detaches from a server that was already running: it has been seen enough.
    pub(super) fn leave(&self) {
        if let Self::Attached(one) = self {
            one.traced.iter().for_each(attach::leave);
        }
    }

    pub(super) fn launched(&mut self) -> Option<&mut LaunchedServer> {
        match self {
            Self::Launched(one) => Some(one),
            Self::Attached(_) => None,
        }
    }
}

impl LaunchedServer {
    pub(super) fn start(
        plan: &Plan,
        is_why: bool,
        progress: &ProgressLine,
    ) -> anyhow::Result<Self> {
        let (command, limit, ready) = (&plan.command, plan.limit, plan.ready.as_ref());
        let mut family = Family::start()?;
        let options = Options {
            keep_ended: true,
            as_server: true,
            users: is_why,
            ..Options::default()
        };
        let mut traced = limited(limit, || Ok(TracedCommand::launch(command, &options)?))?;
        source::announce(&traced);
        family.follow(traced.pid())?;
        let mut streams: Vec<(
            Box<dyn std::io::Read + Send>,
            Box<dyn std::io::Write + Send>,
        )> = Vec::new();
        if let Some((out, err)) = traced.take_output() {
            streams.push((Box::new(out), Box::new(progress.around(std::io::stdout()))));
            streams.push((Box::new(err), Box::new(progress.around(std::io::stderr()))));
        }
        let line = match ready {
            Some(ReadyArg::Line(regex)) => Some(&**regex),
            _ => None,
        };
        let handle = raw(traced.pid()).and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
        Ok(Self {
            tee: Tee::start(streams, line)?,
            traced,
            family,
            handle,
            has_ended: false,
        })
    }

    /// Whether it has ended, waiting at most this long.
    pub(super) fn has_ended(&self, within: Duration) -> bool {
        let Some(handle) = &self.handle else {
            std::thread::sleep(within);
            return false;
        };
        let timeout = Timespec::try_from(within).unwrap_or_default();
        let mut fds = [PollFd::new(handle, PollFlags::IN)];
        poll(&mut fds, Some(&timeout)).is_ok_and(|ready| ready > 0)
    }

    /// Ends it with its whole group: SIGTERM, wait, SIGKILL.
    pub(super) fn end(&mut self) -> anyhow::Result<ExitStatus> {
        // Not reaped yet, so pid and group cannot have been reused.
        let group = raw(self.traced.pid()).filter(|_| !self.has_ended);
        if let Some(group) = group {
            // It may have ended by itself.
            let _ = kill_process_group(group, Signal::TERM);
            let deadline = Instant::now() + GRACE;
            while !self.has_ended(deadline.saturating_duration_since(Instant::now())) {
                if Instant::now() >= deadline {
                    let _ = kill_process_group(group, Signal::KILL);
                    break;
                }
            }
        }
        let status = self.traced.wait()?;
        self.has_ended = true;
        self.tee.finish();
        Ok(status)
    }

    /// Processes that outlived the server.
    pub(super) fn left(&mut self, leave: &LeaveArgs, allowed: &[Glob]) -> Vec<LeftoverProcess> {
        start::left(&mut self.family, leave, allowed, &mut self.traced.session)
    }
}

impl Drop for LaunchedServer {
    fn drop(&mut self) {
        if !self.has_ended {
            // Nothing more can be done here.
            drop(self.end());
            drop(self.family.left(Duration::ZERO, false, &[]));
        }
    }
}

fn raw(pid: Pid) -> Option<rustix::process::Pid> {
    i32::try_from(pid)
        .ok()
        .and_then(rustix::process::Pid::from_raw)
}
