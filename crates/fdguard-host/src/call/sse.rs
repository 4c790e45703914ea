//! Parses server-sent events from arbitrary pieces of bytes. Pure: no clock, no socket.
//!
//! As in the HTML standard: lines end with CR, LF or CRLF; an empty line ends an event; an event
//! without data is ignored; an incomplete event at the end of the stream is dropped.

/// One event of a stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SseMessage {
    /// `message` unless the server named it.
    pub event: String,
    /// Its lines, joined.
    pub data: String,
    /// The last id that the server sent, possibly with an earlier event.
    pub id: Option<String>,
    /// Milliseconds after which a client should reconnect, if the event sets it.
    pub retry: Option<u64>,
}

/// An event, or a line of it, exceeds the reader's limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("stream event exceeds {0} bytes")]
pub struct TooLong(pub usize);

/// The longest event by default.
pub const LONGEST: usize = 8 * 1024 * 1024;

/// Converts bytes to events.
#[derive(Clone, Debug)]
pub struct SseReader {
    longest: usize,
    /// The unfinished line.
    line: Vec<u8>,
    /// A CR was last: a LF that follows belongs to it.
    after_cr: bool,
    /// Nothing was read yet: a byte-order mark may follow.
    at_start: bool,
    name: String,
    data: Option<String>,
    id: Option<String>,
    retry: Option<u64>,
}

impl Default for SseReader {
    fn default() -> Self {
        Self::with_longest(LONGEST)
    }
}

impl SseReader {
    /// With another limit for the length of one event.
    #[must_use]
    pub fn with_longest(longest: usize) -> Self {
        Self {
            longest,
            line: Vec::new(),
            after_cr: false,
            at_start: true,
            name: String::new(),
            data: None,
            id: None,
            retry: None,
        }
    }

    /// The events that end within these bytes. After an error the reader cannot be used.
    pub fn feed(&mut self, mut bytes: &[u8]) -> Result<Vec<SseMessage>, TooLong> {
        let mut found = Vec::new();
        while let Some(&first) = bytes.first() {
            if std::mem::take(&mut self.after_cr) && first == b'\n' {
                bytes = bytes.get(1..).unwrap_or_default();
                continue;
            }
            let end = bytes.iter().position(|byte| matches!(byte, b'\r' | b'\n'));
            let (part, rest) = bytes.split_at(end.unwrap_or(bytes.len()));
            self.line.extend_from_slice(part);
            self.check()?;
            let Some((end, rest)) = rest.split_first() else {
                break;
            };
            self.after_cr = *end == b'\r';
            bytes = rest;
            found.extend(self.end_line());
            self.check()?;
        }
        Ok(found)
    }

    fn check(&self) -> Result<(), TooLong> {
        let held = self.line.len() + self.data.as_ref().map_or(0, String::len);
        if held > self.longest {
            Err(TooLong(self.longest))
        } else {
            Ok(())
        }
    }

    fn end_line(&mut self) -> Option<SseMessage> {
        let bytes = std::mem::take(&mut self.line);
        let text = String::from_utf8_lossy(&bytes);
        let mut line = text.as_ref();
        if std::mem::take(&mut self.at_start) {
            line = line.strip_prefix('\u{feff}').unwrap_or(line);
        }
        if line.is_empty() {
            return self.dispatch();
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        self.set(field, value.strip_prefix(' ').unwrap_or(value));
        None
    }

    fn set(&mut self, field: &str, value: &str) {
        match field {
            "data" => match &mut self.data {
                Some(data) => {
                    data.push('\n');
                    data.push_str(value);
                }
                None => self.data = Some(value.to_owned()),
            },
            "event" => value.clone_into(&mut self.name),
            "id" if !value.contains('\0') => self.id = Some(value.to_owned()),
            "retry" if value.bytes().all(|byte| byte.is_ascii_digit()) => {
                self.retry = value.parse().ok()
            }
            // A comment has an empty name; unknown fields are ignored.
            _ => {}
        }
    }

    fn dispatch(&mut self) -> Option<SseMessage> {
        let name = std::mem::take(&mut self.name);
        let retry = self.retry.take();
        let data = self.data.take()?;
        Some(SseMessage {
            event: if name.is_empty() {
                "message".to_owned()
            } else {
                name
            },
            data,
            id: self.id.clone(),
            retry,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{SseMessage, SseReader, TooLong};

    fn message(event: &str, data: &str) -> SseMessage {
        SseMessage {
            event: event.to_owned(),
            data: data.to_owned(),
            ..SseMessage::default()
        }
    }

    fn whole(text: &[u8]) -> Vec<SseMessage> {
        SseReader::default().feed(text).unwrap()
    }

    #[test]
    fn the_examples_of_the_standard_are_read() {
        let stock = b"data: YHOO\ndata: +2\ndata: 10\n\n";
        assert_eq!(whole(stock), [message("message", "YHOO\n+2\n10")]);
        let named = b"event: add\ndata: 73857293\r\n\r\nevent: remove\rdata: 2153\r\r";
        assert_eq!(
            whole(named),
            [message("add", "73857293"), message("remove", "2153")]
        );
        let blank = b"data\n\ndata\ndata\n\ndata:";
        assert_eq!(
            whole(blank),
            [message("message", ""), message("message", "\n")]
        );
        let comment = b"\xef\xbb\xbf: hello\n\ndata:test\n\ndata:  two\n\n";
        assert_eq!(
            whole(comment),
            [message("message", "test"), message("message", " two")]
        );
    }

    #[test]
    fn an_id_stays_and_a_retry_does_not() {
        let found = whole(
            b"id: 1\nretry: 50\ndata: a\n\ndata: b\n\nid\ndata: c\n\nretry: x\nid: \0\ndata: d\n\n",
        );
        let ids: Vec<_> = found.iter().map(|m| m.id.as_deref()).collect();
        assert_eq!(ids, [Some("1"), Some("1"), Some(""), Some("")]);
        let retries: Vec<_> = found.iter().map(|m| m.retry).collect();
        assert_eq!(retries, [Some(50), None, None, None]);
    }

    #[test]
    fn an_event_without_end_is_refused_and_not_hoarded() {
        let mut reader = SseReader::with_longest(100);
        assert_eq!(reader.feed(&[b'x'; 101]), Err(TooLong(100)));
        let mut reader = SseReader::with_longest(100);
        let lines = "data: 0123456789\n".repeat(20);
        assert_eq!(reader.feed(lines.as_bytes()), Err(TooLong(100)));
    }

    fn stream() -> impl Strategy<Value = Vec<u8>> {
        let piece = prop_oneof![
            Just(b"data: x".to_vec()),
            Just(b"data".to_vec()),
            Just(b"event: e".to_vec()),
            Just(b"id: 7".to_vec()),
            Just(b"retry: 5".to_vec()),
            Just(b"\r".to_vec()),
            Just(b"\n".to_vec()),
            Just(b"\r\n".to_vec()),
            Just(b"\n\n".to_vec()),
            Just("ü\u{feff}".as_bytes().to_vec()),
            proptest::collection::vec(any::<u8>(), 0..6),
        ];
        proptest::collection::vec(piece, 0..40).prop_map(|pieces| pieces.concat())
    }

    proptest! {
        #[test]
        fn any_split_of_the_bytes_gives_the_same_events(bytes in stream(), cuts in proptest::collection::vec(any::<prop::sample::Index>(), 0..8)) {
            let mut places: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
            places.sort_unstable();
            places.push(bytes.len());
            let mut reader = SseReader::default();
            let mut found = Vec::new();
            let mut from = 0;
            for to in places {
                found.extend(reader.feed(&bytes[from..to]).unwrap());
                from = to;
            }
            prop_assert_eq!(&found, &whole(&bytes));
            let mut reader = SseReader::default();
            let single: Vec<SseMessage> = bytes.iter().flat_map(|byte| reader.feed(&[*byte]).unwrap()).collect();
            prop_assert_eq!(single, found);
        }
    }
}
