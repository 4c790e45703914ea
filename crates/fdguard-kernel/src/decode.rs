//! Turns the records of the ring into events. Pure; `bpf/records.h` has the layout.

use std::collections::HashMap;

use crate::{KernelEvent, MappedFile, Occurrence};

/// Bytes of a record without numbers.
const RECORD: usize = 72;
/// Bytes of each part of a path.
const NAME: usize = 64;

/// Decodes records in the order of the ring.
#[derive(Debug, Default)]
pub(crate) struct Decoder {
    /// Open numbers of threads whose event has not come yet.
    numbers: HashMap<u32, Vec<u32>>,
}

/// The fields of a record.
struct Record<'a>(&'a [u8]);

impl Record<'_> {
    fn word(&self, at: usize) -> Option<u32> {
        Some(u32::from_ne_bytes(*self.0.get(at..)?.first_chunk()?))
    }

    fn half(&self, at: usize) -> Option<u16> {
        Some(u16::from_ne_bytes(*self.0.get(at..)?.first_chunk()?))
    }

    fn long(&self, at: usize) -> Option<u64> {
        Some(u64::from_ne_bytes(*self.0.get(at..)?.first_chunk()?))
    }
}

impl Decoder {
    /// The event of this record; `None` if it is a part of one, or unknown.
    pub(crate) fn decode(&mut self, bytes: &[u8]) -> Option<KernelEvent> {
        let record = Record(bytes);
        let tid = record.word(20)?;
        let kind = record.half(28)?;
        if kind == 11 {
            self.add_numbers(tid, record.word(32)?, bytes.get(RECORD..)?);
            return None;
        }
        let what = self.occurrence(&record, tid, kind)?;
        Some(KernelEvent {
            at: record.long(0)?,
            table: record.long(8)?,
            pid: record.word(16)?,
            tid,
            stack: record.word(24)?,
            what,
        })
    }

    fn occurrence(&mut self, record: &Record<'_>, tid: u32, kind: u16) -> Option<Occurrence> {
        let errno = record.half(30)?;
        let (fd, call) = (record.word(32)?, record.word(36)?);
        let file = record.long(40)?;
        Some(match kind {
            1 => Occurrence::Opened {
                fd,
                call,
                file,
                arguments: [record.long(48)?, record.long(56)?, record.long(64)?],
            },
            2 => Occurrence::Closed {
                fd,
                call,
                errno,
                file,
                is_finalized: record.long(48)? != 0,
            },
            3 => Occurrence::ClosedRange {
                first: fd,
                last: call,
            },
            4 => Occurrence::Refused { call, errno },
            5 => Occurrence::BadUse { fd, call },
            6 => Occurrence::ClosedInUse {
                fd,
                call,
                inside: u32::try_from(file).ok()?,
            },
            7 => Occurrence::Forked {
                child: fd,
                child_table: file,
                open: self.take_numbers(tid, call),
            },
            8 => Occurrence::Executed {
                open: self.take_numbers(tid, call)?,
            },
            9 => Occurrence::Exited,
            10 => Occurrence::Unshared {
                from: file,
                open: self.take_numbers(tid, call),
            },
            12 => Occurrence::Mapped(Box::new(MappedFile {
                start: record.long(48)?,
                end: record.long(56)?,
                offset: record.long(64)?,
                is_program: call == 1,
                inode: file,
                path: path(record.0.get(RECORD..)?),
            })),
            13 => Occurrence::Started { child: fd },
            14 => Occurrence::Reaped { child: fd },
            _ => return None,
        })
    }

    fn add_numbers(&mut self, tid: u32, first: u32, words: &[u8]) {
        let numbers = self.numbers.entry(tid).or_default();
        // A list that was given up is replaced by the next, which begins with 0 again.
        if first == 0 {
            numbers.clear();
        }
        for (base, word) in (u64::from(first)..).step_by(64).zip(words.chunks_exact(8)) {
            let Some(word) = word.first_chunk() else {
                continue;
            };
            let word = u64::from_ne_bytes(*word);
            let bits = (0..64).filter(|bit| word >> bit & 1 == 1);
            numbers.extend(bits.filter_map(|bit| u32::try_from(base + bit).ok()));
        }
    }

    fn take_numbers(&mut self, tid: u32, is_complete: u32) -> Option<Vec<u32>> {
        let numbers = self.numbers.remove(&tid).unwrap_or_default();
        (is_complete == 1).then_some(numbers)
    }
}

/// A path from its names, the last first.
fn path(names: &[u8]) -> Vec<u8> {
    let names = names.chunks_exact(NAME).map(|name| {
        let end = name.iter().position(|byte| *byte == 0);
        name.get(..end.unwrap_or(name.len())).unwrap_or_default()
    });
    let names: Vec<&[u8]> = names.take_while(|name| !name.is_empty()).collect();
    let mut path = Vec::new();
    for name in names.iter().rev() {
        path.push(b'/');
        path.extend(*name);
    }
    path
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Decoder, RECORD};
    use crate::Occurrence;

    fn record(kind: u16, fd: u32, call: u32) -> Vec<u8> {
        let mut bytes = vec![0; RECORD];
        bytes[20] = 7;
        bytes[28..30].copy_from_slice(&kind.to_ne_bytes());
        bytes[32..36].copy_from_slice(&fd.to_ne_bytes());
        bytes[36..40].copy_from_slice(&call.to_ne_bytes());
        bytes
    }

    #[test]
    fn numbers_belong_to_the_next_event_of_their_thread() {
        let mut decoder = Decoder::default();
        for (first, word) in [(0, 0b111_u64), (4096, 1 << 63)] {
            let mut bytes = record(11, first, 0);
            bytes.extend(word.to_ne_bytes());
            assert_eq!(decoder.decode(&bytes), None);
        }
        let event = decoder.decode(&record(8, 0, 1)).unwrap();
        let open = vec![0, 1, 2, 4096 + 63];
        assert_eq!(event.what, Occurrence::Executed { open });
        let event = decoder.decode(&record(8, 0, 1)).unwrap();
        assert_eq!(event.what, Occurrence::Executed { open: Vec::new() });
    }

    #[test]
    fn numbers_beyond_the_last_one_are_left_out() {
        let mut decoder = Decoder::default();
        let mut bytes = record(11, u32::MAX - 1, 0);
        bytes.extend([0xff; 24]);
        assert_eq!(decoder.decode(&bytes), None);
        let event = decoder.decode(&record(8, 0, 1)).unwrap();
        let open = vec![u32::MAX - 1, u32::MAX];
        assert_eq!(event.what, Occurrence::Executed { open });
    }

    #[test]
    fn a_path_is_put_together_from_its_end() {
        let mut bytes = record(12, 0, 1);
        for name in ["libc.so.6", "lib", "usr", ""] {
            let mut part = name.as_bytes().to_vec();
            part.resize(super::NAME, 0);
            bytes.extend(part);
        }
        let event = Decoder::default().decode(&bytes).unwrap();
        let Occurrence::Mapped(file) = event.what else {
            panic!("{event:?}");
        };
        assert_eq!(file.path, b"/usr/lib/libc.so.6");
        assert!(file.is_program);
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(bytes: Vec<u8>, kind in 0..16_u8) {
            let mut bytes = bytes;
            if let Some(slot) = bytes.get_mut(28) {
                *slot = kind;
            }
            drop(Decoder::default().decode(&bytes));
        }
    }
}
