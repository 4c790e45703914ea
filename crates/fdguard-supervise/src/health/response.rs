//! Parses the part of an HTTP response that a probe needs. Pure.

use httparse::{Header, ParserConfig, Status};

use crate::http_head;

/// The longest head that is read.
pub(super) const HEAD: usize = 16 << 10;
/// The most bytes of a body that are read and examined.
pub(super) const BODY: usize = 64 << 10;
/// The most bytes read from the connection: chunks may be tiny, and each has its own line.
pub(super) const WIRE: usize = HEAD + 4 * BODY;

/// A response.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Response {
    pub(crate) status: u16,
    /// At most [`BODY`] bytes of it; empty if not requested.
    pub(crate) body: Vec<u8>,
}

/// How far parsing got.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// More bytes are needed.
    More,
    /// It is complete.
    Done(Response),
    /// Not a valid response, for this reason.
    Bad(String),
}

/// Parses the bytes so far. `ended` means that no more follow; without `body` the header is enough.
pub(crate) fn read(bytes: &[u8], ended: bool, body: bool) -> Progress {
    let mut rest = bytes;
    loop {
        let head = &rest[..rest.len().min(HEAD)];
        let mut fields = http_head::room(head);
        let mut response = httparse::Response::new(&mut fields);
        let after = match lenient().parse_response(&mut response, head) {
            Ok(Status::Complete(length)) => &rest[length..],
            Ok(Status::Partial) => return without_head(rest, ended),
            Err(_) => return Progress::Bad(NOT_HTTP.to_owned()),
        };
        let Some(status) = response.code.filter(|status| *status >= 100) else {
            return Progress::Bad(NOT_HTTP.to_owned());
        };
        // Informational responses; the final one follows. 101 is final.
        if (100..200).contains(&status) && status != 101 {
            rest = after;
            continue;
        }
        let found = match body && !matches!(status, 101 | 204 | 304) {
            true => content(response.headers, after, ended),
            false => Some(Ok(Vec::new())),
        };
        return match found {
            None => Progress::More,
            Some(Ok(body)) => Progress::Done(Response { status, body }),
            Some(Err(why)) => Progress::Bad(why),
        };
    }
}

const NOT_HTTP: &str = "the response is not HTTP";

/// A probe asks whether the service answers, not whether its header is perfect.
fn lenient() -> ParserConfig {
    let mut config = ParserConfig::default();
    config
        .allow_multiple_spaces_in_response_status_delimiters(true)
        .allow_spaces_after_header_name_in_responses(true)
        .allow_obsolete_multiline_headers_in_responses(true)
        .ignore_invalid_headers_in_responses(true);
    config
}

fn without_head(rest: &[u8], ended: bool) -> Progress {
    match (rest.len() >= HEAD, ended) {
        (true, _) => Progress::Bad("the response header is too long".to_owned()),
        (_, true) if rest.is_empty() => {
            Progress::Bad("connection closed without a response".to_owned())
        }
        (_, true) => Progress::Bad("connection closed in the response header".to_owned()),
        _ => Progress::More,
    }
}

fn header<'h>(fields: &[Header<'h>], name: &str) -> Option<&'h [u8]> {
    let mut fields = fields.iter();
    let found = fields.find(|field| field.name.eq_ignore_ascii_case(name));
    found.map(|field| field.value)
}

/// The body when it is complete or long enough.
fn content(fields: &[Header<'_>], after: &[u8], ended: bool) -> Option<Result<Vec<u8>, String>> {
    let coding = header(fields, "transfer-encoding");
    if coding.is_some_and(|coding| coding.to_ascii_lowercase().ends_with(b"chunked")) {
        return chunked(after, ended);
    }
    let length = match header(fields, "content-length") {
        None => None,
        Some(text) => match std::str::from_utf8(text)
            .ok()
            .and_then(|text| text.parse::<usize>().ok())
        {
            Some(length) => Some(length),
            None => return Some(Err("invalid Content-Length in the response".to_owned())),
        },
    };
    let enough = length.map_or(BODY, |length| length.min(BODY));
    if after.len() >= enough {
        return Some(Ok(after[..enough].to_vec()));
    }
    match (ended, length) {
        (false, _) => None,
        (true, None) => Some(Ok(after.to_vec())),
        (true, Some(_)) => Some(Err("connection closed in the response body".to_owned())),
    }
}

fn chunked(mut rest: &[u8], ended: bool) -> Option<Result<Vec<u8>, String>> {
    let missing = || ended.then(|| Err("connection closed in the response body".to_owned()));
    let mut body = Vec::new();
    loop {
        let Some(at) = rest.iter().position(|byte| *byte == b'\n') else {
            let is_long = rest.len() > 1024;
            return if is_long {
                Some(Err(BAD_CHUNK.to_owned()))
            } else {
                missing()
            };
        };
        let (line, after) = rest.split_at(at + 1);
        let Some(length) = chunk_length(line) else {
            return Some(Err(BAD_CHUNK.to_owned()));
        };
        let taken = after.len().min(length);
        body.extend_from_slice(&after[..taken.min(BODY - body.len())]);
        if length == 0 || body.len() == BODY {
            return Some(Ok(body));
        }
        let Some(after) = after.get(length..) else {
            return missing();
        };
        rest = match after {
            [b'\r', b'\n', rest @ ..] | [b'\n', rest @ ..] => rest,
            [] | [b'\r'] => return missing(),
            _ => return Some(Err(BAD_CHUNK.to_owned())),
        };
    }
}

const BAD_CHUNK: &str = "invalid chunked encoding in the response";

/// `1a;extension`
fn chunk_length(line: &[u8]) -> Option<usize> {
    let digits = line.split(|byte| *byte == b';').next()?.trim_ascii();
    let text = std::str::from_utf8(digits).ok()?;
    let plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    usize::from_str_radix(text, 16).ok().filter(|_| plain)
}

/// Reads any bytes, for the fuzz target: what is complete stays the same, whatever follows.
#[cfg(feature = "fuzzing")]
pub fn fuzz_response(bytes: &[u8]) {
    for with_body in [false, true] {
        assert_ne!(read(bytes, true, with_body), Progress::More);
        let half = bytes.get(..bytes.len() / 2).unwrap_or_default();
        if let Progress::Done(response) = read(half, false, with_body) {
            assert!(response.status >= 100 && response.body.len() <= BODY);
            assert_eq!(read(bytes, false, with_body), Progress::Done(response));
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{BODY, Progress, Response, read};

    fn done(status: u16, body: &[u8]) -> Progress {
        Progress::Done(Response {
            status,
            body: body.to_vec(),
        })
    }

    #[test]
    fn the_head_is_enough_where_nobody_asks_for_the_body() {
        let text = b"HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\nabc";
        assert_eq!(read(text, false, false), done(200, b""));
        assert_eq!(read(text, false, true), Progress::More);
    }

    #[test]
    fn bodies_end_by_length_by_chunk_or_by_the_connection() {
        let length = b"HTTP/1.0 503 x\nCONTENT-length: 3\n\nabcd";
        assert_eq!(read(length, false, true), done(503, b"abc"));
        let chunks = b"HTTP/1.1 200 OK\r\ntransfer-encoding: gzip, Chunked\r\n\r\n3;x=y\r\nabc\r\n00A\r\n0123456789\r\n0\r\n\r\n";
        assert_eq!(read(chunks, false, true), done(200, b"abc0123456789"));
        for end in chunks.len() - 30..chunks.len() - 5 {
            assert_eq!(read(&chunks[..end], false, true), Progress::More, "{end}");
            assert!(
                matches!(read(&chunks[..end], true, true), Progress::Bad(_)),
                "{end}"
            );
        }
        let open = b"HTTP/1.1 200 OK\r\n\r\nabc";
        assert_eq!(read(open, false, true), Progress::More);
        assert_eq!(read(open, true, true), done(200, b"abc"));
    }

    #[test]
    fn hints_before_the_answer_are_passed_over() {
        let text = b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n";
        assert_eq!(read(text, false, true), done(204, b""));
    }

    #[test]
    fn what_is_no_answer_is_said() {
        for (bytes, ended, word) in [
            (&b"SSH-2.0-OpenSSH"[..], false, "not HTTP"),
            (b"HTTP/1.1 2000 OK\r\n\r\n", false, "not HTTP"),
            (b"", true, "without a response"),
            (b"HTTP/1.1 200", true, "in the response header"),
            (
                b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n",
                true,
                "Content-Length",
            ),
            (
                b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n+3\r\nabc",
                false,
                "chunked",
            ),
        ] {
            let Progress::Bad(why) = read(bytes, ended, true) else {
                panic!("{bytes:?}")
            };
            assert!(why.contains(word), "{why}");
        }
        let long = [b"HTTP/1.1 200 OK\r\n".as_slice(), &[b'a'; 20_000]].concat();
        assert!(matches!(read(&long, false, true), Progress::Bad(_)));
    }

    /// As before: a service with a sloppy header is up.
    #[test]
    fn a_sloppy_head_is_read() {
        for text in [
            "HTTP/1.1  200  OK\r\nContent-Length: 2\r\n\r\nok",
            "HTTP/1.1 200\nno colon\nContent-Length: 2\n\nok",
            "HTTP/1.0 200 OK\nX: a\n b\nContent-Length : 2\n\nok",
        ] {
            assert_eq!(
                read(text.as_bytes(), false, true),
                done(200, b"ok"),
                "{text}"
            );
        }
    }

    #[test]
    fn a_body_without_end_is_cut() {
        let text = [b"HTTP/1.1 200 OK\r\n\r\n".as_slice(), &vec![b'a'; BODY + 9]].concat();
        let Progress::Done(response) = read(&text, false, true) else {
            panic!()
        };
        assert_eq!(response.body.len(), BODY);
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(bytes: Vec<u8>, ended: bool, body: bool) {
            let _seen = read(&bytes, ended, body);
            let text = [b"HTTP/1.1 200 OK\r\n".as_slice(), &bytes].concat();
            let _seen = read(&text, ended, body);
            let text = [b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".as_slice(), &bytes].concat();
            let answer = read(&text, ended, body);
            prop_assert!(!ended || answer != Progress::More);
        }
    }
}
