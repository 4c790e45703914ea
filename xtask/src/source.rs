//! As much of Rust's syntax as the border check needs: code apart from comments, strings and tests.

use std::ops::Range;

/// The text with comments and the contents of strings turned into spaces. Line breaks stay, so that
/// offsets still map to lines.
pub(crate) fn code_only(source: &str) -> String {
    let mut rest = source;
    let mut code = String::with_capacity(source.len());
    while let Some(first) = rest.chars().next() {
        let (length, keep) = token(rest, first);
        let (piece, after) = rest.split_at(length);
        if keep {
            code.push_str(piece);
        } else {
            code.extend(piece.chars().map(|c| if c == '\n' { '\n' } else { ' ' }));
        }
        rest = after;
    }
    code
}

/// Where the line comments begin.
pub(crate) fn line_comments(source: &str) -> Vec<usize> {
    let mut at = 0;
    let mut found = Vec::new();
    while let Some(first) = source[at..].chars().next() {
        if source[at..].starts_with("//") {
            found.push(at);
        }
        at += token(&source[at..], first).0;
    }
    found
}

/// The length of the next token, and whether it is code.
fn token(rest: &str, first: char) -> (usize, bool) {
    if rest.starts_with("//") {
        return (rest.find('\n').unwrap_or(rest.len()), false);
    }
    if rest.starts_with("/*") {
        return (block_comment(rest), false);
    }
    if first.is_alphabetic() || first == '_' {
        let word = rest
            .find(|c: char| !c.is_alphanumeric() && c != '_')
            .unwrap_or(rest.len());
        let raw = matches!(&rest[..word], "r" | "br" | "cr");
        return match raw.then(|| raw_string(&rest[word..])).flatten() {
            Some(string) => (word + string, false),
            None => (word, true),
        };
    }
    match first {
        '"' => (quoted(rest, '"'), false),
        '\'' => character(rest).map_or((1, true), |length| (length, false)),
        other => (other.len_utf8(), true),
    }
}

/// Comments nest.
fn block_comment(rest: &str) -> usize {
    let mut depth = 0_usize;
    let mut at = 0;
    while at < rest.len() {
        if rest[at..].starts_with("/*") {
            depth += 1;
            at += 2;
        } else if rest[at..].starts_with("*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += rest[at..].chars().next().map_or(1, char::len_utf8);
        }
    }
    rest.len()
}

/// `#"…"#` with any number of hashes; `None` for a raw identifier.
fn raw_string(rest: &str) -> Option<usize> {
    let hashes = rest.len() - rest.trim_start_matches('#').len();
    let inside = rest[hashes..].strip_prefix('"')?;
    let end = format!("\"{}", "#".repeat(hashes));
    let length = inside.find(&end).map_or(inside.len(), |at| at + end.len());
    Some(hashes + 1 + length)
}

fn quoted(rest: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, c) in rest.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            c if c == quote => return at + c.len_utf8(),
            _ => {}
        }
    }
    rest.len()
}

/// A character; `None` for a lifetime.
fn character(rest: &str) -> Option<usize> {
    let mut chars = rest.char_indices().skip(1);
    let (_, first) = chars.next()?;
    if first == '\\' {
        return Some(quoted(rest, '\''));
    }
    let (at, second) = chars.next()?;
    (second == '\'').then_some(at + 1)
}

/// Code that is compiled only for tests: the ranges of this text, and the modules in other files.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct TestOnly {
    pub(crate) stretches: Vec<Range<usize>>,
    pub(crate) modules: Vec<String>,
}

/// Finds every item behind `#[cfg(test)]`. Takes text from `code_only`.
pub(crate) fn test_only(code: &str) -> TestOnly {
    const MARK: &str = "#[cfg(test)]";
    let mut found = TestOnly::default();
    for (start, _) in code.match_indices(MARK) {
        let item = &code[start..];
        let Some(stop) = item.find(['{', ';']) else {
            continue;
        };
        if item[stop..].starts_with('{') {
            found.stretches.push(start..start + block(item, stop));
        } else if let Some(("mod", name)) = item[MARK.len()..stop].trim().rsplit_once(' ') {
            found.modules.push(name.to_owned());
        }
    }
    found
}

/// The end of the block that opens at `open`.
fn block(code: &str, open: usize) -> usize {
    let mut depth = 0_usize;
    for (at, c) in code[open..].char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 1 => return open + at + 1,
            '}' => depth -= 1,
            _ => {}
        }
    }
    code.len()
}

/// Where a path such as `std::fs` is named: in full, or as a branch of a `use`.
pub(crate) fn mentions(code: &str, path: &str) -> Vec<usize> {
    let mut found: Vec<usize> = whole_words(code, path).collect();
    for (start, _) in code.match_indices("use ") {
        if !starts_word(code, start) {
            continue;
        }
        let end = code[start..].find(';').map_or(code.len(), |at| start + at);
        let tree = &code[start + "use ".len()..end];
        let names_it = |leaf: &String| whole_words(leaf, path).next().is_some();
        if tree.contains('{') && leaves(tree).iter().any(names_it) && !found.contains(&start) {
            found.push(start);
        }
    }
    found
}

/// Where a word occurs by itself.
pub(crate) fn whole_words<'a>(code: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    code.match_indices(word)
        .map(|(at, _)| at)
        .filter(move |at| starts_word(code, *at) && !code[at + word.len()..].starts_with(in_word))
}

fn starts_word(code: &str, at: usize) -> bool {
    !code[..at].ends_with(in_word)
}

pub(crate) fn in_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Every path of a `use` tree in full: `std::{fs, io::Write}` is `std::fs` and `std::io::Write`.
fn leaves(tree: &str) -> Vec<String> {
    let mut prefixes = vec![String::new()];
    let mut path = String::new();
    let mut found = Vec::new();
    for c in tree.chars() {
        match c {
            '{' => prefixes.push(std::mem::take(&mut path)),
            ',' | '}' => {
                if !path.is_empty() {
                    found.push(prefixes.concat() + &path);
                    path.clear();
                }
                if c == '}' {
                    prefixes.pop();
                }
            }
            c if c.is_whitespace() => {}
            c => path.push(c),
        }
    }
    found
}

/// The line of an offset, counted from one.
pub(crate) fn line(code: &str, at: usize) -> usize {
    code[..at].matches('\n').count() + 1
}

#[cfg(test)]
mod tests {
    use super::{code_only, leaves, line, mentions, test_only};

    #[test]
    fn comments_and_strings_are_no_code() {
        let source = "a(\"std::fs\"); // std::fs\n/* x /* y */ std::net */ b(r#\"\"unsafe\"\"#, b'\"', '\\'');";
        let code = code_only(source);
        assert_eq!(code.len(), source.len());
        assert!(
            !code.contains("std::fs") && !code.contains("std::net") && !code.contains("unsafe")
        );
        assert!(code.contains("a(") && code.contains("b(") && code.ends_with(");"));
    }

    #[test]
    fn a_lifetime_does_not_open_a_character() {
        let code = code_only("fn f<'a>(x: &'a str) -> &'a str { unsafe { x } }");
        assert!(code.contains("unsafe"));
    }

    #[test]
    fn line_comments_are_told_from_strings() {
        let source = "a(\"// b\"); // c\n/* // d */ // e\n'/'; /// f";
        let comments = super::line_comments(source);
        let texts: Vec<&str> = comments.iter().map(|at| &source[*at..*at + 4]).collect();
        assert_eq!(texts, ["// c", "// e", "/// "]);
    }

    #[test]
    fn an_escaped_quote_does_not_end_a_string() {
        assert!(!code_only(r#"f("\" unsafe \\"); g()"#).contains("unsafe"));
        assert!(code_only(r#"f("\\"); unsafe"#).contains("unsafe"));
    }

    #[test]
    fn tests_are_told_apart_inside_and_outside_of_the_file() {
        let code = "fn a() {}\n#[cfg(test)]\nmod testing;\n#[cfg(test)]\nmod tests { fn b() { {} } }\nfn c() {}";
        let tests = test_only(code);
        assert_eq!(tests.modules, ["testing"]);
        let [stretch] = tests.stretches.as_slice() else {
            panic!("{tests:?}")
        };
        assert!(code[stretch.clone()].ends_with("} }"));
    }

    #[test]
    fn a_path_is_found_in_full_and_in_a_tree() {
        assert_eq!(mentions("std::fs::read(x)", "std::fs").len(), 1);
        assert_eq!(mentions("use std::{io, fs};", "std::fs").len(), 1);
        assert_eq!(
            mentions("use std::{io, fs::{self, File}};", "std::fs").len(),
            1
        );
        assert!(mentions("use std::fsx; use std::io;", "std::fs").is_empty());
        assert_eq!(mentions("Instant::now()", "Instant::now").len(), 1);
        assert!(mentions("MyInstant::nowhere()", "Instant::now").is_empty());
    }

    #[test]
    fn a_tree_of_imports_is_spelled_out() {
        let found = leaves("std::{fmt, io::{self, Write}}");
        assert_eq!(found, ["std::fmt", "std::io::self", "std::io::Write"]);
    }

    #[test]
    fn lines_are_counted_from_one() {
        assert_eq!((line("a\nb", 0), line("a\nb", 2)), (1, 2));
    }
}
