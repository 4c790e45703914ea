//! Start and stop order: a service starts after its dependencies and stops before them.

use crate::lifecycle::{Request, State};
use crate::service::{Context, Service};

/// The states of all services, for decisions about one of them.
#[derive(Debug)]
pub(super) struct Dependencies {
    services: Vec<(String, State, bool, Vec<String>)>,
    is_stopping: bool,
}

impl Dependencies {
    pub(super) fn new(services: &[Service<'_>], is_stopping: bool) -> Self {
        let one = |service: &Service<'_>| {
            let after = service.settings.after.clone();
            (
                service.name().to_owned(),
                service.lifecycle().state(),
                service.is_alive(),
                after,
            )
        };
        Self {
            services: services.iter().map(one).collect(),
            is_stopping,
        }
    }

    /// Starts the service when its dependencies are ready; stops it when no running service depends
    /// on it.
    pub(super) fn progress(&self, service: &mut Service<'_>, cx: &mut Context<'_>) {
        if self.is_stopping {
            let name = service.name();
            let needs = |(_, _, alive, after): &(_, _, bool, Vec<String>)| {
                *alive && after.iter().any(|one| one == name)
            };
            if !self.services.iter().any(needs) {
                service.ask(Request::Stop, cx);
            }
            return;
        }
        if service.lifecycle().state() != State::Waiting {
            return;
        }
        let mut is_free = true;
        for name in service.settings.after.clone() {
            let state = self.services.iter().find(|(other, ..)| *other == name);
            match state.map(|(_, state, ..)| *state) {
                // A service that finished its work successfully counts as ready.
                Some(State::Ready | State::Draining | State::Stopped) | None => {}
                Some(State::Failed) => return service.ask(Request::FailWaiting(name), cx),
                Some(_) => is_free = false,
            }
        }
        if is_free {
            service.ask(Request::Start, cx);
        }
    }
}
