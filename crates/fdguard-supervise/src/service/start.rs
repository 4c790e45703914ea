//! The start of a run.

use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use fdguard_process::environment::last_of_each;
use fdguard_process::plan::{FIRST_HANDED, InheritedFd, Plan, SessionKind, TreeLimits};
use fdguard_process::run_id::{self, RunId};
use fdguard_process::tree::{Options, StartError, Tree};
use rustix::fs::{Mode, OFlags};

use super::run::Run;
use super::{Context, Service, chance, instance};
use crate::event::LogEvent;
use crate::health::HeartbeatPipe;
use crate::lifecycle::Input;
use crate::limit;

impl Service<'_> {
    /// Starts the program.
    pub(super) fn start(&mut self, cx: &mut Context<'_>) -> Vec<Input> {
        let begun = self.health.begin(cx.now).map_err(no_pipe);
        let plan = begun.and_then(|pipe| self.plan(pipe, cx));
        let options = Options {
            reserve: Some(&mut *cx.reserve),
            ..Options::default()
        };
        match plan.and_then(|plan| Tree::start_with(&plan, options)) {
            Ok(tree) => self.started(Run::new(tree, cx.now), cx),
            Err(error) => vec![self.not_started(&error, cx)],
        }
    }

    fn plan(
        &mut self,
        pipe: Option<HeartbeatPipe>,
        cx: &mut Context<'_>,
    ) -> Result<Plan, StartError> {
        let mut handed = self.sockets.clone();
        handed.extend(self.notify.store.handed());
        if let Some(pipe) = pipe {
            hand_pipe(&mut handed, pipe)?;
        }
        let is_troubled = self.lifecycle.is_troubled();
        Ok(Plan {
            command: self.settings.command.clone(),
            environment: self.environment(cx),
            dir: self.settings.dir.clone(),
            stdio: self.output.streams(&self.settings, is_troubled, cx),
            handed,
            soft_limit: limit::decide(self.settings.raise_limit, cx.limits).soft,
            group: match cx.once {
                true => SessionKind::Same,
                false => SessionKind::Session,
            },
            cgroup: true,
            terminal: false,
            limits: TreeLimits::default(),
        })
    }

    fn environment(&mut self, cx: &mut Context<'_>) -> Vec<(OsString, OsString)> {
        let mut all = cx.environment.to_vec();
        all.extend(self.settings.environment.iter().cloned());
        if let Some(id) = RunId::own(self.name()) {
            all.push((run_id::VARIABLE.into(), id.to_string().into()));
        }
        if !cx.once
            && let Some(address) = self.notify.address(&self.settings, cx)
        {
            all.push(("NOTIFY_SOCKET".into(), address));
            if let Some(within) = self.settings.watchdog {
                let micros = within.as_micros().to_string();
                all.push(("WATCHDOG_USEC".into(), micros.into()));
            }
        }
        let mut all = last_of_each(all);
        self.inject(&mut all, cx);
        all
    }

    /// Lets an injected tracer or protection change the environment.
    fn inject(&self, environment: &mut Vec<(OsString, OsString)>, cx: &mut Context<'_>) {
        let Some(injector) = &mut cx.injector else {
            return;
        };
        let (name, command) = (&self.settings.name, &self.settings.command);
        let begin = || injector.start(name, command, environment);
        for event in cx.reserve.lend(begin) {
            cx.sink.emit(&event);
        }
    }

    fn started(&mut self, run: Run, cx: &mut Context<'_>) -> Vec<Input> {
        if !cx.once {
            let event = LogEvent::for_service("start", self.name()).with("pid", run.main);
            let event = match self.lifecycle.restarts() {
                0 => event.with("command", shown(&self.settings.command)),
                restarts => event.with("restarts", restarts),
            };
            cx.sink.emit(&event);
        }
        self.health.started(cx.now + self.settings.ready_timeout);
        self.budgets.start(cx.once);
        let instance = instance(run.main);
        self.run = Some(run);
        let mut inputs = vec![Input::Started(instance)];
        if !self.health.has_readiness() {
            inputs.push(Input::Ready(instance));
        }
        inputs
    }

    fn not_started(&mut self, error: &StartError, cx: &mut Context<'_>) -> Input {
        self.end_injected(cx);
        let code = error.code().unwrap_or(125);
        let event =
            LogEvent::for_service("start_failed", self.name()).with("status", u32::from(code));
        cx.sink.emit(&event.with("text", error.to_string()));
        self.health.end();
        let chance = chance();
        Input::StartFailed { code, chance }
    }
}

fn no_pipe(source: std::io::Error) -> StartError {
    StartError::Refused {
        step: "cannot create the readiness pipe",
        source,
    }
}

/// Puts the pipe at the number that the program expects: named descriptors come first, so numbers
/// before it are filled.
fn hand_pipe(handed: &mut Vec<InheritedFd>, pipe: HeartbeatPipe) -> Result<(), StartError> {
    let next = u32::try_from(handed.len()).unwrap_or(u32::MAX);
    let next = FIRST_HANDED.saturating_add(next);
    if pipe.number < next {
        let why = format!(
            "descriptor {} is used by a socket: use fd:{next}",
            pipe.number
        );
        return Err(no_pipe(std::io::Error::other(why)));
    }
    for _ in next..pipe.number {
        let flags = OFlags::RDWR | OFlags::CLOEXEC;
        let null = rustix::fs::open("/dev/null", flags, Mode::empty());
        let null = null.map_err(|error| no_pipe(error.into()))?;
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
