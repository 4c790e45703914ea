//! The small programs of `.eh_frame` that give the rules at an address.

use super::bytes::Bytes;
use super::entry::{self, Entry};
use super::rule::{Cfa, Place, Rules};
use crate::modules::Module;

/// The most states that a program may save at a time.
const ASIDE: usize = 4;
/// The most instructions of a program that is trusted.
const MOST: usize = 4096;

/// The rules at an address of a module; `None` if it has no entry, or an unsupported one.
pub(crate) fn rules(module: &Module, address: usize) -> Option<Rules> {
    let entry = entry::find(module, address)?;
    let mut machine = Machine {
        entry: &entry,
        rules: Rules::new(),
        initial: Rules::new(),
        aside: [Rules::new(); ASIDE],
        depth: 0,
        location: entry.start,
        address,
    };
    machine.rules.is_signal = entry.is_signal;
    machine.run(entry.initial)?;
    machine.initial = machine.rules;
    machine.location = entry.start;
    machine.run(entry.program)?;
    Some(machine.rules)
}

struct Machine<'a> {
    entry: &'a Entry,
    rules: Rules,
    initial: Rules,
    aside: [Rules; ASIDE],
    depth: usize,
    location: usize,
    address: usize,
}

/// Whether the address is reached.
#[derive(PartialEq, Eq)]
enum Position {
    Yes,
    NotYet,
}

impl Machine<'_> {
    fn run(&mut self, mut bytes: Bytes) -> Option<()> {
        for _ in 0..MOST {
            if bytes.left() == 0 || self.instruction(&mut bytes)? == Position::Yes {
                return Some(());
            }
        }
        None
    }

    fn instruction(&mut self, bytes: &mut Bytes) -> Option<Position> {
        let code = bytes.u8()?;
        let low = code & 0x3f;
        match code >> 6 {
            1 => return Some(self.advance(u64::from(low))),
            2 => {
                let offset = bytes.uleb()?;
                self.at(u64::from(low), i64::try_from(offset).ok()?)?;
            }
            3 => self.restore(low),
            _ => return self.extended(code, bytes),
        }
        Some(Position::NotYet)
    }

    fn extended(&mut self, code: u8, bytes: &mut Bytes) -> Option<Position> {
        match code {
            0x01 => {
                let to = bytes.pointer(0, 0)?;
                return Some(self.go(to));
            }
            0x02 => return Some(self.advance(u64::from(bytes.u8()?))),
            0x03 => return Some(self.advance(u64::from(bytes.u16()?))),
            0x04 => return Some(self.advance(u64::from(bytes.u32()?))),
            0x0a => self.put_aside()?,
            0x0b => self.take_back()?,
            0x0c..=0x0f | 0x12 | 0x13 => self.frame(code, bytes)?,
            0x2e => {
                // The size of the arguments: for exceptions only.
                bytes.uleb()?;
            }
            0x00 => {}
            _ => self.register(code, bytes)?,
        }
        Some(Position::NotYet)
    }

    /// Instructions about one register.
    fn register(&mut self, code: u8, bytes: &mut Bytes) -> Option<()> {
        let column = bytes.uleb()?;
        match code {
            0x05 => {
                let offset = i64::try_from(bytes.uleb()?).ok()?;
                self.at(column, offset)?;
            }
            0x06 => self.restore(u8::try_from(column).ok()?),
            0x07 => self.rules.set(column, Place::Undefined),
            0x08 => self.rules.set(column, Place::Same),
            0x09 => {
                let other = u8::try_from(bytes.uleb()?).ok()?;
                self.rules.set(column, Place::In(other));
            }
            0x10 => {
                let expression = block(bytes)?;
                self.rules.set(column, Place::AtExpression(expression));
            }
            0x11 => {
                let offset = bytes.sleb()?;
                self.at(column, offset)?;
            }
            0x14 => {
                let offset = i64::try_from(bytes.uleb()?).ok()?;
                let words = self.words(offset)?;
                self.rules.set(column, Place::Is(words));
            }
            0x15 => {
                let offset = bytes.sleb()?;
                let words = self.words(offset)?;
                self.rules.set(column, Place::Is(words));
            }
            0x16 => {
                let expression = block(bytes)?;
                self.rules.set(column, Place::IsExpression(expression));
            }
            _ => return None,
        }
        Some(())
    }

    /// Instructions about the start of the caller's frame.
    fn frame(&mut self, code: u8, bytes: &mut Bytes) -> Option<()> {
        let (register, offset) = match self.rules.cfa {
            Cfa::Offset { register, offset } => (register, offset),
            Cfa::Expression(_) => (0, 0),
        };
        let (register, offset) = match code {
            0x0c => (number(bytes)?, isize::try_from(bytes.uleb()?).ok()?),
            0x0d => (number(bytes)?, offset),
            0x0e => (register, isize::try_from(bytes.uleb()?).ok()?),
            0x12 => {
                let register = number(bytes)?;
                let offset = bytes.sleb()?.checked_mul(self.entry.data_factor)?;
                (register, isize::try_from(offset).ok()?)
            }
            0x13 => {
                let offset = bytes.sleb()?.checked_mul(self.entry.data_factor)?;
                (register, isize::try_from(offset).ok()?)
            }
            _ => {
                self.rules.cfa = Cfa::Expression(block(bytes)?);
                return Some(());
            }
        };
        self.rules.cfa = Cfa::Offset { register, offset };
        Some(())
    }

    fn advance(&mut self, steps: u64) -> Position {
        let bytes = steps.wrapping_mul(self.entry.code_factor);
        self.go(self.location.wrapping_add(bytes as usize))
    }

    fn go(&mut self, to: usize) -> Position {
        if to > self.address {
            return Position::Yes;
        }
        self.location = to;
        Position::NotYet
    }

    fn words(&self, factored: i64) -> Option<i16> {
        let bytes = factored.checked_mul(self.entry.data_factor)?;
        if bytes % 8 != 0 {
            return None;
        }
        i16::try_from(bytes / 8).ok()
    }

    fn at(&mut self, column: u64, factored: i64) -> Option<()> {
        let words = self.words(factored)?;
        self.rules.set(column, Place::At(words));
        Some(())
    }

    fn restore(&mut self, column: u8) {
        let place = self.initial.place(column);
        self.rules.set(u64::from(column), place);
    }

    fn put_aside(&mut self) -> Option<()> {
        *self.aside.get_mut(self.depth)? = self.rules;
        self.depth += 1;
        Some(())
    }

    fn take_back(&mut self) -> Option<()> {
        self.depth = self.depth.checked_sub(1)?;
        self.rules = *self.aside.get(self.depth)?;
        Some(())
    }
}

fn number(bytes: &mut Bytes) -> Option<u8> {
    u8::try_from(bytes.uleb()?).ok()
}

fn block(bytes: &mut Bytes) -> Option<Bytes> {
    let length = usize::try_from(bytes.uleb()?).ok()?;
    bytes.take(length)
}
