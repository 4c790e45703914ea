//! The registers that unwinding needs, by their numbers in the tables.

#![expect(unsafe_code, reason = "reads the machine's registers")]

use core::arch::asm;

/// The frame pointer's number.
pub(crate) const FRAME: u8 = 6;
/// The stack pointer's number.
pub(crate) const STACK: u8 = 7;
/// The number that stands for the return address.
pub(crate) const RETURN: u8 = 16;
/// How many there are.
pub(crate) const COLUMNS: usize = 17;

/// The registers of a frame.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Registers {
    values: [usize; COLUMNS],
    /// A bit for each that is known.
    known: u32,
}

impl Registers {
    /// Those of the calling function, here and now.
    #[inline(always)]
    pub(crate) fn here() -> Self {
        let mut values = [0; COLUMNS];
        // SAFETY: writes eight words into the array, at the places of the registers' numbers, and changes rax only.
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
                in("rdi") values.as_mut_ptr(),
                out("rax") _,
                options(nostack),
            );
        }
        let known = 1 << 3 | 1 << 6 | 1 << 7 | 1 << 12 | 1 << 13 | 1 << 14 | 1 << 15 | 1 << 16;
        Self { values, known }
    }

    /// One of them, when it is known.
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

    pub(crate) fn sp(&self) -> usize {
        self.values[STACK as usize]
    }

    pub(crate) fn pc(&self) -> usize {
        self.values[RETURN as usize]
    }

    pub(crate) fn frame(&self) -> usize {
        self.get(FRAME).unwrap_or(0)
    }

    pub(crate) fn set_frame(&mut self, frame: usize) {
        self.put(FRAME, Some(frame));
    }

    /// Goes to the caller: its stack pointer and the place that the call returns to.
    pub(crate) fn leave(&mut self, sp: usize, pc: usize) {
        self.put(STACK, Some(sp));
        self.put(RETURN, Some(pc));
    }
}
