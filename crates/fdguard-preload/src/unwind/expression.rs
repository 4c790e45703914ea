//! Computed rules: the few operations that compilers and the C library use in `.eh_frame`.

use super::bytes::Bytes;
use super::registers::Registers;
use crate::memory::Memory;

/// The most values on the stack at a time.
const DEPTH: usize = 16;

/// The value of an expression; `first` is on its stack at the start.
pub(crate) fn value(
    mut bytes: Bytes,
    registers: &Registers,
    memory: &mut Memory,
    first: Option<usize>,
) -> Option<usize> {
    let mut stack = Stack {
        values: [0; DEPTH],
        used: 0,
    };
    if let Some(first) = first {
        stack.push(first)?;
    }
    while bytes.left() > 0 {
        operation(&mut bytes, &mut stack, registers, memory)?;
    }
    stack.pop()
}

struct Stack {
    values: [usize; DEPTH],
    used: usize,
}

impl Stack {
    fn push(&mut self, value: usize) -> Option<()> {
        *self.values.get_mut(self.used)? = value;
        self.used += 1;
        Some(())
    }

    fn pop(&mut self) -> Option<usize> {
        self.used = self.used.checked_sub(1)?;
        self.values.get(self.used).copied()
    }

    fn top(&self) -> Option<usize> {
        self.values.get(self.used.checked_sub(1)?).copied()
    }
}

fn operation(
    bytes: &mut Bytes,
    stack: &mut Stack,
    registers: &Registers,
    memory: &mut Memory,
) -> Option<()> {
    let code = bytes.u8()?;
    let value = match code {
        0x06 => memory.word(stack.pop()?)?,
        0x08 => usize::from(bytes.u8()?),
        0x09 => bytes.i8()? as isize as usize,
        0x0a => usize::from(bytes.u16()?),
        0x0b => bytes.i16()? as isize as usize,
        0x0c => bytes.u32()? as usize,
        0x0d => bytes.i32()? as isize as usize,
        0x0e | 0x0f => bytes.u64()? as usize,
        0x10 => bytes.uleb()? as usize,
        0x11 => bytes.sleb()? as usize,
        0x12 => stack.top()?,
        0x23 => stack.pop()?.wrapping_add(bytes.uleb()? as usize),
        0x1a..=0x2e => two(code, stack)?,
        0x30..=0x4f => usize::from(code - 0x30),
        0x70..=0x8f => {
            let base = registers.get(code - 0x70)?;
            base.wrapping_add_signed(bytes.sleb()? as isize)
        }
        _ => return None,
    };
    stack.push(value)
}

/// Operations on the two topmost values.
fn two(code: u8, stack: &mut Stack) -> Option<usize> {
    let b = stack.pop()?;
    let a = stack.pop()?;
    let shift = u32::try_from(b).unwrap_or(u32::MAX);
    let value = match code {
        0x1a => a & b,
        0x1c => a.wrapping_sub(b),
        0x1e => a.wrapping_mul(b),
        0x21 => a | b,
        0x22 => a.wrapping_add(b),
        0x24 => a.checked_shl(shift).unwrap_or(0),
        0x25 => a.checked_shr(shift).unwrap_or(0),
        0x27 => a ^ b,
        0x29 => usize::from(a == b),
        0x2a => usize::from(a as isize >= b as isize),
        0x2b => usize::from(a as isize > b as isize),
        0x2c => usize::from(a as isize <= b as isize),
        0x2d => usize::from((a as isize) < b as isize),
        0x2e => usize::from(a != b),
        _ => return None,
    };
    Some(value)
}
