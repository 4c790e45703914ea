//! The loop: one thread that waits for all of its services, its signals and its parent at once.
//!
//! [`SupervisorLaunch`] is its input. [`run`] loops until every service is down and returns the
//! exit status.

use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fdguard_core::snapshot::Limits;
use fdguard_probe::Probe;
use fdguard_process::adopt::adopt_orphans_of_trees;
use fdguard_process::listen::activation::ActivatedSockets;
use fdguard_process::parent::Parent;
use fdguard_process::reserve::{self, Reserve};
use fdguard_process::signals::{Signals, forwardable};

use crate::config::{Overrides, RunSettings};
use crate::event::{EventSink, LogEvent};
use crate::health::CommandContext;
use crate::inject::Injector;
use crate::lifecycle::{Lifecycle, LifecycleSettings, RemedyLock, State};
use crate::metrics::MetricsServer;
use crate::poll::{Interest, Readiness};
use crate::service::{Context, Service, Survivors};
use crate::{limit, trim};

mod conflict;
mod dependencies;
mod injection;
mod pages;
mod parent_notify;
mod reload;
mod self_check;
mod signals;
mod sockets;

use conflict::Desk;
use dependencies::Dependencies;
pub(crate) use pages::ago;
use parent_notify::ParentNotify;
use sockets::Sockets;

/// The input of the loop.
#[derive(Debug)]
pub struct SupervisorLaunch<'p> {
    /// Examines processes.
    pub probe: &'p Probe,
    /// The effective configuration.
    pub settings: RunSettings,
    /// Values from outside the file, for a reload.
    pub said: Overrides,
    /// Detects the supervisor above fdguard.
    pub parent: Parent,
    /// Sockets inherited from the parent.
    pub inherited: ActivatedSockets,
    /// Where events go.
    pub stderr: Option<OwnedFd>,
    /// The tracer or protection to inject.
    pub injector: Option<Box<dyn Injector>>,
}

/// Why nothing was started.
#[derive(Clone, Debug)]
pub struct StartRefusal {
    /// In one line.
    pub message: String,
    /// What would help.
    pub hint: String,
    /// The exit status of fdguard.
    pub code: u8,
}

impl StartRefusal {
    fn machine(what: &str, error: &std::io::Error) -> Self {
        Self {
            message: format!("{what}: {error}"),
            hint: String::new(),
            code: 125,
        }
    }
}

/// How long the services' last lines may take to be written.
const LAST_LINES: Duration = Duration::from_secs(1);

/// Why the supervisor stops.
#[derive(Clone, Debug)]
struct Stopping {
    why: String,
}

#[derive(Debug)]
struct Supervisor<'p> {
    probe: &'p Probe,
    settings: RunSettings,
    said: Overrides,
    sink: EventSink,
    signals: Signals,
    sockets: Sockets,
    above: ParentNotify,
    environment: Vec<(OsString, OsString)>,
    is_supervised: bool,
    reserve: Reserve,
    null: OwnedFd,
    injector: Option<Box<dyn Injector>>,
    /// The limits at the start of fdguard.
    limits: Limits,
    pages: Option<MetricsServer>,
    is_trimmed: bool,
    remedy_lock: RemedyLock,
    services: Vec<Service<'p>>,
    stopping: Option<Stopping>,
    began: Instant,
    down_since: Option<Instant>,
    /// Around one program: the first Ctrl-C is for the program, the second ends it.
    was_interrupted: bool,
    fds_at_start: Option<u64>,
    /// Totals of removed services.
    past: Past,
}

/// Totals of services that are gone.
#[derive(Clone, Copy, Debug, Default)]
struct Past {
    restarts: u64,
    killed: u64,
    survivors: Survivors,
}

/// Runs everything until it is down, and returns the exit status.
pub fn run(launch: SupervisorLaunch<'_>) -> Result<u8, StartRefusal> {
    let mut supervisor = Supervisor::new(launch)?;
    supervisor.go_on();
    Ok(supervisor.finish())
}

impl<'p> Supervisor<'p> {
    fn new(launch: SupervisorLaunch<'p>) -> Result<Self, StartRefusal> {
        let now = Instant::now();
        let signals = Signals::listen(forwardable())
            .map_err(|error| StartRefusal::machine("cannot set up signal handling", &error))?;
        // A program may kill its keeper. All of fdguard's children are keepers, so any other child
        // is an orphan of such a program. If the kernel refuses this, orphans are found by their
        // mark.
        let _refused = adopt_orphans_of_trees();
        let sink = EventSink::new(launch.settings.form, launch.stderr);
        let null = crate::drain::null()
            .map_err(|error| StartRefusal::machine("cannot open /dev/null", &error))?;
        let reserve = Reserve::new(Reserve::FOR_A_START + 4)
            .map_err(|error| StartRefusal::machine("cannot reserve descriptors", &error))?;
        let pages = pages::open(&launch.settings).map_err(|message| StartRefusal {
            message,
            hint: "use another port, or port 0 for any free port".to_owned(),
            code: 2,
        })?;
        let environment = fdguard_process::environment::for_program(std::env::vars_os());
        let mut supervisor = Self {
            probe: launch.probe,
            sockets: Sockets::new(launch.inherited.fds),
            above: ParentNotify::new(launch.settings.once, now),
            is_supervised: launch.parent.is_supervisor(),
            is_trimmed: launch.settings.once,
            settings: launch.settings,
            said: launch.said,
            sink,
            signals,
            environment,
            reserve,
            null: reserve::raise(null),
            injector: launch.injector,
            limits: limit::read(),
            pages,
            remedy_lock: RemedyLock::default(),
            services: Vec::new(),
            stopping: None,
            began: now,
            down_since: None,
            was_interrupted: false,
            fds_at_start: None,
            past: Past::default(),
        };
        supervisor.introduce(&launch.parent);
        for gap in launch.inherited.gaps {
            let text = format!("{}: {}", gap.what, gap.why);
            supervisor
                .sink
                .emit(&LogEvent::new("socket_missing").with("text", text));
        }
        supervisor.services = supervisor.fresh_services()?;
        supervisor.fds_at_start = self_check::descriptors();
        Ok(supervisor)
    }

    /// Logs the supervisor above fdguard, if there is one.
    fn introduce(&mut self, parent: &Parent) {
        if self.settings.once {
            return;
        }
        if parent.is_supervisor() {
            let event = LogEvent::new("supervising")
                .with("parent", parent.kind.to_string())
                .with("pid", std::process::id());
            self.sink.emit(&event.with("text", parent.reason.as_str()));
        }
        self.tell_limits();
        if let Some(text) = self.above.first_gap() {
            self.sink
                .emit(&LogEvent::new("notify_failed").with("text", text));
        }
    }

    /// Logs the soft limit, for each service for which it changes.
    fn tell_limits(&mut self) {
        for service in &self.settings.services {
            let decision = limit::decide(service.raise_limit, self.limits);
            if let Some(soft) = decision.soft {
                let event = LogEvent::for_service("limit", &service.name)
                    .with("from", decision.before.soft)
                    .with("to", soft);
                self.sink.emit(&event.with("text", decision.to_string()));
            }
        }
    }

    /// The services of the settings, none of them started.
    fn fresh_services(&mut self) -> Result<Vec<Service<'p>>, StartRefusal> {
        let settings = self.settings.services.clone();
        let is_single = settings.len() == 1;
        let mut services = Vec::new();
        for one in settings {
            services.push(self.fresh_service(one, is_single)?);
        }
        Ok(services)
    }

    fn fresh_service(
        &mut self,
        settings: crate::config::ServiceConfig,
        is_single: bool,
    ) -> Result<Service<'p>, StartRefusal> {
        let mut desk = Desk {
            probe: self.probe,
            sink: &mut self.sink,
            // Waiting for a socket is allowed only at the beginning: later, other services would
            // wait, too.
            signals: self.services.is_empty().then_some(&self.signals),
        };
        let handed = self.sockets.bind_all(&settings, is_single, &mut desk)?;
        if desk.signals.is_some() {
            desk.warn(&settings);
        }
        let mut environment = self.environment.clone();
        environment.extend(settings.environment.iter().cloned());
        let scene = Arc::new(CommandContext {
            environment,
            dir: settings.dir.clone(),
        });
        let name = settings.name.clone();
        let rules = LifecycleSettings::new(&settings, self.settings.once, self.is_supervised);
        let lifecycle = Lifecycle::new(rules, self.remedy_lock.clone());
        Service::new(settings, handed, &scene, self.probe, lifecycle).map_err(|why| StartRefusal {
            message: format!("{name}: {why}"),
            hint: "see fdguard run --help for the forms of checks; an IP address needs no lookup"
                .to_owned(),
            code: 2,
        })
    }

    fn go_on(&mut self) {
        loop {
            self.progress();
            self.above_turn();
            if self.is_over() {
                return;
            }
            self.trim();
            let ready = self.wait();
            self.hear_signals(&ready);
            self.sink.poll(&ready);
            self.each(|service, cx, _| service.poll(cx, &ready));
            self.turn_injector();
            self.turn_pages(&ready);
            self.forget_removed();
        }
    }

    /// Starts and stops services until nothing changes any more: a service that is ready at once
    /// unblocks others at once.
    fn progress(&mut self) {
        loop {
            let states = |all: &[Service<'_>]| -> Vec<State> {
                all.iter().map(|one| one.lifecycle().state()).collect()
            };
            let before = states(&self.services);
            self.each(|service, cx, standing| standing.progress(service, cx));
            if states(&self.services) == before {
                return;
            }
        }
    }

    fn wait(&self) -> Readiness {
        let mut wants = Interest::default();
        wants.read(std::os::fd::AsFd::as_fd(&self.signals));
        self.sink.wants(&mut wants);
        self.above.wants(&mut wants);
        if let Some(since) = self.down_since {
            wants.until(since + LAST_LINES);
        }
        if let Some(pages) = &self.pages {
            pages.wants(&mut wants);
        }
        if let Some(at) = self.injector.as_ref().and_then(|one| one.deadline()) {
            wants.until(at);
        }
        for service in &self.services {
            service.wants(&mut wants);
        }
        wants.wait().unwrap_or_else(|_| {
            // The kernel has no memory for the list: retry in a moment.
            std::thread::sleep(Duration::from_millis(20));
            Readiness::default()
        })
    }

    /// Runs an action for each service with its context.
    fn each(&mut self, mut work: impl FnMut(&mut Service<'p>, &mut Context<'_>, &Dependencies)) {
        let standing = Dependencies::new(&self.services, self.stopping.is_some());
        let mut cx = Context {
            sink: &mut self.sink,
            now: Instant::now(),
            environment: &self.environment,
            once: self.settings.once,
            evidence: self.settings.evidence.as_deref(),
            reserve: &mut self.reserve,
            null: &self.null,
            injector: self.injector.as_deref_mut(),
            limits: self.limits,
        };
        for service in &mut self.services {
            work(service, &mut cx, &standing);
        }
    }

    /// Releases what only the start needed, once everything runs.
    fn trim(&mut self) {
        let is_up = |service: &Service<'_>| {
            !matches!(
                service.lifecycle().state(),
                State::Waiting | State::Starting
            )
        };
        if !self.is_trimmed && self.services.iter().all(is_up) {
            self.is_trimmed = true;
            trim::give_back();
        }
    }

    fn forget_removed(&mut self) {
        let gone = |service: &Service<'_>| service.is_removed && !service.is_alive();
        for service in self.services.iter().filter(|one| gone(one)) {
            self.past.restarts += service.lifecycle().restarts();
            self.past.killed += service.killed;
            self.past.survivors.add(service.survivors);
        }
        self.services.retain(|service| !gone(service));
    }

    /// Every service is down and its output is written, or cannot be: a full disk does not delay
    /// the exit.
    fn is_over(&mut self) -> bool {
        let is_down = |one: &Service<'_>| one.lifecycle().state().is_final() && !one.is_alive();
        if !self.services.iter().all(is_down) {
            self.down_since = None;
            return false;
        }
        let since = *self.down_since.get_or_insert_with(Instant::now);
        self.services.iter().all(Service::is_written) || since.elapsed() >= LAST_LINES
    }

    /// Logs the final event and returns the exit status.
    fn finish(mut self) -> u8 {
        let mut outcomes = self
            .services
            .iter()
            .filter_map(|one| one.lifecycle().outcome());
        let failed = outcomes.find(|code| *code != 0);
        let is_asked = self.stopping.is_some() && !self.settings.once;
        let code = if is_asked { 0 } else { failed.unwrap_or(0) };
        let mut survivors = self.past.survivors;
        for service in &self.services {
            survivors.add(service.survivors);
        }
        // Processes that could not be ended are a failure, even if the stop was requested.
        let has_survivors = survivors.0.is_some_and(|count| count > 0);
        let code = if has_survivors { code.max(1) } else { code };
        let restarts = self
            .services
            .iter()
            .map(|one| one.lifecycle().restarts())
            .sum::<u64>();
        let killed = self.services.iter().map(|one| one.killed).sum::<u64>();
        self.services.clear();
        self.end_injector();
        if !self.settings.once {
            let why = match &self.stopping {
                Some(stopping) => stopping.why.clone(),
                None => "all_down".to_owned(),
            };
            let up = self.began.elapsed();
            let event = LogEvent::new("stopped")
                .with("why", why)
                .with("exit", u32::from(code))
                .with("uptime_s", (up.as_secs_f64() * 1000.0).round() / 1000.0)
                .with("restarts", restarts + self.past.restarts)
                .with("killed", killed + self.past.killed)
                .with("survivors", survivors.0)
                .with("fds_at_start", self.fds_at_start)
                .with("fds_at_end", self_check::descriptors());
            self.sink.emit(&event);
        }
        self.sink.finish();
        code
    }
}
