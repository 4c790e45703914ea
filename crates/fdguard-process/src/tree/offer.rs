//! The owner's part if another process forks the program: it makes the pair, sends one end away,
//! and receives messages from the keeper.

use std::ffi::OsString;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, socketpair};

use super::start::{KeeperGreeting, introduced};
use super::{KeeperProcess, StartError, Tree};
use crate::cgroup;
use crate::keeper::message::Step;
use crate::keeper::words::Words;
use crate::plan::TreeLimits;

/// A tree that does not exist yet. If it is dropped before it is attached, the other side sees the
/// pair closed, and ends what it began.
#[derive(Debug)]
pub struct Offer {
    ours: OwnedFd,
    theirs: Option<OwnedFd>,
    words: Words,
}

impl Offer {
    /// Makes the pair. `cgroup` tries a delegated cgroup, as in a [`Plan`](crate::plan::Plan).
    pub fn new(
        limits: TreeLimits,
        cgroup: bool,
        orphan_grace: Duration,
    ) -> Result<Self, StartError> {
        let flags = SocketFlags::CLOEXEC;
        let pair = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None);
        let (ours, theirs) = pair.map_err(StartError::refused(Step::Keeper))?;
        let leaf = cgroup
            .then(|| cgroup::next_path(limits != TreeLimits::default()))
            .flatten();
        let words = Words {
            orphan_grace,
            limits,
            leaf,
            main: None,
        };
        Ok(Self {
            ours,
            theirs: Some(theirs),
            words,
        })
    }

    /// The words for [`keep_here`](super::keep_here); the process that forks the program adds
    /// `main=PID`.
    #[must_use]
    pub fn words(&self) -> Vec<OsString> {
        self.words.encode()
    }

    /// The keeper's end, to be sent to the process that becomes the keeper; `None` after
    /// [`Offer::sent`].
    #[must_use]
    pub fn theirs(&self) -> Option<BorrowedFd<'_>> {
        self.theirs.as_ref().map(OwnedFd::as_fd)
    }

    /// Closes this process's copy of the keeper's end. Only then is the end of a keeper detected
    /// that never sent a message.
    pub fn sent(&mut self) {
        self.theirs = None;
    }

    /// Readable when [`Offer::attach`] may have news.
    #[must_use]
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.ours.as_fd()
    }

    /// The tree, if its keeper has reported that the program runs. Never waits.
    pub fn attach(mut self) -> Result<Attach, StartError> {
        self.sent();
        match introduced(&self.ours, RecvFlags::DONTWAIT, false) {
            Err(Errno::AGAIN) => Ok(Attach::NotYet(self)),
            introduced => self.decided(introduced).map(Attach::Done),
        }
    }

    fn decided(self, introduced: Result<KeeperGreeting, Errno>) -> Result<Tree, StartError> {
        match introduced {
            Ok(KeeperGreeting::Started(started)) => {
                let keeper = KeeperProcess {
                    pid: started.keeper,
                    started: Some(started.keeper_at),
                };
                Ok(Tree::new(keeper, self.ours, started, self.words.leaf, None))
            }
            Ok(KeeperGreeting::Failed { step, errno }) => Err(StartError::refused(step)(errno)),
            Err(errno) => Err(StartError::refused(Step::Keeper)(errno)),
        }
    }
}

/// The state of an offer.
#[derive(Debug)]
pub enum Attach {
    /// The program runs, and this is its tree.
    Done(Tree),
    /// No message yet.
    NotYet(Offer),
}

impl Tree {
    /// Waits until a keeper that was started by an exec reports that the program runs, or that it
    /// failed: a few milliseconds. Async callers wait for [`Offer::fd`] and call [`Offer::attach`].
    /// Such a tree holds one descriptor; the process that forked its keeper reaps it.
    pub fn attach(mut offer: Offer) -> Result<Self, StartError> {
        offer.sent();
        let introduced = introduced(&offer.ours, RecvFlags::empty(), false);
        offer.decided(introduced)
    }
}
