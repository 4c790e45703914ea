//! Wraps sentences to a given width.

use unicode_width::UnicodeWidthStr as _;

/// The words of a text in lines of at most `width` columns: the first after `first` blanks, the
/// others after `later`. A word that does not fit gets its own line and is clipped when drawn.
pub(crate) fn lines(text: &str, width: usize, first: usize, later: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if line.width() + 1 + word.width() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            Some(_) => lines.push(format!("{}{word}", " ".repeat(later))),
            None => lines.push(format!("{}{word}", " ".repeat(first))),
        }
    }
    lines
}

/// The same for a sentence with its own indent; later lines are indented by two more columns.
pub(crate) fn wrap(sentence: &str, width: usize) -> Vec<String> {
    let words = sentence.trim_start();
    let indent = sentence.len() - words.len();
    lines(words, width, indent, indent + 2)
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
