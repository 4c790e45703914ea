//! The public interface of a crate, listed from its source: every public item with its signature,
//! fields, variants and traits. A change of it shows in a review, because the list is a generated
//! file.
//!
//! It reads text, as rustfmt leaves it, and knows what our small public crates contain: no macros,
//! no re-exported globs.

use std::path::Path;

use anyhow::Context as _;

use crate::source;

/// Lists the interface of the crate in this directory: its features and its items.
pub(crate) fn listing(dir: &Path) -> anyhow::Result<String> {
    let manifest = dir.join("Cargo.toml");
    let manifest = std::fs::read_to_string(&manifest).context(manifest.display().to_string())?;
    let manifest: toml::Table = manifest.parse()?;
    let mut lines = Vec::new();
    let features = manifest.get("features").and_then(toml::Value::as_table);
    for (name, needs) in features.into_iter().flatten() {
        let needs = needs.as_array().into_iter().flatten();
        let needs: Vec<&str> = needs.filter_map(toml::Value::as_str).collect();
        lines.push(format!("feature {name}: {}", needs.join(", ")));
    }
    let sources = dir.join("src");
    for entry in std::fs::read_dir(&sources)? {
        let path = entry?.path();
        anyhow::ensure!(
            path.ends_with("lib.rs"),
            "{}: only lib.rs is listed",
            path.display()
        );
        lines.extend(items(&std::fs::read_to_string(&path)?));
    }
    Ok(lines.join("\n") + "\n")
}

/// The public items of a source file, in its order.
fn items(text: &str) -> Vec<String> {
    let code = source::code_only(text);
    let mut reader = Reader::default();
    let hidden = source::test_only(&code).stretches;
    for (at, letter) in code.char_indices() {
        if !hidden.iter().any(|stretch| stretch.contains(&at)) {
            reader.read(letter);
        }
    }
    reader.found
}

/// Collects the text of each item until its body or its end.
#[derive(Default)]
struct Reader {
    /// The text since the last item.
    text: String,
    /// Parentheses, brackets and angle brackets that are open.
    nested: usize,
    /// The headers of the bodies around the current place.
    around: Vec<String>,
    found: Vec<String>,
}

impl Reader {
    fn read(&mut self, letter: char) {
        let is_arrow = self.text.ends_with(['-', '=']);
        match letter {
            '(' | '[' | '<' => self.nested += 1,
            ')' | ']' => self.nested = self.nested.saturating_sub(1),
            '>' if !is_arrow => self.nested = self.nested.saturating_sub(1),
            _ => {}
        }
        match letter {
            '{' => {
                let header = self.end();
                self.around.push(header);
            }
            '}' => {
                self.end();
                self.around.pop();
            }
            ';' | ',' if self.nested == 0 => {
                self.end();
            }
            _ => self.text.push(letter),
        }
    }

    /// Ends an item: lists it if others can use it, and returns it.
    fn end(&mut self) -> String {
        let text = std::mem::take(&mut self.text);
        self.nested = 0;
        let words: Vec<&str> = text.split_whitespace().collect();
        let (attributes, item) = split_attributes(&words.join(" "));
        let line = format!("{attributes}{item}");
        match &self.around[..] {
            [] if item.starts_with("pub ") => self.found.push(line),
            [] if item.starts_with("impl") && item.contains(" for ") => {
                self.found.push(item.clone())
            }
            [inside] if is_listed(inside, &item) => {
                self.found.push(format!("{}: {line}", owner(inside)));
            }
            _ => {}
        }
        item
    }
}

/// The type that a body belongs to: `Pair` of `pub struct Pair<A>` and of `impl<A> Pair<A>`.
fn owner(header: &str) -> &str {
    let mut depth = 0_usize;
    // Generics of `impl` are skipped; the name ends where its own begin.
    let mut is_name = |letter: char| {
        match letter {
            '<' => depth += 1,
            '>' => depth = depth.saturating_sub(1),
            _ => return depth == 0 && source::in_word(letter),
        }
        false
    };
    let mut words = header.split(|letter| !is_name(letter));
    let keywords = ["", "pub", "impl", "struct", "enum", "trait", "union"];
    words
        .find(|word| !keywords.contains(word))
        .unwrap_or_default()
}

/// Whether an item inside this body is public.
fn is_listed(inside: &str, item: &str) -> bool {
    let is_type = inside.starts_with("pub struct") || inside.starts_with("pub union");
    let is_open = inside.starts_with("pub enum") || inside.starts_with("pub trait");
    let is_own = inside.starts_with("impl") && !inside.contains(" for ");
    (is_open && !item.is_empty()) || ((is_type || is_own) && item.starts_with("pub "))
}

/// The attributes that others depend on, each with a space behind it; and the rest.
fn split_attributes(text: &str) -> (String, String) {
    let (mut kept, mut rest) = (String::new(), text);
    while rest.starts_with("#[") || rest.starts_with("#![") {
        let Some(end) = rest.find(']') else { break };
        let attribute = &rest[..=end];
        if attribute.starts_with("#[derive") || attribute == "#[non_exhaustive]" {
            kept.push_str(attribute);
            kept.push(' ');
        }
        rest = rest[end + 1..].trim_start();
    }
    (kept, rest.to_owned())
}

#[cfg(test)]
mod tests {
    use super::items;

    #[test]
    fn public_items_are_listed_with_their_signatures() {
        let code = "
//! pub fn in_a_comment() {}
use std::fmt;
pub use other::Thing;
pub const MOST: [u8; 2] = [1, 2];

/// A pair.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Pair<A, B> {
    /// First.
    pub first: Vec<(A, B)>,
    second: B,
}
struct Secret { pub field: u8 }

pub enum Kind { One, Two(u8) }

impl<A> Pair<A, u8> {
    #[must_use]
    pub fn take(
        &self,
        most: usize,
    ) -> Result<(), A> {
        let pub_like = Inner { a: 1 };
        if most > 1 { return Ok(()); }
    }
    fn hidden(&self) {}
}

impl fmt::Display for Pair<u8, u8> {
    fn fmt(&self) {}
}
pub(crate) fn inner() {}
fn private() {}
#[cfg(test)]
mod tests { pub fn none() {} }
";
        assert_eq!(
            items(code),
            [
                "pub use other::Thing",
                "pub const MOST: [u8; 2] = [1, 2]",
                "#[derive(Clone, Debug)] #[non_exhaustive] pub struct Pair<A, B>",
                "Pair: pub first: Vec<(A, B)>",
                "pub enum Kind",
                "Kind: One",
                "Kind: Two(u8)",
                "Pair: pub fn take( &self, most: usize, ) -> Result<(), A>",
                "impl fmt::Display for Pair<u8, u8>",
            ]
        );
    }
}
