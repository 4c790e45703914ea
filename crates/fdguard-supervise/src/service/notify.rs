//! Notifications from a service: their socket, and the descriptors that it stores with fdguard.
//! Both survive restarts.

use std::ffi::OsString;

use fdguard_process::notify::store::StoreChange;
use fdguard_process::notify::{FdStore, NotifyMessage, NotifyServer};

use super::Context;
use super::run::Run;
use crate::config::ServiceConfig;
use crate::event::LogEvent;
use crate::poll::{Interest, Readiness};

/// The socket and the store.
#[derive(Debug, Default)]
pub(super) struct Notifications {
    server: Option<NotifyServer>,
    pub(super) store: FdStore,
}

impl Notifications {
    /// The address of the socket. Without it the program still runs, unless its readiness depends
    /// on it.
    pub(super) fn address(
        &mut self,
        settings: &ServiceConfig,
        cx: &mut Context<'_>,
    ) -> Option<OsString> {
        if self.server.is_none() {
            match NotifyServer::open() {
                Ok(server) => self.server = Some(server),
                Err(error) => {
                    let event = LogEvent::for_service("notify_failed", &settings.name);
                    let text = format!("cannot create the notification socket: {error}");
                    cx.sink.emit(&event.with("text", text));
                }
            }
        }
        let server = self.server.as_ref()?;
        Some(server.path().as_os_str().to_owned())
    }

    pub(super) fn wants<'f>(&'f self, wants: &mut Interest<'f>) {
        if let Some(server) = &self.server {
            wants.read(server.fd());
        }
        for fd in self.store.polled() {
            wants.hang_up(fd);
        }
    }

    /// Returns the messages of processes that may send some. Their descriptors are stored.
    pub(super) fn poll(
        &mut self,
        settings: &ServiceConfig,
        run: Option<&Run>,
        cx: &mut Context<'_>,
        ready: &Readiness,
    ) -> Vec<NotifyMessage> {
        for change in self.store.poll() {
            self.log(&change, settings, cx);
        }
        let Some(server) = self.server.as_mut().filter(|one| ready.has(one.fd())) else {
            return Vec::new();
        };
        let may_notify = |pid| run.is_some_and(|run| run.may_notify(settings.access, pid));
        let mut messages = Vec::new();
        for received in server.poll(may_notify) {
            for change in self.store.hear(&received.message, received.fds) {
                self.log(&change, settings, cx);
            }
            messages.push(received.message);
        }
        messages
    }

    fn log(&self, change: &StoreChange, settings: &ServiceConfig, cx: &mut Context<'_>) {
        let (what, name) = match change {
            StoreChange::Stored { name } => ("stored", name),
            StoreChange::Merged { .. } => return,
            StoreChange::Full { name } => ("full", name),
            StoreChange::Removed { name, .. } => ("removed", name),
            StoreChange::HungUp { name } => ("hung_up", name),
        };
        let event =
            LogEvent::for_service("fd_store", &settings.name).with("count", self.store.len());
        cx.sink
            .emit(&event.with("change", what).with("name", name.as_str()));
    }
}
