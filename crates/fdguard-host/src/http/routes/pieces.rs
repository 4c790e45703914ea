//! Output as events: text if it is text, and never half a character.

use base64::Engine as _;
use serde::Serialize;

use crate::session::{Chunk, ExecStream};

/// A piece of output: as text, or as base64 if it is not text.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct Piece {
    pub(super) stream: ExecStream,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) text: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) base64: Option<String>,
}

/// The start of an incomplete character, per stream.
#[derive(Debug, Default)]
pub(super) struct Pieces {
    stdout: Vec<u8>,
    stderr: Vec<u8>,
}

impl Pieces {
    /// The part that can be sent now; `None` if it is half a character.
    pub(super) fn take(&mut self, chunk: &Chunk) -> Option<Piece> {
        let waiting = match chunk.stream {
            ExecStream::Stdout => &mut self.stdout,
            ExecStream::Stderr => &mut self.stderr,
        };
        let mut bytes = std::mem::take(waiting);
        bytes.extend_from_slice(&chunk.bytes);
        if let Err(error) = std::str::from_utf8(&bytes)
            && error.error_len().is_none()
        {
            *waiting = bytes.split_off(error.valid_up_to());
        }
        piece(chunk.stream, bytes)
    }

    /// What remains at the end of the output.
    pub(super) fn rest(&mut self) -> Option<Piece> {
        let stdout = piece(ExecStream::Stdout, std::mem::take(&mut self.stdout));
        stdout.or_else(|| piece(ExecStream::Stderr, std::mem::take(&mut self.stderr)))
    }
}

fn piece(stream: ExecStream, bytes: Vec<u8>) -> Option<Piece> {
    if bytes.is_empty() {
        return None;
    }
    let (text, base64) = match String::from_utf8(bytes) {
        Ok(text) => (Some(text), None),
        Err(error) => {
            let engine = base64::engine::general_purpose::STANDARD;
            (None, Some(engine.encode(error.as_bytes())))
        }
    };
    Some(Piece {
        stream,
        text,
        base64,
    })
}

#[cfg(test)]
mod tests {
    use super::Pieces;
    use crate::session::{Chunk, ExecStream};

    fn chunk(stream: ExecStream, bytes: &'static [u8]) -> Chunk {
        let bytes = bytes::Bytes::from_static(bytes);
        Chunk { stream, bytes }
    }

    #[test]
    fn a_character_that_came_in_two_pieces_is_told_whole() {
        let mut pieces = Pieces::default();
        let first = pieces.take(&chunk(ExecStream::Stdout, b"a\xc3")).unwrap();
        assert_eq!(first.text.as_deref(), Some("a"));
        let other = pieces.take(&chunk(ExecStream::Stderr, b"b")).unwrap();
        assert_eq!(other.text.as_deref(), Some("b"));
        let rest = pieces.take(&chunk(ExecStream::Stdout, b"\xa4")).unwrap();
        assert_eq!(rest.text.as_deref(), Some("ä"));
        assert_eq!(pieces.rest(), None);
    }

    #[test]
    fn what_is_no_text_is_told_byte_by_byte() {
        let mut pieces = Pieces::default();
        let piece = pieces
            .take(&chunk(ExecStream::Stdout, b"\xff\xfe"))
            .unwrap();
        assert_eq!(piece.base64.as_deref(), Some("//4="));
        assert_eq!(pieces.take(&chunk(ExecStream::Stderr, b"\xc3")), None);
        let rest = pieces.rest().unwrap();
        assert_eq!(
            (rest.stream, rest.base64.as_deref()),
            (ExecStream::Stderr, Some("ww=="))
        );
    }
}
