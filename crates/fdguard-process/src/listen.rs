//! Sockets that fdguard binds for the program, so that they survive its restarts, and those
//! inherited from its parent ([`activation`]).
//!
//! `SO_REUSEADDR` is set, `SO_REUSEPORT` never: it would hide that another process has the port.
//! The sockets are blocking, as systemd's are.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::str::FromStr;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};

use crate::notify::message::is_name;

pub mod activation;
mod unix;

pub use unix::Path;

/// The kernel caps it at `net.core.somaxconn`.
const BACKLOG: i32 = 4096;

/// A socket to bind: `tcp:PORT`, `tcp:HOST:PORT`, `tcp:*:PORT`, `unix:PATH`, `unix:PATH,mode=0660`,
/// each optionally prefixed with `NAME=`.
///
/// `tcp:PORT` binds 127.0.0.1: nothing is offered to the network unless requested. `tcp:*:PORT`
/// binds all interfaces, IPv4 and, if the machine has it, IPv6.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listen {
    /// Its name in `LISTEN_FDNAMES`.
    pub name: Option<String>,
    /// The address.
    pub at: ListenAddress,
    /// The permissions of a unix socket's file; the umask decides if absent.
    pub mode: Option<u32>,
}

/// Where a socket is bound.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListenAddress {
    /// This address.
    Tcp(SocketAddr),
    /// This port on every interface.
    Any(u16),
    /// This path.
    Unix(PathBuf),
}

/// What is wrong with the text of a [`Listen`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?}: {why}")]
pub struct BadAddress {
    text: String,
    why: &'static str,
}

/// Why a socket could not be bound.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BindError {
    /// The address is in use.
    #[error("{at} is in use")]
    Held {
        /// The requested address.
        at: ListenAddress,
    },
    /// The file at the path is not a socket: it is left alone.
    #[error("cannot bind {path}: the file exists and is not a socket", path = .path.display())]
    NoSocket {
        /// The path.
        path: PathBuf,
    },
    /// Another operation failed.
    #[error("cannot listen on {at}: {step}: {source}")]
    Refused {
        /// The requested address.
        at: ListenAddress,
        /// The operation.
        step: &'static str,
        /// The reason.
        source: io::Error,
    },
}

/// A listening socket. On drop it is closed, and the file of a unix socket is removed if it is
/// unchanged.
#[derive(Debug)]
pub struct BoundSocket {
    /// The socket, close-on-exec.
    pub fd: OwnedFd,
    /// Its file, if it is a unix socket.
    file: Option<Path>,
}

impl Listen {
    /// Binds it and listens.
    pub fn bind(&self) -> Result<BoundSocket, BindError> {
        match &self.at {
            ListenAddress::Unix(path) => {
                let (fd, file) = unix::bind(path, self.mode).map_err(|error| match error {
                    unix::Failure::Held => BindError::Held {
                        at: self.at.clone(),
                    },
                    unix::Failure::NoSocket => BindError::NoSocket { path: path.clone() },
                    unix::Failure::Refused(step, source) => self.refused(step, source),
                })?;
                let file = Some(file);
                Ok(BoundSocket { fd, file })
            }
            ListenAddress::Tcp(address) => self.tcp(*address),
            ListenAddress::Any(port) => {
                let any = |ip: IpAddr| SocketAddr::new(ip, *port);
                match self.tcp(any(Ipv6Addr::UNSPECIFIED.into())) {
                    // IPv6 is missing or disabled on this machine.
                    Err(BindError::Refused { source, .. })
                        if [Errno::AFNOSUPPORT, Errno::ADDRNOTAVAIL]
                            .iter()
                            .any(|it| source.raw_os_error() == Some(it.raw_os_error())) =>
                    {
                        self.tcp(any(Ipv4Addr::UNSPECIFIED.into()))
                    }
                    bound => bound,
                }
            }
        }
    }

    fn tcp(&self, address: SocketAddr) -> Result<BoundSocket, BindError> {
        let step = |step: &'static str| {
            move |error: Errno| match error {
                Errno::ADDRINUSE => BindError::Held {
                    at: self.at.clone(),
                },
                error => self.refused(step, error),
            }
        };
        let family = if address.is_ipv6() {
            AddressFamily::INET6
        } else {
            AddressFamily::INET
        };
        let kind = SocketType::STREAM;
        let fd = rustix::net::socket_with(family, kind, SocketFlags::CLOEXEC, None)
            .map_err(step("socket"))?;
        sockopt::set_socket_reuseaddr(&fd, true).map_err(step("SO_REUSEADDR"))?;
        if address.ip() == IpAddr::V6(Ipv6Addr::UNSPECIFIED) {
            // Accept IPv4 and IPv6, whatever the host's default is.
            sockopt::set_ipv6_v6only(&fd, false).map_err(step("IPV6_V6ONLY"))?;
        }
        rustix::net::bind(&fd, &address).map_err(step("bind"))?;
        rustix::net::listen(&fd, BACKLOG).map_err(step("listen"))?;
        Ok(BoundSocket { fd, file: None })
    }

    fn refused(&self, step: &'static str, error: Errno) -> BindError {
        BindError::Refused {
            at: self.at.clone(),
            step,
            source: error.into(),
        }
    }
}

impl FromStr for Listen {
    type Err = BadAddress;

    fn from_str(text: &str) -> Result<Self, BadAddress> {
        let wrong = |why| BadAddress {
            text: text.to_owned(),
            why,
        };
        let (name, rest) = match text.split_once('=') {
            Some((name, rest)) if !name.contains(':') => (Some(name), rest),
            _ => (None, text),
        };
        if name.is_some_and(|name| name.is_empty() || !is_name(name)) {
            return Err(wrong(
                "the name must be 1 to 255 printable ASCII characters",
            ));
        }
        let name = name.map(str::to_owned);
        if let Some(path) = rest.strip_prefix("unix:") {
            let (path, mode) = unix_words(path).map_err(wrong)?;
            let at = ListenAddress::Unix(path.into());
            return Ok(Self { name, at, mode });
        }
        let Some(address) = rest.strip_prefix("tcp:") else {
            return Err(wrong("use tcp:PORT, tcp:HOST:PORT or unix:PATH"));
        };
        let at = tcp_words(address).map_err(wrong)?;
        let mode = None;
        Ok(Self { name, at, mode })
    }
}

fn unix_words(text: &str) -> Result<(&str, Option<u32>), &'static str> {
    let (path, mode) = match text.rsplit_once(",mode=") {
        None => (text, None),
        Some((path, mode)) => {
            let mode = u32::from_str_radix(mode, 8).ok();
            let mode = mode.filter(|mode| *mode <= 0o777);
            (
                path,
                Some(mode.ok_or("the mode must be octal, such as mode=0660")?),
            )
        }
    };
    if path.is_empty() || path.contains('\0') {
        return Err("the path is missing");
    }
    Ok((path, mode))
}

fn tcp_words(text: &str) -> Result<ListenAddress, &'static str> {
    let port = |text: &str| {
        text.parse::<u16>()
            .ok()
            .ok_or("the port must be 0 to 65535")
    };
    let Some((host, number)) = text.rsplit_once(':') else {
        let address = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port(text)?);
        return Ok(ListenAddress::Tcp(address));
    };
    let number = port(number)?;
    let host: IpAddr = match host {
        "*" => return Ok(ListenAddress::Any(number)),
        "localhost" => Ipv4Addr::LOCALHOST.into(),
        _ => {
            let six = host.strip_prefix('[').and_then(|it| it.strip_suffix(']'));
            let parsed = match six {
                Some(six) => six.parse::<Ipv6Addr>().ok().map(IpAddr::V6),
                None => host.parse::<Ipv4Addr>().ok().map(IpAddr::V4),
            };
            parsed.ok_or("the host must be an IPv4 address, an [IPv6] address, localhost or *")?
        }
    };
    Ok(ListenAddress::Tcp(SocketAddr::new(host, number)))
}

impl TryFrom<String> for Listen {
    type Error = BadAddress;

    fn try_from(text: String) -> Result<Self, BadAddress> {
        text.parse()
    }
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => write!(f, "tcp:{address}"),
            Self::Any(port) => write!(f, "tcp:*:{port}"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(name) = &self.name {
            write!(f, "{name}=")?;
        }
        write!(f, "{}", self.at)?;
        match self.mode {
            Some(mode) => write!(f, ",mode={mode:04o}"),
            None => Ok(()),
        }
    }
}

impl BoundSocket {
    /// The socket, without removing its file on drop.
    #[must_use]
    pub fn keep_file(mut self) -> OwnedFd {
        if let Some(file) = self.file.take() {
            file.keep();
        }
        self.fd
    }
}

#[cfg(test)]
mod tests;
