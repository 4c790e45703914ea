//! The native stack of the calling thread, by the unwind tables that every compiler writes (`.eh_frame`): right
//! without frame pointers, without allocation, and without a lock. See decision 017.

#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "words and addresses have 64 bits on the machine that this is for, and offsets have signs"
)]

mod bytes;
mod cache;
mod entry;
mod expression;
mod program;
mod registers;
mod rule;

pub(crate) use cache::forget;
pub(crate) use registers::Registers;

use crate::memory::Memory;
use crate::{java, language, modules};
use rule::{Cfa, Place, Rules};

/// Frames that are followed.
pub(crate) const DEPTH: usize = 64;

/// The stack as addresses of calls, innermost first.
#[derive(Debug)]
pub(crate) struct Trace {
    addresses: [usize; DEPTH],
    used: usize,
    /// Whether it went to the outermost frame.
    pub(crate) is_whole: bool,
    /// Which is the first in code that no file has: made at run time.
    pub(crate) generated: Option<usize>,
    /// Whether all up to there was followed by tables, and no signal handler is among it.
    pub(crate) is_generated_sure: bool,
}

impl Trace {
    /// Nothing followed yet.
    pub(crate) fn new() -> Self {
        Self {
            addresses: [0; DEPTH],
            used: 0,
            is_whole: false,
            generated: None,
            is_generated_sure: true,
        }
    }

    /// The addresses: each lies inside of the call instruction, so that it names the right line.
    pub(crate) fn addresses(&self) -> &[usize] {
        self.addresses.get(..self.used).unwrap_or_default()
    }

    /// Leaves out what called the first `frames`, on purpose.
    pub(crate) fn cut(&mut self, frames: usize) {
        self.used = self.used.min(frames);
        self.is_whole = true;
    }

    /// The last address is in generated code.
    fn is_in_generated(&mut self) {
        if self.generated.is_none() {
            self.generated = self.used.checked_sub(1);
        }
    }

    /// Something was met that makes what follows less than sure.
    fn doubt(&mut self) {
        if self.generated.is_none() {
            self.is_generated_sure = false;
        }
    }

    fn push(&mut self, address: usize) -> bool {
        let Some(place) = self.addresses.get_mut(self.used) else {
            return false;
        };
        *place = address;
        self.used += 1;
        true
    }
}

/// Follows the stack from these registers outward. Frames of our own are left out.
pub(crate) fn follow(trace: &mut Trace, mut registers: Registers) {
    let mut memory = Memory::at(registers.sp());
    // The first address is where we are; the others are where calls return to, behind the call.
    let mut is_exact = true;
    loop {
        let address = registers.pc().wrapping_sub(usize::from(!is_exact));
        let is_ours = trace.used == 0 && modules::is_own(address);
        if !is_ours && !trace.push(address) {
            return;
        }
        match step(trace, &mut registers, &mut memory, address) {
            Step::Next { is_signal } => {
                is_exact = is_signal;
                if is_signal {
                    trace.doubt();
                }
            }
            Step::Outermost => {
                trace.is_whole = true;
                return;
            }
            Step::Lost => return,
        }
    }
}

/// What a step came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Next { is_signal: bool },
    Outermost,
    Lost,
}

fn step(trace: &mut Trace, registers: &mut Registers, memory: &mut Memory, address: usize) -> Step {
    if let Some(step) = cache::step(address, registers, memory) {
        return step;
    }
    let Some(module) = modules::find(address) else {
        trace.is_in_generated();
        if java::is_found() {
            // Its machine knows what called that; frame pointers are mostly not kept.
            return Step::Lost;
        }
        return by_frame_pointer(registers, memory);
    };
    language::meet(&module);
    let Some(rules) = program::rules(&module, address) else {
        trace.doubt();
        return by_frame_pointer(registers, memory);
    };
    cache::store(address, &rules);
    apply(registers, memory, &rules)
}

/// Code without tables, as a compiler at run time makes it, often keeps frame pointers.
fn by_frame_pointer(registers: &mut Registers, memory: &mut Memory) -> Step {
    let frame = registers.frame();
    if frame <= registers.sp() || frame & 7 != 0 {
        return Step::Lost;
    }
    let (Some(before), Some(pc)) = (memory.word(frame), memory.word(frame.wrapping_add(8))) else {
        return Step::Lost;
    };
    if pc < 4096 {
        return Step::Outermost;
    }
    registers.leave(frame.wrapping_add(16), pc);
    registers.set_frame(before);
    Step::Next { is_signal: false }
}

fn apply(registers: &mut Registers, memory: &mut Memory, rules: &Rules) -> Step {
    if rules.is_outermost() {
        return Step::Outermost;
    }
    let cfa = match rules.cfa {
        Cfa::Offset { register, offset } => registers
            .get(register)
            .map(|base| base.wrapping_add_signed(offset)),
        Cfa::Expression(expression) => expression::value(expression, registers, memory, None),
    };
    let Some(cfa) = cfa else {
        return Step::Lost;
    };
    let before = *registers;
    let mut pc = None;
    for (column, place) in rules.places() {
        let value = match place {
            Place::Same => before.get(column),
            Place::Undefined => None,
            Place::At(offset) => memory.word(cfa.wrapping_add_signed(isize::from(*offset) * 8)),
            Place::Is(offset) => Some(cfa.wrapping_add_signed(isize::from(*offset) * 8)),
            Place::In(register) => before.get(*register),
            Place::AtExpression(expression) => {
                let address = expression::value(*expression, &before, memory, Some(cfa));
                address.and_then(|address| memory.word(address))
            }
            Place::IsExpression(expression) => {
                expression::value(*expression, &before, memory, Some(cfa))
            }
        };
        if column == registers::RETURN {
            pc = value;
        } else {
            registers.put(column, value);
        }
    }
    // The stack grows downward: callers lie above. A signal handler may have a stack of its own.
    let has_moved = cfa > before.sp() || rules.is_signal;
    match pc {
        Some(pc) if pc < 4096 => Step::Outermost,
        Some(pc) if has_moved => {
            let sp = rules.restored_sp(registers).unwrap_or(cfa);
            registers.leave(sp, pc);
            Step::Next {
                is_signal: rules.is_signal,
            }
        }
        _ => Step::Lost,
    }
}
