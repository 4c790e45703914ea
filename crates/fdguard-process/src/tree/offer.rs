//! The owner's part where somebody else forks the program: it makes the pair, sends the other end
//! away, and hears from the keeper.

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

/// A tree that is not there yet. Dropped before it is attached, the other end is told by the end of
/// the pair, and ends what it began.
#[derive(Debug)]
pub struct Offer {
    ours: OwnedFd,
    theirs: Option<OwnedFd>,
    words: Words,
}

impl Offer {
    /// Makes the pair. `cgroup` tries a delegated one, as in a [`Plan`](crate::plan::Plan).
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

    /// The words for [`keep_here`](super::keep_here); whoever forks the program adds `main=PID`.
    #[must_use]
    pub fn words(&self) -> Vec<OsString> {
        self.words.encode()
    }

    /// The keeper's end, to be sent to whoever becomes it; absent after [`Offer::sent`].
    #[must_use]
    pub fn theirs(&self) -> Option<BorrowedFd<'_>> {
        self.theirs.as_ref().map(OwnedFd::as_fd)
    }

    /// Closes our copy of the keeper's end. Only then can the end of a keeper be heard that never
    /// said a word.
    pub fn sent(&mut self) {
        self.theirs = None;
    }

    /// Readable when [`Offer::attach`] tells more than before.
    #[must_use]
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.ours.as_fd()
    }

    /// The tree, if its keeper has said that the program runs. Never waits.
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

/// What became of an offer.
#[derive(Debug)]
pub enum Attach {
    /// The program runs, and this is its tree.
    Done(Tree),
    /// No message yet.
    NotYet(Offer),
}

impl Tree {
    /// Waits until a keeper that came by an exec says that the program runs, or that it does not: a
    /// few milliseconds. Async callers wait for [`Offer::fd`] and ask [`Offer::attach`]. Such a
    /// tree holds one descriptor; its keeper is reaped by whoever forked it.
    pub fn attach(mut offer: Offer) -> Result<Self, StartError> {
        offer.sent();
        let introduced = introduced(&offer.ours, RecvFlags::empty(), false);
        offer.decided(introduced)
    }
}
