//! Mounts that hold only one kind of thing.

use std::sync::OnceLock;

use fdguard_core::Text;
use fdguard_proc::mountinfo::{self, MountEntry};
use rustc_hash::{FxHashMap, FxHashSet};

/// What kind of pseudo file system a mount is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mount {
    Sockets,
    Pipes,
    Anonymous,
}

/// The mounts learned so far. The kernel mounts its pseudo file systems once and for good, so the
/// first descriptor on one shows what all others on it are: from then on the mount id in fdinfo
/// determines the kind, the link need not be read, and one read makes the whole record.
#[derive(Debug, Default)]
pub(super) struct Mounts {
    sockets: OnceLock<u64>,
    pipes: OnceLock<u64>,
    /// Two of them: process handles have their own file system since Linux 6.9.
    anonymous: [OnceLock<u64>; 2],
    /// Mounts of fdguard's namespace on local file systems, where checking a name cannot block.
    local: FxHashSet<u64>,
    /// Device numbers of the mounts of fdguard's namespace.
    devices: FxHashMap<u64, Text>,
}

impl Mounts {
    /// With the local mounts of fdguard's namespace, from its mountinfo.
    pub(super) fn parse(mountinfo: &[u8]) -> Self {
        Self {
            local: mountinfo::mounts(mountinfo)
                .filter(MountEntry::is_local)
                .map(|mount| mount.id)
                .collect(),
            devices: mountinfo::devices(mountinfo)
                .map(|(mount, device)| (mount, Text::from(device)))
                .collect(),
            ..Self::default()
        }
    }

    /// Whether names on this mount can be looked up without blocking.
    pub(super) fn is_local(&self, mnt: u64) -> bool {
        self.local.contains(&mnt)
    }

    /// The device number of a mount of fdguard's namespace.
    pub(super) fn device(&self, mnt: u64) -> Option<&Text> {
        self.devices.get(&mnt)
    }

    /// The kind of everything on this mount, once known.
    pub(super) fn kind(&self, mnt: u64) -> Option<Mount> {
        let is = |known: &OnceLock<u64>| known.get() == Some(&mnt);
        if is(&self.sockets) {
            Some(Mount::Sockets)
        } else if is(&self.pipes) {
            Some(Mount::Pipes)
        } else {
            self.anonymous.iter().any(is).then_some(Mount::Anonymous)
        }
    }

    /// Remembers what a link showed.
    pub(super) fn learn(&self, mnt: u64, kind: Mount) {
        if self.kind(mnt).is_some() {
            return;
        }
        let slots = match kind {
            Mount::Sockets => std::slice::from_ref(&self.sockets),
            Mount::Pipes => std::slice::from_ref(&self.pipes),
            Mount::Anonymous => &self.anonymous[..],
        };
        for slot in slots {
            if slot.set(mnt).is_ok() {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Mount, Mounts};

    #[test]
    fn a_mount_is_what_its_first_descriptor_showed() {
        let mounts = Mounts::default();
        assert_eq!(mounts.kind(10), None);
        mounts.learn(10, Mount::Sockets);
        mounts.learn(17, Mount::Anonymous);
        mounts.learn(17, Mount::Anonymous);
        mounts.learn(4, Mount::Anonymous);
        assert_eq!(mounts.kind(10), Some(Mount::Sockets));
        assert_eq!(mounts.kind(17), Some(Mount::Anonymous));
        assert_eq!(mounts.kind(4), Some(Mount::Anonymous));
        assert_eq!(mounts.kind(16), None);
    }
}
