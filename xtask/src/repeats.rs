//! Product code that stands in two places: runs of eight or more equal lines. One of the two can
//! usually use the other.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::path::{Component, Path, PathBuf};

use crate::borders::Complaint;
use crate::source;

/// As many equal lines are a pair.
const LEAST: usize = 8;

/// The pairs that stay, and why. This is the maximum: any other pair is refused.
const ALLOWED: &[AllowedRepeat] = &[AllowedRepeat {
    first: "crates/fdguard-probe/src/linux/socket_entry.rs",
    second: "crates/fdguard-probe/src/parse/diag.rs",
    reason: "the fields of one variant: one file fills them, the other takes them apart",
}];

/// Two files that may share lines.
struct AllowedRepeat {
    first: &'static str,
    second: &'static str,
    reason: &'static str,
}

/// The code of a file: its lines with their numbers, without what says nothing.
struct CodeFile<'a> {
    path: &'a Path,
    lines: Vec<(usize, &'a str)>,
}

/// Two places with the same lines.
#[derive(Debug, PartialEq, Eq)]
struct Repeat<'a> {
    first: CodePlace<'a>,
    second: CodePlace<'a>,
    lines: usize,
}

/// The first and the last line of a place.
#[derive(Debug, PartialEq, Eq)]
struct CodePlace<'a> {
    path: &'a Path,
    from: usize,
    to: usize,
}

impl fmt::Display for CodePlace<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}-{}", self.path.display(), self.from, self.to)
    }
}

impl Repeat<'_> {
    /// Why it stays.
    fn reason(&self) -> Option<&'static str> {
        let is_it = |one: &&AllowedRepeat| {
            self.first.path == Path::new(one.first) && self.second.path == Path::new(one.second)
        };
        ALLOWED.iter().find(is_it).map(|one| one.reason)
    }
}

/// What was counted.
#[derive(Debug)]
pub(crate) struct RepeatReport {
    /// Lines of product code by crate, without tests, comments and blank lines.
    lines: BTreeMap<String, usize>,
    /// A line for each pair.
    pairs: Vec<String>,
    /// Pairs that the list does not allow, and entries of the list without a pair.
    pub(crate) complaints: Vec<Complaint>,
}

impl fmt::Display for RepeatReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for pair in &self.pairs {
            writeln!(f, "{pair}")?;
        }
        for (name, lines) in &self.lines {
            writeln!(f, "{lines:>7} {name}")?;
        }
        let lines: usize = self.lines.values().sum();
        let pairs = self.pairs.len();
        writeln!(f, "{lines:>7} lines of product code")?;
        writeln!(f, "{pairs:>7} pairs of {LEAST} or more equal lines")
    }
}

/// Looks for pairs in the product code among the sources, which are complete.
pub(crate) fn find(sources: &[(PathBuf, String)], tests: &BTreeSet<PathBuf>) -> RepeatReport {
    let product = || {
        let is_product = |path: &Path| is_product(path, tests);
        sources.iter().filter(move |(path, _)| is_product(path))
    };
    let mut lines: BTreeMap<String, usize> = BTreeMap::new();
    for (path, text) in product() {
        *lines.entry(crate_of(path)).or_default() += code_lines(text).len();
    }
    let files: Vec<CodeFile<'_>> = product()
        .map(|(path, text)| CodeFile {
            path,
            lines: telling_lines(text),
        })
        .collect();
    let repeats = repeats(&files);
    RepeatReport {
        lines,
        pairs: repeats.iter().map(shown).collect(),
        complaints: complaints(&repeats),
    }
}

fn shown(repeat: &Repeat<'_>) -> String {
    let Repeat {
        first,
        second,
        lines,
    } = repeat;
    let reason = repeat.reason().map(|reason| format!(": {reason}"));
    let reason = reason.unwrap_or_default();
    format!("{first} ~ {second}, {lines} lines{reason}")
}

fn complaints(repeats: &[Repeat<'_>]) -> Vec<Complaint> {
    let mut complaints = Vec::new();
    for repeat in repeats.iter().filter(|one| one.reason().is_none()) {
        let text = format!(
            "{} lines as in {}: write them once, or give the reason in xtask/src/repeats.rs",
            repeat.lines, repeat.second
        );
        complaints.push(Complaint::new(repeat.first.path, repeat.first.from, text));
    }
    for allowed in ALLOWED {
        let (first, second) = (Path::new(allowed.first), Path::new(allowed.second));
        let is_it = |one: &Repeat<'_>| one.first.path == first && one.second.path == second;
        // Each entry is one pair.
        for more in repeats.iter().filter(|one| is_it(one)).skip(1) {
            let text = format!("one more pair with {}", more.second);
            complaints.push(Complaint::new(first, more.first.from, text));
        }
        if !repeats.iter().any(is_it) {
            let text = format!(
                "shares no lines with {}: remove it from xtask/src/repeats.rs",
                allowed.second
            );
            complaints.push(Complaint::new(first, 1, text));
        }
    }
    complaints
}

/// The crate in whose directory a file is.
fn crate_of(path: &Path) -> String {
    let name = path.iter().nth(1).unwrap_or_default();
    name.to_string_lossy().into_owned()
}

/// Whether it is code of a crate and not of its tests.
fn is_product(path: &Path, tests: &BTreeSet<PathBuf>) -> bool {
    let parts: Vec<_> = path.components().map(Component::as_os_str).collect();
    let is_source = parts.len() > 3 && parts[0] == "crates" && parts[2] == "src";
    // A module of tests may have modules of its own.
    let is_test = |module: &Path| {
        tests.contains(&module.with_extension("rs")) || tests.contains(&module.join("mod.rs"))
    };
    is_source && !tests.contains(path) && !path.ancestors().skip(1).any(is_test)
}

/// The lines of code with their numbers: without comments, blank lines and tests. Strings stay.
fn code_lines(text: &str) -> Vec<(usize, &str)> {
    let code = source::code_only(text);
    let tests = source::test_only(&code).stretches;
    let mut is_test = vec![false; code.lines().count() + 2];
    for stretch in tests {
        let lines = source::line(&code, stretch.start)..=source::line(&code, stretch.end);
        is_test[lines].fill(true);
    }
    let mut comments = source::line_comments(text).into_iter().peekable();
    let mut start = 0;
    let mut found = Vec::new();
    for (index, line) in text.split_inclusive('\n').enumerate() {
        let comment = comments.next_if(|at| *at < start + line.len());
        let length = comment.map_or(line.len(), |at| at - start);
        let line_of_code = line[..length].trim();
        if !line_of_code.is_empty() && !is_test[index + 1] {
            found.push((index + 1, line_of_code));
        }
        start += line.len();
    }
    found
}

/// The lines of code that say something: without lone braces, `use` and attributes.
fn telling_lines(text: &str) -> Vec<(usize, &str)> {
    let mut left_out = Unfinished::No;
    let is_telling = |(_, line): &(usize, &str)| {
        if matches!(left_out, Unfinished::No) {
            left_out = Unfinished::start(line);
        }
        let is_left_out = !matches!(left_out, Unfinished::No);
        left_out = left_out.after(line);
        !is_left_out && !matches!(*line, "{" | "}")
    };
    let mut lines = code_lines(text);
    let mut is_telling = is_telling;
    lines.retain(|line| is_telling(line));
    lines
}

/// Something of several lines that is left out.
#[derive(Clone, Copy)]
enum Unfinished {
    No,
    Import,
    Attribute,
}

impl Unfinished {
    fn start(line: &str) -> Self {
        let item = match line.strip_prefix("pub") {
            Some(rest) => rest.trim_start_matches(|c: char| c != ' ').trim_start(),
            None => line,
        };
        if line.starts_with("#[") || line.starts_with("#![") {
            Self::Attribute
        } else if item.starts_with("use ") {
            Self::Import
        } else {
            Self::No
        }
    }

    fn after(self, line: &str) -> Self {
        let end = match self {
            Self::No => return self,
            Self::Import => ';',
            Self::Attribute => ']',
        };
        if line.ends_with(end) { Self::No } else { self }
    }
}

/// A place among the files: the index of the file, and of a line that says something.
type LineIndex = (usize, usize);

/// Every pair of places, each as long as it goes, in the order of the files.
fn repeats<'a>(files: &[CodeFile<'a>]) -> Vec<Repeat<'a>> {
    let mut places: HashMap<Vec<&str>, Vec<LineIndex>> = HashMap::new();
    for (file, code) in files.iter().enumerate() {
        for (line, run) in code.lines.windows(LEAST).enumerate() {
            let run = run.iter().map(|(_, text)| *text).collect();
            places.entry(run).or_default().push((file, line));
        }
    }
    let mut found: Vec<(LineIndex, LineIndex, usize)> = Vec::new();
    for places in places.values() {
        for (index, first) in places.iter().enumerate() {
            let others = places[index + 1..].iter();
            found.extend(others.filter_map(|second| repeat_at(files, *first, *second)));
        }
    }
    found.sort_unstable();
    let place = |(file, line): LineIndex, lines: usize| {
        let code = &files[file];
        CodePlace {
            path: code.path,
            from: code.lines[line].0,
            to: code.lines[line + lines - 1].0,
        }
    };
    let repeat = |(first, second, lines)| Repeat {
        first: place(first, lines),
        second: place(second, lines),
        lines,
    };
    found.into_iter().map(repeat).collect()
}

/// The pair that begins at these two places; `None` if it began before, or is one place twice.
fn repeat_at(
    files: &[CodeFile<'_>],
    first: LineIndex,
    second: LineIndex,
) -> Option<(LineIndex, LineIndex, usize)> {
    let text = |(file, line): LineIndex| files[file].lines.get(line).map(|(_, text)| *text);
    let before = |(file, line): LineIndex| text((file, line.checked_sub(1)?));
    if before(first).is_some() && before(first) == before(second) {
        return None;
    }
    let after = |(file, line): LineIndex, lines| text((file, line + lines));
    let is_equal = |lines: &usize| {
        after(first, *lines).is_some() && after(first, *lines) == after(second, *lines)
    };
    let lines = (0..).take_while(is_equal).count();
    let is_same_file = first.0 == second.0;
    let lines = lines.min(if is_same_file {
        second.1 - first.1
    } else {
        lines
    });
    (lines >= LEAST).then_some((first, second, lines))
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};
    use std::path::PathBuf;

    use super::{RepeatReport, find, telling_lines};

    const RUN: &str =
        "    a();\n    b();\n    c();\n    d();\n    e();\n    f();\n    g();\n    h();\n";

    fn report(files: &[(&str, String)]) -> RepeatReport {
        let sources: Vec<(PathBuf, String)> = files
            .iter()
            .map(|(path, text)| (PathBuf::from(path), text.clone()))
            .collect();
        find(
            &sources,
            &BTreeSet::from([PathBuf::from("crates/a/src/tests.rs")]),
        )
    }

    #[test]
    fn eight_equal_lines_are_a_pair_and_seven_are_not() {
        let other = |run: &str| {
            report(&[
                ("crates/a/src/lib.rs", format!("fn one() {{\n{RUN}}}\n")),
                ("crates/b/src/lib.rs", format!("fn two() {{\n{run}}}\n")),
            ])
        };
        let found = other(RUN);
        assert_eq!(
            found.pairs,
            ["crates/a/src/lib.rs:2-9 ~ crates/b/src/lib.rs:2-9, 8 lines"]
        );
        let lines = [("a".to_owned(), 10), ("b".to_owned(), 10)];
        assert_eq!(found.lines, BTreeMap::from(lines));
        let complaint = found.complaints[0].to_string();
        assert!(
            complaint.starts_with("crates/a/src/lib.rs:2: 8 lines as in crates/b/src/lib.rs:2-9"),
            "{complaint}"
        );
        assert!(other(&RUN.replace("h()", "x()")).pairs.is_empty());
        let with_comments = RUN.replace("d();\n", "d(); // why\n\n    // more\n}\n");
        assert_eq!(other(&with_comments).pairs.len(), 1);
        let strings = RUN.replace("d()", "d(\"// x\")");
        assert!(other(&strings).pairs.is_empty());
    }

    #[test]
    fn a_longer_run_is_one_pair_and_a_run_in_three_places_is_three() {
        let long = format!("{RUN}    i();\n    j();\n");
        let both = ("crates/a/src/lib.rs", format!("{long}    k();\n{long}"));
        let found = report(std::slice::from_ref(&both));
        assert_eq!(
            found.pairs,
            ["crates/a/src/lib.rs:1-10 ~ crates/a/src/lib.rs:12-21, 10 lines"]
        );
        let found = report(&[both, ("crates/b/src/lib.rs", long)]);
        assert_eq!(found.pairs.len(), 3);
        let same = ("crates/a/src/lib.rs", "    a();\n".repeat(15));
        assert!(report(&[same]).pairs.is_empty(), "it would overlap itself");
    }

    #[test]
    fn tests_and_other_directories_do_not_count() {
        let found = report(&[
            ("crates/a/src/lib.rs", RUN.to_owned()),
            ("crates/a/src/tests.rs", RUN.to_owned()),
            ("crates/a/src/tests/more.rs", RUN.to_owned()),
            ("crates/a/tests/suite.rs", RUN.to_owned()),
            ("xtask/src/main.rs", RUN.to_owned()),
            (
                "crates/b/src/lib.rs",
                format!("#[cfg(test)]\nmod tests {{\n{RUN}}}\n"),
            ),
        ]);
        assert!(found.pairs.is_empty(), "{found}");
        let lines = [("a".to_owned(), 8), ("b".to_owned(), 0)];
        assert_eq!(found.lines, BTreeMap::from(lines));
    }

    #[test]
    fn what_says_nothing_is_left_out() {
        let text = "#![expect(\n    dead_code,\n    reason = \"x\"\n)]\npub(crate) use a::{\n    B,\n};\n\
                    /// Doc.\n#[derive(Debug)]\npub struct A {\n    b: B, // why\n}\n\n{\n    user(\"#[x\");\n}\n";
        let lines: Vec<&str> = telling_lines(text)
            .into_iter()
            .map(|(_, line)| line)
            .collect();
        assert_eq!(lines, ["pub struct A {", "b: B,", "user(\"#[x\");"]);
    }

    #[test]
    fn every_pair_of_the_workspace_has_a_reason() {
        let found = crate::borders::repeats(&crate::root().unwrap()).unwrap();
        let complaints: Vec<String> = found.complaints.iter().map(ToString::to_string).collect();
        assert!(complaints.is_empty(), "{complaints:#?}");
    }
}
