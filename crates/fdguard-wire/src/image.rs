//! A mapping as bytes, read from outside while it is being written, or after its writer has ended.

use core::mem::offset_of;

use crate::event::{self, EventRecord, PreventedHarm};
use crate::header::{MAGIC, TableHeader, VERSION};
use crate::loader::Omission;
use crate::mapping::{TableMapping, low};
use crate::module::{self, ModuleRecord};
use crate::slot::{self, SlotRecord};
use crate::stack::Account;
use crate::{
    EVENTS, FRAMES, FrameRecord, INHERITED, MODULES, NUMBERS, STACKS, TEXTS, WORDS, stack, text,
};

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
pub struct TableImage<'a> {
    bytes: &'a [u8],
}

/// A stack and the descriptors it opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SiteRecord {
    /// Its id.
    pub stack: u32,
    /// What it opened, and what happened to it.
    pub account: Account,
}

impl<'a> TableImage<'a> {
    /// Reads the bytes of a file; `None` if they are not a mapping of this version. A truncated
    /// file is read as far as it goes.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Option<Self> {
        let image = Self { bytes };
        let is_ours = image.field(offset_of!(TableHeader, magic)) == MAGIC;
        let version = low(image.field(offset_of!(TableHeader, version)));
        (is_ours && version == VERSION).then_some(image)
    }

    /// How many bytes of the file are needed to read everything: the rest is not in use. Works on
    /// the first bytes, at least [`TableImage::HEAD`].
    #[must_use]
    pub fn needed(&self) -> usize {
        TableMapping::parts().words + self.used_words() * 8
    }

    /// Bytes of the header.
    pub const HEAD: usize = size_of::<TableHeader>();

    /// The end of the slots in use, and the start of the words: the part between them is empty, or
    /// read by ticket.
    #[must_use]
    pub fn hole(&self) -> (usize, usize) {
        let parts = TableMapping::parts();
        (parts.slots + self.numbers() * slot::SIZE, parts.words)
    }

    fn field(&self, at: usize) -> u64 {
        word(self.bytes, TableMapping::parts().header + at).unwrap_or(0)
    }

    /// The process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        low(self.field(offset_of!(TableHeader, version)) >> 32)
    }

    /// When it was created, by the monotonic clock, in nanoseconds.
    #[must_use]
    pub fn began(&self) -> u64 {
        self.field(offset_of!(TableHeader, began))
    }

    /// The same by the wall clock.
    #[must_use]
    pub fn began_wall(&self) -> u64 {
        self.field(offset_of!(TableHeader, began_wall))
    }

    /// The process that it was forked from, and when the mapping of that process was created.
    #[must_use]
    pub fn parent(&self) -> Option<(u32, u64)> {
        let pid = low(self.field(offset_of!(TableHeader, parent)));
        (pid != 0).then(|| (pid, self.field(offset_of!(TableHeader, parent_began))))
    }

    /// The name of the process when the mapping was created, padded with zeros.
    #[must_use]
    pub fn comm(&self) -> [u8; 16] {
        let at = offset_of!(TableHeader, comm);
        let mut comm = [0; 16];
        for (part, at) in comm.chunks_exact_mut(8).zip([at, at + 8]) {
            part.copy_from_slice(&self.field(at).to_ne_bytes());
        }
        comm
    }

    /// Opens and closes that were not recorded.
    #[must_use]
    pub fn lost_events(&self) -> u64 {
        self.field(offset_of!(TableHeader, lost_events))
    }

    /// Stacks that did not fit.
    #[must_use]
    pub fn lost_stacks(&self) -> u64 {
        self.field(offset_of!(TableHeader, lost_stacks))
    }

    /// Descriptors whose close was not seen.
    #[must_use]
    pub fn unseen_closes(&self) -> u64 {
        self.field(offset_of!(TableHeader, unseen_closes))
    }

    /// Whether the process is protected.
    #[must_use]
    pub fn is_protected(&self) -> bool {
        self.field(offset_of!(TableHeader, protected)) != 0
    }

    /// How many numbers protection keeps in it now.
    #[must_use]
    pub fn quarantined(&self) -> u64 {
        self.field(offset_of!(TableHeader, quarantined))
    }

    /// How many programs it started without the library, by [`Omission`].
    #[must_use]
    pub fn omissions(&self) -> [u64; Omission::KINDS] {
        core::array::from_fn(|kind| self.field(offset_of!(TableHeader, omissions) + kind * 8))
    }

    /// What protection prevented in it, by kind.
    #[must_use]
    pub fn prevented(&self, what: PreventedHarm) -> u64 {
        self.field(offset_of!(TableHeader, prevented) + what as usize * 8)
    }

    /// Calls by children whose fork was not seen.
    #[must_use]
    pub fn foreign_calls(&self) -> u64 {
        self.field(offset_of!(TableHeader, foreign_calls))
    }

    /// Threads that have a descriptor table of their own.
    #[must_use]
    pub fn apart(&self) -> u64 {
        self.field(offset_of!(TableHeader, apart))
    }

    /// Stacks that stopped before the outermost frame.
    #[must_use]
    pub fn cut_stacks(&self) -> u64 {
        self.field(offset_of!(TableHeader, cut_stacks))
    }

    /// The numbers that were open before the recording began.
    pub fn inherited(&self) -> impl Iterator<Item = u32> {
        let part = TableMapping::parts().inherited;
        (0..INHERITED).flat_map(move |index| {
            let bits = word(self.bytes, part + index * 8).unwrap_or(0);
            let first = u32::try_from(index * 64).unwrap_or(0);
            let is_set = move |bit: &u32| bits >> bit & 1 == 1;
            let numbers = if bits == 0 { 0..0 } else { 0..64 };
            numbers.filter(is_set).map(move |bit| first + bit)
        })
    }

    /// Whether the library came into the running program.
    #[must_use]
    pub fn is_attached(&self) -> bool {
        self.field(offset_of!(TableHeader, attached)) != 0
    }

    /// When the recording ended although the process went on, by the monotonic clock.
    #[must_use]
    pub fn ended(&self) -> Option<u64> {
        Some(self.field(offset_of!(TableHeader, ended))).filter(|ended| *ended != 0)
    }

    /// References to interposed functions that do not lead to the library.
    #[must_use]
    pub fn unhooked(&self) -> u64 {
        self.field(offset_of!(TableHeader, unhooked))
    }

    fn numbers(&self) -> usize {
        bounded(self.field(offset_of!(TableHeader, numbers)), NUMBERS)
    }

    fn used_words(&self) -> usize {
        bounded(self.field(offset_of!(TableHeader, words)), WORDS)
    }

    fn entry(&self, part: usize, index: usize, size: usize) -> Words<'a> {
        let at = part + index * size;
        Words(self.bytes.get(at..at + size).unwrap_or_default())
    }

    /// The descriptors that are open, by number.
    pub fn open(&self) -> impl Iterator<Item = (u32, SlotRecord)> {
        let part = TableMapping::parts().slots;
        (0..self.numbers()).filter_map(move |index| {
            let record = slot::read(self.entry(part, index, slot::SIZE))?;
            Some((u32::try_from(index).ok()?, record))
        })
    }

    /// The stack that used each number last, where that is recorded.
    pub fn users(&self) -> impl Iterator<Item = (u32, u32)> {
        let part = TableMapping::parts().slots;
        (0..self.numbers()).filter_map(move |index| {
            let stack = slot::user(self.entry(part, index, slot::SIZE))?;
            Some((u32::try_from(index).ok()?, stack))
        })
    }

    /// The numbers that were open once and are closed now.
    pub fn closed(&self) -> impl Iterator<Item = u32> {
        let part = TableMapping::parts().slots;
        (0..self.numbers()).filter_map(move |index| {
            let is_closed = slot::is_closed(self.entry(part, index, slot::SIZE));
            is_closed.then(|| u32::try_from(index).ok()).flatten()
        })
    }

    /// Tickets of events that were taken.
    #[must_use]
    pub fn tickets(&self) -> u64 {
        self.field(offset_of!(TableHeader, events))
    }

    /// The offset of a ticket's event in the file.
    #[must_use]
    pub fn event_at(ticket: u64) -> usize {
        let index = bounded(ticket % EVENTS as u64, EVENTS);
        TableMapping::parts().events + index * event::SIZE
    }

    /// The event of a ticket from the bytes at its offset; `None` if it is not there, or not yet.
    #[must_use]
    pub fn event(bytes: &[u8], ticket: u64) -> Option<EventRecord> {
        event::read(Words::of(bytes), ticket)
    }

    /// The size of an event in bytes.
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
        stack::read(self.entry(TableMapping::parts().stacks, index, stack::SIZE))
    }

    /// The frames of a stack, innermost first; none if it was lost or is being written.
    pub fn frames(&self, stack: u32) -> impl Iterator<Item = FrameRecord> {
        let entry = (stack as usize) < STACKS && stack > 0;
        let entry = entry.then(|| self.stack_entry(stack as usize)).flatten();
        let (first, frames) = entry.map_or((0, 0), |(first, frames, _)| (first, frames));
        let part = TableMapping::parts().words + first as usize * 8;
        let frames = (frames as usize).min(FRAMES);
        let words = (0..frames).map_while(move |index| word(self.bytes, part + index * 8));
        words.filter_map(FrameRecord::unpack)
    }

    /// The module with this number.
    #[must_use]
    pub fn module(&self, number: u16) -> Option<ModuleRecord<'a>> {
        let index = usize::from(number);
        let part = TableMapping::parts().modules;
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
        let part = TableMapping::parts().texts;
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
        let at = TableMapping::parts().words + first as usize * 8;
        self.bytes.get(at..at + bytes).unwrap_or_default()
    }
}

fn bounded(number: u64, most: usize) -> usize {
    usize::try_from(number).unwrap_or(most).min(most)
}
