//! Which objects own a descriptor.

use rustc_hash::{FxHashMap, FxHashSet};

use super::JavaHeap;
use crate::memory::Memory;

/// `NioSocketImpl`: closed, or about to be.
const SOCKET_CLOSING: u64 = 4;

impl JavaHeap {
    /// The owners of each descriptor that is wanted. Objects that say that they are closed leave
    /// their number behind: they own nothing.
    pub(super) fn owners(
        &self,
        is_wanted: &dyn Fn(u32) -> bool,
        memory: &dyn Memory,
    ) -> FxHashMap<u32, Vec<u32>> {
        let closed = self.closed();
        let mut owners: FxHashMap<u32, Vec<u32>> = FxHashMap::default();
        for number in &self.numbers {
            let index = u32::try_from(number.index).unwrap_or(u32::MAX);
            let field = self.names.field(number.class, index).unwrap_or_default();
            let fd = match (self.names.class(number.class), field) {
                ("java/io/FileDescriptor", "fd")
                | ("sun/nio/ch/EPollSelectorImpl", "epfd" | "fd0" | "fd1")
                | ("sun/nio/ch/EventFD", "efd")
                | ("sun/nio/fs/UnixSecureDirectoryStream", "dfd")
                | ("sun/nio/fs/LinuxWatchService$Poller", "ifd") => {
                    u32::try_from(number.value).ok()
                }
                // The C library's DIR begins with the number.
                ("sun/nio/fs/UnixDirectoryStream", "dp") => {
                    let mut bytes = [0; 4];
                    let is_read = number.value != 0 && memory.read(number.value, &mut bytes);
                    is_read.then_some(u32::from_le_bytes(bytes))
                }
                _ => None,
            };
            let is_closed =
                || closed.contains(&number.object) || self.is_held_closed(number.object, &closed);
            if let Some(fd) = fd.filter(|fd| is_wanted(*fd) && !is_closed()) {
                let objects = owners.entry(fd).or_default();
                if !objects.contains(&number.object) {
                    objects.push(number.object);
                }
            }
        }
        owners
    }

    /// Sockets, channels and streams that say so.
    fn closed(&self) -> FxHashSet<u32> {
        let is_closed = |number: &&fdguard_wire::JavaNumber| {
            let index = u32::try_from(number.index).unwrap_or(u32::MAX);
            let field = self.names.field(number.class, index).unwrap_or_default();
            match (self.names.class(number.class), field) {
                ("sun/nio/ch/NioSocketImpl", "state") => number.value >= SOCKET_CLOSING,
                (_, "closed" | "isClosed") => number.value != 0,
                (_, "open") => number.value == 0,
                _ => false,
            }
        };
        let closed = self.numbers.iter().filter(is_closed);
        closed.map(|number| number.object).collect()
    }

    /// Whether an object belongs to one that is closed.
    fn is_held_closed(&self, object: u32, closed: &FxHashSet<u32>) -> bool {
        self.edges_to(object)
            .any(|edge| closed.contains(&edge.from))
    }
}
