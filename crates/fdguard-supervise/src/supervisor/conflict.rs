//! Address conflicts: a socket to bind that another process holds.

use std::time::Instant;

use fdguard_probe::Probe;
use fdguard_process::listen::{BindError, BoundSocket, Listen, ListenAddress};
use fdguard_process::signals::Signals;
use rustix::process::Signal;

use super::StartRefusal;
use crate::config::{self, SocketConfig};
use crate::event::{EventSink, LogEvent};
use crate::health;
use crate::poll::Interest;
use crate::port::{
    AddressHolder, Clearing, ClearingStep, Conflict, HolderClass, OwnProcesses, PortPolicy,
    find_conflict,
};

/// What is needed to find the holder of a socket and to wait for it.
#[derive(Debug)]
pub(super) struct Desk<'d> {
    pub(super) probe: &'d Probe,
    pub(super) sink: &'d mut EventSink,
    /// A signal ends the wait; absent if waiting is not allowed.
    pub(super) signals: Option<&'d Signals>,
}

impl Desk<'_> {
    /// Binds the socket, or applies the service's policy.
    pub(super) fn bind(
        &mut self,
        service: &config::ServiceConfig,
        listen: &Listen,
    ) -> Result<BoundSocket, StartRefusal> {
        match listen.bind() {
            Ok(bound) => Ok(bound),
            Err(BindError::Held { .. }) => self.clear(service, listen),
            Err(error) => Err(refused(&error.to_string(), 125)),
        }
    }

    fn clear(
        &mut self,
        service: &config::ServiceConfig,
        listen: &Listen,
    ) -> Result<BoundSocket, StartRefusal> {
        let policy = match self.signals {
            Some(_) => service.on_conflict,
            None => PortPolicy::Refuse,
        };
        let grace = service.stop.grace;
        let mut clearing = Clearing::new(listen.at.clone(), policy, grace, Instant::now());
        let ours = OwnProcesses {
            members: &[],
            service: &service.name,
            registered: &[],
        };
        loop {
            let step = clearing.poll(Instant::now(), self.probe, &ours);
            match step.map_err(|error| refused(&format!("{}: {error}", listen.at), 2))? {
                ClearingStep::Free => match listen.bind() {
                    Err(BindError::Held { .. }) => {
                        if let Some(conflict) = clearing.look_again(Instant::now()) {
                            return Err(self.refuse(&service.name, &conflict));
                        }
                    }
                    bound => return bound.map_err(|error| refused(&error.to_string(), 125)),
                },
                ClearingStep::Pending(conflict) => {
                    if let Some(conflict) = conflict {
                        self.tell(&service.name, &conflict);
                    }
                }
                ClearingStep::Refused(conflict) => {
                    return Err(self.refuse(&service.name, &conflict));
                }
            }
            self.wait(&clearing)?;
        }
    }

    /// Warns if a process already listens where this service's readiness check connects: the answer
    /// would be that process's. It may be intended (a proxy in front of the service), so it is only
    /// logged.
    pub(super) fn warn(&mut self, service: &config::ServiceConfig) {
        let target = match service.ready.as_ref().map(|check| &check.kind) {
            Some(health::Kind::Tcp(target)) => Some(target),
            _ => None,
        };
        let addresses = target.and_then(|target| target.addresses().ok());
        let is_ours = |at: &ListenAddress| {
            service
                .listen
                .iter()
                .any(|socket| matches!(socket, SocketConfig::Bind(listen) if listen.at == *at))
        };
        let places = addresses.unwrap_or_default().into_iter();
        let places = places.filter(|address| address.ip().is_loopback());
        for at in places.map(ListenAddress::Tcp).filter(|at| !is_ours(at)) {
            let ours = OwnProcesses {
                members: &[std::process::id()],
                service: &service.name,
                registered: &[],
            };
            let found = find_conflict(self.probe, &at, &ours).ok().flatten();
            let is_foreign = |conflict: &Conflict| {
                let foreign = |holder: &AddressHolder| holder.class != HolderClass::OursNow;
                conflict.listens && conflict.holders.iter().any(foreign)
            };
            if let Some(conflict) = found.filter(is_foreign) {
                self.tell(&service.name, &conflict);
            }
        }
    }

    fn refuse(&mut self, service: &str, conflict: &Conflict) -> StartRefusal {
        self.tell(service, conflict);
        let hint = "use --on-conflict wait, or end-if-ours for processes of an earlier run; unrelated processes are never ended";
        StartRefusal {
            hint: hint.to_owned(),
            ..refused(&conflict.to_string(), 2)
        }
    }

    fn tell(&mut self, service: &str, conflict: &Conflict) {
        let event = LogEvent::for_service("port_conflict", service)
            .with("at", conflict.at.to_string())
            .with("pid", conflict.holders.first().map(|holder| holder.pid));
        self.sink.emit(&event.with("text", conflict.to_string()));
    }

    fn wait(&mut self, clearing: &Clearing) -> Result<(), StartRefusal> {
        let mut wants = Interest::default();
        clearing.wants(&mut wants);
        if let Some(signals) = self.signals {
            wants.read(std::os::fd::AsFd::as_fd(signals));
        }
        // If waiting fails, continue as after a wait.
        drop(wants.wait());
        let heard = self.signals.and_then(Signals::next);
        let ends = [Signal::TERM, Signal::INT].map(Signal::as_raw);
        match heard {
            Some(heard) if ends.contains(&heard.signal) => {
                Err(refused("stopped while waiting for a socket", 0))
            }
            _ => Ok(()),
        }
    }
}

fn refused(message: &str, code: u8) -> StartRefusal {
    StartRefusal {
        message: message.to_owned(),
        hint: String::new(),
        code,
    }
}
