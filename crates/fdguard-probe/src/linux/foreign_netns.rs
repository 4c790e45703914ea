//! Sockets that belong to another network namespace than the process that holds them.
//!
//! A socket stays in the namespace that it was created in: a daemon that enters a container, or
//! receives a socket from one, holds sockets that no table of its own namespace lists.

use std::collections::HashMap;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use rustix::net::{AddressFamily, SocketFlags, SocketType};

use super::socket::SocketTable;
use super::socket_query;

/// The namespace of a process.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Home {
    /// Its inode.
    pub(super) ino: Option<u64>,
    /// Whether it is fdguard's namespace.
    pub(super) is_ours: bool,
}

/// Where a socket is.
#[derive(Clone, Debug)]
pub(super) enum Place {
    /// In the namespace of its process.
    Home(Option<u64>),
    /// In another one, with its tables if they could be read.
    Foreign(Option<u64>, Option<Arc<SocketTable>>),
    /// Unknown, for lack of permission.
    Unknown,
}

impl Place {
    /// The inode of the namespace.
    pub(super) fn ino(&self) -> Option<u64> {
        match self {
            Self::Home(ino) | Self::Foreign(ino, _) => *ino,
            Self::Unknown => None,
        }
    }

    /// The tables of the other namespace.
    pub(super) fn table(&self) -> Option<&SocketTable> {
        match self {
            Self::Foreign(_, table) => table.as_deref(),
            _ => None,
        }
    }

    pub(super) fn is_foreign(&self) -> bool {
        matches!(self, Self::Foreign(..))
    }

    /// Whether the tables that could list the socket were read.
    pub(super) fn is_settled(&self) -> bool {
        matches!(self, Self::Home(_) | Self::Foreign(_, Some(_)))
    }
}

/// The namespaces of sockets that are not in their process's namespace: each is queried once.
#[derive(Debug)]
pub(super) struct ForeignNetns<'p> {
    proc: BorrowedFd<'p>,
    /// By cookie: the inode, if it can be read.
    inodes: Mutex<HashMap<u64, Option<u64>>>,
    tables: Mutex<HashMap<u64, Option<Arc<SocketTable>>>>,
    /// The cookie of fdguard's namespace.
    ours: OnceLock<Option<u64>>,
}

impl<'p> ForeignNetns<'p> {
    /// Starts without any query.
    pub(super) fn new(proc: BorrowedFd<'p>) -> Self {
        Self {
            proc,
            inodes: Mutex::default(),
            tables: Mutex::default(),
            ours: OnceLock::new(),
        }
    }

    /// Where this socket is, seen from a process whose namespace is `home`.
    pub(super) fn place(&self, socket: BorrowedFd<'_>, home: Home) -> Place {
        let cookie = socket_query::namespace_cookie(socket);
        if home.is_ours && cookie.is_some() && cookie == self.our_cookie() {
            return Place::Home(home.ino);
        }
        let known = cookie.and_then(|cookie| lock(&self.inodes).get(&cookie).copied());
        let ino = known.unwrap_or_else(|| {
            let namespace = socket_query::namespace(socket).ok();
            let ino = namespace.as_ref().and_then(inode);
            lock(&self.inodes).extend(cookie.map(|cookie| (cookie, ino)));
            ino
        });
        match ino {
            Some(_) if ino == home.ino => Place::Home(ino),
            Some(number) => Place::Foreign(ino, self.table(number, socket)),
            None if home.is_ours && cookie.is_some() => Place::Foreign(None, None),
            None => Place::Unknown,
        }
    }

    /// The tables of the namespace of this socket, read once.
    fn table(&self, ino: u64, socket: BorrowedFd<'_>) -> Option<Arc<SocketTable>> {
        let read = || {
            let namespace = socket_query::namespace(socket).ok()?;
            let table = SocketTable::whole(namespace.as_fd(), self.proc);
            table.ok().map(Arc::new)
        };
        lock(&self.tables).entry(ino).or_insert_with(read).clone()
    }

    fn our_cookie(&self) -> Option<u64> {
        *self.ours.get_or_init(|| {
            let flags = SocketFlags::CLOEXEC;
            let family = AddressFamily::UNIX;
            let socket = rustix::net::socket_with(family, SocketType::DGRAM, flags, None).ok()?;
            socket_query::namespace_cookie(socket.as_fd())
        })
    }
}

fn inode(namespace: &OwnedFd) -> Option<u64> {
    rustix::fs::fstat(namespace).ok().map(|stat| stat.st_ino)
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
