//! The frames of a thread, innermost first.

use super::memory::{Memory, Span};
use super::record::{BROKEN, TRUNCATED};
use super::runtime::Layout;

/// `FRAME_OWNED_BY_GENERATOR`: such frames are complete as soon as they are created.
const OWNED_BY_GENERATOR: u8 = 1;
/// `FRAME_OWNED_BY_CSTACK`: where C entered the interpreter; not Python code.
const OWNED_BY_C_STACK: u8 = 3;
/// Hidden frames per shown frame before the walk gives up: entries from C to Python, and one that
/// is being created.
const STEPS_PER_FRAME: usize = 3;
/// Longer code is not plausible.
const CODE_LIMIT: i64 = 1 << 30;

/// What is running in one frame. The addresses are valid while the frame is alive, that is, until
/// the hook returns.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct RawFrame {
    /// The code object.
    pub(crate) code: u64,
    /// The string objects of its file and of its name, qualified from 3.11 on.
    pub(crate) file: u64,
    pub(crate) function: u64,
    /// The first line of the code.
    pub(crate) first_line: u32,
    /// Bytes into the code; negative before the first instruction.
    pub(crate) instruction: i32,
}

/// The result of a walk.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct PythonWalk {
    /// The frames that were written.
    pub(crate) frames: usize,
    /// The stack has more frames.
    pub(crate) is_truncated: bool,
    /// The walk met something that is not a frame; what precedes it is correct.
    pub(crate) is_broken: bool,
    /// Covers all frames: equal stacks have equal hashes as long as their code objects are alive.
    pub(crate) hash: u64,
}

impl PythonWalk {
    /// As flags of the record.
    pub(crate) const fn flags(&self) -> u8 {
        (if self.is_truncated { TRUNCATED } else { 0 }) | (if self.is_broken { BROKEN } else { 0 })
    }
}

/// The location and owner of a frame: enough to find its creator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    /// The frame's own address.
    pub(crate) frame: u64,
    /// The code object that runs in it.
    pub(crate) code: u64,
    /// Whether a generator or coroutine owns it.
    pub(crate) is_generator: bool,
}

/// One step of the walk: the frame, if it is to be shown, and the next.
struct Step {
    frame: Option<RawFrame>,
    is_generator: bool,
    back: u64,
}

/// Writes the frames of the thread into `frames`. The innermost are read by `careful`, because a
/// signal may have arrived while a frame was being pushed; those below existed before.
pub(super) fn walk<C: Memory, M: Memory>(
    careful: C,
    memory: M,
    layout: &Layout,
    thread: u64,
    frames: &mut [RawFrame],
) -> PythonWalk {
    let depth = frames.len();
    let mut places = frames.iter_mut();
    follow(careful, memory, layout, thread, depth, |frame, _| {
        if let Some(place) = places.next() {
            *place = *frame;
        }
    })
}

/// The same without keeping them: `pass` gets the place of each.
#[inline]
pub(super) fn glance<C: Memory, M: Memory>(
    careful: C,
    memory: M,
    layout: &Layout,
    thread: u64,
    depth: usize,
    mut pass: impl FnMut(Place),
) -> PythonWalk {
    follow(careful, memory, layout, thread, depth, |_, place| {
        pass(place);
    })
}

#[inline]
fn follow<C: Memory, M: Memory>(
    careful: C,
    memory: M,
    layout: &Layout,
    thread: u64,
    depth: usize,
    mut take: impl FnMut(&RawFrame, Place),
) -> PythonWalk {
    let mut walked = PythonWalk::default();
    let Some(mut next) = innermost(memory, layout, thread) else {
        walked.is_broken = true;
        return walked;
    };
    let mut steps = if depth == 0 {
        0
    } else {
        depth.saturating_add(1).saturating_mul(STEPS_PER_FRAME)
    };
    let mut hash = Hash::new();
    while next != 0 {
        let step = if walked.frames == 0 {
            step(careful, layout, next)
        } else {
            step(memory, layout, next)
        };
        let Some(step) = step else {
            walked.is_broken = true;
            break;
        };
        if let Some(frame) = step.frame {
            if walked.frames == depth {
                walked.is_truncated = true;
                break;
            }
            hash.add(&frame);
            let place = Place {
                frame: next,
                code: frame.code,
                is_generator: step.is_generator,
            };
            take(&frame, place);
            walked.frames = walked.frames.saturating_add(1);
        }
        if steps == 0 {
            walked.is_broken = true;
            break;
        }
        steps = steps.saturating_sub(1);
        next = step.back;
    }
    walked.hash = hash.end(walked.flags());
    walked
}

/// The thread's innermost frame, 0 if it runs no Python.
fn innermost<M: Memory>(memory: M, layout: &Layout, thread: u64) -> Option<u64> {
    let at = &layout.offsets;
    let length = u64::from(at.thread_frame).checked_add(8)?;
    let pointer = memory.span(thread, length)?.word(at.thread_frame)?;
    if !at.has_cframe() {
        return Some(pointer);
    }
    let length = u64::from(at.cframe_current).checked_add(8)?;
    memory.span(pointer, length)?.word(at.cframe_current)
}

#[inline]
fn step<M: Memory>(memory: M, layout: &Layout, frame: u64) -> Option<Step> {
    let at = &layout.offsets;
    if !frame.is_multiple_of(8) {
        return None;
    }
    let frame = memory.span(frame, at.frame_span())?;
    let back = frame.word(at.frame_back)?;
    let (owner, is_generator) = if at.has_frame_objects() {
        (OWNED_BY_GENERATOR, frame.word(at.frame_generator)? != 0)
    } else {
        let owner = frame.byte(at.frame_owner)?;
        (owner, owner == OWNED_BY_GENERATOR)
    };
    let unseen = Step {
        frame: None,
        is_generator,
        back,
    };
    if owner == OWNED_BY_C_STACK {
        return Some(unseen);
    }
    if owner > OWNED_BY_C_STACK {
        return None;
    }
    let address = frame.word(at.frame_code)?;
    let code = memory.span(address, u64::from(at.code_size))?;
    if code.word(at.object_type)? != layout.code_type {
        return None;
    }
    let instruction = instruction(layout, frame, address)?;
    if owner != OWNED_BY_GENERATOR {
        let first = code.int(at.code_first_traceable)?;
        if instruction < first.checked_mul(2)? {
            return Some(unseen);
        }
    }
    let frame = RawFrame {
        code: address,
        file: code.word(at.code_filename)?,
        function: code.word(at.code_name)?,
        // Handmade code objects may have any number here.
        first_line: u32::try_from(code.int(at.code_first_line)?).unwrap_or(0),
        instruction,
    };
    Some(Step {
        frame: Some(frame),
        is_generator,
        back,
    })
}

/// Bytes into the code.
#[inline]
fn instruction<M: Memory>(layout: &Layout, frame: Span<M>, code: u64) -> Option<i32> {
    let at = &layout.offsets;
    if at.has_frame_objects() {
        let last = frame.int(at.frame_instruction)?;
        // 3.10 counts in units of two bytes.
        return last.checked_mul(if at.minor == 10 { 2 } else { 1 });
    }
    let start = code.checked_add(u64::from(at.code_start))?;
    let distance = frame
        .word(at.frame_instruction)?
        .wrapping_sub(start)
        .cast_signed();
    if !(-2..CODE_LIMIT).contains(&distance) {
        return None;
    }
    i32::try_from(distance).ok()
}

/// Distinguishes stacks; not meant to withstand an adversary.
struct Hash(u64);

impl Hash {
    const fn new() -> Self {
        Self(0x9e37_79b9_7f4a_7c15)
    }

    #[inline]
    fn add(&mut self, frame: &RawFrame) {
        let place =
            (u64::from(frame.first_line) << 32) | u64::from(frame.instruction.cast_unsigned());
        self.mix(frame.code ^ place.rotate_left(17), frame.file);
        self.mix(frame.function, place);
    }

    #[inline]
    fn mix(&mut self, one: u64, other: u64) {
        let one = u128::from(one ^ self.0);
        let other = u128::from(other ^ 0xa076_1d64_78bd_642f);
        let [low, high] = {
            let product = one.wrapping_mul(other).to_le_bytes();
            let (low, high) = product.split_at(8);
            [low, high].map(|half| half.try_into().map_or(0, u64::from_le_bytes))
        };
        self.0 = low ^ high.rotate_left(23) ^ self.0.rotate_left(5);
    }

    /// Never 0, so that 0 can mean no stack.
    fn end(mut self, flags: u8) -> u64 {
        self.mix(u64::from(flags), 0xe703_7ed1_a0b4_28db);
        self.0.max(1)
    }
}
