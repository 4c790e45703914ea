//! The start of a run.

use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Instant;

use fdguard_core::snapshot::Limits;
use fdguard_process::environment::last_of_each;
use fdguard_process::plan::{FIRST_HANDED, InheritedFd, Plan, SessionKind};
use fdguard_process::reserve::Reserve;
use fdguard_process::run_id::{self, RunId};
use fdguard_process::tree::{Exit, Options, StartError, Tree};
use rustix::fs::{Mode, OFlags};

use super::run::Run;
use super::{Service, State};
use crate::event::{EventSink, LogEvent};
use crate::health::HeartbeatPipe;
use crate::inject::Injector;
use crate::limit;
use crate::policy::EndCause;

/// What a service needs from the loop.
#[derive(Debug)]
pub(crate) struct Context<'c> {
    /// The event sink.
    pub(crate) sink: &'c mut EventSink,
    /// The time of this poll.
    pub(crate) now: Instant,
    /// The part of fdguard's environment that a program gets.
    pub(crate) environment: &'c [(OsString, OsString)],
    /// Whether the run ends with the program.
    pub(crate) once: bool,
    /// Whether a supervisor restarts fdguard.
    pub(crate) is_supervised: bool,
    /// Where evidence goes.
    pub(crate) evidence: Option<&'c std::path::Path>,
    /// Reserved descriptors for a start when the table is full.
    pub(crate) reserve: &'c mut Reserve,
    /// `/dev/null`, for reading and writing.
    pub(crate) null: &'c OwnedFd,
    /// The tracer or protection to inject.
    pub(crate) injector: Option<&'c mut (dyn Injector + 'static)>,
    /// The limits at the start of fdguard.
    pub(crate) limits: Limits,
}

impl Service<'_> {
    /// Starts the program.
    pub(super) fn start(&mut self, cx: &mut Context<'_>) {
        self.next_start = None;
        let begun = self.begin_checks(cx);
        let begun = begun.and_then(|pipe| self.plan(pipe, cx));
        let options = Options {
            reserve: Some(&mut *cx.reserve),
            ..Options::default()
        };
        match begun.and_then(|plan| Tree::start_with(&plan, options)) {
            Ok(tree) => self.started(tree, cx),
            Err(error) => self.not_started(&error, cx),
        }
    }

    fn begin_checks(&mut self, cx: &Context<'_>) -> Result<Option<HeartbeatPipe>, StartError> {
        let refused = |source| StartError::Refused {
            step: "cannot create the readiness pipe",
            source,
        };
        match &mut self.ready {
            Some(check) => check.start(cx.now).map_err(refused),
            None => Ok(None),
        }
    }

    fn plan(
        &mut self,
        pipe: Option<HeartbeatPipe>,
        cx: &mut Context<'_>,
    ) -> Result<Plan, StartError> {
        let mut handed = self.sockets.clone();
        handed.extend(self.store.handed());
        if let Some(pipe) = pipe {
            hand_pipe(&mut handed, pipe)?;
        }
        let group = if cx.once {
            SessionKind::Same
        } else {
            SessionKind::Session
        };
        Ok(Plan {
            command: self.settings.command.clone(),
            environment: self.environment(cx),
            dir: self.settings.dir.clone(),
            stdio: self.streams(cx),
            handed,
            soft_limit: limit::decide(self.settings.raise_limit, cx.limits).soft,
            group,
            cgroup: true,
            terminal: false,
            limits: fdguard_process::plan::TreeLimits::default(),
        })
    }

    fn environment(&mut self, cx: &mut Context<'_>) -> Vec<(OsString, OsString)> {
        let mut all = cx.environment.to_vec();
        all.extend(self.settings.environment.iter().cloned());
        if let Some(id) = RunId::own(self.name()) {
            all.push((run_id::VARIABLE.into(), id.to_string().into()));
        }
        if let Some(server) = self.server(cx) {
            all.push(("NOTIFY_SOCKET".into(), server));
            if let Some(within) = self.settings.watchdog {
                let micros = within.as_micros().to_string();
                all.push(("WATCHDOG_USEC".into(), micros.into()));
            }
        }
        let mut all = last_of_each(all);
        self.inject(&mut all, cx);
        all
    }

    /// The socket for notifications, which stays across restarts. Without it the program still
    /// runs, unless its readiness depends on it.
    fn server(&mut self, cx: &mut Context<'_>) -> Option<OsString> {
        if cx.once {
            return None;
        }
        if self.notify.is_none() {
            match fdguard_process::notify::NotifyServer::open() {
                Ok(server) => self.notify = Some(server),
                Err(error) => {
                    let event = LogEvent::for_service("notify_failed", self.name());
                    let text = format!("cannot create the notification socket: {error}");
                    cx.sink.emit(&event.with("text", text));
                }
            }
        }
        let server = self.notify.as_ref()?;
        Some(server.path().as_os_str().to_owned())
    }

    fn started(&mut self, tree: Tree, cx: &mut Context<'_>) {
        self.history.started(cx.now);
        let mut run = Run::new(tree, cx.now);
        if !cx.once {
            let event = LogEvent::for_service("start", self.name()).with("pid", run.main);
            let event = match self.restarts {
                0 => event.with("command", shown(&self.settings.command)),
                restarts => event.with("restarts", restarts),
            };
            cx.sink.emit(&event);
        }
        run.ready_until = self
            .ready
            .as_ref()
            .map(|_| cx.now + self.settings.ready_timeout);
        self.state = State::Starting;
        let main = run.main;
        self.run = Some(run);
        self.begin_thrift(main, cx);
        if self.ready.is_none() {
            self.is_ready(cx);
        }
    }

    fn not_started(&mut self, error: &StartError, cx: &mut Context<'_>) {
        self.end_injected(cx);
        let code = error.code().unwrap_or(125);
        let event =
            LogEvent::for_service("start_failed", self.name()).with("status", u32::from(code));
        cx.sink.emit(&event.with("text", error.to_string()));
        if let Some(check) = &mut self.ready {
            check.end();
        }
        self.history.started(cx.now);
        self.follow(Exit::Code(code), EndCause::Itself, "start_failed", cx);
    }
}

/// Puts the pipe at the number that the program expects: named descriptors come first, so numbers
/// before it are filled.
fn hand_pipe(handed: &mut Vec<InheritedFd>, pipe: HeartbeatPipe) -> Result<(), StartError> {
    let refused = |source: std::io::Error| StartError::Refused {
        step: "cannot create the readiness pipe",
        source,
    };
    let next = u32::try_from(handed.len()).unwrap_or(u32::MAX);
    let next = FIRST_HANDED.saturating_add(next);
    if pipe.number < next {
        let why = format!(
            "descriptor {} is used by a socket: use fd:{next}",
            pipe.number
        );
        return Err(refused(std::io::Error::other(why)));
    }
    for _ in next..pipe.number {
        let flags = OFlags::RDWR | OFlags::CLOEXEC;
        let null = rustix::fs::open("/dev/null", flags, Mode::empty());
        let null = null.map_err(|error| refused(error.into()))?;
        handed.push(unnamed(null));
    }
    handed.push(unnamed(pipe.fd));
    Ok(())
}

fn unnamed(fd: OwnedFd) -> InheritedFd {
    InheritedFd {
        fd: Arc::new(fd),
        name: None,
    }
}

fn shown(command: &[OsString]) -> String {
    let words = command.iter().map(|word| word.to_string_lossy());
    words.collect::<Vec<_>>().join(" ")
}
