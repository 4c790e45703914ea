//! Reads memory of this process that may not be mapped. These are the only raw reads of the walk.
#![expect(unsafe_code, reason = "reads the interpreter's memory")]

/// A page, or part of one: if one end is readable, so is the other.
const PAGE: u64 = 4096;
/// Addresses below this are never mapped (`vm.mmap_min_addr`, which root may lower, but this stays
/// above it).
const LOWEST: u64 = PAGE;
/// Addresses from here on do not belong to the program.
const HIGHEST: u64 = if cfg!(target_arch = "x86_64") {
    1 << 47
} else {
    1 << 48
};

/// A source of memory to read from.
pub(crate) trait Memory: Copy {
    /// Whether these bytes can be read.
    fn is_readable(self, address: u64, length: u64) -> bool;

    /// Reads them.
    ///
    /// # Safety
    ///
    /// [`Self::is_readable`] returned true for a range that contains these bytes, and nothing was
    /// unmapped since.
    unsafe fn copy(self, address: u64, into: &mut [u8]);

    /// A range to read from, if it is readable.
    fn span(self, address: u64, length: u64) -> Option<Span<Self>> {
        self.is_readable(address, length).then_some(Span {
            memory: self,
            address,
            length,
        })
    }
}

/// A readable range.
#[derive(Clone, Copy)]
pub(crate) struct Span<M> {
    memory: M,
    address: u64,
    length: u64,
}

impl<M: Memory> Span<M> {
    /// Reads from `offset`, if all of it is in the range.
    #[inline]
    pub(crate) fn read(self, offset: u64, into: &mut [u8]) -> Option<()> {
        let end = offset.checked_add(into.len() as u64)?;
        if end > self.length {
            return None;
        }
        let address = self.address.checked_add(offset)?;
        // SAFETY: a span is only created for readable memory, and this is inside it.
        unsafe { self.memory.copy(address, into) };
        Some(())
    }

    #[inline]
    fn array<const N: usize>(self, offset: u64) -> Option<[u8; N]> {
        let mut bytes = [0; N];
        self.read(offset, &mut bytes)?;
        Some(bytes)
    }

    /// A pointer or a size.
    #[inline]
    pub(crate) fn word(self, offset: u16) -> Option<u64> {
        self.array(u64::from(offset)).map(u64::from_le_bytes)
    }

    /// A C `int`.
    #[inline]
    pub(crate) fn int(self, offset: u16) -> Option<i32> {
        self.array(u64::from(offset)).map(i32::from_le_bytes)
    }

    /// A C `char`.
    #[inline]
    pub(crate) fn byte(self, offset: u16) -> Option<u8> {
        self.array(u64::from(offset)).map(|[byte]: [u8; 1]| byte)
    }
}

/// Reads from every plausible address without asking: for pointers from structures that are known
/// to be valid.
#[derive(Clone, Copy)]
pub(crate) struct Direct(());

impl Direct {
    /// # Safety
    ///
    /// Every pointer that will be followed must be one that the interpreter itself would follow in
    /// this thread at this moment.
    pub(crate) const unsafe fn trusting() -> Self {
        Self(())
    }
}

impl Memory for Direct {
    #[inline]
    fn is_readable(self, address: u64, length: u64) -> bool {
        is_plausible(address, length)
    }

    #[inline]
    unsafe fn copy(self, address: u64, into: &mut [u8]) {
        // SAFETY: the caller guarantees that it is readable.
        unsafe { copy(address, into) }
    }
}

/// Asks the kernel first, page by page.
#[derive(Clone, Copy)]
pub(crate) struct ProbedMemory;

impl Memory for ProbedMemory {
    fn is_readable(self, address: u64, length: u64) -> bool {
        if !is_plausible(address, length) {
            return false;
        }
        let last = address.saturating_add(length.max(1) - 1) / PAGE * PAGE;
        let mut page = address / PAGE * PAGE;
        while page <= last {
            if !is_page_readable(page) {
                return false;
            }
            page = page.saturating_add(PAGE);
        }
        true
    }

    unsafe fn copy(self, address: u64, into: &mut [u8]) {
        // SAFETY: the caller guarantees that it is readable.
        unsafe { copy(address, into) }
    }
}

#[inline]
const fn is_plausible(address: u64, length: u64) -> bool {
    match address.checked_add(length) {
        Some(end) => address >= LOWEST && end <= HIGHEST,
        None => false,
    }
}

/// # Safety
///
/// The bytes are readable.
#[inline]
unsafe fn copy(address: u64, into: &mut [u8]) {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "other machines than those of 64 bits are refused"
    )]
    let from = core::ptr::with_exposed_provenance::<u8>(address as usize);
    // SAFETY: the caller guarantees the source; the target is a borrowed slice, so they cannot
    // overlap unless the interpreter's structures are in this library's buffers.
    unsafe { core::ptr::copy_nonoverlapping(from, into.as_mut_ptr(), into.len()) };
}

/// Whether the kernel can read there: `rt_sigprocmask` copies the new mask in before it rejects the
/// operation -1, so it returns EFAULT or EINVAL and changes nothing. Measured at a tenth of
/// `process_vm_readv`, and it needs no pid and no permission.
fn is_page_readable(page: u64) -> bool {
    const EINVAL: i64 = 22;
    rt_sigprocmask_of_nothing(page) == -EINVAL
}

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
fn rt_sigprocmask_of_nothing(mask: u64) -> i64 {
    let answer;
    // SAFETY: the system call only reads `mask`, which may be any number, and returns an error.
    unsafe {
        core::arch::asm!(
            "syscall",
            inlateout("rax") 14_i64 => answer,
            in("rdi") -1_i64,
            in("rsi") mask,
            in("rdx") 0,
            in("r10") 8,
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    answer
}

#[cfg(all(target_arch = "aarch64", target_os = "linux"))]
fn rt_sigprocmask_of_nothing(mask: u64) -> i64 {
    let answer;
    // SAFETY: the system call only reads `mask`, which may be any number, and returns an error.
    unsafe {
        core::arch::asm!(
            "svc 0",
            in("x8") 135_i64,
            inlateout("x0") -1_i64 => answer,
            in("x1") mask,
            in("x2") 0,
            in("x3") 8,
            options(nostack),
        );
    }
    answer
}

/// On other machines nothing is readable, and the walk is refused.
#[cfg(not(all(
    any(target_arch = "x86_64", target_arch = "aarch64"),
    target_os = "linux"
)))]
fn rt_sigprocmask_of_nothing(_mask: u64) -> i64 {
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_mapped_is_read_and_what_is_not_is_refused() {
        let bytes = 0x0123_4567_89ab_cdef_u64.to_le_bytes();
        let address = bytes.as_ptr().expose_provenance() as u64;
        let span = ProbedMemory
            .span(address, 8)
            .expect("own stack is readable");
        assert_eq!(span.word(0), Some(0x0123_4567_89ab_cdef));
        assert_eq!(span.int(4), Some(0x0123_4567));
        assert_eq!(span.byte(7), Some(1));
        assert_eq!(span.word(1), None);
        for address in [0, 8, LOWEST, HIGHEST - 8, HIGHEST, 1 << 63, u64::MAX - 3] {
            assert!(ProbedMemory.span(address, 8).is_none(), "{address:#x}");
        }
        assert!(ProbedMemory.span(address, 1 << 40).is_none());
    }
}
