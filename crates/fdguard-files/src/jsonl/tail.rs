//! Finds out which part of the last line is intact after a crash, a full disk or a write by another
//! process. Pure.

use serde::Serialize;
use serde::de::IgnoredAny;

/// What was wrong with a last line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Tear {
    /// It had no newline.
    NoNewline,
    /// It had NUL bytes: allocated space that was never written.
    Nuls,
    /// It contained two or more records.
    Fused,
    /// It was not a record.
    NotJson,
    /// It was too long to examine.
    TooLong,
}

/// The repair of a last line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mend {
    /// How many of its bytes stay in place.
    pub(super) stays: usize,
    /// The bytes that follow them.
    pub(super) added: Vec<u8>,
    /// Whether the line must be saved elsewhere first, because part of it is removed or moved.
    pub(super) is_kept: bool,
    pub(super) tears: Vec<Tear>,
}

impl Mend {
    /// For a line that is not examined.
    pub(super) fn too_long() -> Self {
        Self {
            stays: 0,
            added: Vec::new(),
            is_kept: true,
            tears: vec![Tear::TooLong],
        }
    }

    /// How many complete records become lines.
    pub(super) fn records(&self) -> usize {
        let ends = self.added.iter().filter(|byte| **byte == b'\n').count();
        usize::from(ends == 0 && self.stays > 0).max(ends)
    }
}

/// Judges the last line, with its newline if it has one; an intact line needs no repair.
pub(super) fn judge(line: &[u8]) -> Option<Mend> {
    let body = line.strip_suffix(b"\n");
    let has_end = body.is_some();
    let body = body.unwrap_or(line);
    // A blank line has nothing to lose.
    if body.is_empty() || (has_end && body.trim_ascii().is_empty()) {
        return None;
    }
    if !body.contains(&0) && is_one_value(body, has_end) {
        return (!has_end).then(|| Mend {
            stays: body.len(),
            added: b"\n".to_vec(),
            is_kept: false,
            tears: vec![Tear::NoNewline],
        });
    }
    let records = records(body);
    let is_all = records.rest_is_blank;
    let mut tears = Vec::new();
    let found = [
        (Tear::NoNewline, !has_end),
        (Tear::Nuls, body.contains(&0)),
        (Tear::Fused, records.whole.len() + usize::from(!is_all) > 1),
        (Tear::NotJson, !is_all),
    ];
    tears.extend(
        found
            .into_iter()
            .filter(|(_, is)| *is)
            .map(|(tear, _)| tear),
    );
    Some(rewritten(body, &records.whole, tears))
}

/// Writes the records on their own lines. The first stays in place if it starts the line: that much
/// is safe in any case.
fn rewritten(body: &[u8], whole: &[(usize, usize)], tears: Vec<Tear>) -> Mend {
    let stays = whole.first().filter(|(start, _)| *start == 0);
    let stays = stays.map_or(0, |(_, end)| *end);
    let mut added = Vec::new();
    if stays > 0 {
        added.push(b'\n');
    }
    for (start, end) in whole.iter().filter(|(start, _)| stays == 0 || *start > 0) {
        added.extend_from_slice(&body[*start..*end]);
        added.push(b'\n');
    }
    Mend {
        stays,
        added,
        is_kept: true,
        tears,
    }
}

/// Whether it is one value. A number without a terminator may be the first half of a longer one.
fn is_one_value(body: &[u8], has_end: bool) -> bool {
    let text = body.trim_ascii();
    let may_go_on = text
        .first()
        .is_some_and(|byte| byte.is_ascii_digit() || *byte == b'-');
    let (ends, is_all) = values(text);
    ends.len() == 1 && is_all && (has_end || !may_go_on)
}

/// The complete records in a torn line.
struct Records {
    /// Start and end of each.
    whole: Vec<(usize, usize)>,
    /// The rest is only whitespace or NUL bytes.
    rest_is_blank: bool,
}

/// Only objects and arrays count: a number or a word may be part of something else. After NUL bytes
/// a piece counts if it is complete to its end, because its start may be the middle of a record.
fn records(body: &[u8]) -> Records {
    let mut found = Records {
        whole: Vec::new(),
        rest_is_blank: true,
    };
    let mut at = 0;
    for piece in body.split(|byte| *byte == 0) {
        let (ends, is_all) = values(piece);
        let is_record = piece.trim_ascii_start().starts_with(b"{")
            || piece.trim_ascii_start().starts_with(b"[");
        let counts = is_record && (is_all || at == 0);
        let mut start = 0;
        for end in ends.into_iter().filter(|_| counts) {
            let value = &piece[start..end];
            let blank = value.len() - value.trim_ascii_start().len();
            if !matches!(value.get(blank), Some(b'{' | b'[')) {
                found.rest_is_blank = false;
                break;
            }
            found.whole.push((at + start + blank, at + end));
            start = end;
        }
        found.rest_is_blank &= piece[start..].trim_ascii().is_empty();
        at += piece.len() + 1;
    }
    found
}

/// The end of each complete value, and whether nothing else follows.
fn values(bytes: &[u8]) -> (Vec<usize>, bool) {
    // The parser that skips a value does not validate its text.
    if std::str::from_utf8(bytes).is_err() {
        return (Vec::new(), bytes.is_empty());
    }
    let mut ends = Vec::new();
    let mut stream = serde_json::Deserializer::from_slice(bytes).into_iter::<IgnoredAny>();
    while let Some(value) = stream.next() {
        match value {
            Ok(_) => ends.push(stream.byte_offset()),
            Err(_torn) => return (ends, false),
        }
    }
    (ends, true)
}

/// Judges any last line, for the fuzz target: what stays is a part of it, and a mended line is
/// intact.
#[cfg(feature = "fuzzing")]
pub fn fuzz_tail(bytes: &[u8]) {
    let line = bytes.split_inclusive(|byte| *byte == b'\n').next_back();
    let line = line.unwrap_or_default();
    let Some(mend) = judge(line) else { return };
    assert!(mend.stays <= line.len() && !mend.tears.is_empty());
    let kept = line.get(..mend.stays).unwrap_or_default();
    let mended = [kept, mend.added.as_slice()].concat();
    for line in mended.split_inclusive(|byte| *byte == b'\n') {
        assert_eq!(judge(line), None);
    }
}

#[cfg(test)]
mod tests;
