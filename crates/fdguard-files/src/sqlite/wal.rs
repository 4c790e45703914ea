//! The write-ahead log: which frames are valid, and whether the first page is among them.

use serde::Serialize;

use super::header::{be, page_size};

/// Length of the log's own header.
pub const HEAD: usize = 32;
/// Length of a frame's header.
pub const FRAME: usize = 24;
/// The version that every log has.
const VERSION: u32 = 3_007_000;

/// The contents of a log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Wal {
    /// Bytes of the file.
    pub size: u64,
    /// Its header, if it is valid.
    pub header: Option<WalHeader>,
    /// Frames from the start with correct salts and checksums.
    pub valid_frames: u64,
    /// Those of them that belong to finished transactions: SQLite uses these.
    pub committed_frames: u64,
    /// Pages of the database after the last of these.
    pub pages: Option<u32>,
    /// Whether the first page is among them.
    pub has_first_page: bool,
    /// The frame at which the chain of checksums breaks although later frames belong to this log:
    /// everything after it is lost.
    pub broken_at: Option<u64>,
    /// How many such later frames there are.
    pub behind_break: u64,
}

/// The header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct WalHeader {
    /// Bytes of a page.
    pub page_size: u32,
    /// How often the WAL was restarted.
    pub sequence: u32,
    /// The salts that frames of this log carry.
    pub salts: (u32, u32),
    #[serde(skip)]
    is_big: bool,
    #[serde(skip)]
    sum: (u32, u32),
}

impl WalHeader {
    /// Reads it; `None` if magic, version, page size or checksum are wrong.
    #[must_use]
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let head = bytes.get(..HEAD)?;
        let is_big = match be(head, 0) {
            0x377f_0682 => false,
            0x377f_0683 => true,
            _ => return None,
        };
        let size = be(head, 8);
        let raw = if size == 65_536 {
            1
        } else {
            u16::try_from(size).ok()?
        };
        let sum = checksum(is_big, (0, 0), &head[..24]);
        let is_sound = be(head, 4) == VERSION && sum == (be(head, 24), be(head, 28));
        let page_size = page_size(raw).filter(|found| *found == size)?;
        is_sound.then_some(Self {
            page_size,
            sequence: be(head, 12),
            salts: (be(head, 16), be(head, 20)),
            is_big,
            sum,
        })
    }

    /// Bytes of a frame, including its header.
    #[must_use]
    pub fn frame_size(&self) -> usize {
        FRAME + self.page_size as usize
    }
}

/// Scans the frames of a log in order.
#[derive(Clone, Debug)]
pub struct WalScan {
    header: WalHeader,
    sum: (u32, u32),
    seen: u64,
    is_broken: bool,
    wal: Wal,
    /// The first page according to the finished transactions, and according to an unfinished one.
    first_page: Option<Vec<u8>>,
    pending: Option<Vec<u8>>,
}

impl WalScan {
    /// A scan of a log with this header and size.
    #[must_use]
    pub fn new(header: WalHeader, size: u64) -> Self {
        Self {
            header,
            sum: header.sum,
            seen: 0,
            is_broken: false,
            wal: Wal {
                header: Some(header),
                ..Wal::unreadable(size)
            },
            first_page: None,
            pending: None,
        }
    }

    /// Takes the next frame, header and page.
    pub fn push_frame(&mut self, frame: &[u8]) {
        self.seen += 1;
        if frame.len() != self.header.frame_size() {
            return;
        }
        let is_of_this = (be(frame, 8), be(frame, 12)) == self.header.salts;
        if self.is_broken {
            self.wal.behind_break += u64::from(is_of_this);
            return;
        }
        let sum = checksum(self.header.is_big, self.sum, &frame[..8]);
        let sum = checksum(self.header.is_big, sum, &frame[FRAME..]);
        let page = be(frame, 0);
        if !is_of_this || page == 0 || sum != (be(frame, 16), be(frame, 20)) {
            self.is_broken = true;
            self.wal.broken_at = Some(self.seen);
            return;
        }
        self.sum = sum;
        self.wal.valid_frames = self.seen;
        if page == 1 {
            self.pending = Some(frame[FRAME..].to_vec());
        }
        let pages = be(frame, 4);
        if pages != 0 {
            self.wal.committed_frames = self.seen;
            self.wal.pages = Some(pages);
            if let Some(page) = self.pending.take() {
                self.first_page = Some(page);
            }
        }
    }

    /// The contents of the log, and its version of the first page.
    #[must_use]
    pub fn finish(mut self) -> (Wal, Option<Vec<u8>>) {
        // Old frames of an earlier round follow in every restarted WAL: that is not damage.
        if self.wal.behind_break == 0 {
            self.wal.broken_at = None;
        }
        self.wal.has_first_page = self.first_page.is_some();
        (self.wal, self.first_page)
    }
}

impl Wal {
    /// A WAL of this size with an unreadable header.
    #[must_use]
    pub fn unreadable(size: u64) -> Self {
        Self {
            size,
            header: None,
            valid_frames: 0,
            committed_frames: 0,
            pages: None,
            has_first_page: false,
            broken_at: None,
            behind_break: 0,
        }
    }

    /// The whole log from its bytes.
    #[must_use]
    pub fn read(bytes: &[u8]) -> (Self, Option<Vec<u8>>) {
        let size = bytes.len() as u64;
        let Some(header) = WalHeader::read(bytes) else {
            return (Self::unreadable(size), None);
        };
        let mut scan = WalScan::new(header, size);
        for frame in bytes[HEAD..].chunks_exact(header.frame_size()) {
            scan.push_frame(frame);
        }
        scan.finish()
    }
}

/// SQLite's running checksum over pairs of words.
fn checksum(is_big: bool, (mut a, mut b): (u32, u32), bytes: &[u8]) -> (u32, u32) {
    let word = |four: &[u8]| {
        let mut word = [0; 4];
        word.copy_from_slice(four);
        if is_big {
            u32::from_be_bytes(word)
        } else {
            u32::from_le_bytes(word)
        }
    };
    for pair in bytes.chunks_exact(8) {
        a = a.wrapping_add(word(&pair[..4])).wrapping_add(b);
        b = b.wrapping_add(word(&pair[4..])).wrapping_add(a);
    }
    (a, b)
}
