//! The kernel tier: all tables of the host in one walk inside the kernel, by a BPF iterator.
//!
//! Each record is made at one moment while the kernel holds the file, so that number, inode and
//! path belong together. What the kernel tells only through fdinfo is still read there, of those
//! descriptors alone. Where the program may not be loaded there is no walk, and `/proc` is read as
//! ever.

mod assembler;
pub(super) mod call;
mod entry;
mod layout;
mod program;
mod record;
mod table;
pub(super) mod walk;

use std::os::fd::{AsFd as _, OwnedFd};

use rustix::io::Errno;

use self::layout::Layout;
use crate::parse::btf::Btf;

/// An iterator over every descriptor that can be seen from our pid namespace; reading it gives
/// records. `None` without the privilege (`CAP_BPF` and `CAP_PERFMON`), and on kernels that lack
/// any of what it needs.
fn iterator() -> Option<OwnedFd> {
    let description = description()?;
    let layout = Layout::from_btf(&Btf::parse(&description)?)?;
    let code = program::assemble(&layout)?;
    let program = call::load(&code, layout.target).ok()?;
    let link = call::link(program.as_fd()).ok()?;
    call::walk(link.as_fd()).ok()
}

/// The kernel's own description of its types.
fn description() -> Option<Vec<u8>> {
    // The layouts below are those of 64 bits; without the right to load there is no need to read
    // it.
    let able = cfg!(target_pointer_width = "64") && may_load();
    able.then(|| std::fs::read("/sys/kernel/btf/vmlinux").ok())
        .flatten()
}

/// Whether it is worth trying: the description is long, and most users may not load anything.
fn may_load() -> bool {
    use rustix::thread::CapabilitySet as Set;
    rustix::thread::capabilities(None).is_ok_and(|sets| {
        let may = |wanted: Set| sets.effective.contains(wanted);
        may(Set::SYS_ADMIN) || may(Set::BPF | Set::PERFMON)
    })
}

/// Reads what there is into the buffer; 0 at the end.
fn read(iterator: &OwnedFd, buffer: &mut [u8]) -> Result<usize, Errno> {
    loop {
        match rustix::io::read(iterator, &mut *buffer) {
            // After a million descriptors of which none was written the kernel lets us breathe.
            Err(Errno::AGAIN | Errno::INTR) => {}
            outcome => return outcome,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::record::Record;

    /// Whether our own descriptors are found as the kernel knows them, where we may ask.
    #[test]
    fn our_own_descriptors_are_among_the_records() {
        let Some(iterator) = super::iterator() else {
            testkit::skip("the kernel lets us load no iterator");
            return;
        };
        // All anonymous inodes are one: a lock that one of them had once made every one look
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
        let stat = crate::parse::stat::ProcStat::parse(&stat).unwrap();
        assert!(own.iter().all(|r| r.start_ticks() == stat.start_ticks));
    }
}
