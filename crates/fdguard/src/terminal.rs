//! Safe terminal output: width, and names chosen by other processes.

use std::borrow::Cow;

use fdguard_core::Text;

/// Makes foreign text safe to print: characters that would control a terminal or mislead the reader
/// become visible escapes, and bytes that are not UTF-8 become `\xNN`. A process may choose any
/// name, including an escape sequence that clears the screen.
#[must_use]
pub fn sanitize(text: &Text) -> String {
    sanitize_bytes(text.as_bytes())
}

/// The same for bytes.
#[must_use]
pub fn sanitize_bytes(bytes: &[u8]) -> String {
    let mut clean = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        clean.push_str(&sanitize_str(chunk.valid()));
        clean.extend(chunk.invalid().iter().map(|byte| format!("\\x{byte:02x}")));
    }
    clean
}

/// The same for valid UTF-8; borrowed if there is nothing to escape.
#[must_use]
pub fn sanitize_str(text: &str) -> Cow<'_, str> {
    if !text.contains(is_hostile) {
        return Cow::Borrowed(text);
    }
    let mut clean = String::with_capacity(text.len() + 8);
    for character in text.chars() {
        match character {
            '\n' => clean.push_str("\\n"),
            '\t' => clean.push_str("\\t"),
            '\r' => clean.push_str("\\r"),
            hostile if is_hostile(hostile) => clean.extend(hostile.escape_unicode()),
            harmless => clean.push(harmless),
        }
    }
    Cow::Owned(clean)
}

fn is_hostile(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}'                      // soft hyphen
            | '\u{34f}'                   // grapheme joiner
            | '\u{61c}'                   // Arabic letter mark
            | '\u{115f}' | '\u{1160}' | '\u{3164}' | '\u{ffa0}' // Hangul fillers
            | '\u{17b4}' | '\u{17b5}'     // Khmer inherent vowels
            | '\u{180b}'..='\u{180f}'     // Mongolian selectors and separator
            | '\u{200b}'..='\u{200f}'     // zero width, direction marks
            | '\u{2028}'..='\u{202e}'     // line separators, direction overrides
            | '\u{2060}'..='\u{206f}'     // joiners, isolates
            | '\u{fe00}'..='\u{fe0f}'     // variation selectors
            | '\u{feff}'                  // byte order mark
            | '\u{fff0}'..='\u{fffb}'     // annotations
            | '\u{1d173}'..='\u{1d17a}'   // musical format
            | '\u{e0000}'..='\u{e0fff}') // tags
}

/// Columns of the terminal on stdout; `None` in pipes, where nothing is cut.
#[must_use]
pub fn width() -> Option<usize> {
    let stdout = rustix::stdio::stdout();
    if !std::io::IsTerminal::is_terminal(&std::io::stdout()) {
        return None;
    }
    let size = rustix::termios::tcgetwinsize(stdout).ok()?;
    Some(usize::from(size.ws_col)).filter(|columns| *columns >= 20)
}

#[cfg(test)]
mod tests {
    use fdguard_core::Text;

    use super::{sanitize, sanitize_str};

    #[test]
    fn nothing_foreign_reaches_the_terminal_as_a_command() {
        let text = |bytes: &[u8]| sanitize(&Text::from(bytes));
        assert_eq!(text(b"/tmp/\x1b[31mred"), "/tmp/\\u{1b}[31mred");
        assert_eq!(text(b"a\nb"), "a\\nb");
        assert_eq!(text(b"\xff\xfe"), "\\xff\\xfe");
        assert_eq!(text("a\u{202e}b".as_bytes()), "a\\u{202e}b");
        assert_eq!(text("日本.log".as_bytes()), "日本.log");
    }

    #[test]
    fn direction_and_width_tricks_are_made_visible() {
        assert_eq!(sanitize_str("\u{2066}x\u{feff}"), "\\u{2066}x\\u{feff}");
        assert_eq!(sanitize_str("\u{9b}31m"), "\\u{9b}31m");
    }

    #[test]
    fn ordinary_names_of_any_script_stay_as_they_are() {
        for name in ["postgres", "名前", "e\u{301}", "kworker/0:1", "(sd-pam)"] {
            assert_eq!(sanitize_str(name), name);
        }
    }
}
