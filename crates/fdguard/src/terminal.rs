//! What may go to a terminal: width, and names that other processes chose.

use std::fmt::Write as _;

use fdguard_core::Text;

/// Makes foreign text safe to print: control characters, escape sequences, bidirectional overrides
/// and invisible characters become visible escapes; bytes that are not UTF-8 become `\xNN`.
#[must_use]
pub fn sanitize(text: &Text) -> String {
    sanitize_bytes(text.as_bytes())
}

/// The same for bytes.
#[must_use]
pub fn sanitize_bytes(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for character in chunk.valid().chars() {
            push_character(&mut out, character);
        }
        for byte in chunk.invalid() {
            // Writing to a string cannot fail.
            drop(write!(out, "\\x{byte:02x}"));
        }
    }
    out
}

fn push_character(out: &mut String, character: char) {
    match character {
        '\n' => out.push_str("\\n"),
        '\t' => out.push_str("\\t"),
        '\r' => out.push_str("\\r"),
        c if c.is_control() || is_invisible(c) => drop(write!(out, "\\u{{{:x}}}", c as u32)),
        c => out.push(c),
    }
}

/// Characters that change how others are shown, or are not shown at all.
fn is_invisible(c: char) -> bool {
    matches!(c,
        '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

/// Columns of the terminal on stdout; `None` in pipes, where nothing is ever cut.
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

    use super::sanitize;

    #[test]
    fn nothing_foreign_reaches_the_terminal_as_a_command() {
        let text = |bytes: &[u8]| sanitize(&Text::from(bytes));
        assert_eq!(text(b"/tmp/\x1b[31mred"), "/tmp/\\u{1b}[31mred");
        assert_eq!(text(b"a\nb"), "a\\nb");
        assert_eq!(text(b"\xff\xfe"), "\\xff\\xfe");
        assert_eq!(text("a\u{202e}b".as_bytes()), "a\\u{202e}b");
        assert_eq!(text("日本.log".as_bytes()), "日本.log");
    }
}
