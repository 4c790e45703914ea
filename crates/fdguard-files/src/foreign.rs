//! Recognizes foreign data by its first bytes.

use std::fmt;

use serde::Serialize;

use crate::tls::TlsRecord;

/// Something that does not belong here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "what", rename_all = "kebab-case")]
pub enum Foreign {
    /// A TLS record.
    Tls(TlsRecord),
    /// The first line of an HTTP request.
    HttpRequest,
    /// The first line of an HTTP response.
    HttpResponse,
    /// The preface of an HTTP/2 connection.
    Http2,
    /// A program or library.
    Elf,
    /// Compressed by gzip.
    Gzip,
    /// Compressed by zstd.
    Zstd,
    /// A line of JSON.
    Json,
    /// Other text: a line of a log.
    Text,
    /// Nothing but zeros.
    Zeros,
}

/// Minimum length of text: counters that look like letters are shorter.
const TEXT: usize = 24;

const METHODS: [&[u8]; 8] = [
    b"GET ",
    b"POST ",
    b"PUT ",
    b"HEAD ",
    b"DELETE ",
    b"PATCH ",
    b"OPTIONS ",
    b"CONNECT ",
];

impl Foreign {
    /// Recognizes known data at the start of these bytes.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        if let Some(record) = TlsRecord::parse(bytes) {
            return Some(Self::Tls(record));
        }
        let begins = |with: &[u8]| bytes.starts_with(with);
        if METHODS.iter().any(|method| begins(method)) && is_text(bytes, 16) {
            return Some(Self::HttpRequest);
        }
        if begins(b"HTTP/1.") || begins(b"HTTP/2 ") {
            return Some(Self::HttpResponse);
        }
        if begins(b"PRI * HTTP/2.0") {
            return Some(Self::Http2);
        }
        if begins(b"\x7fELF") {
            return Some(Self::Elf);
        }
        if begins(&[0x1f, 0x8b, 8]) {
            return Some(Self::Gzip);
        }
        if begins(&[0x28, 0xb5, 0x2f, 0xfd]) {
            return Some(Self::Zstd);
        }
        if (begins(b"{\"") || begins(b"[{")) && is_text(bytes, 12) {
            return Some(Self::Json);
        }
        is_text(bytes, TEXT).then_some(Self::Text)
    }

    /// Length in bytes, if the data states it.
    #[must_use]
    pub fn length(&self) -> Option<u64> {
        match self {
            Self::Tls(record) => Some(record.total()),
            _ => None,
        }
    }
}

impl fmt::Display for Foreign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tls(record) => record.fmt(f),
            Self::HttpRequest => f.write_str("an HTTP request"),
            Self::HttpResponse => f.write_str("an HTTP response"),
            Self::Http2 => f.write_str("an HTTP/2 preface"),
            Self::Elf => f.write_str("an ELF header"),
            Self::Gzip => f.write_str("compressed data (gzip)"),
            Self::Zstd => f.write_str("compressed data (zstd)"),
            Self::Json => f.write_str("a line of JSON"),
            Self::Text => f.write_str("plain text, such as log lines"),
            Self::Zeros => f.write_str("zeros"),
        }
    }
}

/// Whether it starts with at least this much printable text.
fn is_text(bytes: &[u8], least: usize) -> bool {
    bytes.get(..least).is_some_and(|head| {
        head.iter()
            .all(|byte| matches!(byte, b' '..=b'~' | b'\t' | b'\n' | b'\r'))
    })
}

#[cfg(test)]
mod tests {
    use super::Foreign;

    #[test]
    fn r42_what_else_lands_in_files_is_recognised() {
        let table: &[(&[u8], Foreign)] = &[
            (b"GET /v1/chat HTTP/1.1\r\nHost: a", Foreign::HttpRequest),
            (b"HTTP/1.1 200 OK\r\n", Foreign::HttpResponse),
            (b"\x7fELF\x02\x01", Foreign::Elf),
            (b"\x1f\x8b\x08\x00", Foreign::Gzip),
            (b"{\"type\":\"user\",\"n\":1}\n", Foreign::Json),
            (b"2026-11-15 12:00:00 ERROR nothing works", Foreign::Text),
        ];
        for (bytes, wanted) in table {
            assert_eq!(Foreign::parse(bytes), Some(*wanted));
        }
        for page in [
            &[13, 0, 0, 0, 3, 15, 0, 0][..],
            &[0, 0, 0, 7, b'a', b'b', b'c', b'd'],
            b"\0\0\0\0",
        ] {
            assert_eq!(Foreign::parse(page), None);
        }
    }
}
