//! The WAL index, which all processes share: the end of the WAL, and the readers that pin it.

use serde::Serialize;

/// Lock bytes of the shared-memory file: 120 is the writer's, 121 the checkpointer's, 122 for
/// recovery, 123 to 127 the readers', 128 held by every process that has it open.
pub const READERS: std::ops::RangeInclusive<u64> = 123..=127;
/// Held for reading by every process that has the index open.
pub const EVERYBODY: u64 = 128;
/// Held by the writer.
pub const WRITER: u64 = 120;

/// Content of the WAL index.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Shm {
    /// Bytes of the file.
    pub size: u64,
    /// Whether it is initialized and both of its headers agree. Otherwise it is being written, or
    /// the database has not been opened since the file was created.
    pub is_settled: bool,
    /// The last valid frame of the log.
    pub frames: u32,
    /// Pages of the database.
    pub pages: u32,
    /// The salts of its log.
    pub salts: (u32, u32),
    /// Frames that are already in the database.
    pub moved: u32,
    /// The last frame visible to each of the five reader slots; absent if the slot is not in use.
    pub marks: [Option<u32>; 5],
}

impl Shm {
    /// Reads the first bytes of the index.
    #[must_use]
    pub fn read(bytes: &[u8], size: u64) -> Option<Self> {
        let head = bytes.get(..136)?;
        let word = |at: usize| {
            let mut four = [0; 4];
            four.copy_from_slice(&head[at..at + 4]);
            u32::from_ne_bytes(four)
        };
        let big =
            |at: usize| u32::from_be_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let mark = |index: usize| Some(word(100 + 4 * index)).filter(|mark| *mark != u32::MAX);
        Some(Self {
            size,
            is_settled: head[..48] == head[48..96] && head[12] == 1,
            frames: word(16),
            pages: word(20),
            // The salts are copied from the log byte by byte.
            salts: (big(32), big(36)),
            moved: word(96),
            marks: [mark(0), mark(1), mark(2), mark(3), mark(4)],
        })
    }
}
