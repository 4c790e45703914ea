//! Sockets for services: bound by fdguard once, or inherited from its parent. They survive restarts
//! and reloads.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use fdguard_process::listen::{BoundSocket, Listen};
use fdguard_process::plan::InheritedFd;
use fdguard_process::reserve;

use super::StartRefusal;
use super::conflict::Desk;
use crate::config::{self, SocketConfig};

/// All of them.
#[derive(Debug)]
pub(super) struct Sockets {
    bound: Vec<One>,
    inherited: Vec<InheritedFd>,
}

#[derive(Debug)]
struct One {
    listen: Listen,
    handed: InheritedFd,
    /// Keeps the file of a unix socket.
    _bound: BoundSocket,
}

impl Sockets {
    pub(super) fn new(inherited: Vec<(OwnedFd, String)>) -> Self {
        let handed = inherited.into_iter().map(|(fd, name)| InheritedFd {
            fd: Arc::new(reserve::raise(fd)),
            name: Some(name),
        });
        Self {
            bound: Vec::new(),
            inherited: handed.collect(),
        }
    }

    /// The sockets of a service. A single service gets all sockets of the parent.
    pub(super) fn bind_all(
        &mut self,
        service: &config::ServiceConfig,
        is_single: bool,
        desk: &mut Desk<'_>,
    ) -> Result<Vec<InheritedFd>, StartRefusal> {
        let mut all = Vec::new();
        if is_single {
            all.extend(self.inherited.iter().cloned());
        }
        for socket in &service.listen {
            match socket {
                SocketConfig::Bind(listen) => all.push(self.bind(service, listen, desk)?),
                SocketConfig::Inherited(name) if is_single => {
                    self.named(name).next().ok_or_else(|| missing(name))?;
                }
                SocketConfig::Inherited(name) => {
                    let before = all.len();
                    all.extend(self.named(name).cloned());
                    if all.len() == before {
                        return Err(missing(name));
                    }
                }
            }
        }
        Ok(all)
    }

    fn named<'s>(&'s self, name: &'s str) -> impl Iterator<Item = &'s InheritedFd> {
        let is_it = move |one: &&InheritedFd| one.name.as_deref() == Some(name);
        self.inherited.iter().filter(is_it)
    }

    fn bind(
        &mut self,
        service: &config::ServiceConfig,
        listen: &Listen,
        desk: &mut Desk<'_>,
    ) -> Result<InheritedFd, StartRefusal> {
        if let Some(known) = self.bound.iter().find(|one| one.listen.at == listen.at) {
            return Ok(known.handed.clone());
        }
        let bound = desk.bind(service, listen)?;
        let fd = bound.fd.try_clone();
        let fd = fd.map_err(|error| StartRefusal::machine(&listen.to_string(), &error))?;
        let name = listen.name.clone();
        let handed = InheritedFd {
            fd: Arc::new(reserve::raise(fd)),
            name: Some(name.unwrap_or_else(|| "unknown".to_owned())),
        };
        self.bound.push(One {
            listen: listen.clone(),
            handed: handed.clone(),
            _bound: bound,
        });
        Ok(handed)
    }

    /// Releases sockets that no service uses any more.
    pub(super) fn keep_only(&mut self, services: &[config::ServiceConfig]) {
        let sockets = || services.iter().flat_map(|service| &service.listen);
        self.bound.retain(|one| {
            sockets().any(
                |socket| matches!(socket, SocketConfig::Bind(listen) if listen.at == one.listen.at),
            )
        });
    }
}

fn missing(name: &str) -> StartRefusal {
    StartRefusal {
        message: format!("listen: the parent passed no socket named {name:?}"),
        hint: "use fd:NAME with a name from LISTEN_FDNAMES, or bind tcp:PORT or unix:PATH"
            .to_owned(),
        code: 2,
    }
}
