//! Listening sockets bound elsewhere, registered with the reactor.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use rustix::net::{AddressFamily, sockopt};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};

use super::guard::Door;

/// A socket that listens.
#[derive(Debug)]
pub enum ListeningSocket {
    /// At an address.
    Tcp(TcpListener),
    /// At a path.
    Unix(UnixListener),
}

/// A connection.
#[derive(Debug)]
pub enum ClientLink {
    /// At an address.
    Tcp(TcpStream),
    /// At a path.
    Unix(UnixStream),
}

impl ListeningSocket {
    /// Adopts a listening socket, on the current runtime.
    pub fn from_fd(fd: OwnedFd) -> io::Result<Self> {
        if !sockopt::socket_acceptconn(&fd)? {
            let why = "the socket is not listening";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        rustix::io::ioctl_fionbio(&fd, true)?;
        match sockopt::socket_domain(&fd)? {
            AddressFamily::UNIX => UnixListener::from_std(fd.into()).map(Self::Unix),
            AddressFamily::INET | AddressFamily::INET6 => {
                TcpListener::from_std(fd.into()).map(Self::Tcp)
            }
            family => {
                let why = format!("unsupported socket family {}", family.as_raw());
                Err(io::Error::new(io::ErrorKind::Unsupported, why))
            }
        }
    }

    /// Its address; `None` for a path.
    #[must_use]
    pub fn address(&self) -> Option<SocketAddr> {
        match self {
            Self::Tcp(listener) => listener.local_addr().ok(),
            Self::Unix(_) => None,
        }
    }

    /// The next connection.
    pub async fn accept(&self) -> io::Result<(ClientLink, Door)> {
        match self {
            Self::Tcp(listener) => {
                let (stream, peer) = listener.accept().await?;
                // The address that was called, and not `*`.
                let local = stream.local_addr()?;
                let door = Door::Tcp { local, peer };
                // Small answers go at once; a failure only costs time.
                drop(stream.set_nodelay(true));
                Ok((ClientLink::Tcp(stream), door))
            }
            Self::Unix(listener) => {
                let (stream, _) = listener.accept().await?;
                let peer = sockopt::socket_peercred(&stream).ok();
                let pid = peer.and_then(|peer| u32::try_from(peer.pid.as_raw_pid()).ok());
                Ok((ClientLink::Unix(stream), Door::Unix { pid }))
            }
        }
    }
}
