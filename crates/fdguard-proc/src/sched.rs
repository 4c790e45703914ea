//! `/proc/PID/sched`: a thread as the scheduler sees it.

use std::time::Duration;

use crate::ascii::{decimal, lines, split_at_byte};

/// When a thread last ran, by the clock of the scheduler: `se.exec_start : 4012964.733444`, in
/// milliseconds. `None` without `CONFIG_SCHED_DEBUG`.
#[must_use]
pub fn last_run(bytes: &[u8]) -> Option<Duration> {
    let line = lines(bytes).find_map(|line| line.strip_prefix(b"se.exec_start"))?;
    let (_, value) = split_at_byte(line, b':')?;
    let (whole, part) = split_at_byte(value, b'.')?;
    // The kernel writes six digits, the nanoseconds.
    let part = decimal(part).filter(|_| part.trim_ascii().len() == 6)?;
    Duration::from_millis(decimal(whole)?).checked_add(Duration::from_nanos(part))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::last_run;

    #[test]
    fn a_file_of_a_real_kernel() {
        let text = b"python (12, #threads: 2)\n-------\n\
            se.exec_start                                :       4012964.733444\n\
            se.vruntime                                  :          1234.000001\n";
        let wanted = Duration::from_millis(4_012_964) + Duration::from_nanos(733_444);
        assert_eq!(last_run(text), Some(wanted));
    }

    #[test]
    fn what_is_not_exact_is_left_out() {
        for text in [
            "",
            "se.exec_start : much\n",
            "se.exec_start : 9.5\n",
            "se.exec_start : -1.000000\n",
        ] {
            assert_eq!(last_run(text.as_bytes()), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(bytes: Vec<u8>) {
            let _ = last_run(&bytes);
        }
    }
}
