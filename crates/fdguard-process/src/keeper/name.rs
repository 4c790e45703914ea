//! Names of files in `/proc`, built in memory of fixed size.

use std::ffi::CStr;

/// The longest is `/proc/4194304/task/4194304/children`.
const ROOM: usize = 64;

/// A short path. If it does not fit it becomes empty, and an empty path cannot be opened.
#[derive(Clone, Copy, Debug)]
pub(super) struct Name {
    bytes: [u8; ROOM],
    length: usize,
}

impl Name {
    /// `/proc/PID/…`.
    pub(super) fn of_process(pid: u32, rest: &str) -> Self {
        Self::empty().text("/proc/").number(pid).text(rest)
    }

    /// `/proc/PID/task/TID/…`.
    pub(super) fn of_thread(pid: u32, thread: u32, rest: &str) -> Self {
        Self::of_process(pid, "/task/").number(thread).text(rest)
    }

    pub(super) fn as_c_str(&self) -> &CStr {
        CStr::from_bytes_until_nul(&self.bytes).unwrap_or_default()
    }

    fn empty() -> Self {
        Self {
            bytes: [0; ROOM],
            length: 0,
        }
    }

    fn text(mut self, text: &str) -> Self {
        for byte in text.bytes() {
            self.push(byte);
        }
        self
    }

    fn number(mut self, number: u32) -> Self {
        let mut power = 1_000_000_000;
        while power > 1 && number / power == 0 {
            power /= 10;
        }
        while power > 0 {
            self.push(b'0' + u8::try_from(number / power % 10).unwrap_or(0));
            power /= 10;
        }
        self
    }

    fn push(&mut self, byte: u8) {
        // The last byte stays zero.
        if self.length + 1 < ROOM
            && let Some(room) = self.bytes.get_mut(self.length)
        {
            *room = byte;
            self.length += 1;
        } else {
            *self = Self::empty();
            self.length = ROOM;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_made_without_memory() {
        assert_eq!(Name::of_process(1, "/stat").as_c_str(), c"/proc/1/stat");
        let longest = Name::of_thread(4_294_967_295, 4_194_304, "/children");
        assert_eq!(
            longest.as_c_str(),
            c"/proc/4294967295/task/4194304/children"
        );
    }

    #[test]
    fn what_does_not_fit_is_no_name() {
        let name = Name::of_process(1, &"/x".repeat(40)).text("more");
        assert_eq!(name.as_c_str(), c"");
    }
}
