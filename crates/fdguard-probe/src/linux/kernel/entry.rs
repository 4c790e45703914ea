//! One descriptor from its record: pure.

use super::super::classify::{self, FileStat};
use super::super::reader::Seen;
use super::program::{PIPEFS, SOCKFS};
use super::record::Record;
use crate::parse::fdinfo::Fdinfo;
use crate::parse::link::Link;

/// File systems whose inodes hold what `statx` would say: nothing lies above or behind them that answers for
/// them, as with overlays and networks.
const PLAIN: [u64; 10] = [
    0xef53,      // ext2, ext3, ext4
    0x5846_5342, // xfs
    0x9123_683e, // btrfs
    0xf2f5_2010, // f2fs
    0x0102_1994, // tmpfs, devtmpfs, memory files
    0x8584_58f6, // ramfs
    0x9584_58f6, // hugetlbfs
    0x1cd1,      // devpts
    0x7371_7368, // squashfs
    0xe0f5_e1e2, // erofs
];

/// The descriptor as `/proc` would show it; `None` where `/proc` says more, or may say something else.
pub(super) fn of(record: &Record<'_>) -> Option<Seen> {
    let info = head(record);
    if !record.is_sure() || record.mnt == 0 {
        return None;
    }
    // What fdinfo adds for a socket is not used.
    if record.magic == u64::from(SOCKFS) {
        return Some(Seen::Socket(classify::socket(record.fd, &info, record.ino)));
    }
    if record.has_more() {
        return None;
    }
    if record.magic == u64::from(PIPEFS) {
        return Some(Seen::Entry(classify::pipe(record.fd, &info, record.ino)));
    }
    let entry = match Link::parse(record.path) {
        Link::Path { path, marked } => {
            // A living file with the mark: it lost this one of its names, or is named like that.
            let doubtful = marked && record.links > 0;
            if doubtful || !PLAIN.contains(&record.magic) {
                return None;
            }
            classify::path(record.fd, &info, path, marked, Some(&stat(record)))
        }
        Link::Anonymous(raw) => {
            let class = classify::anonymous_class(raw);
            // Of these fdinfo always has lines.
            if !classify::agrees(&class, &info) {
                return None;
            }
            classify::anonymous(record.fd, &info, class)
        }
        Link::Numbered { name, ino } if ino == record.ino => {
            classify::other(record.fd, &info, name, record.path)
        }
        _ => return None,
    };
    Some(Seen::Entry(entry))
}

/// The head of its fdinfo.
fn head(record: &Record<'_>) -> Fdinfo<'static> {
    Fdinfo {
        pos: u64::try_from(record.pos).ok(),
        flags: Some(u64::from(record.flags)),
        mnt: Some(u64::from(record.mnt)),
        ino: Some(record.ino),
        rest: b"",
    }
}

fn stat(record: &Record<'_>) -> FileStat {
    FileStat {
        mode: record.mode,
        links: record.links,
        ino: record.ino,
        mnt: u64::from(record.mnt),
        size: record.size,
        rdev: (record.rdev >> 20, record.rdev & 0xf_ffff),
    }
}
