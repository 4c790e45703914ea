//! The process of the warm interpreter: start, requests, end.

use std::ffi::OsString;
use std::io::{self, IoSlice, Read as _};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use fdguard_process::plan::{InheritedFd, Plan};
use fdguard_process::tree::{Offer, Options, StopPlan, Tree, TreeEvent};
use rustix::fs::{Mode, OFlags, open};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags,
    SocketType, recv, sendmsg, socketpair,
};
use rustix::pipe::{PipeFlags, pipe_with};
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use super::request::Request;
use crate::Error;
use crate::environment::inherited;
use crate::watched_tree::{SharedTree, WatchedTree, readable, writable};

const PROGRAM: &str = include_str!("zygote.py");
/// Cold machines and slow disks; usually 100 ms.
const LONGEST_START: Duration = Duration::from_secs(20);
/// How much of its last output is read.
const LAST_WORDS: u64 = 4096;

/// A warm interpreter.
#[derive(Debug)]
pub(super) struct Zygote {
    pub(super) tree: Tree,
    requests: OwnedFd,
}

/// Its state.
pub(super) enum ZygoteState {
    Lives,
    Ended(String),
}

impl Zygote {
    pub(super) async fn start(python: &Path, keeper: &Path, driver: &str) -> Result<Self, Error> {
        let (requests, theirs) = pair().map_err(|errno| {
            Error::io("cannot create a socket for the warm interpreter")(errno.into())
        })?;
        let (words, their_words) =
            pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK).map_err(|errno| {
                Error::io("cannot create a pipe for the warm interpreter's output")(errno.into())
            })?;
        let null = open(c"/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty());
        let null = null.map_err(|errno| Error::io("/dev/null")(errno.into()))?;
        let command = vec![
            python.into(),
            "-c".into(),
            PROGRAM.into(),
            driver.into(),
            keeper.into(),
        ];
        let plan = plan(command, null, their_words, theirs);
        let started = spawn_blocking(move || {
            let options = Options {
                keep_pidfd: false,
                ..Options::default()
            };
            Tree::start_with(&plan, options)
        });
        let tree = started.await.map_err(|_ends| Error::Closing)??;
        let ready = timeout(LONGEST_START, ready(&requests)).await;
        if !matches!(ready, Ok(Ok(true))) {
            let said = last_words(words);
            end(tree).await;
            return Err(Error::NotReady {
                after: LONGEST_START,
                said,
            });
        }
        Ok(Self { tree, requests })
    }

    /// Whether it lives; never waits.
    pub(super) fn told(&mut self) -> ZygoteState {
        match self.tree.told() {
            None if !self.tree.is_over() => ZygoteState::Lives,
            Some(TreeEvent::MainEnded { exit, .. } | TreeEvent::Empty { exit, .. }) => {
                ZygoteState::Ended(format!("{exit:?}"))
            }
            _ => ZygoteState::Ended("its keeper was killed".to_owned()),
        }
    }

    /// Requests a session.
    pub(super) async fn send(
        &self,
        request: &Request,
        plan: &Plan,
        offer: &Offer,
    ) -> io::Result<()> {
        let bytes = request.bytes();
        let fds = descriptors(plan, offer).ok_or(io::ErrorKind::InvalidInput)?;
        loop {
            match send_once(&self.requests, &bytes, &fds) {
                Err(Errno::AGAIN) => writable(self.requests.as_fd()).await?,
                Err(Errno::INTR) => {}
                result => return Ok(result?),
            }
        }
    }
}

fn pair() -> Result<(OwnedFd, OwnedFd), Errno> {
    let flags = SocketFlags::CLOEXEC;
    socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
}

fn plan(command: Vec<OsString>, null: OwnedFd, words: OwnedFd, requests: OwnedFd) -> Plan {
    let null = Arc::new(null);
    let fd = Arc::new(requests);
    Plan {
        dir: Some("/".into()),
        stdio: [Some(Arc::clone(&null)), Some(null), Some(Arc::new(words))],
        handed: vec![InheritedFd { fd, name: None }],
        ..Plan::new(command, inherited())
    }
}

/// Waits for its first message; false if it ended instead.
async fn ready(requests: &OwnedFd) -> io::Result<bool> {
    loop {
        readable(requests.as_fd()).await?;
        let mut word = [0; 16];
        match recv(requests, &mut word, RecvFlags::DONTWAIT) {
            Ok((_, length)) => return Ok(length > 0),
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}

/// The last line that it wrote.
fn last_words(words: OwnedFd) -> String {
    let mut bytes = Vec::new();
    // Keep what was read before an error.
    let _no_more = std::fs::File::from(words)
        .take(LAST_WORDS)
        .read_to_end(&mut bytes);
    let text = String::from_utf8_lossy(&bytes);
    text.lines().next_back().unwrap_or_default().to_owned()
}

/// The keeper's end of the pair, the streams, the side channel.
fn descriptors<'p>(plan: &'p Plan, offer: &'p Offer) -> Option<[BorrowedFd<'p>; 5]> {
    let [stdin, stdout, stderr] = &plan.stdio;
    let [side] = &plan.handed[..] else {
        return None;
    };
    Some([
        offer.theirs()?,
        stdin.as_ref()?.as_fd(),
        stdout.as_ref()?.as_fd(),
        stderr.as_ref()?.as_fd(),
        side.fd.as_fd(),
    ])
}

fn send_once(socket: &OwnedFd, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> Result<(), Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(5))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    ancillary.push(SendAncillaryMessage::ScmRights(fds));
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    sendmsg(socket, &[IoSlice::new(bytes)], &mut ancillary, flags).map(drop)
}

/// Whether nothing is left of a tree; never waits.
pub(super) fn is_over(tree: &mut Tree) -> bool {
    while tree.told().is_some() {}
    tree.is_over()
}

/// Ends a tree, and waits for it.
pub(super) async fn end(tree: Tree) {
    if tree.is_over() {
        return;
    }
    let Ok(tree) = WatchedTree::new(tree, &SharedTree::default()) else {
        return;
    };
    tree.stop(StopPlan {
        signal: 9,
        grace: Duration::ZERO,
    });
    while !matches!(
        tree.told().await,
        Ok(TreeEvent::Empty { .. } | TreeEvent::Lost) | Err(_)
    ) {}
    tree.release().await;
}
