//! The names of types and modules: a public type name exists once, and no name is a bare
//! participle.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use crate::borders::Complaint;
use crate::source;

/// What is checked; `docs/design/words.md` gives the reasons.
pub(crate) const NAMES: Names = Names {
    usual: &["Builder", "Config", "Error", "Kind", "Options", "Result"],
    still_twice: &[],
    participles: "added allowed asked born brought built caught changed chosen cleared closed collected \
        counted done drawn ended felt found given gone grown heard held hidden joined judged \
        kept known left listed looked lost made met moved named opened passed placed prevented \
        reconciled retold said seen sent served shown spent spoken started \
        stopped stored taken told traced used waited wanted watched written",
};

/// The table's shape.
pub(crate) struct Names {
    /// Public names that Rust code repeats by habit: they are read with their module.
    usual: &'static [&'static str],
    /// Public names that still exist twice, each with the reason. Nothing is added here: an entry
    /// that is no longer needed must be deleted.
    still_twice: &'static [(&'static str, &'static str)],
    /// Words for what happened to a thing instead of what it is, in alphabetical order.
    participles: &'static str,
}

/// Where a type is defined.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Definition<'a> {
    pub(crate) name: &'a str,
    at: usize,
    is_pub: bool,
}

/// Public type names that exist twice in the crates' sources; test-only ones do not count.
pub(crate) fn duplicates(
    names: &Names,
    sources: &[(PathBuf, String)],
    tests: &BTreeSet<PathBuf>,
) -> Vec<Complaint> {
    let mut places: BTreeMap<&str, Vec<(&Path, usize)>> = BTreeMap::new();
    for (file, code) in sources {
        let is_source = file.components().any(|part| part.as_os_str() == "src");
        if !is_source || is_of_tests(file, tests) {
            continue;
        }
        let hidden = source::test_only(code).stretches;
        for found in definitions(code) {
            let is_hidden = hidden.iter().any(|stretch| stretch.contains(&found.at));
            if found.is_pub && !is_hidden && !names.usual.contains(&found.name) {
                let line = source::line(code, found.at);
                places.entry(found.name).or_default().push((file, line));
            }
        }
    }
    let mut complaints = Vec::new();
    for (name, places) in &places {
        if names.still_twice.iter().any(|(known, _)| known == name) {
            continue;
        }
        let [(first, first_line), others @ ..] = places.as_slice() else {
            continue;
        };
        for (file, line) in others {
            let text = format!(
                "pub type {name} exists already in {}:{first_line}: give it a second word",
                first.display()
            );
            complaints.push(Complaint::new(file, *line, text));
        }
    }
    for (name, _) in names.still_twice {
        if places.get(name).is_none_or(|places| places.len() < 2) {
            let text = format!("{name} no longer exists twice: delete it from still_twice");
            complaints.push(Complaint::new(Path::new("xtask/src/names.rs"), 1, text));
        }
    }
    complaints
}

/// Types and modules whose whole name is a participle.
pub(crate) fn participles(names: &Names, file: &Path, code: &str) -> Vec<Complaint> {
    let is_listed = |name: &str| {
        let mut words = names.participles.split_whitespace();
        words.any(|word| name.eq_ignore_ascii_case(word))
    };
    let mut complaints = Vec::new();
    if let Some(module) = module_name(file).filter(|name| is_listed(name)) {
        let text = format!("module {module}: a participle is not a name, say what it is");
        complaints.push(Complaint::new(file, 1, text));
    }
    let types = definitions(code).into_iter();
    let types = types.map(|found| ("type", found.name, found.at));
    let modules = inline_modules(code).map(|(name, at)| ("module", name, at));
    for (what, name, at) in types.chain(modules).filter(|(_, name, _)| is_listed(name)) {
        let text = format!("{what} {name}: a participle is not a name, say what it is");
        complaints.push(Complaint::new(file, source::line(code, at), text));
    }
    complaints
}

/// Whether a file is compiled for tests only: a module of tests, or below one.
fn is_of_tests(file: &Path, tests: &BTreeSet<PathBuf>) -> bool {
    let mut above = file.ancestors();
    above.any(|path| tests.contains(path) || tests.contains(&path.with_extension("rs")))
}

/// The module that a file is.
fn module_name(file: &Path) -> Option<&str> {
    let stem = file.file_stem()?.to_str()?;
    if stem == "mod" {
        return file.parent()?.file_name()?.to_str();
    }
    Some(stem)
}

/// Every type that is defined in the code.
pub(crate) fn definitions(code: &str) -> Vec<Definition<'_>> {
    let keywords = ["struct", "enum", "trait", "type", "union"];
    let mut found = Vec::new();
    for keyword in keywords {
        for at in source::whole_words(code, keyword) {
            let Some(name) = identifier(&code[at + keyword.len()..]) else {
                continue;
            };
            let before = code[..at].trim_end();
            let before = before.strip_suffix("unsafe").unwrap_or(before).trim_end();
            let is_pub = before
                .strip_suffix("pub")
                .is_some_and(|rest| !rest.ends_with(source::in_word));
            found.push(Definition { name, at, is_pub });
        }
    }
    found.sort_by_key(|definition| definition.at);
    found
}

/// Modules with their code in the same file.
fn inline_modules(code: &str) -> impl Iterator<Item = (&str, usize)> {
    source::whole_words(code, "mod").filter_map(|at| {
        let rest = &code[at + "mod".len()..];
        let name = identifier(rest)?;
        let after = rest.trim_start().strip_prefix(name)?.trim_start();
        after.starts_with('{').then_some((name, at))
    })
}

/// The name that follows a keyword.
fn identifier(rest: &str) -> Option<&str> {
    let name = rest.strip_prefix(char::is_whitespace)?.trim_start();
    let end = name.find(|c| !source::in_word(c)).unwrap_or(name.len());
    let name = &name[..end];
    name.starts_with(|c: char| c.is_alphabetic() || c == '_')
        .then_some(name)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::{Path, PathBuf};

    use super::{NAMES, Names, duplicates, participles};
    use crate::borders::Complaint;

    const TABLE: Names = Names {
        usual: &["Error"],
        still_twice: &[("Place", "two files and no better word yet")],
        participles: "seen told",
    };

    fn twice(sources: &[(&str, &str)]) -> Vec<String> {
        let owned = |(file, code): &(&str, &str)| (PathBuf::from(file), (*code).to_owned());
        let sources: Vec<_> = sources.iter().map(owned).collect();
        let tests = BTreeSet::from([PathBuf::from("crates/a/src/tests.rs")]);
        let places = "pub struct Place;\npub mod b { pub struct Place; }".to_owned();
        let known = (PathBuf::from("crates/z/src/place.rs"), places);
        let sources = [sources, vec![known]].concat();
        let found = duplicates(&TABLE, &sources, &tests);
        found.iter().map(Complaint::to_string).collect()
    }

    fn named(file: &str, code: &str) -> Vec<String> {
        let found = participles(&TABLE, Path::new(file), code);
        found.iter().map(Complaint::to_string).collect()
    }

    #[test]
    fn a_public_type_name_that_exists_twice_is_found_with_both_places() {
        let found = twice(&[
            ("crates/a/src/a.rs", "\npub struct Event<T>(T);"),
            (
                "crates/b/src/b.rs",
                "pub(crate) enum Event {}\n\npub enum Event {}",
            ),
        ]);
        let expected = "crates/b/src/b.rs:3: pub type Event exists already in crates/a/src/a.rs:2: give it a second word";
        assert_eq!(found, [expected]);
    }

    #[test]
    fn every_kind_of_type_counts() {
        for code in [
            "pub enum A {}",
            "pub trait A {}",
            "pub unsafe trait A {}",
            "pub type A = u8;",
            "pub union A { a: u8 }",
        ] {
            let found = twice(&[("src/a.rs", "pub struct A;"), ("src/b.rs", code)]);
            assert_eq!(found.len(), 1, "{code}");
        }
    }

    #[test]
    fn habits_tests_and_what_is_not_public_may_repeat() {
        let first = ("crates/a/src/a.rs", "pub struct Event;\npub enum Error {}");
        for (file, code) in [
            ("crates/a/src/b.rs", "pub enum Error {}"),
            (
                "crates/a/src/b.rs",
                "pub(crate) struct Event;\nstruct Event;",
            ),
            (
                "crates/a/src/b.rs",
                "#[cfg(test)]\nmod tests { pub struct Event; }",
            ),
            ("crates/a/src/tests.rs", "pub struct Event;"),
            ("crates/a/src/tests/more.rs", "pub struct Event;"),
            ("crates/a/tests/suite.rs", "pub struct Event;"),
            (
                "crates/a/src/b.rs",
                "pub use a::Event; pub struct EventKind;",
            ),
        ] {
            assert_eq!(twice(&[first, (file, code)]), [""; 0], "{file} {code}");
        }
    }

    #[test]
    fn an_exception_that_is_no_longer_needed_must_go() {
        let sources = [(PathBuf::from("src/a.rs"), "pub struct Place;".to_owned())];
        let found = duplicates(&TABLE, &sources, &BTreeSet::new());
        let text = "xtask/src/names.rs:1: Place no longer exists twice: delete it from still_twice";
        assert_eq!(
            found.iter().map(Complaint::to_string).collect::<Vec<_>>(),
            [text]
        );
    }

    #[test]
    fn a_participle_is_no_name_of_a_type() {
        let found = named(
            "src/a.rs",
            "\nstruct Told;\nenum ToldTwice {}\ntype Seen = u8;",
        );
        assert_eq!(
            found,
            [
                "src/a.rs:2: type Told: a participle is not a name, say what it is",
                "src/a.rs:4: type Seen: a participle is not a name, say what it is",
            ]
        );
    }

    #[test]
    fn a_participle_is_no_name_of_a_module() {
        for file in ["src/told.rs", "src/told/mod.rs"] {
            let text = format!("{file}:1: module told: a participle is not a name, say what it is");
            assert_eq!(named(file, "mod seen;"), [text]);
        }
        assert_eq!(named("src/a.rs", "\npub mod seen {\n}").len(), 1);
        assert!(named("src/told_twice.rs", "mod told_once;").is_empty());
    }

    #[test]
    fn the_table_is_in_order_and_says_why() {
        assert!(NAMES.participles.split_whitespace().is_sorted());
        assert!(NAMES.still_twice.is_sorted());
        assert!(
            NAMES
                .still_twice
                .iter()
                .all(|(_, reason)| reason.len() > 10)
        );
    }
}
