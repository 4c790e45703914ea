//! The kernel tier: all tables of the host in one walk inside the kernel, by a BPF iterator.
//!
//! Each record is made at one moment while the kernel holds the file, so that number, inode and
//! path belong together. What the kernel shows only in fdinfo is still read there, for those
//! descriptors alone. If the program cannot be loaded, there is no walk, and `/proc` is read as
//! usual.

mod assembler;
mod entry;
mod layout;
mod program;
mod record;
mod table;
pub(super) mod walk;

use std::os::fd::{AsFd as _, OwnedFd};

use fdguard_kernel::btf::Btf;
use fdguard_kernel::call::{self, NewProgram, ProgramKind};
use rustix::io::Errno;

use self::layout::Layout;

/// An iterator over every descriptor visible from fdguard's pid namespace; reading it returns
/// records. `None` without the privilege (`CAP_BPF` and `CAP_PERFMON`), and on kernels that lack
/// something it needs.
fn iterator() -> Option<OwnedFd> {
    let description = description()?;
    let layout = Layout::from_btf(&Btf::parse_for(&description, layout::TYPES)?)?;
    let code = program::assemble(&layout)?;
    let program = call::load_program(&NewProgram {
        name: "fdguard",
        kind: ProgramKind::Iterator(layout.target),
        code: &code,
        types: None,
        functions: &[],
    });
    let program = program.ok()?;
    let link = call::create_link(program.as_fd(), call::ITERATOR).ok()?;
    call::create_walk(link.as_fd()).ok()
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

/// Reads available data into the buffer; 0 at the end.
fn read(iterator: &OwnedFd, buffer: &mut [u8]) -> Result<usize, Errno> {
    loop {
        match rustix::io::read(iterator, &mut *buffer) {
            // After a million descriptors without a record the kernel returns early.
            Err(Errno::AGAIN | Errno::INTR) => {}
            outcome => return outcome,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::record::Record;

    /// Whether fdguard's own descriptors are found as the kernel has them, where it may query them.
    #[test]
    fn our_own_descriptors_are_among_the_records() {
        let Some(iterator) = super::iterator() else {
            testkit::skip("the kernel lets us load no iterator");
            return;
        };
        // All anonymous inodes are the same: a lock that one of them once had made every one look
        // locked.
        let counter = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).unwrap();
        rustix::fs::flock(&counter, rustix::fs::FlockOperation::LockExclusive).unwrap();
        rustix::fs::flock(&counter, rustix::fs::FlockOperation::Unlock).unwrap();
        let mut bytes = Vec::new();
        let mut buffer = vec![0; 1 << 16];
        loop {
            match super::read(&iterator, &mut buffer).unwrap() {
                0 => break,
                length => bytes.extend_from_slice(&buffer[..length]),
            }
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
        let fd = super::super::files::number_of(&iterator);
        let found = own.iter().find(|record| record.fd == fd).unwrap();
        assert!(found.path.starts_with(b"anon_inode:"), "{found:?}");
        let stat = std::fs::read("/proc/self/stat").unwrap();
        let stat = fdguard_proc::stat::ProcStat::parse(&stat).unwrap();
        assert!(own.iter().all(|r| r.start_ticks() == stat.start_ticks));
    }
}
