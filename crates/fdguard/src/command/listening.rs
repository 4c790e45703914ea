//! Listening addresses of a server: local ones unless remote access is allowed, or sockets passed
//! by the parent process.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use fdguard_probe::Probe;
use fdguard_process::listen::activation::ActivatedSockets;
use fdguard_process::listen::{BindError, BoundSocket, Listen, ListenAddress};
use fdguard_supervise::port::{self, OwnProcesses};

use crate::exit::{self, HintedError};

/// What the user asked for.
#[derive(Clone, Copy, Debug)]
pub(super) struct ListenRules<'a> {
    /// The addresses.
    pub(super) listen: &'a [String],
    /// The address if there are none.
    pub(super) default: &'a str,
    /// Whether other machines may connect.
    pub(super) allow_remote: bool,
    /// Whether everybody who can connect has access.
    pub(super) no_token: bool,
    /// Permissions of socket files.
    pub(super) mode: u32,
}

/// The addresses to listen on.
#[derive(Debug)]
pub(super) struct Sockets(Vec<Listen>);

/// Listening sockets.
#[derive(Debug)]
pub(super) struct ListenSpec {
    pub(super) fds: Vec<OwnedFd>,
    /// Paths of unix sockets.
    pub(super) paths: Vec<PathBuf>,
    /// Drop removes their files.
    pub(super) files: Vec<BoundSocket>,
}

impl Sockets {
    /// Parses the requested addresses and checks that they are allowed.
    pub(super) fn plan(
        rules: ListenRules<'_>,
        inherited: &ActivatedSockets,
    ) -> anyhow::Result<Self> {
        if let Some(gap) = inherited.gaps.first() {
            return Err(HintedError::look(gap.why.clone(), gap.remedy.clone()).into());
        }
        let is_handed = !inherited.fds.is_empty() && rules.listen.is_empty();
        for (fd, name) in &inherited.fds {
            let address = rustix::net::getsockname(fd).ok();
            let address = address.and_then(|address| SocketAddr::try_from(address).ok());
            refuse_remote(rules, &format!("inherited socket {name}"), address)?;
        }
        if is_handed {
            return Ok(Self(Vec::new()));
        }
        let default = [rules.default.to_owned()];
        let wanted = match rules.listen {
            [] => &default,
            wanted => wanted,
        };
        let parsed: anyhow::Result<Vec<Listen>> =
            wanted.iter().map(|text| parse(rules, text)).collect();
        Ok(Self(parsed?))
    }

    /// Binds them all.
    pub(super) fn bind(self, inherited: ActivatedSockets) -> anyhow::Result<ListenSpec> {
        let mut listening = ListenSpec {
            fds: inherited.fds.into_iter().map(|(fd, _)| fd).collect(),
            paths: Vec::new(),
            files: Vec::new(),
        };
        for listen in self.0 {
            let bound = listen.bind().map_err(|error| refused(&listen, &error))?;
            // The server owns the socket; the binder removes the file.
            listening
                .fds
                .push(rustix::io::fcntl_dupfd_cloexec(&bound.fd, 0)?);
            if let ListenAddress::Unix(path) = listen.at {
                listening.paths.push(path);
            }
            listening.files.push(bound);
        }
        Ok(listening)
    }
}

/// `127.0.0.1:80`, `80`, `[::1]:80`, `tcp:…` or `unix:PATH`.
fn parse(rules: ListenRules<'_>, text: &str) -> anyhow::Result<Listen> {
    let is_whole = text.starts_with("tcp:") || text.starts_with("unix:");
    let whole = if is_whole {
        text.to_owned()
    } else {
        format!("tcp:{text}")
    };
    let mut listen: Listen = whole.parse().map_err(|error| {
        let hint = "use 127.0.0.1:PORT, [::1]:PORT or unix:PATH";
        HintedError::usage(format!("--listen {error}"), hint)
    })?;
    let what = format!("--listen {text}");
    match &listen.at {
        ListenAddress::Tcp(address) => refuse_remote(rules, &what, Some(*address))?,
        ListenAddress::Any(port) => {
            let any = SocketAddr::new(IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED), *port);
            refuse_remote(rules, &what, Some(any))?;
        }
        ListenAddress::Unix(_) => listen.mode = Some(listen.mode.unwrap_or(rules.mode)),
    }
    Ok(listen)
}

/// A server must not be exposed to a network by accident.
fn refuse_remote(
    rules: ListenRules<'_>,
    what: &str,
    address: Option<SocketAddr>,
) -> anyhow::Result<()> {
    let Some(address) = address.filter(|address| !address.ip().is_loopback()) else {
        return Ok(());
    };
    if !rules.allow_remote {
        let message = format!("{what}: {address} can be reached from other machines");
        let hint = "listen on 127.0.0.1 or a unix socket, or add --allow-remote";
        return Err(HintedError::usage(message, hint).into());
    }
    if rules.no_token {
        let message =
            format!("{what}: --no-token is allowed only for local addresses and unix sockets");
        return Err(HintedError::usage(message, "omit --no-token").into());
    }
    Ok(())
}

fn refused(listen: &Listen, error: &BindError) -> anyhow::Error {
    let plain = |code| HintedError {
        message: error.to_string(),
        hint: "choose another address with --listen".to_owned(),
        code,
    };
    let hinted = match error {
        BindError::Held { at } => held_by(at).unwrap_or_else(|| plain(exit::USAGE)),
        BindError::NoSocket { .. } => plain(exit::USAGE),
        _ => plain(exit::COULD_NOT_LOOK),
    };
    anyhow::Error::new(hinted).context(format!("--listen {listen}"))
}

/// The process that holds the address, if it can be found.
fn held_by(at: &ListenAddress) -> Option<HintedError> {
    let probe = Probe::new().ok()?;
    let ours = OwnProcesses {
        members: &[],
        service: "host",
        registered: &[],
    };
    let conflict = port::find_conflict(&probe, at, &ours).ok().flatten()?;
    Some(HintedError::usage(conflict.to_string(), conflict.remedy()))
}
