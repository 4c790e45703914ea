//! A zstd stream of many frames as one stream of bytes.

use std::io::{self, BufRead, Read};

use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

/// The first bytes of a frame.
const MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// Whether a file with these first bytes is compressed. A skippable frame may come first.
pub(super) fn is_zstd(head: &[u8]) -> bool {
    head.starts_with(&MAGIC) || matches!(head, [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..])
}

/// The contents of the frames, concatenated.
pub(super) struct Frames<R> {
    source: R,
    decoder: FrameDecoder,
    inside: bool,
}

impl<R: BufRead> Frames<R> {
    pub(super) fn new(source: R) -> Self {
        Self {
            source,
            decoder: FrameDecoder::new(),
            inside: false,
        }
    }

    /// Advances to the next frame with content; false at the end.
    fn next_frame(&mut self) -> io::Result<bool> {
        loop {
            if self.source.fill_buf()?.is_empty() {
                return Ok(false);
            }
            match self.decoder.reset(&mut self.source) {
                Ok(()) => return Ok(true),
                Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame {
                    length,
                    ..
                })) => {
                    let mut rest = (&mut self.source).take(length.into());
                    io::copy(&mut rest, &mut io::sink())?;
                }
                Err(error) => return Err(damaged(&error)),
            }
        }
    }
}

fn damaged(error: &FrameDecoderError) -> io::Error {
    io::Error::other(format!("compressed data is truncated or damaged: {error}"))
}

impl<R: BufRead> Read for Frames<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            if !self.inside {
                self.inside = self.next_frame()?;
                if !self.inside {
                    return Ok(0);
                }
            }
            let read = self.decoder.read(buffer)?;
            if read > 0 || buffer.is_empty() {
                return Ok(read);
            }
            if self.decoder.is_finished() {
                self.inside = false;
                continue;
            }
            let strategy = BlockDecodingStrategy::UptoBlocks(1);
            self.decoder
                .decode_blocks(&mut self.source, strategy)
                .map_err(|error| damaged(&error))?;
        }
    }
}
