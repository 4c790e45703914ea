//! The kernel tier: all tables of the host in one walk inside the kernel, by a BPF iterator.
//!
//! Each record is made at one moment while the kernel holds the file, so that number, inode and
//! path belong together. What the kernel shows only in fdinfo is still read there, for those
//! descriptors alone. If the program cannot be loaded, there is no walk, and `/proc` is read as
//! usual.

mod assembler;
pub(super) mod call;
mod entry;
mod layout;
mod program;
mod record;
mod stream;
pub(super) mod table;
pub(super) mod walk;

use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::OnceLock;

use fdguard_core::Pid;

use self::layout::Layout;
use self::stream::RecordStream;
use crate::parse::btf::Btf;

/// The program that writes the records, loaded when it is first needed and removed from the kernel
/// when this is dropped.
#[derive(Debug, Default)]
pub(super) struct KernelReader {
    /// Absent without the privilege (`CAP_BPF` and `CAP_PERFMON`), and on kernels that lack
    /// something it needs.
    program: OnceLock<Option<OwnedFd>>,
}

impl KernelReader {
    /// The records of the table of one process, as `/proc/PID` shows it; or of every table visible
    /// from fdguard's pid namespace.
    fn records(&self, of: Option<Pid>) -> Option<RecordStream> {
        let program = self.program.get_or_init(load).as_ref()?;
        let link = call::link(program.as_fd(), of).ok()?;
        call::walk(link.as_fd()).ok().map(RecordStream::new)
    }
}

fn load() -> Option<OwnedFd> {
    let description = description()?;
    let layout = Layout::from_btf(&Btf::parse(&description)?)?;
    let code = program::assemble(&layout)?;
    call::load(&code, layout.target).ok()
}

/// The kernel's type information (BTF).
fn description() -> Option<Vec<u8>> {
    // The layouts below are for 64 bits; without permission to load a program there is no need to
    // read it.
    let able = cfg!(target_pointer_width = "64") && may_load();
    able.then(|| std::fs::read("/sys/kernel/btf/vmlinux").ok())
        .flatten()
}

/// Whether it is worth trying: the type information is long, and most users may not load programs.
fn may_load() -> bool {
    use rustix::thread::CapabilitySet as Set;
    rustix::thread::capabilities(None).is_ok_and(|sets| {
        let may = |wanted: Set| sets.effective.contains(wanted);
        may(Set::SYS_ADMIN) || may(Set::BPF | Set::PERFMON)
    })
}

#[cfg(test)]
mod tests {
    use super::record::Record;

    /// Whether fdguard's own descriptors are found as the kernel has them, where it may query them.
    #[test]
    fn our_own_descriptors_are_among_the_records() {
        let Some(mut records) = super::KernelReader::default().records(None) else {
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
        assert!(found.path.starts_with(b"anon_inode:"), "{found:?}");
        let stat = std::fs::read("/proc/self/stat").unwrap();
        let stat = fdguard_proc::stat::ProcStat::parse(&stat).unwrap();
        assert!(own.iter().all(|r| r.start_ticks() == stat.start_ticks));
    }
}
