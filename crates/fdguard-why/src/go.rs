//! Owners of descriptors in a Go program: the `poll.FD` that `net` and `os` keep for each. What
//! holds such an object is not known: the types of Go's heap are not read. See decision 197.

use std::collections::BTreeMap;

use crate::answer::{Basis, Chain, Why};
use crate::memory::Memory;

/// Where `poll.FD` has the number; its lock is before it.
const NUMBER: u64 = 16;
/// Where it has the runtime's record of the poller, before Go 1.21 and since.
const POLLERS: [u64; 2] = [24, 32];
/// Where that record has the number.
const POLLER_NUMBER: u64 = 8;
/// How long a `poll.FD` is; what follows belongs to the object around it.
const SIZE: u64 = 56;
/// The most of a heap that is read at once.
const CHUNK: usize = 1 << 20;
/// The longest name of a file that is read.
const LONGEST_NAME: u64 = 4096;

/// What owns a descriptor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GoOwner {
    /// A connection or a listener.
    Socket,
    /// An `os.File` with this name.
    File(String),
}

/// Looks for the owners of these descriptors in ranges of a program's memory.
#[must_use]
pub fn find_go_owners(
    memory: &dyn Memory,
    ranges: &[(u64, u64)],
    fds: &[u32],
) -> BTreeMap<u32, GoOwner> {
    let mut found = BTreeMap::new();
    let mut bytes = vec![0; CHUNK];
    for (start, end) in ranges {
        let mut at = *start;
        while at < *end {
            let length = usize::try_from(end - at).unwrap_or(CHUNK).min(CHUNK);
            let Some(room) = bytes.get_mut(..length) else {
                break;
            };
            // Parts of an arena may have no memory yet.
            if memory.read(at, room) {
                find_in(memory, room, at, fds, &mut found);
            }
            at = at.saturating_add(length as u64);
        }
    }
    found
}

fn find_in(
    memory: &dyn Memory,
    bytes: &[u8],
    start: u64,
    fds: &[u32],
    found: &mut BTreeMap<u32, GoOwner>,
) {
    let (words, _) = bytes.as_chunks::<8>();
    for (at, word) in words.iter().enumerate() {
        let Ok(number) = u32::try_from(u64::from_le_bytes(*word)) else {
            continue;
        };
        if found.contains_key(&number) || fds.binary_search(&number).is_err() {
            continue;
        }
        let place = start.saturating_add(at as u64 * 8);
        if let Some(object) = place.checked_sub(NUMBER).filter(|_| number > 2)
            && has_poller(memory, object, number)
            && let Some(owner) = kind(memory, object)
        {
            found.insert(number, owner);
        }
    }
}

/// Whether the object's poller has the same number: one word alone is a coincidence.
fn has_poller(memory: &dyn Memory, object: u64, number: u32) -> bool {
    POLLERS.iter().any(|offset| {
        let poller = word(memory, object.saturating_add(*offset));
        let poller = poller.filter(|poller| *poller > 4096 && poller % 8 == 0);
        let same = poller.and_then(|poller| word(memory, poller.saturating_add(POLLER_NUMBER)));
        same == Some(u64::from(number))
    })
}

/// What is around a `poll.FD`: `os.file` has its name after it, `net.netFD` family and type. Words
/// of a stack may look like a `poll.FD`, but not like these.
fn kind(memory: &dyn Memory, object: u64) -> Option<GoOwner> {
    let after = |at: u64| word(memory, object.saturating_add(SIZE + at));
    let (first, second) = (after(0)?, after(8)?);
    // AF_UNIX, AF_INET, AF_INET6, and the types of sockets.
    if matches!(first, 1 | 2 | 10) && (1..=5).contains(&second) {
        return Some(GoOwner::Socket);
    }
    if first > 4096 && (1..=LONGEST_NAME).contains(&second) {
        let mut name = vec![0; usize::try_from(second).unwrap_or(0)];
        if memory.read(first, &mut name)
            && !name.contains(&0)
            && let Ok(name) = String::from_utf8(name)
        {
            return Some(GoOwner::File(name));
        }
    }
    None
}

fn word(memory: &dyn Memory, at: u64) -> Option<u64> {
    let mut bytes = [0; 8];
    memory
        .read(at, &mut bytes)
        .then(|| u64::from_le_bytes(bytes))
}

/// The answers for groups of descriptors.
#[must_use]
pub fn go_answers(groups: &[Vec<u32>], owners: &BTreeMap<u32, GoOwner>) -> Vec<Why> {
    groups.iter().map(|group| answer(group, owners)).collect()
}

fn answer(group: &[u32], owners: &BTreeMap<u32, GoOwner>) -> Why {
    let mut chains: Vec<Chain> = Vec::new();
    for fd in group {
        let (owner, text) = match owners.get(fd) {
            Some(GoOwner::Socket) => (Some("net.netFD"), "a net.Conn or net.Listener owns it"),
            Some(GoOwner::File(_)) => (Some("os.File"), "an os.File owns it"),
            None => (
                None,
                "no object of net or os with a poller has this number: a regular file, or a plain \
                 number",
            ),
        };
        let text = match owner {
            Some(_) => format!("{text}; Go keeps no record of what holds that object"),
            None => text.to_owned(),
        };
        match chains.iter_mut().find(|chain| chain.text == text) {
            Some(chain) => {
                chain.fds.push(*fd);
                chain.count += 1;
            }
            None => chains.push(Chain {
                basis: Basis::NoHolderFound,
                count: 1,
                fds: vec![*fd],
                owner: owner.map(str::to_owned),
                holders: Vec::new(),
                root: None,
                also: None,
                text,
            }),
        }
    }
    chains.sort_by_key(|chain| std::cmp::Reverse(chain.count));
    Why {
        chains,
        ..Why::default()
    }
}

#[cfg(test)]
mod tests {
    use super::{GoOwner, find_go_owners, go_answers};
    use crate::memory::Memory;

    const HEAP: u64 = 0x00c0_0000_0000;

    struct Heap(Vec<u64>);

    impl Memory for Heap {
        fn read(&self, address: u64, into: &mut [u8]) -> bool {
            let bytes: Vec<u8> = self.0.iter().flat_map(|word| word.to_le_bytes()).collect();
            let found = address
                .checked_sub(HEAP)
                .and_then(|at| usize::try_from(at).ok())
                .and_then(|at| bytes.get(at..at + into.len()));
            found.map(|found| into.copy_from_slice(found)).is_some()
        }
    }

    /// A `poll.FD` with its poller at a word, and what follows it.
    fn object(heap: &mut Vec<u64>, number: u64, is_new: bool, poller: u64, after: [u64; 2]) {
        heap.extend([0, 0, number]);
        heap.extend(if is_new { [0, poller] } else { [poller, 0] });
        heap.extend([0, 0]);
        heap.extend(after);
    }

    #[test]
    fn an_owner_has_a_poller_with_the_same_number() {
        // Pollers first: link and number.
        let mut heap = vec![0, 7, 0, 8, 0, 9];
        let poller = |at: u64| HEAP + at * 16;
        object(&mut heap, 7, false, poller(0), [2, 1]);
        let name = HEAP + 8 * 32;
        object(&mut heap, 8, true, poller(1), [name, 4]);
        // Its poller is another's.
        object(&mut heap, 10, true, poller(2), [2, 1]);
        heap.resize(32, 0);
        heap.push(u64::from_le_bytes(*b"/tmp\0\0\0\0"));
        let end = HEAP + heap.len() as u64 * 8;
        let owners = find_go_owners(&Heap(heap), &[(HEAP, end)], &[7, 8, 9, 10]);
        let expected = [(7, GoOwner::Socket), (8, GoOwner::File("/tmp".to_owned()))];
        assert_eq!(owners.into_iter().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn what_has_no_owner_is_said_to_have_none() {
        let owners = [(7, GoOwner::Socket)].into_iter().collect();
        let why = &go_answers(&[vec![7, 8, 9]], &owners)[0];
        let counts: Vec<_> = why
            .chains
            .iter()
            .map(|one| (one.count, one.owner.clone()))
            .collect();
        assert_eq!(counts, [(2, None), (1, Some("net.netFD".to_owned()))]);
    }
}
