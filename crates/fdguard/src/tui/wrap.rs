//! Sentences in lines of a given width.

use unicode_width::UnicodeWidthStr as _;

/// The words of a sentence in lines of at most `width` columns, the later ones indented by two more.
/// A word that does not fit stands alone, and is clipped where it is drawn.
pub(super) fn wrap(sentence: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    let words = sentence.trim_start();
    let indent = &sentence[..sentence.len() - words.len()];
    for word in words.split(' ') {
        match lines.last_mut() {
            Some(line) if line.width() + 1 + word.width() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            Some(_) => lines.push(format!("{indent}  {word}")),
            None => lines.push(format!("{indent}{word}")),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::wrap;

    #[test]
    fn a_sentence_is_broken_between_words() {
        assert_eq!(wrap("one two three", 9), ["one two", "  three"]);
        assert_eq!(wrap("one", 0), ["one"]);
        assert_eq!(wrap("one two", 0), ["one", "  two"]);
    }
}
