//! Names of other people's processes and files, made harmless for a terminal.

use std::borrow::Cow;
use std::fmt::Write as _;

/// Escapes whatever would act on a terminal or deceive the eye instead of being seen: control
/// characters, changes of writing direction, characters without width. A process may call itself
/// anything, including an escape sequence that clears the screen.
#[must_use]
pub fn sanitize(text: &str) -> Cow<'_, str> {
    if !text.contains(is_hostile) {
        return Cow::Borrowed(text);
    }
    let mut clean = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        if is_hostile(c) {
            // Writing to a string cannot fail.
            let _ = write!(clean, "\\u{{{:x}}}", u32::from(c));
        } else {
            clean.push(c);
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

#[cfg(test)]
mod tests {
    use super::sanitize;

    #[test]
    fn an_escape_sequence_in_a_name_is_shown_and_not_obeyed() {
        assert_eq!(sanitize("\u{1b}[2Jevil\n"), "\\u{1b}[2Jevil\\u{a}");
        assert_eq!(sanitize("\u{9b}31m"), "\\u{9b}31m");
    }

    #[test]
    fn direction_and_width_tricks_are_made_visible() {
        assert_eq!(sanitize("a\u{202e}b\u{200b}c"), "a\\u{202e}b\\u{200b}c");
        assert_eq!(sanitize("\u{2066}x\u{feff}"), "\\u{2066}x\\u{feff}");
    }

    #[test]
    fn ordinary_names_of_any_script_stay_as_they_are() {
        for name in ["postgres", "名前", "e\u{301}", "kworker/0:1", "(sd-pam)"] {
            assert_eq!(sanitize(name), name);
        }
    }
}
