//! `/proc/PID/syscall`: the system call that a thread waits in.

use crate::ascii::{decimal, hexadecimal, words};

/// What a thread does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThreadCall {
    /// It runs, or could.
    Running,
    /// It waits, but in no system call: for a page, for instance.
    Outside,
    /// It waits in a system call.
    Waiting {
        /// The call, in the numbers of the machine.
        number: u64,
        /// Its arguments.
        arguments: [u64; 6],
    },
}

impl ThreadCall {
    /// Reads the line: the number, six arguments, two addresses. `None` if it has another form.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let mut words = words(bytes);
        match words.next()? {
            b"running" => Some(Self::Running),
            b"-1" => Some(Self::Outside),
            number => {
                let number = decimal(number)?;
                let mut arguments = [0; 6];
                for argument in &mut arguments {
                    *argument = hexadecimal(words.next()?.strip_prefix(b"0x")?)?;
                }
                Some(Self::Waiting { number, arguments })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::ThreadCall;

    #[test]
    fn lines_of_a_real_kernel() {
        let poll = b"7 0x7ffc 0x1 0xffffffff 0x0 0x0 0x8 0x7ffc10 0x7f20\n";
        let wanted = ThreadCall::Waiting {
            number: 7,
            arguments: [0x7ffc, 1, 0xffff_ffff, 0, 0, 8],
        };
        assert_eq!(ThreadCall::parse(poll), Some(wanted));
        assert_eq!(ThreadCall::parse(b"running\n"), Some(ThreadCall::Running));
        assert_eq!(
            ThreadCall::parse(b"-1 0x7ffd 0x7f11\n"),
            Some(ThreadCall::Outside)
        );
    }

    #[test]
    fn other_lines_are_not_guessed() {
        for line in ["", "\n", "45x 0x0", "45 0x3 0x7f00", "0 1 2 3 4 5 6 7 8"] {
            assert_eq!(ThreadCall::parse(line.as_bytes()), None, "{line}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(bytes: Vec<u8>) {
            let _ = ThreadCall::parse(&bytes);
        }
    }
}
