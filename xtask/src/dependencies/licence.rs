//! Licence expressions (SPDX): may a package be used under one of the allowed licences?

use std::collections::BTreeSet;

/// The licences that an expression names; an exception belongs to its licence.
pub(crate) fn names(expression: &str) -> Vec<String> {
    let words = words(expression).into_iter();
    words
        .filter(|word| !["(", ")", "AND", "OR"].contains(&&**word))
        .collect()
}

/// Whether the allowed licences satisfy an expression; an expression that cannot be read is not
/// satisfied.
pub(crate) fn is_allowed(expression: &str, allowed: &BTreeSet<String>) -> bool {
    let words = words(expression);
    let mut reader = Reader {
        words: &words,
        allowed,
    };
    reader.either() == Some(true) && reader.words.is_empty()
}

/// Words and parentheses. Old manifests write `MIT/Apache-2.0` for `OR`.
fn words(expression: &str) -> Vec<String> {
    let spaced = expression
        .replace('/', " OR ")
        .replace('(', " ( ")
        .replace(')', " ) ");
    let mut words: Vec<String> = Vec::new();
    let mut parts = spaced.split_whitespace();
    while let Some(part) = parts.next() {
        match (part, words.last_mut()) {
            ("WITH", Some(last)) => {
                last.push_str(" WITH ");
                last.push_str(parts.next().unwrap_or_default());
            }
            _ => words.push(part.to_owned()),
        }
    }
    words
}

/// Reads an expression from its beginning: `AND` binds closer than `OR`.
struct Reader<'a> {
    words: &'a [String],
    allowed: &'a BTreeSet<String>,
}

impl Reader<'_> {
    fn either(&mut self) -> Option<bool> {
        let mut result = self.both()?;
        while self.take("OR") {
            result |= self.both()?;
        }
        Some(result)
    }

    fn both(&mut self) -> Option<bool> {
        let mut result = self.one()?;
        while self.take("AND") {
            result &= self.one()?;
        }
        Some(result)
    }

    fn one(&mut self) -> Option<bool> {
        if self.take("(") {
            let result = self.either()?;
            return self.take(")").then_some(result);
        }
        let (first, rest) = self.words.split_first()?;
        self.words = rest;
        Some(self.allowed.contains(first))
    }

    fn take(&mut self, word: &str) -> bool {
        let is_next = self.words.first().is_some_and(|next| next == word);
        if is_next {
            self.words = &self.words[1..];
        }
        is_next
    }
}

#[cfg(test)]
mod tests {
    use super::{is_allowed, names};

    #[test]
    fn one_of_the_offered_licences_is_enough_and_all_of_the_joined_are_needed() {
        let allowed = ["MIT", "Apache-2.0", "Zlib"].map(str::to_owned).into();
        for text in [
            "MIT",
            "MIT OR GPL-3.0",
            "GPL-3.0/MIT",
            "MIT AND Apache-2.0",
            "(MIT OR GPL-2.0) AND Zlib",
            "GPL-2.0 AND MIT OR Zlib",
            "((MIT))",
        ] {
            assert!(is_allowed(text, &allowed), "{text}");
        }
        for text in [
            "",
            "GPL-3.0",
            "MIT AND GPL-3.0",
            "Apache-2.0 WITH LLVM-exception",
            "(MIT OR Zlib) AND GPL-2.0",
            "(MIT",
            "MIT)",
            "MIT MIT",
            "OR MIT",
        ] {
            assert!(!is_allowed(text, &allowed), "{text}");
        }
        let exception = ["Apache-2.0 WITH LLVM-exception".to_owned()].into();
        assert!(is_allowed(
            "GPL-2.0 OR Apache-2.0 WITH LLVM-exception",
            &exception
        ));
    }

    #[test]
    fn the_names_of_an_expression_have_their_exceptions() {
        let found = names("(MIT OR Apache-2.0 WITH LLVM-exception) AND Zlib");
        assert_eq!(found, ["MIT", "Apache-2.0 WITH LLVM-exception", "Zlib"]);
    }
}
