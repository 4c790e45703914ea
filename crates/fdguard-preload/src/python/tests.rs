//! The walk in memory that is not Python's: it terminates and does not panic.
#![expect(unsafe_code, reason = "implements a trait of raw reads without any")]

use std::collections::BTreeMap;

use fdguard_wire::python::PythonOffsets;

use super::memory::{Memory, ProbedMemory};
use super::record::{BROKEN, TRUNCATED};
use super::runtime::Layout;
use super::walk::{RawFrame, walk};
use super::{render::render, walk::PythonWalk};

const CODE_TYPE: u64 = 0x10_0000;
const UNICODE_TYPE: u64 = 0x20_0000;
const BYTES_TYPE: u64 = 0x30_0000;

const fn layout(offsets: PythonOffsets) -> Layout {
    Layout {
        offsets,
        code_type: CODE_TYPE,
        unicode_type: UNICODE_TYPE,
        bytes_type: BYTES_TYPE,
    }
}

/// Memory whose words are derived from their addresses; many of them let the walk continue.
#[derive(Clone, Copy)]
struct Noise(u64);

impl Noise {
    fn word(self, address: u64) -> u64 {
        let mut noise = (address ^ self.0).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        noise ^= noise >> 29;
        noise = noise.wrapping_mul(0xbf58_476d_1ce4_e5b9);
        noise ^= noise >> 32;
        if address & 0xfff == 8 {
            // Pointers lead to page starts, which is where objects have their type.
            return [CODE_TYPE, UNICODE_TYPE, BYTES_TYPE][usize::from(noise.to_le_bytes()[0] % 3)];
        }
        let pointer = 0x100_0000 + (noise >> 8 & 0xf) * 0x1000;
        match noise & 15 {
            0..=9 => pointer,
            10 | 11 => noise >> 58,
            12 | 13 => pointer + 200 + (noise >> 50 & 0xfe),
            14 => 0,
            _ => noise,
        }
    }
}

impl Memory for Noise {
    fn is_readable(self, address: u64, length: u64) -> bool {
        address.checked_add(length).is_some() && self.word(!address) & 0x3f00 != 0
    }

    unsafe fn copy(self, address: u64, into: &mut [u8]) {
        for (byte, address) in into.iter_mut().zip(address..) {
            let bytes = self.word(address & !7).to_le_bytes();
            *byte = bytes[usize::try_from(address & 7).expect("below 8")];
        }
    }
}

#[test]
fn noise_is_walked_and_rendered_without_a_panic_or_a_loop() {
    let mut frames = [RawFrame::default(); 64];
    let mut record = vec![0; 40_000];
    let (mut walked_far, mut rendered) = (0, 0);
    for seed in 0..10_000 {
        for row in PythonOffsets::ALL.iter().copied() {
            let memory = Noise(seed);
            let layout = layout(row);
            let walked = walk(memory, memory, &layout, 0x100_0000, &mut frames);
            assert!(walked.frames <= frames.len());
            walked_far += usize::from(walked.frames > 1);
            let page = |n: u64| 0x100_0000 + n % 16 * 0x1000;
            let frames = [1, 2, 3].map(|n| RawFrame {
                code: page(seed * n),
                file: page(seed / n),
                function: page(seed + n),
                first_line: 1,
                instruction: 40,
            });
            let room = usize::try_from(seed % 40_000).expect("small");
            let done = render(
                memory,
                memory,
                &layout,
                &frames,
                &walked,
                &mut record[..room],
            );
            assert!(done.length <= room);
            rendered += usize::from(done.is_whole && room > 1000);
        }
    }
    assert!(
        walked_far > 100,
        "{walked_far} walks with more than one frame"
    );
    assert!(rendered > 10, "{rendered} renderings with text");
}

/// Memory with these words; everything else is unreadable.
#[derive(Clone, Copy)]
struct Words<'a>(&'a BTreeMap<u64, u64>);

impl Memory for Words<'_> {
    fn is_readable(self, address: u64, length: u64) -> bool {
        // Like pages: all of the 4096 bytes around a word.
        let page = |address: u64| address & !0xfff;
        let has = |wanted: u64| self.0.keys().any(|word| page(*word) == wanted);
        has(page(address)) && has(page(address + length - 1))
    }

    unsafe fn copy(self, address: u64, into: &mut [u8]) {
        for (byte, address) in into.iter_mut().zip(address..) {
            let word = self.0.get(&(address & !7)).copied().unwrap_or(0);
            *byte = word.to_le_bytes()[usize::try_from(address & 7).expect("below 8")];
        }
    }
}

const THREAD: u64 = 0x1_0000;
const CFRAME: u64 = 0x2_0000;
const FRAME: u64 = 0x3_0000;
const CODE: u64 = 0x4_0000;

/// One frame whose caller is `back`.
fn one_frame(row: &PythonOffsets, back: u64) -> BTreeMap<u64, u64> {
    let at = |base: u64, offset: u16| base + u64::from(offset);
    let mut words = BTreeMap::new();
    if row.has_cframe() {
        words.insert(at(THREAD, row.thread_frame), CFRAME);
        words.insert(at(CFRAME, row.cframe_current), FRAME);
    } else {
        words.insert(at(THREAD, row.thread_frame), FRAME);
    }
    words.insert(at(FRAME, row.frame_back), back);
    words.insert(at(FRAME, row.frame_code), CODE);
    if !row.has_frame_objects() {
        let start = at(CODE, row.code_start);
        words.insert(at(FRAME, row.frame_instruction), start + 6);
    }
    words.insert(at(CODE, row.object_type), CODE_TYPE);
    words
}

fn walk_words(
    row: PythonOffsets,
    words: &BTreeMap<u64, u64>,
    frames: &mut [RawFrame],
) -> PythonWalk {
    walk(Words(words), Words(words), &layout(row), THREAD, frames)
}

#[test]
fn a_frame_that_called_itself_ends_at_the_bound() {
    for row in PythonOffsets::ALL.iter().copied() {
        let mut frames = [RawFrame::default(); 64];
        let walked = walk_words(row, &one_frame(&row, FRAME), &mut frames);
        assert_eq!(
            (walked.frames, walked.flags()),
            (64, TRUNCATED),
            "3.{}",
            row.minor
        );
    }
}

#[test]
fn frames_of_c_that_follow_each_other_forever_are_broken() {
    for row in PythonOffsets::ALL
        .iter()
        .copied()
        .filter(|row| !row.has_frame_objects())
    {
        let mut words = one_frame(&row, FRAME);
        let owner = FRAME + u64::from(row.frame_owner);
        words.insert(owner & !7, 3 << ((owner & 7) * 8));
        let mut frames = [RawFrame::default(); 64];
        let walked = walk_words(row, &words, &mut frames);
        assert_eq!(
            (walked.frames, walked.flags()),
            (0, BROKEN),
            "3.{}",
            row.minor
        );
    }
}

#[test]
fn what_precedes_a_broken_frame_is_kept() {
    for row in PythonOffsets::ALL.iter().copied() {
        // Not mapped, not aligned, not a frame.
        for back in [0x77_0000, FRAME + 4, CODE] {
            let mut frames = [RawFrame::default(); 64];
            let walked = walk_words(row, &one_frame(&row, back), &mut frames);
            assert_eq!(
                (walked.frames, walked.flags()),
                (1, BROKEN),
                "3.{}",
                row.minor
            );
            assert_eq!(frames[0].code, CODE);
        }
    }
}

#[test]
fn code_of_another_type_is_none() {
    for row in PythonOffsets::ALL.iter().copied() {
        let mut words = one_frame(&row, 0);
        words.insert(CODE + u64::from(row.object_type), UNICODE_TYPE);
        let walked = walk_words(row, &words, &mut [RawFrame::default(); 4]);
        assert_eq!(
            (walked.frames, walked.flags()),
            (0, BROKEN),
            "3.{}",
            row.minor
        );
    }
}

#[test]
fn a_thread_that_runs_no_python_has_no_frames() {
    for row in PythonOffsets::ALL.iter().copied() {
        let mut words = one_frame(&row, 0);
        let place = if row.has_cframe() {
            CFRAME + u64::from(row.cframe_current)
        } else {
            THREAD + u64::from(row.thread_frame)
        };
        words.insert(place, 0);
        let walked = walk_words(row, &words, &mut [RawFrame::default(); 4]);
        assert_eq!((walked.frames, walked.flags()), (0, 0), "3.{}", row.minor);
        assert_ne!(walked.hash, 0);
    }
}

#[test]
fn an_unmapped_thread_is_broken_and_not_followed() {
    for row in PythonOffsets::ALL.iter().copied() {
        let walked = walk(ProbedMemory, ProbedMemory, &layout(row), 0x1000, &mut []);
        assert_eq!((walked.frames, walked.flags()), (0, BROKEN));
    }
}
