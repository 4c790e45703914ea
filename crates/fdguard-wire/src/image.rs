//! A mapping as bytes, read from outside while it is written, or after the end of its writer.

use core::mem::offset_of;

use crate::event::{self, EventRecord, Prevented};
use crate::header::{Header, MAGIC, VERSION};
use crate::loader::Omission;
use crate::mapping::{Mapping, low};
use crate::module::{self, ModuleRecord};
use crate::slot::{self, SlotRecord};
use crate::stack::Account;
use crate::{EVENTS, FRAMES, Frame, MODULES, NUMBERS, STACKS, TEXTS, WORDS, stack, text};

/// Words in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Words<'a>(&'a [u8]);

impl<'a> Words<'a> {
    /// These bytes.
    pub(crate) fn of(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub(crate) fn at(&self, index: usize) -> Option<u64> {
        word(self.0, index * 8)
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u64> {
    let bytes = bytes.get(at..at.checked_add(8)?)?;
    Some(u64::from_ne_bytes(bytes.try_into().ok()?))
}

/// The bytes of a mapping.
#[derive(Clone, Copy, Debug)]
pub struct Image<'a> {
    bytes: &'a [u8],
}

/// A stack and what it opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SiteRecord {
    /// Its number.
    pub stack: u32,
    /// What it opened, and what became of it.
    pub account: Account,
}

impl<'a> Image<'a> {
    /// Takes the bytes of a file; `None` when they are no mapping of this version. A file that is cut short
    /// is read as far as it goes.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Option<Self> {
        let image = Self { bytes };
        let is_ours = image.field(offset_of!(Header, magic)) == MAGIC;
        let version = low(image.field(offset_of!(Header, version)));
        (is_ours && version == VERSION).then_some(image)
    }

    /// How many bytes of the file are needed to read everything: the rest is not in use. Asked of the first
    /// bytes, at least [`Image::HEAD`].
    #[must_use]
    pub fn needed(&self) -> usize {
        Mapping::parts().words + self.used_words() * 8
    }

    /// Bytes of the header.
    pub const HEAD: usize = size_of::<Header>();

    /// Where the slots end that are in use, and where the words begin: what lies between is empty, or read by ticket.
    #[must_use]
    pub fn hole(&self) -> (usize, usize) {
        let parts = Mapping::parts();
        (parts.slots + self.numbers() * slot::SIZE, parts.words)
    }

    fn field(&self, at: usize) -> u64 {
        word(self.bytes, Mapping::parts().header + at).unwrap_or(0)
    }

    /// The process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        low(self.field(offset_of!(Header, version)) >> 32)
    }

    /// When it was made, by the monotonic clock, in nanoseconds.
    #[must_use]
    pub fn began(&self) -> u64 {
        self.field(offset_of!(Header, began))
    }

    /// The same by the time of day.
    #[must_use]
    pub fn began_wall(&self) -> u64 {
        self.field(offset_of!(Header, began_wall))
    }

    /// The process that it was forked from, and when that one's mapping was made.
    #[must_use]
    pub fn parent(&self) -> Option<(u32, u64)> {
        let pid = low(self.field(offset_of!(Header, parent)));
        (pid != 0).then(|| (pid, self.field(offset_of!(Header, parent_began))))
    }

    /// What the process was called when the mapping was made, with zeros at the end.
    #[must_use]
    pub fn comm(&self) -> [u8; 16] {
        let at = offset_of!(Header, comm);
        let mut comm = [0; 16];
        for (part, at) in comm.chunks_exact_mut(8).zip([at, at + 8]) {
            part.copy_from_slice(&self.field(at).to_ne_bytes());
        }
        comm
    }

    /// Births and ends that found no place.
    #[must_use]
    pub fn lost_events(&self) -> u64 {
        self.field(offset_of!(Header, lost_events))
    }

    /// Stacks that found no place.
    #[must_use]
    pub fn lost_stacks(&self) -> u64 {
        self.field(offset_of!(Header, lost_stacks))
    }

    /// Descriptors whose end nobody saw.
    #[must_use]
    pub fn unseen_ends(&self) -> u64 {
        self.field(offset_of!(Header, unseen_ends))
    }

    /// Whether the process is protected.
    #[must_use]
    pub fn is_protected(&self) -> bool {
        self.field(offset_of!(Header, protected)) != 0
    }

    /// How many numbers protection keeps in it now.
    #[must_use]
    pub fn graves(&self) -> u64 {
        self.field(offset_of!(Header, graves))
    }

    /// How many programs it started without the library, by [`Omission`].
    #[must_use]
    pub fn omissions(&self) -> [u64; Omission::KINDS] {
        core::array::from_fn(|kind| self.field(offset_of!(Header, omissions) + kind * 8))
    }

    /// What protection prevented in it, by kind.
    #[must_use]
    pub fn prevented(&self, what: Prevented) -> u64 {
        self.field(offset_of!(Header, prevented) + what as usize * 8)
    }

    /// Calls by children that nobody told us of.
    #[must_use]
    pub fn foreign_calls(&self) -> u64 {
        self.field(offset_of!(Header, foreign_calls))
    }

    /// Stacks that stopped before the outermost frame.
    #[must_use]
    pub fn cut_stacks(&self) -> u64 {
        self.field(offset_of!(Header, cut_stacks))
    }

    /// Whether the number was open before the program began; known below 1024.
    #[must_use]
    pub fn is_inherited(&self, fd: u32) -> bool {
        let at = offset_of!(Header, inherited) + fd as usize / 64 * 8;
        fd < 1024 && self.field(at) >> (fd % 64) & 1 == 1
    }

    fn numbers(&self) -> usize {
        bounded(self.field(offset_of!(Header, numbers)), NUMBERS)
    }

    fn used_words(&self) -> usize {
        bounded(self.field(offset_of!(Header, words)), WORDS)
    }

    fn entry(&self, part: usize, index: usize, size: usize) -> Words<'a> {
        let at = part + index * size;
        Words(self.bytes.get(at..at + size).unwrap_or_default())
    }

    /// The descriptors that are open, by number.
    pub fn open(&self) -> impl Iterator<Item = (u32, SlotRecord)> {
        let part = Mapping::parts().slots;
        (0..self.numbers()).filter_map(move |index| {
            let record = slot::read(self.entry(part, index, slot::SIZE))?;
            Some((u32::try_from(index).ok()?, record))
        })
    }

    /// The numbers that were open once and are not now.
    pub fn ended(&self) -> impl Iterator<Item = u32> {
        let part = Mapping::parts().slots;
        (0..self.numbers()).filter_map(move |index| {
            let has_ended = slot::has_ended(self.entry(part, index, slot::SIZE));
            has_ended.then(|| u32::try_from(index).ok()).flatten()
        })
    }

    /// Tickets of events that were taken.
    #[must_use]
    pub fn tickets(&self) -> u64 {
        self.field(offset_of!(Header, events))
    }

    /// Where in the file the event of a ticket is.
    #[must_use]
    pub fn event_at(ticket: u64) -> usize {
        let index = bounded(ticket % EVENTS as u64, EVENTS);
        Mapping::parts().events + index * event::SIZE
    }

    /// The event of a ticket from the bytes at its place; `None` when it is not there, or not yet.
    #[must_use]
    pub fn event(bytes: &[u8], ticket: u64) -> Option<EventRecord> {
        event::read(Words::of(bytes), ticket)
    }

    /// Bytes of an event.
    pub const EVENT: usize = event::SIZE;

    /// The stacks with what they opened.
    pub fn sites(&self) -> impl Iterator<Item = SiteRecord> {
        (1..STACKS).filter_map(move |index| {
            let (_, _, account) = self.stack_entry(index)?;
            Some(SiteRecord {
                stack: u32::try_from(index).ok()?,
                account,
            })
        })
    }

    fn stack_entry(&self, index: usize) -> Option<(u32, u32, Account)> {
        stack::read(self.entry(Mapping::parts().stacks, index, stack::SIZE))
    }

    /// The frames of a stack, innermost first; none when it was lost or is being written.
    pub fn frames(&self, stack: u32) -> impl Iterator<Item = Frame> {
        let entry = (stack as usize) < STACKS && stack > 0;
        let entry = entry.then(|| self.stack_entry(stack as usize)).flatten();
        let (first, frames) = entry.map_or((0, 0), |(first, frames, _)| (first, frames));
        let part = Mapping::parts().words + first as usize * 8;
        let frames = (frames as usize).min(FRAMES);
        let words = (0..frames).map_while(move |index| word(self.bytes, part + index * 8));
        words.filter_map(Frame::unpack)
    }

    /// The module of this number.
    #[must_use]
    pub fn module(&self, number: u16) -> Option<ModuleRecord<'a>> {
        let index = usize::from(number);
        let part = Mapping::parts().modules;
        let known = (index < MODULES).then(|| self.entry(part, index, module::SIZE))?;
        let (start, end, bias, first, bytes) = module::read(known)?;
        Some(ModuleRecord {
            start,
            end,
            bias,
            path: self.text_bytes(first, bytes as usize),
        })
    }

    /// The file and the function of a language frame.
    #[must_use]
    pub fn text(&self, number: u32) -> Option<(&'a [u8], &'a [u8])> {
        let index = number as usize;
        let part = Mapping::parts().texts;
        let known = (index < TEXTS).then(|| self.entry(part, index, text::SIZE))?;
        let place = known.at(1)?;
        let (file, function) = (
            bounded(place >> 32 & 0xffff, WORDS),
            bounded(place >> 48, WORDS),
        );
        let both = self.text_bytes(low(place), file + function);
        (place != 0).then(|| both.split_at_checked(file)).flatten()
    }

    fn text_bytes(&self, first: u32, bytes: usize) -> &'a [u8] {
        let at = Mapping::parts().words + first as usize * 8;
        self.bytes.get(at..at + bytes).unwrap_or_default()
    }
}

fn bounded(number: u64, most: usize) -> usize {
    usize::try_from(number).unwrap_or(most).min(most)
}
