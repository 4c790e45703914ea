//! Last lines of all kinds.

use proptest::prelude::*;

use super::*;

/// The result of repairing a last line.
fn mended(line: &[u8]) -> (String, Option<Mend>) {
    let mend = judge(line);
    let bytes = match &mend {
        Some(mend) => [&line[..mend.stays], &mend.added].concat(),
        None => line.to_vec(),
    };
    (String::from_utf8(bytes).unwrap(), mend)
}

#[test]
fn a_whole_line_is_left_alone() {
    for line in [
        "",
        "\n",
        " \n",
        "\r\n",
        "{}\n",
        "{\"a\":1}\r\n",
        " [1] \n",
        "12\n",
        "\"text\"\n",
        "null\n",
    ] {
        assert_eq!(judge(line.as_bytes()), None, "{line:?}");
    }
    let deep = format!("{}{}\n", "[".repeat(100_000), "]".repeat(100_000));
    assert_eq!(judge(deep.as_bytes()), None);
}

#[test]
fn a_value_without_an_end_gets_one_and_nothing_is_moved() {
    for line in ["{\"a\":1}", "[]", "\"text\"", "true"] {
        let (bytes, mend) = mended(line.as_bytes());
        let mend = mend.unwrap();
        assert_eq!(bytes, format!("{line}\n"));
        assert_eq!((mend.is_kept, mend.records()), (false, 1));
        assert_eq!(mend.tears, [Tear::NoNewline]);
    }
}

#[test]
fn what_is_torn_is_taken_out_and_what_is_whole_stays() {
    use Tear::{Fused, NoNewline, NotJson, Nuls};
    let cases: [(&[u8], &str, &[Tear]); 12] = [
        (b"{\"a\":", "", &[NoNewline, NotJson]),
        (b"12", "", &[NoNewline, NotJson]),
        (b"tru", "", &[NoNewline, NotJson]),
        (b"{\"a\":\"\xff\"}\n", "", &[NotJson]),
        (b"hello\n", "", &[NotJson]),
        (b"2024 started\n", "", &[NotJson]),
        (b"{\"a\":1}{\"b\":2}\n", "{\"a\":1}\n{\"b\":2}\n", &[Fused]),
        (
            b"{\"a\":1} {\"b\":2}",
            "{\"a\":1}\n{\"b\":2}\n",
            &[NoNewline, Fused],
        ),
        (
            b"{\"a\":1}{\"b\":",
            "{\"a\":1}\n",
            &[NoNewline, Fused, NotJson],
        ),
        // The inner record may be part of the torn one: it does not become a record.
        (b"{\"a\":{\"b\":2}\n", "", &[NotJson]),
        (b"\0\0\0\0", "", &[NoNewline, Nuls]),
        (b"\0\0{\"c\":3}}\n", "", &[Nuls, NotJson]),
    ];
    for (line, expected, tears) in cases {
        let (bytes, mend) = mended(line);
        let mend = mend.unwrap();
        assert_eq!(bytes, expected, "{}", line.escape_ascii());
        assert_eq!(mend.tears, tears, "{}", line.escape_ascii());
        assert!(mend.is_kept);
        assert_eq!(mend.records(), expected.lines().count());
    }
}

#[test]
fn records_around_nul_bytes_are_kept() {
    let (bytes, mend) = mended(b"{\"a\":1}\0\0\0");
    assert_eq!(bytes, "{\"a\":1}\n");
    assert_eq!(mend.unwrap().tears, [Tear::NoNewline, Tear::Nuls]);
    let (bytes, _) = mended(b"\0\0{\"b\":2}\n");
    assert_eq!(bytes, "{\"b\":2}\n");
    let (bytes, mend) = mended(b"{\"a\":1}\0\0{\"b\":2}\n");
    assert_eq!(bytes, "{\"a\":1}\n{\"b\":2}\n");
    assert_eq!(mend.unwrap().tears, [Tear::Nuls, Tear::Fused]);
}

proptest! {
    /// Whatever is in a last line, afterwards there are only complete lines, and nothing is removed
    /// without being saved.
    #[test]
    fn a_mended_line_is_whole(line in "[\\x00{}\\[\\]\",:0-9a-c ]{0,40}\n?") {
        let (bytes, mend) = mended(line.as_bytes());
        prop_assert!(bytes.is_empty() || bytes.ends_with('\n'));
        // Blank lines are left alone.
        for record in bytes.lines().filter(|record| !record.trim().is_empty()) {
            let value = serde_json::from_str::<serde_json::Value>(record);
            prop_assert!(value.is_ok(), "{:?} of {:?}", record, line);
        }
        prop_assert_eq!(judge(bytes.lines().last().map(|last| format!("{last}\n")).unwrap_or_default().as_bytes()), None);
        if mend.is_none_or(|mend| !mend.is_kept) {
            prop_assert_eq!(bytes.trim_end_matches('\n'), line.trim_end_matches('\n'));
        }
    }

    /// A truncated record is never mistaken for another one.
    #[test]
    fn a_cut_record_is_whole_or_nothing(text in ".{0,20}", number: u32, cut in 0usize..80) {
        let record = serde_json::json!({"text": text, "inner": {"number": number, "list": [number]}}).to_string();
        let cut = record.floor_char_boundary(cut.min(record.len()));
        let (bytes, _) = mended(&record.as_bytes()[..cut]);
        if cut == record.len() {
            prop_assert_eq!(bytes, format!("{record}\n"));
        } else {
            prop_assert_eq!(bytes, "");
        }
    }
}
