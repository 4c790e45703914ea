//! The setup of a keeper that was started before it was needed: one message with the owner's words
//! and the end of its pair.

use std::ffi::OsString;
use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt as _;

use rustix::io::Errno;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};

/// A few numbers and a path.
const LONGEST: usize = 16 * 1024;

/// Waits for the message. `None` if it never arrives: the other side is gone, or sent an invalid
/// one.
pub(super) fn awaited(link: &OwnedFd) -> Option<(OwnedFd, Vec<OsString>)> {
    let mut bytes = vec![0; LONGEST];
    loop {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let mut parts = [IoSliceMut::new(&mut bytes)];
        match recvmsg(link, &mut parts, &mut ancillary, RecvFlags::CMSG_CLOEXEC) {
            Err(Errno::INTR) => {}
            Err(_) => return None,
            Ok(received) => {
                let control = given(&mut ancillary)?;
                return Some((control, words(bytes.get(..received.bytes)?)));
            }
        }
    }
}

fn given(ancillary: &mut RecvAncillaryBuffer<'_>) -> Option<OwnedFd> {
    ancillary.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
        _ => None,
    })
}

/// Each word ends with a zero byte.
fn words(bytes: &[u8]) -> Vec<OsString> {
    let ended = bytes.strip_suffix(b"\0").unwrap_or(bytes);
    let each = ended.split(|byte| *byte == 0);
    each.map(|word| OsString::from_vec(word.to_vec())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_end_with_a_zero_byte() {
        assert_eq!(words(b"a=1\0leaf=/x y\0"), ["a=1", "leaf=/x y"]);
        assert_eq!(words(b"a=1"), ["a=1"]);
    }
}
