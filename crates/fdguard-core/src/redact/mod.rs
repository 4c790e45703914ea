//! Redacts names and keeps shapes: a bundle that may be shown to third parties.
//!
//! Names that users and programs chose (directories, files, addresses, arguments) become a short
//! token; names that the system chose (classes, well-known directories, libraries, kinds of files)
//! stay. The same name has the same token wherever it occurs. Tokens are counted, not computed: a
//! token contains nothing of its name, so there is nothing to guess, and two bundles have nothing
//! in common.
//!
//! The observations are redacted, and then all conclusions are drawn again from those: no sentence
//! can contain a name that was already removed.

mod address;
mod material;
mod path;
mod words;

use std::collections::{HashMap, HashSet};

use crate::Text;

/// Issues tokens, and remembers for which names.
#[derive(Clone, Debug, Default)]
pub struct Redactor {
    words: HashMap<Vec<u8>, String>,
    numbers: HashMap<Vec<u8>, HashMap<Vec<u8>, usize>>,
    ports: HashMap<u16, u16>,
    /// The tokens issued: they are not redacted again.
    issued: HashSet<Vec<u8>>,
}

impl Redactor {
    /// One that has issued no tokens.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The token of a name as a whole.
    pub fn word(&mut self, name: &[u8]) -> String {
        if self.issued.contains(name) {
            return String::from_utf8_lossy(name).into_owned();
        }
        if let Some(token) = self.words.get(name) {
            return token.clone();
        }
        // A name that looks like a token keeps the token that it got.
        let is_free = |token: &String| {
            let token = token.as_bytes();
            token != name && !self.words.contains_key(token) && !self.issued.contains(token)
        };
        let mut tokens = (self.words.len()..).map(|index| format!("~{}", letters(index)));
        let token = tokens.find(is_free).unwrap_or_default();
        self.words.insert(name.to_vec(), token.clone());
        self.issued.insert(token.as_bytes().to_vec());
        token
    }

    /// The token of one of many names that differ in a number or a random part: those of one shape
    /// get one word and a number each, so that they are still collapsed into one.
    fn numbered(&mut self, shape: &[u8], name: &[u8]) -> String {
        let of_shape = self.numbers.entry(shape.to_vec()).or_default();
        let next = of_shape.len() + 1;
        let number = *of_shape.entry(name.to_vec()).or_insert(next);
        if shape.iter().any(u8::is_ascii_alphabetic) {
            format!("{}-{number}", self.word(shape))
        } else {
            format!("~{number}")
        }
    }

    /// A command's name: it stays if it looks like the name of a program, which is the default.
    pub fn command(&mut self, comm: &Text) -> Text {
        if words::is_program_name(comm.as_bytes()) {
            return comm.clone();
        }
        Text::from(self.word(comm.as_bytes()))
    }

    /// A sentence written by fdguard: paths in it are redacted.
    pub fn prose(&mut self, sentence: &str) -> String {
        let words: Vec<String> = sentence
            .split(' ')
            .map(|word| match word.find('/') {
                Some(at) if word[..at].chars().all(|c| !c.is_alphanumeric()) => {
                    let (before, path) = word.split_at(at);
                    let path = self.path(path.as_bytes());
                    format!("{before}{}", String::from_utf8_lossy(&path))
                }
                _ => word.to_owned(),
            })
            .collect();
        words.join(" ")
    }
}

/// `a` to `z`, then `aa` and so on.
fn letters(index: usize) -> String {
    let mut rest = index + 1;
    let mut letters = Vec::new();
    while rest > 0 {
        rest -= 1;
        letters.push(char::from(b"abcdefghijklmnopqrstuvwxyz"[rest % 26]));
        rest /= 26;
    }
    letters.into_iter().rev().collect()
}

#[cfg(test)]
mod tests;
