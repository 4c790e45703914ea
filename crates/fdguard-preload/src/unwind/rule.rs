//! How to find the caller's registers from those of a frame.

use super::bytes::Bytes;
use super::registers::{COLUMNS, RETURN, Registers, STACK};

/// Where the caller's frame begins.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Cfa {
    /// At an offset from a register.
    Offset { register: u8, offset: isize },
    /// Computed.
    Expression(Bytes),
}

/// Where a register of the caller is. Offsets count words from the start of the caller's frame.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Place {
    /// Unchanged.
    Same,
    /// Lost.
    Undefined,
    /// In memory.
    At(i16),
    /// The address itself.
    Is(i16),
    /// In another register.
    In(u8),
    /// In memory, at a computed address.
    AtExpression(Bytes),
    /// Computed.
    IsExpression(Bytes),
}

/// The rules at one address.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    pub(crate) cfa: Cfa,
    places: [Place; COLUMNS],
    pub(crate) is_signal: bool,
}

impl Rules {
    pub(crate) fn new() -> Self {
        Self {
            cfa: Cfa::Offset {
                register: STACK,
                offset: 8,
            },
            places: [Place::Same; COLUMNS],
            is_signal: false,
        }
    }

    pub(crate) fn place(&self, column: u8) -> Place {
        let place = self.places.get(usize::from(column));
        place.copied().unwrap_or(Place::Same)
    }

    /// Registers that are not followed are left out.
    pub(crate) fn set(&mut self, column: u64, place: Place) {
        let index = usize::try_from(column).unwrap_or(COLUMNS);
        if let Some(entry) = self.places.get_mut(index) {
            *entry = place;
        }
    }

    /// Every register but the stack pointer, whose rule is the frame itself.
    pub(crate) fn places(&self) -> impl Iterator<Item = (u8, &Place)> {
        (0..).zip(&self.places)
    }

    pub(crate) fn is_outermost(&self) -> bool {
        matches!(self.place(RETURN), Place::Undefined)
    }

    /// The stack pointer, if the rules give it themselves, as for a signal.
    pub(crate) fn restored_sp(&self, registers: &Registers) -> Option<usize> {
        match self.place(STACK) {
            Place::Same => None,
            _ => registers.get(STACK),
        }
    }
}
