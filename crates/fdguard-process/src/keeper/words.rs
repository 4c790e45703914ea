//! The command line of a keeper that is started by an exec: `name=value` words. Pure.

use std::ffi::{CString, OsStr, OsString};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::time::Duration;

use crate::plan::TreeLimits;

/// What such a keeper needs besides its descriptors.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Words {
    /// From the owner's end to the first KILL.
    pub(crate) orphan_grace: Duration,
    /// What its program may use.
    pub(crate) limits: TreeLimits,
    /// The cgroup that it may try to create.
    pub(crate) leaf: Option<CString>,
    /// The program; only its parent knows it, and adds it last.
    pub(crate) main: Option<u32>,
}

impl Words {
    pub(crate) fn encode(&self) -> Vec<OsString> {
        let TreeLimits {
            memory,
            cpu,
            processes,
            descriptors,
        } = self.limits;
        let numbers = [
            ("orphan-ms", Some(millis(self.orphan_grace))),
            ("memory", memory),
            ("cpu-ms", cpu.map(millis)),
            ("processes", processes.map(u64::from)),
            ("descriptors", descriptors),
            ("main", self.main.map(u64::from)),
        ];
        let word =
            |(name, value): (&str, Option<u64>)| Some(OsString::from(format!("{name}={}", value?)));
        let leaf = self.leaf.as_ref().map(|leaf| {
            let bytes = [b"leaf=", leaf.as_bytes()].concat();
            OsString::from_vec(bytes)
        });
        numbers.into_iter().filter_map(word).chain(leaf).collect()
    }

    /// `None` for words that no owner sends.
    pub(crate) fn decode(words: impl IntoIterator<Item = OsString>) -> Option<Self> {
        let mut told = Self::default();
        for word in words {
            let bytes = word.as_bytes();
            let at = bytes.iter().position(|byte| *byte == b'=')?;
            let (name, value) = (bytes.get(..at)?, bytes.get(at + 1..)?);
            let number = || OsStr::from_bytes(value).to_str()?.parse::<u64>().ok();
            match name {
                b"orphan-ms" => told.orphan_grace = Duration::from_millis(number()?),
                b"memory" => told.limits.memory = Some(number()?),
                b"cpu-ms" => told.limits.cpu = Some(Duration::from_millis(number()?)),
                b"processes" => told.limits.processes = Some(number()?.try_into().ok()?),
                b"descriptors" => told.limits.descriptors = Some(number()?),
                b"main" => told.main = Some(number()?.try_into().ok()?),
                b"leaf" => told.leaf = Some(CString::new(value).ok()?),
                _ => return None,
            }
        }
        Some(told)
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_owner_says_on_a_command_line_arrives() {
        let told = Words {
            orphan_grace: Duration::from_millis(1500),
            limits: TreeLimits {
                memory: Some(1 << 40),
                cpu: Some(Duration::from_millis(7)),
                processes: Some(8),
                descriptors: Some(9),
            },
            leaf: Some(c"/sys/fs/cgroup/a=b".into()),
            main: Some(4711),
        };
        assert_eq!(Words::decode(told.encode()), Some(told));
        let none = Words::default();
        assert_eq!(Words::decode(none.encode()), Some(none));
    }

    #[test]
    fn other_words_are_refused() {
        for word in ["", "main", "main=x", "other=1", "processes=4294967296"] {
            assert_eq!(Words::decode([word.into()]), None, "{word}");
        }
    }
}
