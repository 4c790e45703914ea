//! The registers that unwinding needs, by their numbers in the tables.

#![expect(unsafe_code, reason = "reads the machine's registers")]

use core::arch::asm;

use crate::list::List;
use crate::memory::Memory;

/// The frame pointer's number.
pub(crate) const FRAME: u8 = 6;
/// The stack pointer's number.
pub(crate) const STACK: u8 = 7;
/// The number of the return address.
pub(crate) const RETURN: u8 = 16;
/// How many there are.
pub(crate) const COLUMNS: usize = 17;

/// The registers that a function preserves for its caller.
pub(crate) const KEPT: [u8; 6] = [3, 6, 12, 13, 14, 15];
/// Special values beside offsets in words: the register is unchanged, or lost.
pub(crate) const SAME: i8 = i8::MAX;
pub(crate) const GONE: i8 = i8::MAX - 1;
/// The most frames left before the registers are read back.
const LEFT: usize = 32;

/// The registers of a frame.
///
/// Leaving most frames needs only the stack pointer. Where they saved other registers is only
/// noted, and read when a frame needs it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Registers {
    values: [usize; COLUMNS],
    /// One bit for each known register.
    known: u32,
    /// The frames left since then: where each began, and the offsets at which it saved the
    /// registers, one byte each.
    left: List<(usize, u64), LEFT>,
}

impl Registers {
    /// No register is known.
    #[inline(always)]
    pub(crate) const fn new() -> Self {
        Self {
            values: [0; COLUMNS],
            known: 0,
            left: List::new(),
        }
    }

    /// The registers of the calling function, at this point.
    #[inline(always)]
    pub(crate) fn take_here(&mut self) {
        // SAFETY: writes eight words into the array, at the indices of the registers, and changes
        // rax only.
        unsafe {
            asm!(
                "lea rax, [rip]",
                "mov [rdi + 128], rax",
                "mov [rdi + 24], rbx",
                "mov [rdi + 48], rbp",
                "mov [rdi + 56], rsp",
                "mov [rdi + 96], r12",
                "mov [rdi + 104], r13",
                "mov [rdi + 112], r14",
                "mov [rdi + 120], r15",
                in("rdi") self.values.as_mut_ptr(),
                out("rax") _,
                options(nostack),
            );
        }
        self.known = 1 << 3 | 1 << 6 | 1 << 7 | 1 << 12 | 1 << 13 | 1 << 14 | 1 << 15 | 1 << 16;
    }

    /// Leaves a frame that began at `frame` and saved registers relative to it, and continues at
    /// the return address.
    #[inline]
    pub(crate) fn note(&mut self, memory: &mut Memory, frame: usize, kept: u64, pc: usize) {
        if !self.left.push((frame, kept)) {
            self.settle(memory);
            self.left.push((frame, kept));
        }
        self.values[STACK as usize] = frame;
        self.values[RETURN as usize] = pc;
    }

    /// One register, searched for in the frames left.
    #[inline]
    pub(crate) fn look(&self, column: u8, memory: &mut Memory) -> Option<usize> {
        if column == STACK {
            return Some(self.sp());
        }
        self.look_back(column, memory)
    }

    #[inline(never)]
    fn look_back(&self, column: u8, memory: &mut Memory) -> Option<usize> {
        let index = KEPT.into_iter().position(|kept| kept == column);
        if let Some(index) = index {
            for (frame, kept) in self.left.items().iter().rev() {
                match place(*kept, index) {
                    SAME => {}
                    GONE => return None,
                    words => return memory.word(from(*frame, words)),
                }
            }
        }
        self.get(column)
    }

    /// Reads back all registers that the frames left have saved.
    #[inline(never)]
    pub(crate) fn settle(&mut self, memory: &mut Memory) {
        if self.left.len() == 0 {
            return;
        }
        for column in KEPT {
            let value = self.look_back(column, memory);
            self.put(column, value);
        }
        self.left.truncate(0);
    }

    /// One register, if it is known.
    pub(crate) fn get(&self, column: u8) -> Option<usize> {
        if self.known >> (column & 31) & 1 == 0 {
            return None;
        }
        self.values.get(usize::from(column)).copied()
    }

    /// Sets one, or makes it unknown.
    pub(crate) fn put(&mut self, column: u8, value: Option<usize>) {
        let Some(place) = self.values.get_mut(usize::from(column)) else {
            return;
        };
        let bit = 1 << (column & 31);
        match value {
            Some(value) => {
                *place = value;
                self.known |= bit;
            }
            None => self.known &= !bit,
        }
    }

    #[inline]
    pub(crate) fn sp(&self) -> usize {
        self.values[STACK as usize]
    }

    #[inline]
    pub(crate) fn pc(&self) -> usize {
        self.values[RETURN as usize]
    }

    pub(crate) fn frame(&self) -> usize {
        self.get(FRAME).unwrap_or(0)
    }

    pub(crate) fn set_frame(&mut self, frame: usize) {
        self.put(FRAME, Some(frame));
    }

    /// Goes to the caller: its stack pointer and the return address.
    pub(crate) fn leave(&mut self, sp: usize, pc: usize) {
        self.put(STACK, Some(sp));
        self.put(RETURN, Some(pc));
    }
}

/// One of the bytes that say where a frame saved registers.
#[inline]
pub(crate) fn place(kept: u64, index: usize) -> i8 {
    i8::from_ne_bytes([((kept >> ((index * 8) & 63)) & 0xff) as u8])
}

/// The address this many words from the start of a frame.
#[inline]
pub(crate) fn from(frame: usize, words: i8) -> usize {
    frame.wrapping_add_signed(isize::from(words) * 8)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Where a frame saved the first two; the others are unchanged.
    fn kept(first: i8, second: i8) -> u64 {
        let bytes = [first, second, SAME, SAME, SAME, SAME, SAME, SAME];
        u64::from_ne_bytes(bytes.map(|place| place.to_ne_bytes()[0]))
    }

    #[test]
    fn what_frames_kept_is_found_however_far_back() {
        let words: [usize; 8] = core::array::from_fn(|index| index + 100);
        let base = words.as_ptr() as usize;
        let mut registers = Registers::new();
        registers.take_here();
        registers.put(12, Some(12));
        let mut memory = Memory::at(registers.sp());
        registers.note(&mut memory, base + 16, kept(-1, SAME), 5000);
        registers.note(&mut memory, base + 48, kept(SAME, -2), 5001);
        for _ in 0..3 * LEFT {
            registers.note(&mut memory, base + 64, kept(SAME, SAME), 5002);
        }
        assert_eq!(registers.look(3, &mut memory), Some(101));
        assert_eq!(registers.look(6, &mut memory), Some(104));
        assert_eq!(registers.look(12, &mut memory), Some(12));
        assert_eq!(registers.look(10, &mut memory), None);
        assert_eq!(registers.look(STACK, &mut memory), Some(base + 64));
        registers.note(&mut memory, base + 64, kept(GONE, SAME), 5003);
        assert_eq!(registers.look(3, &mut memory), None);
        registers.settle(&mut memory);
        assert_eq!((registers.get(3), registers.get(6)), (None, Some(104)));
        assert_eq!(registers.pc(), 5003);
    }
}
