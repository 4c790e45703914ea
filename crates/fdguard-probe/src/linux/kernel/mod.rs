//! The kernel tier: all tables of the host in one walk inside the kernel, by a BPF iterator.
//!
//! Each record is made at one moment while the kernel holds the file, so that number, inode and
//! path belong together. What the kernel shows only in fdinfo is still read there, for those
//! descriptors alone. If the program cannot be loaded, there is no walk, and `/proc` is read as
//! usual.

mod common;
mod entry;
#[cfg(feature = "fuzzing")]
mod fuzzing;
mod process;
mod record;
pub(super) mod search;
mod socket;
mod stream;
pub(super) mod table;
pub(super) mod walk;

use std::sync::{Mutex, OnceLock};

use fdguard_core::Pid;
use fdguard_kernel::{DescriptorProgram, WantedRecords};

#[cfg(feature = "fuzzing")]
pub use self::fuzzing::fuzz_walk;
use self::stream::RecordStream;

/// The most programs, each for a thread with a part of all processes.
const MOST_PARTS: usize = 4;

/// The programs that write the records, each loaded when it is first needed, and removed from the
/// kernel when this is dropped.
#[derive(Debug, Default)]
pub(super) struct KernelReader {
    program: LoadedOnce,
    /// The same with what describes processes, too, which takes longer to load.
    describing: [LoadedOnce; MOST_PARTS],
}

#[derive(Debug, Default)]
struct LoadedOnce {
    /// Absent without the privilege (`CAP_BPF` and `CAP_PERFMON`), and on kernels that lack
    /// something it needs.
    program: OnceLock<Option<DescriptorProgram>>,
    /// Held while a walk is read: the program has one buffer, and one reader's wishes.
    turn: Mutex<()>,
}

impl KernelReader {
    /// The records of every table visible from fdguard's pid namespace.
    fn records(&self) -> Option<RecordStream<'_>> {
        // What was loaded is not loaded again.
        let [first, ..] = &self.describing;
        let (program, describes) = match first.program.get() {
            Some(Some(_)) => (first, true),
            _ => (&self.program, false),
        };
        program.walk(describes, None, WantedRecords::default())
    }

    /// The same for some of the processes, and with a record of each: each part has its own
    /// program. The number of parts is a power of two.
    fn processes(&self, part: u32, parts: u32) -> Option<RecordStream<'_>> {
        let wanted = WantedRecords {
            part: (parts - 1, part),
            processes: true,
        };
        let program = self.describing.get(usize::try_from(part).ok()?)?;
        program.walk(true, None, wanted)
    }

    /// The records of the table of one process, as `/proc/PID` shows it.
    fn records_of(&self, process: Pid) -> Option<RecordStream<'_>> {
        let wanted = WantedRecords::default();
        self.program.walk(false, Some(process), wanted)
    }
}

impl LoadedOnce {
    /// A walk over the table of one process, or over all.
    fn walk(
        &self,
        describes_processes: bool,
        of: Option<Pid>,
        wanted: WantedRecords,
    ) -> Option<RecordStream<'_>> {
        let Self { program, turn } = self;
        let load = || DescriptorProgram::load(describes_processes).ok();
        let program = program.get_or_init(load).as_ref()?;
        let walk = program.walk(of).ok()?;
        Some(RecordStream::new(walk, (program, turn), wanted))
    }
}

#[cfg(test)]
mod tests {
    use super::record::{Record, Tail};

    /// Whether fdguard's own descriptors are found as the kernel has them, where it may query them.
    #[test]
    fn our_own_descriptors_are_among_the_records() {
        let kernel = super::KernelReader::default();
        let Some(mut records) = kernel.records() else {
            testkit::skip("the kernel lets us load no iterator");
            return;
        };
        // All anonymous inodes are the same: a lock that one of them once had made every one look
        // locked.
        let counter = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).unwrap();
        rustix::fs::flock(&counter, rustix::fs::FlockOperation::LockExclusive).unwrap();
        rustix::fs::flock(&counter, rustix::fs::FlockOperation::Unlock).unwrap();
        let mut bytes = Vec::new();
        let mut chunk = Vec::new();
        while records.next_chunk(&mut chunk).unwrap() {
            bytes.extend_from_slice(&chunk);
        }
        let mut rest = &bytes[..];
        let mut own = Vec::new();
        while let Some((record, tail)) = Record::take(rest) {
            if record.pid == std::process::id() {
                own.push(record);
            }
            rest = tail;
        }
        assert!(rest.is_empty());
        let fd = super::super::files::number_of(records.as_fd());
        let found = own.iter().find(|record| record.fd == fd).unwrap();
        let Tail::Path(path) = found.tail else {
            panic!("{found:?}");
        };
        assert!(path.starts_with(b"anon_inode:"), "{found:?}");
        let stat = std::fs::read("/proc/self/stat").unwrap();
        let stat = fdguard_proc::stat::ProcStat::parse(&stat).unwrap();
        assert!(own.iter().all(|r| r.start_ticks() == stat.start_ticks));
    }
}
