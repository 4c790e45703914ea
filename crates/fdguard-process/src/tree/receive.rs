//! Receives messages from a keeper.

use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};

use crate::keeper::message::{FromKeeper, LENGTH};

/// What arrived through the pair.
pub(super) enum KeeperMessage {
    Message(FromKeeper, Option<OwnedFd>),
    End,
}

/// The next message. The program's pidfd may be attached.
pub(super) fn receive(control: &OwnedFd, flags: RecvFlags) -> Result<KeeperMessage, Errno> {
    let mut bytes = [0; LENGTH];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut room = [IoSliceMut::new(&mut bytes)];
    let heard = recvmsg(
        control,
        &mut room,
        &mut ancillary,
        flags | RecvFlags::CMSG_CLOEXEC,
    )?;
    let pidfd = ancillary.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
        _ => None,
    });
    let said = bytes.get(..heard.bytes).and_then(FromKeeper::decode);
    Ok(said.map_or(KeeperMessage::End, |said| {
        KeeperMessage::Message(said, pidfd)
    }))
}
