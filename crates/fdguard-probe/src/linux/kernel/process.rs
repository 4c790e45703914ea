//! The record of a process, which precedes those of its descriptors. Pure.

use fdguard_core::Pid;
use fdguard_core::snapshot::Limits;

use super::record::field;

/// A limit that is none.
const INFINITE: u64 = u64::MAX;

/// What identifies the cgroups of a process: the kernel's set of them, and the number of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct CgroupKey([u64; 2]);

/// What identifies the file that a process runs, and its name: mount, name, inode and device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct ExeKey([u64; 4]);

/// A process as the kernel saw it before its descriptors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ProcessRecord {
    pub(super) limits: Limits,
    pub(super) cgroups: CgroupKey,
    pub(super) exe: ExeKey,
    /// The inode of its network namespace, if that could be read.
    pub(super) netns: Option<u32>,
    pub(super) ppid: Pid,
    pub(super) pgid: Pid,
    /// Its pid in its own namespace.
    pub(super) ns_pid: Pid,
    pub(super) threads: u32,
    /// The real user, as the first user namespace counts.
    pub(super) uid: u32,
    pub(super) table_size: u32,
    comm: [u8; 16],
}

impl ProcessRecord {
    /// `None` if the bytes are too short.
    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        let word = |at: usize| field(bytes, at).map(u32::from_ne_bytes);
        let long = |at: usize| field(bytes, at).map(u64::from_ne_bytes);
        let limit = |at: usize| Some(long(at)?).map(|limit| (limit != INFINITE).then_some(limit));
        Some(Self {
            limits: Limits {
                soft: limit(0)?,
                hard: limit(8)?,
            },
            cgroups: CgroupKey([long(16)?, long(24)?]),
            exe: ExeKey([long(32)?, long(40)?, long(48)?, u64::from(word(56)?)]),
            netns: Some(word(60)?).filter(|ino| *ino != 0),
            ppid: word(64)?,
            pgid: word(68)?,
            ns_pid: word(72)?,
            threads: word(76)?,
            uid: word(80)?,
            table_size: word(84)?,
            comm: field(bytes, 88)?,
        })
    }

    /// The command name.
    pub(super) fn comm(&self) -> &[u8] {
        let end = self.comm.iter().position(|byte| *byte == 0);
        &self.comm[..end.unwrap_or(self.comm.len())]
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::ProcessRecord;

    #[test]
    fn a_record_that_is_too_short_is_none() {
        let mut bytes = vec![0; 104];
        bytes[..8].copy_from_slice(&1024_u64.to_ne_bytes());
        bytes[8..16].fill(0xff);
        bytes[88..93].copy_from_slice(b"herd7");
        let record = ProcessRecord::read(&bytes).unwrap();
        assert_eq!(record.comm(), b"herd7");
        assert_eq!((record.limits.soft, record.limits.hard), (Some(1024), None));
        assert_eq!(record.netns, None);
        assert_eq!(ProcessRecord::read(&bytes[..103]), None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(bytes: Vec<u8>) {
            if let Some(record) = ProcessRecord::read(&bytes) {
                prop_assert!(record.comm().len() <= 16);
            }
        }
    }
}
