//! The whole mapping, and the operations that write it.

use core::mem::offset_of;
use core::sync::atomic::{AtomicU64, Ordering};

use crate::event::{EventRecord, PreventedHarm, RingEvent};
use crate::frame::FrameRecord;
use crate::header::{MAGIC, TableHeader, VERSION};
use crate::loader::Omission;
use crate::module::Module;
use crate::slot::{CloseRecord, OpenRecord, Slot};
use crate::stack::StackRecord;
use crate::text::TextRecord;
use crate::{EVENTS, INHERITED, MODULES, NUMBERS, STACKS, TEXTS, WORDS};

/// Table entries that are tried for a hash before it counts as lost.
const TRIES: usize = 64;

/// The mapping.
#[derive(Debug)]
#[repr(C, align(4096))]
pub struct TableMapping {
    /// The owner, and the counters.
    pub header: TableHeader,
    /// Numbers that were open before the recording began, one bit each.
    inherited: [AtomicU64; INHERITED],
    modules: [Module; MODULES],
    stacks: [StackRecord; STACKS],
    texts: [TextRecord; TEXTS],
    slots: [Slot; NUMBERS],
    events: [RingEvent; EVENTS],
    words: [AtomicU64; WORDS],
}

/// Whether a range of the mapping may be written to. In a sparse file on a full disk it may not:
/// the kernel would kill the program for trying.
pub trait Area {
    /// Whether these bytes from the start of the mapping are backed by memory. Requests memory if
    /// they are not.
    fn is_backed(&self, offset: usize, bytes: usize) -> bool;

    /// The same without requesting memory: a range without memory was never written. Even reading
    /// it would allocate, and kill the program if no memory is left.
    fn is_known(&self, offset: usize, bytes: usize) -> bool {
        self.is_backed(offset, bytes)
    }
}

impl TableMapping {
    /// All zeros.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            header: TableHeader::new(),
            inherited: [const { AtomicU64::new(0) }; INHERITED],
            modules: [const { Module::new() }; MODULES],
            events: [const { RingEvent::new() }; EVENTS],
            stacks: [const { StackRecord::new() }; STACKS],
            texts: [const { TextRecord::new() }; TEXTS],
            slots: [const { Slot::new() }; NUMBERS],
            words: [const { AtomicU64::new(0) }; WORDS],
        }
    }

    /// Bytes of a mapping.
    #[must_use]
    pub const fn size() -> usize {
        size_of::<Self>()
    }

    /// The offsets of the parts.
    #[must_use]
    pub(crate) const fn parts() -> Parts {
        Parts {
            header: offset_of!(Self, header),
            inherited: offset_of!(Self, inherited),
            modules: offset_of!(Self, modules),
            events: offset_of!(Self, events),
            stacks: offset_of!(Self, stacks),
            texts: offset_of!(Self, texts),
            slots: offset_of!(Self, slots),
            words: offset_of!(Self, words),
        }
    }

    /// Publishes it as the mapping of this process; readers accept it from here on.
    pub fn begin(&self, pid: u32, monotonic: u64, wall: u64) {
        let header = &self.header;
        header.version.store(VERSION, Ordering::Relaxed);
        header.pid.store(pid, Ordering::Relaxed);
        header.size.store(Self::size() as u64, Ordering::Relaxed);
        header.began.store(monotonic, Ordering::Relaxed);
        header.began_wall.store(wall, Ordering::Relaxed);
        // Word 0 stays free: an index of 0 means "not written".
        header.words.store(1, Ordering::Relaxed);
        header.magic.store(MAGIC, Ordering::Release);
    }

    /// Sets the name of the process.
    pub fn name(&self, comm: [u64; 2]) {
        for (word, part) in self.header.comm.iter().zip(comm) {
            word.store(part, Ordering::Relaxed);
        }
    }

    /// Records the opening of a descriptor.
    pub fn open(&self, area: &impl Area, fd: u32, open: &OpenRecord) {
        let slot = self.slots.get(fd as usize);
        let Some(slot) = slot.filter(|_| area.is_backed(slot_at(fd), size_of::<Slot>())) else {
            count(&self.header.lost_events);
            return;
        };
        if let Some(missed) = slot.open(open) {
            count(&self.header.unseen_closes);
            self.count_close(area, &missed, open.ns);
        }
        self.header.latest.store(open.ns, Ordering::Relaxed);
        if open.forks == 0
            && let Some(stack) = self.account(area, open.stack)
        {
            count(&stack.opened);
        }
        let numbers = &self.header.numbers;
        if numbers.load(Ordering::Relaxed) <= u64::from(fd) {
            numbers.fetch_max(u64::from(fd) + 1, Ordering::Relaxed);
        }
    }

    /// Records the closing of a descriptor at `now` by the monotonic clock. Returns the closed
    /// descriptor if it was known.
    pub fn close(&self, area: &impl Area, fd: u32, now: u64) -> Option<CloseRecord> {
        let closed = self.slot(area, fd)?.close()?;
        self.header.latest.store(now, Ordering::Relaxed);
        self.count_close(area, &closed, now);
        Some(closed)
    }

    /// A call on a number succeeded. Costs a few loads if nothing was opened or closed since its
    /// last use.
    #[inline]
    pub fn note_use(&self, area: &impl Area, fd: u32) {
        if let Some(slot) = self.slot(area, fd) {
            slot.note_use(self.header.latest.load(Ordering::Relaxed));
        }
    }

    /// A call of this stack on a number succeeded, whoever opened it.
    pub fn note_user(&self, area: &impl Area, fd: u32, stack: u32) {
        let slot = self.slots.get(fd as usize);
        let Some(slot) = slot.filter(|_| area.is_backed(slot_at(fd), size_of::<Slot>())) else {
            return;
        };
        slot.note_user(stack);
        self.header
            .numbers
            .fetch_max(u64::from(fd) + 1, Ordering::Relaxed);
    }

    /// Replaces the stack that opened the descriptor at this number. A parent's stack stays.
    /// Returns whether it was replaced.
    pub fn restack(&self, area: &impl Area, fd: u32, stack: u32) -> bool {
        let open = self.open_record(area, fd);
        let is_ours = open.is_some_and(|open| open.forks == 0);
        let slot = self.slot(area, fd).filter(|_| is_ours);
        let Some(before) = slot.and_then(|slot| slot.restack(stack)) else {
            return false;
        };
        if let Some(old) = self.account(area, before.stack) {
            old.opened.fetch_sub(1, Ordering::Relaxed);
        }
        if let Some(new) = self.account(area, stack) {
            count(&new.opened);
        }
        true
    }

    /// Whether the innermost frame of a stack belongs to a language with a runtime.
    #[must_use]
    pub fn is_language(&self, stack: u32) -> bool {
        let first = self.whole_stack(stack).map(StackRecord::first);
        let first = first.filter(|first| *first != 0);
        let word = first.and_then(|first| self.words.get(first as usize));
        let frame = word.and_then(|word| FrameRecord::unpack(word.load(Ordering::Relaxed)));
        matches!(frame, Some(FrameRecord::Language { .. }))
    }

    /// Passes on the frames of a stack, innermost first; none if it was lost or is being written.
    pub fn each_frame(&self, stack: u32, mut give: impl FnMut(FrameRecord)) {
        let Some((first, frames)) = self.whole_stack(stack).map(StackRecord::place) else {
            return;
        };
        let words = self.words.iter().skip(first as usize);
        for word in words.take((frames as usize).min(crate::FRAMES)) {
            if let Some(frame) = FrameRecord::unpack(word.load(Ordering::Relaxed)) {
                give(frame);
            }
        }
    }

    /// The slot of a number, if it may have been written.
    #[inline]
    fn slot(&self, area: &impl Area, fd: u32) -> Option<&Slot> {
        // Slots above the highest written one have no memory, nor do pages below without a written
        // slot.
        let is_below = u64::from(fd) < self.header.numbers.load(Ordering::Acquire);
        let slot = self.slots.get(fd as usize).filter(|_| is_below)?;
        area.is_known(slot_at(fd), size_of::<Slot>())
            .then_some(slot)
    }

    /// The entry that counts the descriptors of this stack. Entries whose id was returned have
    /// memory; 0 counts all stacks that did not fit.
    fn account(&self, area: &impl Area, stack: u32) -> Option<&StackRecord> {
        let at = offset_of!(Self, stacks) + stack as usize * size_of::<StackRecord>();
        let entry = self.stacks.get(stack as usize)?;
        area.is_backed(at, size_of::<StackRecord>())
            .then_some(entry)
    }

    /// A stack whose id was returned.
    fn whole_stack(&self, stack: u32) -> Option<&StackRecord> {
        let number = (stack as usize).checked_sub(1)?;
        self.stacks.get(number + 1)
    }

    fn count_close(&self, area: &impl Area, closed: &CloseRecord, now: u64) {
        if closed.forks == 0
            && let Some(stack) = self.account(area, closed.stack)
        {
            let began = self.header.began.load(Ordering::Relaxed);
            let opened_at = closed.opened_at.saturating_sub(began);
            stack.close(opened_at, now.saturating_sub(closed.opened_at));
        }
    }

    /// One past the highest number that was ever open.
    #[must_use]
    pub fn numbers(&self) -> u32 {
        low(self.header.numbers.load(Ordering::Acquire))
    }

    /// An event could not be recorded.
    pub fn lose_event(&self) {
        count(&self.header.lost_events);
    }

    /// The process is protected from now on.
    pub fn protect(&self) {
        self.header.protected.store(1, Ordering::Relaxed);
    }

    /// Protection keeps this many numbers now.
    pub fn quarantined(&self, count: u32) {
        self.header
            .quarantined
            .store(u64::from(count), Ordering::Relaxed);
    }

    /// Protection prevented this.
    pub fn prevented(&self, what: PreventedHarm) {
        if let Some(counter) = self.header.prevented.get(what as usize) {
            count(counter);
        }
    }

    /// A program is started without the library.
    pub fn omitted(&self, why: Omission) {
        if let Some(counter) = self.header.omissions.get(why as usize) {
            count(counter);
        }
    }

    /// A call was made by a process that does not own the mapping.
    pub fn foreign_call(&self) {
        count(&self.header.foreign_calls);
    }

    /// A thread left the descriptor table of the process.
    pub fn left_table(&self) {
        count(&self.header.apart);
    }

    /// A stack stopped before the outermost frame.
    pub fn cut_stack(&self) {
        count(&self.header.cut_stacks);
    }

    /// The program was running when the library came into it.
    pub fn attach(&self) {
        self.header.attached.store(1, Ordering::Relaxed);
    }

    /// Nothing is recorded from `now` on, by the monotonic clock.
    pub fn end(&self, now: u64) {
        self.header.ended.store(now.max(1), Ordering::Release);
    }

    /// This many references to interposed functions were left as they are.
    pub fn unhooked(&self, count: u64) {
        self.header.unhooked.store(count, Ordering::Relaxed);
    }

    /// These of the 64 numbers from `64 * index` on were open before, one bit each.
    pub fn inherit_numbers(&self, area: &impl Area, index: usize, bits: u64) {
        if let Some(word) = self.inherited.get(index)
            && bits != 0
            && area.is_backed(inherited_at(index), 8)
        {
            word.store(bits, Ordering::Relaxed);
        }
    }

    /// Initialises a forked child's table with a copy of the parent's. The stacks stay in the
    /// parent's mapping.
    pub fn inherit(&self, area: &impl Area, (parent, of_parent): (&Self, &impl Area)) {
        let (from, to) = (&parent.header, &self.header);
        let pid = u64::from(from.pid.load(Ordering::Relaxed));
        to.parent.store(pid, Ordering::Relaxed);
        let began = from.began.load(Ordering::Relaxed);
        to.parent_began.store(began, Ordering::Relaxed);
        let attached = from.attached.load(Ordering::Relaxed);
        to.attached.store(attached, Ordering::Relaxed);
        for (index, word) in parent.inherited.iter().enumerate() {
            if of_parent.is_known(inherited_at(index), 8) {
                self.inherit_numbers(area, index, word.load(Ordering::Relaxed));
            }
        }
        for fd in 0..parent.numbers() {
            if let Some(open) = parent.open_record(of_parent, fd) {
                let forks = open.forks.saturating_add(1);
                self.open(area, fd, &OpenRecord { forks, ..open });
            }
        }
    }

    /// The generation of a number: odd while it is open, 0 if it was never seen.
    #[must_use]
    pub fn turn(&self, area: &impl Area, fd: u32) -> u32 {
        self.slot(area, fd).map_or(0, Slot::turn)
    }

    /// The record of this number, if it is open.
    #[must_use]
    pub fn open_record(&self, area: &impl Area, fd: u32) -> Option<OpenRecord> {
        self.slot(area, fd)?.record()?.open
    }

    /// The next entry of the ring, to be filled with [`TableMapping::write_event`] as soon as
    /// everything is known.
    pub fn ticket(&self) -> u64 {
        self.header.events.fetch_add(1, Ordering::AcqRel)
    }

    /// How many tickets were taken: a call that has returned was over before any later ticket.
    #[must_use]
    pub fn tickets(&self) -> u64 {
        self.header.events.load(Ordering::Acquire)
    }

    /// Fills the entry of a ticket.
    pub fn write_event(&self, area: &impl Area, ticket: u64, record: &EventRecord) {
        let index = place(ticket, EVENTS);
        let at = offset_of!(Self, events) + index * size_of::<RingEvent>();
        if let Some(event) = self.events.get(index)
            && area.is_backed(at, size_of::<RingEvent>())
        {
            event.write(ticket, record);
        } else {
            count(&self.header.lost_events);
        }
    }

    /// The id of the stack with this hash. If it is new, `frames` provides its frames as words,
    /// innermost first; it is called once, by the first writer. 0 if there is no room.
    pub fn stack(&self, area: &impl Area, hash: u64, frames: impl FnOnce(&mut Frames<'_>)) -> u32 {
        let hash = hash.max(1);
        let mut index = place(hash, STACKS);
        for _ in 0..TRIES {
            if index == 0 {
                index = 1;
            }
            let at = offset_of!(Self, stacks) + index * size_of::<StackRecord>();
            let Some(stack) = self.stacks.get(index) else {
                break;
            };
            if !area.is_backed(at, size_of::<StackRecord>()) {
                break;
            }
            let number = low(index as u64);
            match stack.hash() {
                known if known == hash => return number,
                0 => match stack.claim(hash) {
                    Ok(()) => {
                        count(&self.header.stacks);
                        self.fill(area, stack, frames);
                        return number;
                    }
                    Err(other) if other == hash => return number,
                    Err(_) => {}
                },
                _ => {}
            }
            index = (index + 1) % STACKS;
        }
        count(&self.header.lost_stacks);
        0
    }

    fn fill(&self, area: &impl Area, stack: &StackRecord, frames: impl FnOnce(&mut Frames<'_>)) {
        let mut words = [0; crate::FRAMES];
        let mut list = Frames {
            words: &mut words,
            used: 0,
        };
        frames(&mut list);
        let used = list.used;
        match self.write_words(area, words.get(..used).unwrap_or_default()) {
            Some(first) => stack.publish(first, low(used as u64)),
            None => count(&self.header.lost_stacks),
        }
    }

    /// The id of the text with this hash. If it is new it is written from `text`, which provides
    /// the file and the function. `None` if there is no room.
    pub fn text<'t>(
        &self,
        area: &impl Area,
        hash: u64,
        text: impl FnOnce() -> (&'t [u8], &'t [u8]),
    ) -> Option<u32> {
        let hash = hash.max(1);
        let mut index = place(hash, TEXTS);
        for _ in 0..TRIES {
            let at = offset_of!(Self, texts) + index * size_of::<TextRecord>();
            let entry = self.texts.get(index)?;
            if !area.is_backed(at, size_of::<TextRecord>()) {
                return None;
            }
            let number = low(index as u64);
            let known = entry.hash.load(Ordering::Acquire);
            if known == hash {
                return Some(number);
            }
            if known == 0 {
                let claim =
                    entry
                        .hash
                        .compare_exchange(0, hash, Ordering::AcqRel, Ordering::Acquire);
                match claim {
                    Ok(_) => {
                        let (file, function) = text();
                        self.fill_text(area, entry, file, function);
                        return Some(number);
                    }
                    Err(other) if other == hash => return Some(number),
                    Err(_) => {}
                }
            }
            index = (index + 1) % TEXTS;
        }
        None
    }

    fn fill_text(&self, area: &impl Area, entry: &TextRecord, file: &[u8], function: &[u8]) {
        const MOST: usize = 4096;
        // The end of a path is more informative than its start.
        let file = file.get(file.len().saturating_sub(MOST)..).unwrap_or(file);
        let function = function.get(..MOST).unwrap_or(function);
        let Some(first) = self.write_bytes(area, &[file, function]) else {
            return;
        };
        let lengths = (file.len() as u64) << 32 | (function.len() as u64) << 48;
        entry
            .place
            .store(u64::from(first) | lengths, Ordering::Release);
    }

    /// The module that contains an address, and the module's load bias.
    #[must_use]
    pub fn module_of(&self, address: u64) -> Option<(u16, u64)> {
        let used = self.header.modules.load(Ordering::Acquire);
        let used = usize::try_from(used).unwrap_or(MODULES).min(MODULES);
        // Latest first: a module loaded in place of another is the one that counts.
        for (index, module) in self.modules.get(..used)?.iter().enumerate().rev() {
            if let Some(bias) = module.bias_of(address) {
                return Some((u16::try_from(index).ok()?, bias));
            }
        }
        None
    }

    /// Records a module, unless it is already recorded; returns its number.
    pub fn add_module(
        &self,
        area: &impl Area,
        (start, end, bias): (u64, u64, u64),
        path: &[u8],
    ) -> Option<u16> {
        let counter = &self.header.modules;
        let mut used = usize::try_from(counter.load(Ordering::Acquire)).ok()?;
        let (index, module) = loop {
            let mut known = self.modules.get(..used)?.iter();
            if let Some(index) = known.position(|module| module.is(start, bias)) {
                return u16::try_from(index).ok();
            }
            let module = self.modules.get(used)?;
            // Only readable modules are counted.
            let at = offset_of!(Self, modules) + used * size_of::<Module>();
            if !area.is_backed(at, size_of::<Module>()) {
                return None;
            }
            let (was, next) = (used as u64, used as u64 + 1);
            match counter.compare_exchange(was, next, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => break (used, module),
                Err(more) => used = usize::try_from(more).ok()?,
            }
        };
        module.write(start, end, bias);
        if let Some(first) = self.write_bytes(area, &[path]) {
            module.name(first, low(path.len() as u64));
        }
        u16::try_from(index).ok()
    }

    /// Appends words to those in use; returns the index of the first.
    fn write_words(&self, area: &impl Area, words: &[u64]) -> Option<u32> {
        let first = self.take_words(area, words.len())?;
        let places = self.words.get(first..first + words.len())?;
        for (place, word) in places.iter().zip(words) {
            place.store(*word, Ordering::Relaxed);
        }
        u32::try_from(first).ok()
    }

    fn write_bytes(&self, area: &impl Area, parts: &[&[u8]]) -> Option<u32> {
        let total: usize = parts.iter().map(|part| part.len()).sum();
        let first = self.take_words(area, total.div_ceil(8).max(1))?;
        let places = self.words.get(first..)?;
        let mut word = [0; 8];
        let mut filled = 0;
        let mut places = places.iter();
        for byte in parts.iter().flat_map(|part| part.iter()) {
            if let Some(place) = word.get_mut(filled) {
                *place = *byte;
            }
            filled += 1;
            if filled == 8 {
                places
                    .next()?
                    .store(u64::from_ne_bytes(word), Ordering::Relaxed);
                word = [0; 8];
                filled = 0;
            }
        }
        if filled > 0 {
            places
                .next()?
                .store(u64::from_ne_bytes(word), Ordering::Relaxed);
        }
        u32::try_from(first).ok()
    }

    fn take_words(&self, area: &impl Area, words: usize) -> Option<usize> {
        // Not beyond the end, so that a full mapping stays full instead of wrapping around.
        if self.header.words.load(Ordering::Relaxed) + words as u64 > WORDS as u64 {
            return None;
        }
        let first = self.header.words.fetch_add(words as u64, Ordering::AcqRel);
        let first = usize::try_from(first).ok()?;
        let at = offset_of!(Self, words) + first * 8;
        (first + words <= WORDS && area.is_backed(at, words * 8)).then_some(first)
    }
}

impl Default for TableMapping {
    fn default() -> Self {
        Self::new()
    }
}

/// The offsets of the parts of a mapping, in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Parts {
    pub(crate) header: usize,
    pub(crate) inherited: usize,
    pub(crate) modules: usize,
    pub(crate) events: usize,
    pub(crate) stacks: usize,
    pub(crate) texts: usize,
    pub(crate) slots: usize,
    pub(crate) words: usize,
}

/// The frames of a stack while they are collected.
#[derive(Debug)]
pub struct Frames<'a> {
    words: &'a mut [u64; crate::FRAMES],
    used: usize,
}

impl Frames<'_> {
    /// Appends a frame; frames beyond the limit are dropped.
    pub fn push(&mut self, frame: FrameRecord) {
        if let Some(place) = self.words.get_mut(self.used) {
            *place = frame.pack();
            self.used += 1;
        }
    }
}

/// The offset of a number's slot.
fn inherited_at(index: usize) -> usize {
    offset_of!(TableMapping, inherited) + index * size_of::<AtomicU64>()
}

fn slot_at(fd: u32) -> usize {
    offset_of!(TableMapping, slots) + fd as usize * size_of::<Slot>()
}

/// The index of a number among `places` entries.
fn place(number: u64, places: usize) -> usize {
    usize::try_from(number % places as u64).unwrap_or(0)
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

pub(crate) const fn low(word: u64) -> u32 {
    (word & 0xffff_ffff) as u32
}

#[cfg(test)]
mod tests;
