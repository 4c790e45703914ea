//! `/proc/PID/status`.

use bstr::ByteSlice as _;

use super::ascii::{decimal, words};

/// The lines of a status file that we use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Status<'a> {
    /// Command name, with the kernel's escapes for newline and backslash.
    pub name: &'a [u8],
    /// State letter.
    pub state: Option<u8>,
    /// Parent.
    pub ppid: Option<u32>,
    /// Real user.
    pub uid: Option<u32>,
    /// Slots in the descriptor table.
    pub fd_size: Option<u64>,
    /// Number in the innermost pid namespace.
    pub ns_pid: Option<u32>,
    /// Whether it is a kernel thread: told since Linux 6.7.
    pub kernel_thread: Option<bool>,
}

impl<'a> Status<'a> {
    /// Reads a status file.
    #[must_use]
    pub fn parse(bytes: &'a [u8]) -> Self {
        let mut status = Self::default();
        for line in bytes.lines() {
            let Some((key, value)) = line.split_once_str(b":") else {
                continue;
            };
            match key {
                b"Name" => status.name = value.strip_prefix(b"\t").unwrap_or(value),
                b"State" => status.state = value.trim_ascii().first().copied(),
                b"PPid" => status.ppid = number(value),
                b"Uid" => status.uid = words(value).next().and_then(number),
                b"FDSize" => status.fd_size = decimal(value),
                b"Kthread" => status.kernel_thread = decimal(value).map(|flag| flag == 1),
                b"NSpid" => {
                    status.ns_pid = words(value).last().and_then(number);
                }
                // Memory follows: nothing of ours stands behind it.
                b"VmPeak" => break,
                _ => {}
            }
        }
        status
    }
}

fn number(bytes: &[u8]) -> Option<u32> {
    u32::try_from(decimal(bytes)?).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::Status;

    #[test]
    fn a_status_file_of_a_real_kernel() {
        let status = Status::parse(b"Name:\tbash\nUmask:\t0022\nState:\tS (sleeping)\nTgid:\t77\nPid:\t77\nPPid:\t1\nTracerPid:\t0\nUid:\t1000\t1000\t1000\t1000\nFDSize:\t256\nGroups:\t\nNStgid:\t77\t5\nNSpid:\t77\t5\nKthread:\t0\nVmPeak:\t 8172 kB\n");
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

    proptest! {
        #[test]
        fn any_bytes_are_survived(bytes: Vec<u8>) {
            let _ = Status::parse(&bytes);
        }
    }
}
