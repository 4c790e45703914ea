//! Wire format of the side channel.
//!
//! To the program: 40 bytes `NONCE KIND LENGTH`, then LENGTH bytes in a separate datagram. To the
//! host: `NONCE STATUS DIRECTORY\n`.

/// The longest end message: a directory name and the rest.
pub(super) const LONGEST: usize = 8192;

/// The length of a nonce in hex.
const NONCE: usize = 32;

/// The end of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct End {
    pub(super) status: i32,
    /// The current directory of the program, if it reports it.
    pub(super) dir: Option<String>,
}

/// What follows the head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Text of ASCII characters.
    Plain,
    /// Other text.
    Text,
    /// The name of a file that holds the text.
    File,
}

/// The first datagram of a command.
pub(super) fn head(nonce: &str, kind: Kind, length: usize) -> String {
    let kind = match kind {
        Kind::Plain => 't',
        Kind::Text => 'u',
        Kind::File => 'f',
    };
    format!("{nonce}{kind}{length:07}")
}

/// Parses the nonce and the end that a program reports.
pub(super) fn parse(bytes: &[u8]) -> Option<(&str, End)> {
    let bytes = bytes.strip_suffix(b"\n").unwrap_or(bytes);
    let (nonce, rest) = bytes.split_at_checked(NONCE)?;
    let rest = rest.strip_prefix(b" ")?;
    let mut parts = rest.splitn(2, |byte| *byte == b' ');
    let status = std::str::from_utf8(parts.next()?).ok()?.parse().ok()?;
    let dir = parts.next().filter(|dir| dir.starts_with(b"/"));
    let dir = dir.map(|dir| String::from_utf8_lossy(dir).into_owned());
    let nonce = std::str::from_utf8(nonce).ok()?;
    Some((nonce, End { status, dir }))
}

/// Parses any datagram of a program, for the fuzz target.
#[cfg(feature = "fuzzing")]
pub fn fuzz_message(bytes: &[u8]) {
    if let Some((nonce, end)) = parse(bytes) {
        assert!(nonce.len() == NONCE && bytes.starts_with(nonce.as_bytes()));
        assert!(end.dir.is_none_or(|dir| dir.starts_with('/')));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const N: &str = "0123456789abcdef0123456789abcdef";

    fn ended(text: &str) -> Option<(String, i32, Option<String>)> {
        let message = text.replace("N", N);
        let (nonce, end) = parse(message.as_bytes())?;
        Some((nonce.to_owned(), end.status, end.dir))
    }

    #[test]
    fn an_end_has_a_nonce_a_status_and_perhaps_a_dir() {
        let dir = Some("/a b/c".to_owned());
        assert_eq!(ended("N 7 /a b/c\n"), Some((N.to_owned(), 7, dir)));
        assert_eq!(ended("N -1\n"), Some((N.to_owned(), -1, None)));
        assert_eq!(ended("N 0 \n"), Some((N.to_owned(), 0, None)));
        assert_eq!(ended("N 0 relative\n"), Some((N.to_owned(), 0, None)));
    }

    #[test]
    fn anything_else_is_no_end() {
        for text in [
            "",
            "\n",
            "N",
            "N ",
            "N x /\n",
            "N0 /\n",
            "short 0 /\n",
            "N  0\n",
        ] {
            assert_eq!(ended(text), None, "{text:?}");
        }
    }

    #[test]
    fn a_head_has_40_bytes() {
        assert_eq!(head(N, Kind::Plain, 4096), format!("{N}t0004096"));
        assert_eq!(head(N, Kind::File, 0).len(), 40);
    }
}
