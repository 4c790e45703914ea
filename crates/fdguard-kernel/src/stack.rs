//! Stacks: how they are taken, how their records are read, and how one that was unwound is
//! recognised without copying it again. Pure; `bpf/records.h` has the layout.

use std::collections::{HashMap, VecDeque};

use crate::{CapturedStack, Goroutine, LanguageFrame, Registers};

/// How the stacks of a process are taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StackMode {
    /// Not at all.
    None,
    /// By frame pointers: right for Go, and for programs that were compiled with them.
    FramePointers,
    /// The memory of the stack is copied, to be unwound by tables.
    #[default]
    Copied,
    /// The frames of CPython; the memory is copied if there are none.
    Python,
}

impl StackMode {
    pub(crate) fn number(self) -> u32 {
        match self {
            Self::None => 0,
            Self::FramePointers => 1,
            Self::Copied => 2,
            Self::Python => 3,
        }
    }
}

/// A return address in the memory of a copied stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StackSlot {
    /// Bytes from the stack pointer.
    pub offset: u64,
    /// The address that is there.
    pub address: u64,
}

/// Bytes before the memory: the head, frames or frames of a language, and the creator's.
const FRAMES: usize = 72;
const CREATOR: usize = FRAMES + MOST * 24;
const MEMORY: usize = CREATOR + MOST * 8;
/// The most frames.
const MOST: usize = 64;
/// Words for the frames of each creator.
const CREATOR_FRAMES: usize = 20;
/// The most return addresses of a template, and templates for the same registers.
const SLOTS: usize = 64;
const VARIANTS: u64 = 4;
/// Bytes of a template.
const TEMPLATE: usize = 16 + SLOTS * 16;
/// So many copied stacks are kept until they are unwound.
const KEPT: usize = 1 << 14;

/// What identifies a copied stack in the kernel, but for its return addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TemplateKey {
    pid: u32,
    generation: u32,
    ip: u64,
    sp: u64,
}

impl TemplateKey {
    /// The keys under which templates of these registers are kept.
    pub(crate) fn variants(self) -> impl Iterator<Item = Vec<u8>> {
        (0..VARIANTS).map(move |variant| {
            let mut key = Vec::with_capacity(32);
            key.extend(self.pid.to_ne_bytes());
            key.extend(self.generation.to_ne_bytes());
            for long in [self.ip, self.sp, variant] {
                key.extend(long.to_ne_bytes());
            }
            key
        })
    }
}

/// The template of a stack; `None` if it has no return address, or too many to compare them all.
pub(crate) fn template(number: u32, slots: &[StackSlot]) -> Option<Vec<u8>> {
    if slots.is_empty() || slots.len() > SLOTS {
        return None;
    }
    let span = slots.iter().map(|slot| slot.offset).max()?.checked_add(8)?;
    let count = u32::try_from(slots.len()).ok()?;
    let mut bytes = Vec::with_capacity(TEMPLATE);
    for word in [number, count, u32::try_from(span).ok()?, 0] {
        bytes.extend(word.to_ne_bytes());
    }
    // The kernel compares aligned words.
    if slots.iter().any(|slot| slot.offset % 8 != 0) {
        return None;
    }
    for slot in slots {
        bytes.extend(slot.offset.to_ne_bytes());
        bytes.extend(slot.address.to_ne_bytes());
    }
    bytes.resize(TEMPLATE, 0);
    Some(bytes)
}

/// The copied stacks whose templates are not known yet, the latest of them.
#[derive(Debug, Default)]
pub(crate) struct CopiedStacks {
    keys: HashMap<u32, TemplateKey>,
    order: VecDeque<u32>,
}

impl CopiedStacks {
    /// Takes the key of a stack, once.
    pub(crate) fn take(&mut self, number: u32) -> Option<TemplateKey> {
        self.keys.remove(&number)
    }

    fn add(&mut self, number: u32, key: TemplateKey) {
        self.keys.insert(number, key);
        self.order.push_back(number);
        if self.order.len() > KEPT
            && let Some(oldest) = self.order.pop_front()
        {
            self.keys.remove(&oldest);
        }
    }

    /// Reads a record of the ring of stacks.
    pub(crate) fn decode(&mut self, bytes: &[u8]) -> Option<CapturedStack> {
        let word = |at: usize| Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?));
        let long = |at: usize| Some(u64::from_ne_bytes(*bytes.get(at..)?.first_chunk()?));
        let count = |at: usize| Some(usize::try_from(word(at)?).ok()?.min(MOST));
        let registers = Registers {
            ip: long(16)?,
            sp: long(24)?,
            bp: long(32)?,
        };
        let mut stack = CapturedStack {
            number: word(0)?,
            pid: word(4)?,
            registers,
            ..CapturedStack::default()
        };
        for index in 0..count(40)? {
            stack.frames.push(long(FRAMES + index * 8)?);
        }
        for index in 0..count(44)? {
            let at = FRAMES + index * 24;
            stack.language.push(LanguageFrame {
                code: long(at)?,
                identity: long(at + 8)?,
                instruction: word(at + 16)?.cast_signed(),
            });
        }
        let length = usize::try_from(word(52)?).ok()?;
        if length > 0 {
            stack.memory = bytes.get(MEMORY..)?.get(..length)?.to_vec();
            let key = TemplateKey {
                pid: stack.pid,
                generation: word(8)?,
                ip: registers.ip,
                sp: registers.sp,
            };
            self.add(stack.number, key);
        }
        let (id, created_at) = (long(56)?, long(64)?);
        if id != 0 || created_at != 0 {
            let words = (0..count(48)?).map(|index| long(CREATOR + index * 8));
            stack.goroutine = Some(Goroutine {
                id,
                created_at,
                creator: creators(&words.collect::<Option<Vec<u64>>>()?),
            });
        }
        Some(stack)
    }
}

/// The stacks of the creators, each after a zero. The kernel writes as many words for each.
fn creators(words: &[u64]) -> Vec<u64> {
    let stacks = words.chunks(CREATOR_FRAMES).map(|stack| {
        let frames = stack.iter().take_while(|frame| **frame != 0);
        std::iter::once(0).chain(frames.copied())
    });
    stacks.flatten().collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{
        CREATOR_FRAMES, CopiedStacks, FRAMES, MEMORY, SLOTS, StackSlot, TEMPLATE, template,
    };

    #[test]
    fn a_copied_stack_is_kept_until_its_template_is_known() {
        let mut bytes = vec![0; MEMORY + 16];
        bytes[0] = 7;
        bytes[4] = 9;
        bytes[52] = 16;
        bytes[MEMORY] = 1;
        let mut copied = CopiedStacks::default();
        let stack = copied.decode(&bytes).unwrap();
        assert_eq!((stack.number, stack.pid), (7, 9));
        assert_eq!((stack.memory.len(), stack.memory[0]), (16, 1));
        let key = copied.take(7).unwrap();
        assert_eq!(key.variants().count(), 4);
        assert_eq!(copied.take(7), None);
    }

    #[test]
    fn the_creators_of_a_goroutine_follow_each_other() {
        let mut words = vec![0; 2 * CREATOR_FRAMES];
        words[..2].copy_from_slice(&[5, 6]);
        words[CREATOR_FRAMES] = 7;
        assert_eq!(super::creators(&words), [0, 5, 6, 0, 7]);
        assert!(super::creators(&[]).is_empty());
    }

    #[test]
    fn frames_are_read_in_order() {
        let mut bytes = vec![0; MEMORY];
        bytes[40] = 2;
        bytes[FRAMES..FRAMES + 8].copy_from_slice(&5_u64.to_ne_bytes());
        bytes[FRAMES + 8..FRAMES + 16].copy_from_slice(&6_u64.to_ne_bytes());
        let stack = CopiedStacks::default().decode(&bytes).unwrap();
        assert_eq!(stack.frames, [5, 6]);
        assert_eq!(stack.goroutine, None);
    }

    #[test]
    fn a_template_needs_all_return_addresses() {
        let slot = StackSlot {
            offset: 8,
            address: 9,
        };
        assert_eq!(template(1, &[]), None);
        assert_eq!(template(1, &[slot; SLOTS + 1]), None);
        assert_eq!(template(1, &[slot; SLOTS]).unwrap().len(), TEMPLATE);
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(bytes: Vec<u8>, filler in 0..3000_usize) {
            let bytes = [bytes, vec![255; filler]].concat();
            drop(CopiedStacks::default().decode(&bytes));
        }
    }
}
