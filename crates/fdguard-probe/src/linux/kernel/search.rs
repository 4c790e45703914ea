//! Which processes hold something: one walk over all tables, to search only those.

use fdguard_core::Pid;
use rustc_hash::FxHashSet;

use super::super::Probe;
use super::KernelReader;
use super::record::{Record, Tail};

/// From this many descriptors on, a walk takes less than reading the links.
const WORTH_A_WALK: u64 = 4096;

/// What a record shows of a thing that may be searched for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Glimpse<'a> {
    /// A socket or an anonymous pipe, by its inode.
    Inode(u64),
    /// An event counter, by the number that the kernel gave it.
    Eventfd(u64),
    /// A file or an anonymous inode, by the text of its link, and its inode.
    Link(&'a [u8], u64),
    /// It must be looked at.
    Unknown,
}

impl Probe {
    /// Those of the processes that hold a thing for which `is_sought` holds, by a walk over all
    /// tables. `None` if there can be none, or if it is not worthwhile.
    pub(in super::super) fn keep_holders(
        &self,
        kernel: &KernelReader,
        pids: &[Pid],
        is_sought: impl Fn(Glimpse<'_>) -> bool,
    ) -> Option<Vec<Pid>> {
        let size = |pid: &Pid| self.table_stat(*pid).map_or(0, |stat| stat.st_size);
        let total: i64 = pids.iter().map(size).sum();
        if !self.real || !self.sizes || u64::try_from(total).ok()? < WORTH_A_WALK {
            return None;
        }
        let holders = holders(kernel, is_sought)?;
        Some(
            pids.iter()
                .copied()
                .filter(|pid| holders.contains(pid))
                .collect(),
        )
    }
}

/// `None` if the walk could not be made to its end.
fn holders(
    kernel: &KernelReader,
    is_sought: impl Fn(Glimpse<'_>) -> bool,
) -> Option<FxHashSet<Pid>> {
    let mut records = kernel.records()?;
    let mut found = FxHashSet::default();
    let mut chunk = Vec::new();
    let mut last = 0;
    while records.next_chunk(&mut chunk).ok()? {
        let mut rest = &chunk[..];
        while let Some((record, tail)) = Record::take(rest) {
            rest = tail;
            if record.pid != last && is_sought(glimpse(&record)) {
                last = record.pid;
                found.insert(record.pid);
            }
        }
    }
    Some(found)
}

fn glimpse<'a>(record: &Record<'a>) -> Glimpse<'a> {
    match record.tail {
        _ if !record.is_sure() => Glimpse::Unknown,
        _ if record.is_socket_or_pipe() => Glimpse::Inode(record.ino),
        Tail::Eventfd { id, .. } => Glimpse::Eventfd(u64::from(id)),
        Tail::Path(text) => Glimpse::Link(text, record.ino),
        Tail::Timerfd { .. } | Tail::Signalfd(_) | Tail::Pidfd(_) | Tail::Epoll(_) => {
            Glimpse::Link(b"", record.ino)
        }
        _ => Glimpse::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::super::KernelReader;
    use super::{Glimpse, holders};

    #[test]
    fn the_holders_of_a_pipe_and_of_a_file_are_found() {
        let (reader, _writer) = rustix::pipe::pipe().unwrap();
        let ino = rustix::fs::fstat(&reader).unwrap().st_ino;
        let file = tempfile::NamedTempFile::new().unwrap();
        let path = file.path().as_os_str().as_encoded_bytes();
        let kernel = KernelReader::default();
        let by_inode = holders(&kernel, |glimpse| glimpse == Glimpse::Inode(ino));
        let Some(by_inode) = by_inode else {
            testkit::skip("the kernel lets us load no iterator");
            return;
        };
        let own = std::process::id();
        assert_eq!(by_inode.into_iter().collect::<Vec<_>>(), [own]);
        let is_file =
            |glimpse: Glimpse<'_>| matches!(glimpse, Glimpse::Link(link, _) if link == path);
        let by_path = holders(&kernel, is_file).unwrap();
        assert_eq!(by_path.into_iter().collect::<Vec<_>>(), [own]);
        assert!(holders(&kernel, |_| false).unwrap().is_empty());
    }
}
