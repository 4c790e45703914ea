//! Compares the design pages with the workspace: everything they name exists, and their counts are
//! right.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::Context as _;

use crate::borders::Complaint;
use crate::markdown::{self, Row};
use crate::width::WIDTH;
use crate::{glossary, names, source};

/// The page with the crates, the arrows and the counts.
const PAGE: &str = "ARCHITECTURE.md";
/// Pages whose paths, types and decisions are checked.
const PAGES: [&str; 6] = [
    PAGE,
    "docs/design/extending.md",
    "docs/design/host.md",
    "docs/design/serve.md",
    "docs/design/tracer.md",
    "docs/design/words.md",
];
const MOST_LINES: usize = 250;
/// Matches any name in a path: `core/lint/NAME.rs`.
const ANY_NAME: &str = "NAME";

/// The tables of `borders.rs` that the pages must agree with.
pub(crate) struct Design {
    /// Each crate with the crates it may use.
    pub(crate) arrows: &'static [(&'static str, &'static [&'static str])],
    /// Libraries that only some crates may use.
    pub(crate) only_in: &'static [(&'static str, &'static [&'static str])],
    /// Files with unsafe code.
    pub(crate) may_be_unsafe: &'static [&'static str],
}

/// Checks every design page under `root`, and the glossary. Expects sources without comments.
pub(crate) fn check(
    root: &Path,
    sources: &[(PathBuf, String)],
    design: &Design,
) -> anyhow::Result<Vec<Complaint>> {
    let types = type_names(sources);
    let decisions = decision_numbers(root)?;
    let exists = |path: &str| root.join(path).exists();
    let mut complaints = Vec::new();
    for page in PAGES {
        let text = std::fs::read_to_string(root.join(page)).context(page)?;
        complaints.extend(unknown_paths(page, &text, design, exists));
        complaints.extend(unknown_types(page, &text, &types));
        complaints.extend(unknown_decisions(page, &text, &decisions));
        if page == PAGE {
            complaints.extend(crates(page, &text, design, exists));
            complaints.extend(libraries(page, &text, design));
            complaints.extend(unsafe_counts(page, &text, design));
            complaints.extend(size(page, &text));
        }
    }
    complaints.extend(glossary::check(root, &types)?);
    Ok(complaints)
}

/// Compares the table of crates with the arrows, and both with the directories of the workspace.
fn crates(
    page: &str,
    text: &str,
    design: &Design,
    exists: impl Fn(&str) -> bool,
) -> Vec<Complaint> {
    let rows = table(text, &["crate", "purpose", "may use"]);
    let expected = design.arrows.iter().map(|(name, uses)| {
        let uses = uses.iter().map(|name| short(name).to_owned());
        ((*name).to_owned(), uses.collect())
    });
    let expected: BTreeMap<String, BTreeSet<String>> = expected.collect();
    let mut complaints = compare(page, &rows, &expected, 2);
    for (name, _) in design.arrows {
        let dir = directory(name);
        if !exists(&format!("{dir}/Cargo.toml")) {
            let text = format!("crate {name} is in the table of borders.rs, but not in {dir}");
            complaints.push(Complaint::new(Path::new(page), 1, text));
        }
    }
    complaints
}

/// Compares the table of restricted libraries.
fn libraries(page: &str, text: &str, design: &Design) -> Vec<Complaint> {
    let rows = table(text, &["library", "crates"]);
    let expected = design.only_in.iter().map(|(library, users)| {
        let users = users.iter().map(|name| short(name).to_owned());
        ((*library).to_owned(), users.collect())
    });
    compare(page, &rows, &expected.collect(), 1)
}

/// Compares the number of files with unsafe code, crate by crate.
fn unsafe_counts(page: &str, text: &str, design: &Design) -> Vec<Complaint> {
    let rows = table(text, &["crate", "files with unsafe code", "for"]);
    let mut expected: BTreeMap<String, usize> = BTreeMap::new();
    for file in design.may_be_unsafe {
        let owner = design.arrows.iter().map(|(name, _)| *name);
        let owner = owner.filter(|name| file.starts_with(&format!("{}/", directory(name))));
        for name in owner {
            *expected.entry(name.to_owned()).or_default() += 1;
        }
    }
    let expected = expected
        .into_iter()
        .map(|(name, count)| (name, BTreeSet::from([count.to_string()])));
    compare(page, &rows, &expected.collect(), 1)
}

/// Compares rows whose first cell names one or several things with what each must have in `column`.
fn compare(
    page: &str,
    rows: &[Row<'_>],
    expected: &BTreeMap<String, BTreeSet<String>>,
    column: usize,
) -> Vec<Complaint> {
    let page = Path::new(page);
    let mut complaints = Vec::new();
    let mut seen = BTreeSet::new();
    for row in rows {
        let listed: BTreeSet<String> = row
            .cells
            .get(column)
            .into_iter()
            .flat_map(|cell| cell.split(','))
            .map(|name| name.trim().to_owned())
            .filter(|name| name != "–")
            .collect();
        for name in row
            .cells
            .first()
            .into_iter()
            .flat_map(|cell| markdown::inline(cell))
        {
            let text = match expected.get(name) {
                None => format!("{name} is not in the table of xtask/src/borders.rs"),
                Some(_) if !seen.insert(name) => format!("{name} has two rows"),
                Some(right) if *right != listed => {
                    let right: Vec<&str> = right.iter().map(String::as_str).collect();
                    let right = if right.is_empty() {
                        "–".to_owned()
                    } else {
                        right.join(", ")
                    };
                    format!("{name}: xtask/src/borders.rs has {right}")
                }
                Some(_) => continue,
            };
            complaints.push(Complaint::new(page, row.line, text));
        }
    }
    let line = rows.first().map_or(1, |row| row.line);
    for name in expected.keys().filter(|name| !seen.contains(name.as_str())) {
        let text = format!("no row for {name}, which is in xtask/src/borders.rs");
        complaints.push(Complaint::new(page, line, text));
    }
    complaints
}

fn table<'a>(text: &'a str, headings: &[&str]) -> Vec<Row<'a>> {
    markdown::table(text, headings).unwrap_or_default()
}

/// The page must stay short, and its lines narrow; tables and pictures too.
fn size(page: &str, text: &str) -> Vec<Complaint> {
    let page = Path::new(page);
    let mut complaints = Vec::new();
    let lines = text.lines().count();
    if lines > MOST_LINES {
        let text = format!("{lines} lines: at most {MOST_LINES}");
        complaints.push(Complaint::new(page, lines, text));
    }
    for (at, line) in text.lines().enumerate() {
        let columns = line.chars().count();
        if columns > WIDTH {
            let text = format!("{columns} columns: at most {WIDTH}");
            complaints.push(Complaint::new(page, at + 1, text));
        }
    }
    complaints
}

/// Paths in inline code and in pictures that do not exist.
fn unknown_paths(
    page: &str,
    text: &str,
    design: &Design,
    exists: impl Fn(&str) -> bool,
) -> Vec<Complaint> {
    let mut complaints = Vec::new();
    for code in markdown::code(text) {
        let words = code.text.split([' ', ',', '(', ')']);
        let words = words.filter(|word| is_path(word, code.is_fenced));
        for word in words {
            let text = match resolve(word, design) {
                None => format!("{word}: write the path with its crate"),
                Some(path) if !exists(&path) => format!("{word} does not exist: {path}"),
                Some(_) => continue,
            };
            complaints.push(Complaint::new(Path::new(page), code.line, text));
        }
    }
    complaints
}

/// Whether a word is the path of a file or a directory of the repository. In a diagram only files
/// count: `fdinfo/` and `/proc/PID` belong to the kernel.
fn is_path(word: &str, is_fenced: bool) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-./".contains(c);
    let extension = Path::new(word).extension().and_then(|text| text.to_str());
    let is_file = matches!(extension, Some("rs" | "md" | "toml" | "py" | "js" | "c"));
    let may_be = !word.starts_with(['/', '-', '.']) && word.chars().all(is_plain);
    may_be && (is_file || (!is_fenced && word.contains('/')))
}

/// The path from the root: `probe/linux/mod.rs` is in the source directory of `fdguard-probe`. A
/// file with the wildcard name resolves to its directory.
fn resolve(word: &str, design: &Design) -> Option<String> {
    let is_of_root = [
        "ARCHITECTURE.md",
        "CHANGELOG.md",
        "CONTRIBUTING.md",
        "README.md",
    ]
    .contains(&word);
    if is_of_root {
        return Some(word.to_owned());
    }
    let (first, rest) = word.split_once('/')?;
    let rest = match rest.rsplit_once('/') {
        Some((dir, file)) if file.split('.').next() == Some(ANY_NAME) => dir,
        None if rest.split('.').next() == Some(ANY_NAME) => "",
        _ => rest,
    };
    let mut names = design.arrows.iter().map(|(name, _)| *name);
    let crate_name = names.find(|name| short(name) == first && name.starts_with("fdguard"));
    Some(crate_name.map_or_else(
        || format!("{first}/{rest}"),
        |name| format!("{}/src/{rest}", directory(name)),
    ))
}

/// Types in inline code and in pictures that no source defines.
fn unknown_types(page: &str, text: &str, types: &BTreeSet<&str>) -> Vec<Complaint> {
    let mut complaints = Vec::new();
    for code in markdown::code(text) {
        // In `What::Open` the type is the first word.
        let paths = code.text.split(|c| !source::in_word(c) && c != ':');
        let words = paths.filter_map(|path| path.split("::").next());
        let words = words.map(|word| word.trim_matches(':'));
        let least = if code.is_fenced { 2 } else { 1 };
        for word in words.filter(|word| humps(word) >= least && !types.contains(word)) {
            let text = format!("no type is called {word}");
            complaints.push(Complaint::new(Path::new(page), code.line, text));
        }
    }
    complaints
}

/// The number of parts of a `CamelCase` word; 0 for anything else, such as a file name or an
/// acronym.
pub(crate) fn humps(word: &str) -> usize {
    let starts_upper = word.starts_with(|c: char| c.is_ascii_uppercase());
    if !starts_upper || word.contains('_') {
        return 0;
    }
    let pairs = word.as_bytes().windows(2);
    pairs
        .filter(|pair| pair[0].is_ascii_uppercase() && pair[1].is_ascii_lowercase())
        .count()
}

/// Every type that a source file defines, tests apart.
fn type_names(sources: &[(PathBuf, String)]) -> BTreeSet<&str> {
    let is_source = |file: &Path| file.components().any(|part| part.as_os_str() == "src");
    let sources = sources.iter().filter(|(file, _)| is_source(file));
    let types = sources.flat_map(|(_, code)| names::definitions(code));
    types.map(|found| found.name).collect()
}

/// Decisions that a page refers to and that do not exist.
fn unknown_decisions(page: &str, text: &str, known: &BTreeSet<String>) -> Vec<Complaint> {
    let mut complaints = Vec::new();
    let starts = text
        .match_indices("ecision ")
        .map(|(at, word)| at + word.len());
    let starts = starts.chain(
        text.match_indices("ecision\n")
            .map(|(at, word)| at + word.len()),
    );
    let plural = text
        .match_indices("ecisions ")
        .map(|(at, word)| at + word.len());
    for start in starts.chain(plural) {
        let words = text[start..].split([' ', '\n']);
        for word in words {
            let number = word.trim_end_matches(|c: char| !c.is_ascii_digit());
            let is_number = number.len() == 3 && number.bytes().all(|byte| byte.is_ascii_digit());
            if is_number && !known.contains(number) {
                let line = source::line(text, start);
                let text = format!("there is no decision {number}");
                complaints.push(Complaint::new(Path::new(page), line, text));
            }
            if !is_number && word != "and" {
                break;
            }
        }
    }
    complaints
}

fn decision_numbers(root: &Path) -> anyhow::Result<BTreeSet<String>> {
    let dir = root.join("docs/design/decisions");
    let mut numbers = BTreeSet::new();
    for entry in std::fs::read_dir(&dir).with_context(|| dir.display().to_string())? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if let Some((number, _)) = name.split_once('-') {
            numbers.insert(number.to_owned());
        }
    }
    Ok(numbers)
}

/// The name of a crate in pages: `fdguard-probe` is `probe`.
fn short(name: &str) -> &str {
    name.strip_prefix("fdguard-").unwrap_or(name)
}

/// The directory of a crate.
fn directory(name: &str) -> String {
    match name {
        "harness-python" => format!("crates/fdguard-preload/{name}"),
        _ if name.starts_with("fdguard") => format!("crates/{name}"),
        _ => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::PathBuf;

    use super::Design;
    use crate::borders::Complaint;

    const DESIGN: Design = Design {
        arrows: &[
            ("fdguard-core", &["fdguard-wire"]),
            ("fdguard", &["fdguard-core"]),
        ],
        only_in: &[
            ("clap", &["fdguard"]),
            ("libc", &["fdguard-core", "fdguard"]),
        ],
        may_be_unsafe: &["crates/fdguard/src/a.rs", "crates/fdguard/src/b.rs"],
    };

    fn texts(complaints: &[Complaint]) -> Vec<String> {
        complaints.iter().map(Complaint::to_string).collect()
    }

    fn crates(rows: &str) -> Vec<String> {
        let text = format!("| crate | purpose | may use |\n| --- | --- | --- |\n{rows}");
        texts(&super::crates("a.md", &text, &DESIGN, |_| true))
    }

    #[test]
    fn the_table_of_crates_must_have_every_arrow() {
        let core = "| `fdguard-core` | model | wire |\n";
        let right = format!("{core}| `fdguard` | command | core |\n");
        assert!(crates(&right).is_empty());
        assert_eq!(
            crates(core),
            ["a.md:3: no row for fdguard, which is in xtask/src/borders.rs"]
        );
        let wrong = format!("{core}| `fdguard` | command | core, wire |\n");
        assert_eq!(
            crates(&wrong),
            ["a.md:4: fdguard: xtask/src/borders.rs has core"]
        );
        let twice = format!("{right}{core}");
        assert_eq!(crates(&twice), ["a.md:5: fdguard-core has two rows"]);
        let more = format!("{right}| `fdguard-moon` | | – |\n");
        let found = "a.md:5: fdguard-moon is not in the table of xtask/src/borders.rs";
        assert_eq!(crates(&more), [found]);
        assert_eq!(crates("").len(), 2);
    }

    #[test]
    fn a_crate_without_a_directory_is_named() {
        let rows = "| crate | purpose | may use |\n| --- | --- | --- |\n\
            | `fdguard-core` | | wire |\n| `fdguard` | | core |\n";
        let is_there = |path: &str| path == "crates/fdguard/Cargo.toml";
        let found = texts(&super::crates("a.md", rows, &DESIGN, is_there));
        assert_eq!(found.len(), 1);
        assert!(found[0].contains("not in crates/fdguard-core"));
    }

    #[test]
    fn the_table_of_libraries_must_be_that_of_the_borders() {
        let head = "| library | crates |\n| --- | --- |\n";
        let check =
            |rows: &str| texts(&super::libraries("a.md", &format!("{head}{rows}"), &DESIGN));
        assert!(check("| `clap` | fdguard |\n| `libc` | core, fdguard |\n").is_empty());
        assert_eq!(check("| `clap`, `libc` | fdguard |\n").len(), 1);
        assert_eq!(check("| `clap` | fdguard |\n").len(), 1);
    }

    #[test]
    fn files_with_unsafe_code_are_counted() {
        let head = "| crate | files with unsafe code | for |\n| --- | --- | --- |\n";
        let check = |rows: &str| {
            texts(&super::unsafe_counts(
                "a.md",
                &format!("{head}{rows}"),
                &DESIGN,
            ))
        };
        assert!(check("| `fdguard` | 2 | forks |\n").is_empty());
        assert_eq!(check("| `fdguard` | 1 | forks |\n").len(), 1);
        assert_eq!(check("").len(), 1);
    }

    #[test]
    fn a_page_that_grew_is_refused() {
        assert!(super::size("a.md", &"ä".repeat(100)).is_empty());
        assert_eq!(super::size("a.md", &"a".repeat(101)).len(), 1);
        assert!(super::size("a.md", &"a\n".repeat(250)).is_empty());
        assert_eq!(
            texts(&super::size("a.md", &"a\n".repeat(251))),
            ["a.md:251: 251 lines: at most 250"]
        );
    }

    #[test]
    fn paths_of_pages_must_exist() {
        let there = [
            "crates/fdguard-core/src/a.rs",
            "docs/b.md",
            "crates/fdguard-core/src/lint",
        ];
        let check = |text: &str| {
            texts(&super::unknown_paths("a.md", text, &DESIGN, |path| {
                there.contains(&path)
            }))
        };
        assert!(check("`core/a.rs`, `docs/b.md`, `core/lint/NAME.rs`, `/proc/1/fd`").is_empty());
        assert!(check("```\nlist fdinfo/ and 1/2   core/a.rs\n```\n").is_empty());
        let gone = "a.md:2: core/gone.rs does not exist: crates/fdguard-core/src/gone.rs";
        assert_eq!(check("\n`core/gone.rs`"), [gone]);
        assert_eq!(check("```\nread   core/gone.rs\n```\n"), [gone]);
        assert_eq!(
            check("`a.rs`"),
            ["a.md:1: a.rs: write the path with its crate"]
        );
        assert_eq!(check("`docs/c/`").len(), 1);
        assert_eq!(check("`core/gone/NAME.rs`").len(), 1);
    }

    #[test]
    fn types_of_pages_must_exist() {
        let code = "pub struct Snapshot {}\nenum TreeEvent {}\npub type RuleTable<T> = T;";
        let sources = [
            (PathBuf::from("crates/a/src/lib.rs"), code.to_owned()),
            (
                PathBuf::from("crates/a/tests/b.rs"),
                "struct Victim;".to_owned(),
            ),
        ];
        let types = super::type_names(&sources);
        assert_eq!(
            types,
            BTreeSet::from(["RuleTable", "Snapshot", "TreeEvent"])
        );
        let check = |text: &str| texts(&super::unknown_types("a.md", text, &types));
        assert!(check("`Snapshot::new`, `TreeEvent::Told`, `EBADF`, Victim").is_empty());
        assert_eq!(check("`Victim`"), ["a.md:1: no type is called Victim"]);
        assert!(check("```\nGroups of OpenAPI and a TreeEvent\n```\n").is_empty());
        assert_eq!(
            check("```\na TreeTold\n```\n"),
            ["a.md:2: no type is called TreeTold"]
        );
    }

    #[test]
    fn decisions_of_pages_must_exist() {
        let known = BTreeSet::from(["001".to_owned(), "002".to_owned()]);
        let check = |text: &str| texts(&super::unknown_decisions("a.md", text, &known));
        assert!(check("Decisions 001 and 002 say so. See decision\n001.").is_empty());
        assert_eq!(
            check("(decision 003)"),
            ["a.md:1: there is no decision 003"]
        );
        assert_eq!(check("\ndecisions 001 and 004").len(), 1);
        assert!(check("a decision of 999 people").is_empty());
    }
}
