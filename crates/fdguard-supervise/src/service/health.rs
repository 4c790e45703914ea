//! Notifications from the program, and its health checks.

use std::time::{Duration, Instant};

use fdguard_process::notify::{Access, NotifyMessage, ReceivedMessage, Watchdog, store};

use super::end::millis;
use super::run::{Ending, Run};
use super::{Context, Service, State};
use crate::event::LogEvent;
use crate::health::{CheckInputs, HealthChange, HealthCheck, queue};
use crate::poll::Readiness;

/// The interval between searches for a service's listening sockets.
const LISTENERS: Duration = Duration::from_secs(5);

impl Service<'_> {
    /// Reads the program's notifications.
    pub(super) fn hear_program(&mut self, cx: &mut Context<'_>, ready: &Readiness) {
        for change in self.store.poll() {
            self.tell_store(&change, cx);
        }
        let Some(server) = self.notify.as_mut().filter(|one| ready.has(one.fd())) else {
            return;
        };
        let (access, run) = (self.settings.access, self.run.as_ref());
        let heard = server.poll(|pid| run.is_some_and(|run| may_speak(access, run, pid)));
        for ReceivedMessage { message, fds, .. } in heard {
            self.hear(&message, cx);
            for change in self.store.hear(&message, fds) {
                self.tell_store(&change, cx);
            }
        }
    }

    fn hear(&mut self, message: &NotifyMessage, cx: &mut Context<'_>) {
        let watchdog = self.settings.watchdog;
        let Some(run) = &mut self.run else { return };
        run.notified |= message.ready;
        if let Some(status) = &message.status {
            run.status = Some(status.clone());
        }
        if let Some(main) = message
            .main_pid
            .filter(|pid| run.tree.members().contains(pid))
        {
            run.main = main;
        }
        if let (Some(more), Some(until)) = (message.extend_timeout, run.ready_until) {
            run.ready_until = Some(until.max(cx.now + more));
        }
        if run.ending.is_some() {
            return;
        }
        let interval = message.watchdog_interval.filter(|_| watchdog.is_some());
        if let Some((within, until)) = &mut run.watchdog {
            *within = interval.unwrap_or(*within);
            if message.watchdog == Some(Watchdog::Ping) {
                *until = cx.now + *within;
            }
        }
        if message.watchdog == Some(Watchdog::Trigger) {
            self.bark("received WATCHDOG=trigger", cx);
        }
    }

    fn tell_store(&self, change: &store::StoreChange, cx: &mut Context<'_>) {
        let event = LogEvent::for_service("fd_store", self.name()).with("count", self.store.len());
        let (what, name) = match change {
            store::StoreChange::Stored { name } => ("stored", name),
            store::StoreChange::Merged { .. } => return,
            store::StoreChange::Full { name } => ("full", name),
            store::StoreChange::Removed { name, .. } => ("removed", name),
            store::StoreChange::HungUp { name } => ("hung_up", name),
        };
        cx.sink
            .emit(&event.with("change", what).with("name", name.as_str()));
    }

    /// Runs the checks and checks the deadlines.
    pub(super) fn check(&mut self, cx: &mut Context<'_>, ready: &Readiness) {
        let is_going = |run: &Run| run.ending.is_some() || run.settle.is_some();
        if self.run.as_ref().is_none_or(is_going) {
            return;
        }
        self.find_listeners(cx.now);
        if let Some(failing) = self.ask(cx, ready) {
            let (reason, failures) = failing;
            let event = LogEvent::for_service("unhealthy", self.name()).with("failures", failures);
            cx.sink.emit(&event.with("text", reason));
            return self.end_run(Ending::Sick("health"));
        }
        let Some(run) = &self.run else { return };
        if run.watchdog.is_some_and(|(_, until)| until <= cx.now) {
            return self.bark("no WATCHDOG=1 received in time", cx);
        }
        let is_late = run.ready_until.is_some_and(|until| until <= cx.now);
        if is_late && self.state == State::Starting {
            let up = cx.now.saturating_duration_since(run.started);
            let event =
                LogEvent::for_service("not_ready", self.name()).with("after_ms", millis(up));
            cx.sink.emit(&event.with("text", "not ready in time"));
            self.end_run(Ending::Sick("not_ready"));
        }
    }

    /// Polls every check; returns the reason of a failing one.
    fn ask(&mut self, cx: &mut Context<'_>, ready: &Readiness) -> Option<(String, u32)> {
        let run = self.run.as_ref()?;
        let feeds = CheckInputs {
            notified: run.notified,
            listeners: &run.listeners.0,
        };
        let mut is_ready = false;
        if let Some(check) = &mut self.ready {
            is_ready = check.poll(cx.now, ready, &feeds) == Some(HealthChange::Healthy);
        }
        let turned = |check: &mut HealthCheck| check.poll(cx.now, ready, &feeds);
        let failing = self
            .checks
            .iter_mut()
            .filter_map(turned)
            .find_map(|change| match change {
                HealthChange::Healthy => None,
                HealthChange::Failing { reason, failures } => Some((reason, failures)),
            });
        if is_ready && self.state == State::Starting {
            self.is_ready(cx);
        }
        failing
    }

    /// The service is ready from now on.
    pub(super) fn is_ready(&mut self, cx: &mut Context<'_>) {
        let Some(run) = &mut self.run else { return };
        run.ready = true;
        run.ready_until = None;
        run.watchdog = self
            .settings
            .watchdog
            .map(|within| (within, cx.now + within));
        self.state = State::Ready;
        if let Some(check) = &mut self.ready {
            let up = cx.now.saturating_duration_since(run.started);
            let event =
                LogEvent::for_service("ready", &self.settings.name).with("after_ms", millis(up));
            cx.sink.emit(&event.with("pid", run.main));
            check.end();
        }
        for check in &mut self.checks {
            // Only readiness checks have pipes.
            drop(check.start(cx.now));
        }
        self.answered(cx);
    }

    fn bark(&mut self, text: &str, cx: &mut Context<'_>) {
        let event = LogEvent::for_service("watchdog", self.name());
        cx.sink.emit(&event.with("text", text));
        if let Some(run) = &mut self.run {
            // A core dump of the hanging process, as systemd does.
            run.tree.signal(rustix::process::Signal::ABORT.as_raw());
        }
        self.end_run(Ending::Sick("watchdog"));
    }

    /// Finds its listening sockets, for checks that need them.
    fn find_listeners(&mut self, now: Instant) {
        let wanted = self
            .settings
            .health
            .iter()
            .any(|spec| matches!(spec.kind, crate::health::Kind::Accept));
        let Some(run) = self.run.as_mut().filter(|_| wanted) else {
            return;
        };
        if run.listeners.1.is_some_and(|at| now < at + LISTENERS) {
            return;
        }
        let found = queue::find(&run.tree.members()).unwrap_or_default();
        run.listeners = (found, Some(now));
    }
}

fn may_speak(access: Access, run: &Run, pid: u32) -> bool {
    match access {
        Access::None => false,
        Access::Main => pid == run.main,
        Access::Exec | Access::All => run.tree.members().contains(&pid),
    }
}
