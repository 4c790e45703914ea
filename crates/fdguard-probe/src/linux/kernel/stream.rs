//! The records of one iterator, in chunks of whole records.

use std::os::fd::OwnedFd;
use std::sync::{Mutex, PoisonError};

use fdguard_kernel::{DescriptorProgram, WantedRecords};
use rustix::io::Errno;

use super::record::Record;

/// The most that the kernel returns at once, where pages have 4 KiB.
const CHUNK: usize = 1 << 15;

/// An iterator that is being read.
#[derive(Debug)]
pub(super) struct RecordStream<'a> {
    iterator: OwnedFd,
    program: &'a DescriptorProgram,
    /// Held while the program writes records: it has one buffer, and one reader's wishes.
    turn: &'a Mutex<()>,
    wanted: WantedRecords,
    /// The beginning of a record whose end has not been read yet.
    partial: Vec<u8>,
}

impl<'a> RecordStream<'a> {
    pub(super) fn new(
        iterator: OwnedFd,
        (program, turn): (&'a DescriptorProgram, &'a Mutex<()>),
        wanted: WantedRecords,
    ) -> Self {
        Self {
            iterator,
            program,
            turn,
            wanted,
            partial: Vec::new(),
        }
    }

    /// Replaces the chunk by the next one; `false` at the end.
    pub(super) fn next_chunk(&mut self, chunk: &mut Vec<u8>) -> Result<bool, Errno> {
        chunk.clear();
        chunk.append(&mut self.partial);
        loop {
            let known = chunk.len();
            chunk.resize(known + CHUNK, 0);
            let turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
            self.program.want(&self.wanted)?;
            let read = read(&self.iterator, &mut chunk[known..])?;
            drop(turn);
            chunk.truncate(known + read);
            if read == 0 {
                // A record without its end is no record.
                return if known == 0 {
                    Ok(false)
                } else {
                    Err(Errno::IO)
                };
            }
            let whole = whole_records(chunk);
            if whole > 0 {
                self.partial.extend_from_slice(&chunk[whole..]);
                chunk.truncate(whole);
                return Ok(true);
            }
        }
    }

    #[cfg(test)]
    pub(super) fn as_fd(&self) -> &OwnedFd {
        &self.iterator
    }
}

/// How many of the bytes are whole records.
fn whole_records(bytes: &[u8]) -> usize {
    let mut rest = bytes;
    while let Some(tail) = Record::skip(rest) {
        rest = tail;
    }
    bytes.len() - rest.len()
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
