//! The native stack of the calling thread, by the unwind tables that compilers write (`.eh_frame`):
//! correct without frame pointers, without allocation and without locks. See decision 017.

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
#[cfg(test)]
mod tests;

use crate::list::List;
use crate::memory::Memory;
use crate::{java, language, modules};
pub(crate) use cache::forget;
use registers::Registers;
use rule::{Cfa, Place, Rules};

/// The most frames that are followed.
pub(crate) const DEPTH: usize = 64;

/// The stack as addresses of calls, innermost first.
#[derive(Debug)]
pub(crate) struct Trace {
    addresses: List<usize, DEPTH>,
    hash: u64,
    /// Whether it reached the outermost frame, or as far as it was meant to.
    pub(crate) is_whole: bool,
    /// The index of the first frame in code that is in no file: generated at run time.
    pub(crate) generated: Option<usize>,
    /// Whether everything up to there was followed by tables, without a signal handler in between.
    pub(crate) is_generated_sure: bool,
}

impl Trace {
    /// Nothing followed yet.
    #[inline(always)]
    const fn new() -> Self {
        Self {
            addresses: List::new(),
            hash: SEED,
            is_whole: false,
            generated: None,
            is_generated_sure: true,
        }
    }

    /// The addresses: each is inside the call instruction, so that it gives the right line.
    pub(crate) fn addresses(&self) -> &[usize] {
        self.addresses.items()
    }

    /// Equal for equal addresses.
    pub(crate) fn hash(&self) -> u64 {
        self.hash
    }

    /// Drops the callers of the first `frames` frames, on purpose.
    pub(crate) fn cut(&mut self, frames: usize) {
        self.addresses.truncate(frames);
        let addresses = self.addresses.items().iter();
        self.hash = addresses.fold(SEED, |hash, address| mixed(hash, *address));
        self.is_whole = true;
    }

    /// The last address is in generated code.
    fn is_in_generated(&mut self) {
        if self.generated.is_none() {
            self.generated = self.addresses.len().checked_sub(1);
        }
    }

    /// Something makes what follows uncertain.
    fn doubt(&mut self) {
        if self.generated.is_none() {
            self.is_generated_sure = false;
        }
    }

    #[inline]
    fn push(&mut self, address: usize) -> bool {
        self.hash = mixed(self.hash, address);
        self.addresses.push(address)
    }
}

const SEED: u64 = 0xcbf2_9ce4_8422_2325;

#[inline]
fn mixed(hash: u64, address: usize) -> u64 {
    (hash ^ address as u64)
        .wrapping_mul(0x9e37_79b9_7f4a_7c15)
        .rotate_left(29)
}

/// The address range of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    start: usize,
    length: usize,
}

impl Extent {
    /// The range of no function.
    pub(crate) const NOWHERE: Self = Self {
        start: 0,
        length: 0,
    };

    #[inline]
    fn contains(self, address: usize) -> bool {
        address.wrapping_sub(self.start) < self.length
    }
}

/// The function that contains an address, according to the unwind tables.
pub(crate) fn extent(address: usize) -> Option<Extent> {
    let module = modules::find(address)?;
    entry::extent(&module, address).map(|(start, end)| Extent {
        start,
        length: end.saturating_sub(start),
    })
}

/// The native stack of the calling thread, as far as it was followed.
#[derive(Debug)]
pub(crate) struct Native {
    pub(crate) trace: Trace,
    registers: Registers,
    memory: Memory,
    /// Whether the program counter is at the running instruction, and not at the return address
    /// behind a call.
    is_exact: bool,
}

impl Native {
    /// Nothing followed yet.
    #[inline(always)]
    pub(crate) const fn new() -> Self {
        Self {
            trace: Trace::new(),
            registers: Registers::new(),
            memory: Memory::NONE,
            is_exact: true,
        }
    }

    /// Begins in the calling function, at this point.
    #[inline(always)]
    pub(crate) fn begin_here(&mut self) {
        self.registers.take_here();
    }

    /// Follows the stack outward, up to the first frame of the function `until`, and returns
    /// whether there was one. Continues from there when it is called again. The library's own
    /// frames are left out.
    pub(crate) fn follow(&mut self, until: Extent) -> bool {
        self.memory = Memory::at(self.registers.sp());
        loop {
            let address = self
                .registers
                .pc()
                .wrapping_sub(usize::from(!self.is_exact));
            if until.contains(address) {
                return true;
            }
            let is_ours = self.trace.addresses.len() == 0 && modules::is_own(address);
            if !is_ours && !self.trace.push(address) {
                return false;
            }
            match self.step(address) {
                Step::Next { is_signal } => {
                    self.is_exact = is_signal;
                    if is_signal {
                        self.trace.doubt();
                    }
                }
                Step::Outermost => {
                    self.trace.is_whole = true;
                    return false;
                }
                Step::Lost => return false,
            }
        }
    }

    #[inline]
    fn step(&mut self, address: usize) -> Step {
        let step = cache::step(address, &mut self.registers, &mut self.memory);
        step.unwrap_or_else(|| self.step_by_tables(address))
    }

    #[inline(never)]
    fn step_by_tables(&mut self, address: usize) -> Step {
        let (registers, memory) = (&mut self.registers, &mut self.memory);
        registers.settle(memory);
        let Some(module) = modules::find(address) else {
            self.trace.is_in_generated();
            if java::is_found() {
                // The runtime that generated it knows the caller; frame pointers are mostly not
                // kept.
                return Step::Lost;
            }
            return by_frame_pointer(registers, memory);
        };
        language::meet(&module);
        let Some(rules) = program::rules(&module, address) else {
            self.trace.doubt();
            return by_frame_pointer(registers, memory);
        };
        cache::store(address, &rules);
        apply(registers, memory, &rules)
    }
}

/// The result of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Next { is_signal: bool },
    Outermost,
    Lost,
}

/// Code without tables, as a just-in-time compiler generates it, often keeps frame pointers.
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
    // The stack grows downward: callers are above. A signal handler may have a stack of its own.
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
