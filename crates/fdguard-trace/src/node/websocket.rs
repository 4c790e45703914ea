//! The little of HTTP and WebSocket that Node's inspector speaks on the loopback: one answer with a
//! known length, then text frames. Everything here is pure.

/// The largest answer or frame that is accepted.
const MOST: usize = 1 << 20;

/// Any value serves: masks protect proxies, and there is none.
const MASK: [u8; 4] = [0x66, 0x64, 0x67, 0x21];
const TEXT: u8 = 1;
const CLOSE: u8 = 8;
const FINAL: u8 = 0x80;
const MASKED: u8 = 0x80;

/// Bytes that are not what they should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the answer is not readable")]
pub(crate) struct UnreadableAnswer;

/// The request for a JSON document.
pub(crate) fn get(path: &str, host: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n")
}

/// The request that turns the connection into a WebSocket.
pub(crate) fn upgrade(path: &str, host: &str) -> String {
    format!(
        "GET {path} HTTP/1.1\r\nHost: {host}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Key: ZmRndWFyZC1pbnNwZWN0IQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
    )
}

/// An answer to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HttpAnswer<'a> {
    pub(crate) status: u16,
    pub(crate) body: &'a [u8],
    /// How many bytes it takes.
    pub(crate) length: usize,
}

impl<'a> HttpAnswer<'a> {
    /// Reads an answer; `None` while it is incomplete.
    pub(crate) fn parse(bytes: &'a [u8]) -> Result<Option<Self>, UnreadableAnswer> {
        let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") else {
            return too_long(bytes);
        };
        let head = bytes.get(..end).ok_or(UnreadableAnswer)?;
        let head = std::str::from_utf8(head).ok().ok_or(UnreadableAnswer)?;
        let mut lines = head.split("\r\n");
        let status = lines.next().and_then(status).ok_or(UnreadableAnswer)?;
        let body = match lines.find_map(content_length) {
            Some(length) => length.filter(|length| *length <= MOST),
            None => Some(0),
        };
        let start = end + 4;
        let length = start + body.ok_or(UnreadableAnswer)?;
        Ok(bytes.get(start..length).map(|body| Self {
            status,
            body,
            length,
        }))
    }
}

/// `HTTP/1.0 200 OK`.
fn status(line: &str) -> Option<u16> {
    let rest = line.strip_prefix("HTTP/1.")?;
    rest.split(' ').nth(1)?.parse().ok()
}

/// The length, if this is its line; `Some(None)` if it cannot be read.
fn content_length(line: &str) -> Option<Option<usize>> {
    let (name, value) = line.split_once(':')?;
    let is_it = name.eq_ignore_ascii_case("content-length");
    is_it.then(|| value.trim().parse().ok())
}

fn too_long<T>(bytes: &[u8]) -> Result<Option<T>, UnreadableAnswer> {
    match bytes.len() > MOST {
        true => Err(UnreadableAnswer),
        false => Ok(None),
    }
}

/// A text message as a client sends it.
pub(crate) fn text_frame(text: &str) -> Vec<u8> {
    frame(TEXT, text.as_bytes())
}

/// The end of the conversation.
pub(crate) fn close_frame() -> Vec<u8> {
    frame(CLOSE, &[])
}

fn frame(kind: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![FINAL | kind];
    let length = payload.len();
    match (u8::try_from(length), u16::try_from(length)) {
        (Ok(short), _) if short < 126 => frame.push(MASKED | short),
        (_, Ok(middle)) => {
            frame.push(MASKED | 126);
            frame.extend(middle.to_be_bytes());
        }
        _ => {
            frame.push(MASKED | 127);
            frame.extend((length as u64).to_be_bytes());
        }
    }
    frame.extend(MASK);
    frame.extend(payload.iter().zip(MASK.iter().cycle()).map(|(a, b)| a ^ b));
    frame
}

/// A frame from the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ServerFrame<'a> {
    /// The message, if it is a whole text; other frames do not matter here.
    pub(crate) text: Option<&'a [u8]>,
    /// Whether the server ends the conversation.
    pub(crate) is_close: bool,
    /// How many bytes it takes.
    pub(crate) length: usize,
}

impl<'a> ServerFrame<'a> {
    /// Reads a frame; `None` while it is incomplete. Servers do not mask, and Node's does not split
    /// messages.
    pub(crate) fn parse(bytes: &'a [u8]) -> Result<Option<Self>, UnreadableAnswer> {
        let [first, second, rest @ ..] = bytes else {
            return Ok(None);
        };
        let (start, size) = match (second, rest) {
            (0..=125, _) => (2, u64::from(*second)),
            (126, [a, b, ..]) => (4, u64::from(u16::from_be_bytes([*a, *b]))),
            (127, [a, b, c, d, e, f, g, h, ..]) => {
                (10, u64::from_be_bytes([*a, *b, *c, *d, *e, *f, *g, *h]))
            }
            (126 | 127, _) => return Ok(None),
            _ => return Err(UnreadableAnswer),
        };
        let size = usize::try_from(size).ok().ok_or(UnreadableAnswer)?;
        if size > MOST {
            return Err(UnreadableAnswer);
        }
        let length = start + size;
        Ok(bytes.get(start..length).map(|payload| Self {
            text: (*first == FINAL | TEXT).then_some(payload),
            is_close: first & 0x0f == CLOSE,
            length,
        }))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{HttpAnswer, MASK, ServerFrame, UnreadableAnswer, close_frame, get, text_frame};

    #[test]
    fn an_answer_is_read_when_it_is_whole() {
        let bytes = b"HTTP/1.0 200 OK\r\nContent-Type: x\r\ncontent-length: 3\r\n\r\n[1]more";
        for end in 0..bytes.len() - 4 {
            assert_eq!(HttpAnswer::parse(&bytes[..end]), Ok(None), "{end}");
        }
        let answer = HttpAnswer::parse(bytes).unwrap().unwrap();
        assert_eq!((answer.status, answer.body), (200, &b"[1]"[..]));
        assert_eq!(answer.length, bytes.len() - 4);
        let switch = HttpAnswer::parse(b"HTTP/1.1 101 Switching Protocols\r\n\r\n\x81\x00");
        assert_eq!(switch.unwrap().unwrap().status, 101);
        for bad in [
            "SSH-2.0\r\n\r\n",
            "HTTP/1.0 200\r\nContent-Length: -1\r\n\r\n",
        ] {
            assert_eq!(HttpAnswer::parse(bad.as_bytes()), Err(UnreadableAnswer));
        }
        assert!(get("/json/list", "127.0.0.1:9229").ends_with("9229\r\n\r\n"));
    }

    #[test]
    fn frames_of_a_server_are_read_and_bounded() {
        let frame = ServerFrame::parse(b"\x81\x02{}\x88\x00").unwrap().unwrap();
        assert_eq!((frame.text, frame.length), (Some(&b"{}"[..]), 4));
        assert!(ServerFrame::parse(b"\x88\x00").unwrap().unwrap().is_close);
        assert_eq!(ServerFrame::parse(b"\x81\x7e\x00"), Ok(None));
        let endless = b"\x81\x7f\xff\xff\xff\xff\xff\xff\xff\xff";
        assert_eq!(ServerFrame::parse(endless), Err(UnreadableAnswer));
        let masked = b"\x81\x80....";
        assert_eq!(ServerFrame::parse(masked), Err(UnreadableAnswer));
    }

    /// A client's frame as a server's: without the mask.
    fn unmasked(frame: &[u8]) -> Vec<u8> {
        let start = match frame[1] & 0x7f {
            127 => 10,
            126 => 4,
            _ => 2,
        };
        let mut plain = frame[..start].to_vec();
        plain[1] &= 0x7f;
        let payload = frame[start + 4..].iter().zip(MASK.iter().cycle());
        plain.extend(payload.map(|(a, b)| a ^ b));
        plain
    }

    #[test]
    fn every_length_is_written_as_it_is_read() {
        for length in [0, 1, 125, 126, 65_535, 65_536, 200_000] {
            let text = "x".repeat(length);
            let frame = unmasked(&text_frame(&text));
            let read = ServerFrame::parse(&frame).unwrap().unwrap();
            assert_eq!(read.text, Some(text.as_bytes()), "{length}");
        }
        assert_eq!(close_frame().len(), 6);
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(bytes: Vec<u8>) {
            if let Ok(Some(frame)) = ServerFrame::parse(&bytes) {
                prop_assert!(frame.length <= bytes.len());
            }
            if let Ok(Some(answer)) = HttpAnswer::parse(&bytes) {
                prop_assert!(answer.length <= bytes.len());
            }
        }
    }
}
