//! `/proc/PID/status`.

use crate::ascii::{decimal, hexadecimal, lines, split_at_byte, words};

/// The relevant lines of a status file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcStatus<'a> {
    /// Command name, with the kernel's escapes for newline and backslash.
    pub name: &'a [u8],
    /// State letter.
    pub state: Option<u8>,
    /// Parent.
    pub ppid: Option<u32>,
    /// Real user.
    pub uid: Option<u32>,
    /// User of the files that it creates.
    pub file_uid: Option<u32>,
    /// Group of the files that it creates.
    pub file_gid: Option<u32>,
    /// Slots in the descriptor table.
    pub fd_size: Option<u64>,
    /// Number in the innermost pid namespace.
    pub ns_pid: Option<u32>,
    /// Whether it is a kernel thread: available since Linux 6.7.
    pub kernel_thread: Option<bool>,
}

impl<'a> ProcStatus<'a> {
    /// Reads a status file.
    #[must_use]
    pub fn parse(bytes: &'a [u8]) -> Self {
        let mut status = Self::default();
        for line in lines(bytes) {
            let Some((key, value)) = split_at_byte(line, b':') else {
                continue;
            };
            match key {
                b"Name" => status.name = value.strip_prefix(b"\t").unwrap_or(value),
                b"State" => status.state = value.trim_ascii().first().copied(),
                b"PPid" => status.ppid = number(value),
                b"Uid" => {
                    let mut words = words(value);
                    status.uid = words.next().and_then(number);
                    status.file_uid = words.nth(2).and_then(number);
                }
                b"Gid" => status.file_gid = words(value).nth(3).and_then(number),
                b"FDSize" => status.fd_size = decimal(value),
                b"Kthread" => status.kernel_thread = decimal(value).map(|flag| flag == 1),
                b"NSpid" => {
                    status.ns_pid = words(value).last().and_then(number);
                }
                // The memory lines follow: no needed field comes after them.
                b"VmPeak" => break,
                _ => {}
            }
        }
        status
    }
}

impl ProcStatus<'_> {
    /// Kernel threads are marked since Linux 6.7; before, they are `kthreadd` and its children.
    #[must_use]
    pub fn is_kernel_thread(&self) -> bool {
        self.kernel_thread.unwrap_or_else(|| {
            self.ppid == Some(2) || (self.name == b"kthreadd" && self.ppid == Some(0))
        })
    }

    /// The decoded name: the kernel writes a newline as `\n` and a backslash as `\\`.
    #[must_use]
    pub fn unescaped_name(&self) -> Vec<u8> {
        let mut name = Vec::with_capacity(self.name.len());
        let mut bytes = self.name.iter().copied().peekable();
        while let Some(byte) = bytes.next() {
            let escaped = if byte == b'\\' {
                bytes.next_if(|next| matches!(next, b'n' | b'\\'))
            } else {
                None
            };
            name.push(match escaped {
                Some(b'n') => b'\n',
                Some(other) => other,
                None => byte,
            });
        }
        name
    }
}

/// The signals of a thread, one bit for each: signal 1 is the lowest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SignalMasks {
    /// Sent to the thread or its process, and not taken yet.
    pub pending: u64,
    /// Held back by the thread.
    pub blocked: u64,
    /// Handled by the program.
    pub caught: u64,
}

impl SignalMasks {
    /// Reads a status file; `None` if one of the lines is missing.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let mask = |key| hexadecimal(value_of(bytes, key)?);
        Some(Self {
            pending: mask(b"SigPnd")? | mask(b"ShdPnd")?,
            blocked: mask(b"SigBlk")?,
            caught: mask(b"SigCgt")?,
        })
    }
}

/// Whether a thread has a shadow stack or another feature of control-flow protection
/// (`x86_Thread_features`, since Linux 6.6).
#[must_use]
pub fn has_thread_features(bytes: &[u8]) -> bool {
    value_of(bytes, b"x86_Thread_features").is_some_and(|names| words(names).next().is_some())
}

/// What stands behind `KEY:`.
fn value_of<'a>(bytes: &'a [u8], key: &[u8]) -> Option<&'a [u8]> {
    lines(bytes).find_map(|line| line.strip_prefix(key)?.strip_prefix(b":"))
}

/// The number in the line `KEY:`, without its unit: memory is in KiB.
#[must_use]
pub fn number_of(bytes: &[u8], key: &[u8]) -> Option<u64> {
    decimal(words(value_of(bytes, key)?).next()?)
}

/// Resident memory in bytes (`VmRSS`).
#[must_use]
pub fn resident(bytes: &[u8]) -> Option<u64> {
    number_of(bytes, b"VmRSS")?.checked_mul(1024)
}

fn number(bytes: &[u8]) -> Option<u32> {
    u32::try_from(decimal(bytes)?).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{ProcStatus, SignalMasks, has_thread_features, number_of, resident};

    #[test]
    fn a_status_file_of_a_real_kernel() {
        let status = ProcStatus::parse(b"Name:\tbash\nUmask:\t0022\nState:\tS (sleeping)\nTgid:\t77\nPid:\t77\nPPid:\t1\nTracerPid:\t0\nUid:\t1000\t1000\t1000\t1000\nFDSize:\t256\nGroups:\t\nNStgid:\t77\t5\nNSpid:\t77\t5\nKthread:\t0\nVmPeak:\t 8172 kB\n");
        assert_eq!(status.name, b"bash");
        assert_eq!(
            (status.ppid, status.uid, status.fd_size, status.ns_pid),
            (Some(1), Some(1000), Some(256), Some(5))
        );
        assert_eq!(
            (status.state, status.kernel_thread),
            (Some(b'S'), Some(false))
        );
    }

    #[test]
    fn files_belong_to_the_file_system_user() {
        let text = b"Name:\tx\nUid:\t1\t2\t3\t4\nGid:\t5\t6\t7\t8\nGroups:\t9\n";
        let status = ProcStatus::parse(text);
        assert_eq!(
            (status.uid, status.file_uid, status.file_gid),
            (Some(1), Some(4), Some(8))
        );
        let status = ProcStatus::parse(b"Uid:\t1\t2\n");
        assert_eq!(
            (status.uid, status.file_uid, status.file_gid),
            (Some(1), None, None)
        );
    }

    #[test]
    fn a_signal_for_the_process_is_pending_for_its_threads() {
        let text = b"SigQ:\t0/7823\nSigPnd:\t0000000000000001\nShdPnd:\t0000000000000004\n\
            SigBlk:\t0000000000010000\nSigIgn:\t0000000000001000\nSigCgt:\t8000000000000005\n";
        let wanted = SignalMasks {
            pending: 5,
            blocked: 0x1_0000,
            caught: 0x8000_0000_0000_0005,
        };
        assert_eq!(SignalMasks::parse(text), Some(wanted));
        assert_eq!(SignalMasks::parse(b"SigPnd:\t0\n"), None);
    }

    #[test]
    fn features_that_are_only_locked_are_not_in_use() {
        let none = b"x86_Thread_features:\t\nx86_Thread_features_locked:\tshstk wrss \n";
        assert!(!has_thread_features(none));
        assert!(has_thread_features(b"x86_Thread_features:\tshstk \n"));
        assert!(!has_thread_features(b"Name:\tx\n"));
    }

    #[test]
    fn numbers_are_found_by_their_key() {
        let text = b"Name:\tThreads\nThreads:\t12\nVmRSS:\t     340 kB\nSigQ:\t0/7823\n";
        assert_eq!(number_of(text, b"Threads"), Some(12));
        assert_eq!(resident(text), Some(340 * 1024));
        assert_eq!(number_of(text, b"SigQ"), None);
        assert_eq!(number_of(text, b"Thread"), None);
    }

    #[test]
    fn odd_names_come_back_as_they_are() {
        let name = |text: &[u8]| ProcStatus::parse(text).unescaped_name();
        assert_eq!(name(b"Name:\ta\\nb\\\\c\n"), b"a\nb\\c");
        assert_eq!(name(b"Name:\tplain\n"), b"plain");
        assert_eq!(name(b"Name:\t \xff x\n"), b" \xff x");
    }

    #[test]
    fn kernel_threads_are_told_on_old_kernels_too() {
        assert!(ProcStatus::parse(b"Name:\tkthreadd\nPPid:\t0\n").is_kernel_thread());
        assert!(ProcStatus::parse(b"Name:\tkworker\nPPid:\t2\n").is_kernel_thread());
        assert!(!ProcStatus::parse(b"Name:\tinit\nPPid:\t0\nKthread:\t0\n").is_kernel_thread());
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(bytes: Vec<u8>) {
            let _ = (ProcStatus::parse(&bytes), resident(&bytes));
            let _ = (SignalMasks::parse(&bytes), has_thread_features(&bytes));
        }
    }
}
