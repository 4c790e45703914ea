//! The width of comments and Markdown: limits the columns of a line.

use std::path::{Path, PathBuf};

use anyhow::Context as _;

use crate::borders::Complaint;
use crate::source;

/// The widest line, in characters.
pub(crate) const WIDTH: usize = 100;

/// Directories without text, or without text of the project.
const SKIPPED: &[&str] = &["target", "node_modules"];
/// Hidden directories that belong to the project.
const HIDDEN: &[&str] = &[".ci", ".config", ".github"];
/// Extensions of files whose comments begin with `#`.
const SCRIPTS: &[&str] = &["py", "sh", "toml", "yml", "yaml"];

/// How a file is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Syntax {
    Rust,
    Script,
    Markdown,
}

/// Checks every file of the project.
pub(crate) fn check(root: &Path) -> anyhow::Result<Vec<Complaint>> {
    let mut complaints = Vec::new();
    for path in files(root)? {
        let bytes = std::fs::read(&path).with_context(|| path.display().to_string())?;
        let Ok(text) = std::str::from_utf8(&bytes) else {
            continue;
        };
        if let Some(syntax) = syntax(&path, text) {
            let file = path.strip_prefix(root).unwrap_or(&path);
            complaints.extend(check_file(file, text, syntax));
        }
    }
    Ok(complaints)
}

fn check_file(file: &Path, text: &str, syntax: Syntax) -> Vec<Complaint> {
    let wide = match syntax {
        Syntax::Rust => wide_comments(text),
        Syntax::Script => wide_script_comments(text),
        Syntax::Markdown => wide_prose(text),
    };
    let complain = |(line, width)| {
        let what = match syntax {
            Syntax::Markdown => "line",
            Syntax::Rust | Syntax::Script => "comment",
        };
        let text = format!("{what} of {width} columns: wrap it at {WIDTH}");
        Complaint::new(file, line, text)
    };
    wide.into_iter().map(complain).collect()
}

fn files(root: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut dirs = vec![root.to_owned()];
    let mut files = Vec::new();
    while let Some(dir) = dirs.pop() {
        for entry in std::fs::read_dir(&dir).with_context(|| dir.display().to_string())? {
            let entry = entry?;
            let name = entry.file_name();
            let name = name.to_string_lossy();
            let kind = entry.file_type()?;
            let is_hidden = name.starts_with('.') && !HIDDEN.contains(&&*name);
            if kind.is_dir() && !is_hidden && !SKIPPED.contains(&&*name) {
                dirs.push(entry.path());
            } else if kind.is_file() {
                files.push(entry.path());
            }
        }
    }
    files.sort();
    Ok(files)
}

fn syntax(path: &Path, text: &str) -> Option<Syntax> {
    let extension = path.extension().unwrap_or_default().to_str()?;
    match extension {
        "rs" => Some(Syntax::Rust),
        "md" => Some(Syntax::Markdown),
        script if SCRIPTS.contains(&script) => Some(Syntax::Script),
        "" if text.starts_with("#!") || path.ends_with("justfile") => Some(Syntax::Script),
        _ => None,
    }
}

/// The lines that are too wide, each with its width, without those that cannot be narrower.
type Wide = Vec<(usize, usize)>;

/// Lines with a `//` comment. Documentation may have tables and fenced code.
fn wide_comments(text: &str) -> Wide {
    let lines: Vec<&str> = text.lines().collect();
    let mut fence = Fence::default();
    let mut last = 0;
    let mut wide = Wide::new();
    for at in source::line_comments(text) {
        let number = source::line(text, at);
        if number != last + 1 {
            fence = Fence::default();
        }
        last = number;
        let line = lines[number - 1];
        let comment = text[at..].lines().next().unwrap_or_default();
        let said = comment.trim_start_matches('/');
        let said = said.strip_prefix('!').unwrap_or(said).trim();
        let is_code = fence.covers(said);
        let width = line.chars().count();
        let is_alone = line.trim_start().starts_with("//");
        let is_fixed = is_code || said.starts_with('|') || (is_alone && is_one_word(said));
        if width > WIDTH && !is_fixed {
            wide.push((number, width));
        }
    }
    wide
}

/// Lines that are a `#` comment.
fn wide_script_comments(text: &str) -> Wide {
    let comments = text.lines().enumerate().filter(|(index, line)| {
        let is_interpreter = *index == 0 && line.starts_with("#!");
        line.trim_start().starts_with('#') && !is_interpreter
    });
    comments
        .filter(|(_, line)| !is_one_word(line.trim_start().trim_start_matches('#').trim()))
        .map(|(index, line)| (index + 1, line.chars().count()))
        .filter(|(_, width)| *width > WIDTH)
        .collect()
}

/// Lines of Markdown that are neither a table, code, nor the target of a link.
fn wide_prose(text: &str) -> Wide {
    let mut fence = Fence::default();
    let mut wide = Wide::new();
    for (index, line) in text.lines().enumerate() {
        let said = line.trim();
        let is_code = fence.covers(said);
        let is_fixed = is_code
            || said.starts_with('|')
            || is_link_target(said)
            || is_one_word(without_marker(said));
        let width = line.chars().count();
        if width > WIDTH && !is_fixed {
            wide.push((index + 1, width));
        }
    }
    wide
}

/// A block of code between fences.
#[derive(Default)]
struct Fence {
    mark: Option<String>,
}

impl Fence {
    /// Whether the line is in the block, or is one of its fences.
    fn covers(&mut self, line: &str) -> bool {
        let length = |mark: char| line.chars().take_while(|c| *c == mark).count();
        match &self.mark {
            Some(mark) => {
                if line.starts_with(mark.as_str()) && line.trim_start_matches(['`', '~']).is_empty()
                {
                    self.mark = None;
                }
                true
            }
            None => {
                let found = ['`', '~'].into_iter().find(|mark| length(*mark) >= 3);
                self.mark = found.map(|mark| mark.to_string().repeat(length(mark)));
                self.mark.is_some()
            }
        }
    }
}

/// `[name]: address`
fn is_link_target(line: &str) -> bool {
    line.starts_with('[')
        && line
            .split_once("]:")
            .is_some_and(|(name, _)| !name.contains("]("))
}

/// The text of a list item or a quotation without its mark.
fn without_marker(line: &str) -> &str {
    let line = line.trim_start_matches(['>', ' ']);
    let line = line.trim_start_matches(|c: char| c.is_ascii_digit());
    let marks = ["- ", "* ", "+ ", ". ", ") "];
    let found = marks.iter().find_map(|mark| line.strip_prefix(mark));
    found.unwrap_or(line).trim()
}

fn is_one_word(text: &str) -> bool {
    !text.contains(char::is_whitespace)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{Syntax, WIDTH, check_file, syntax};
    use crate::borders::Complaint;

    fn found(text: &str, syntax: Syntax) -> Vec<String> {
        let found = check_file(Path::new("a"), text, syntax);
        found.iter().map(Complaint::to_string).collect()
    }

    /// Words of `width` columns in total.
    fn words(width: usize) -> String {
        let text = "word ".repeat(width / 5 + 1);
        let text: String = text.chars().take(width - 1).collect();
        text + "x"
    }

    #[test]
    fn a_line_of_the_full_width_is_fine_and_one_more_is_not() {
        let fits = format!("// {}", words(WIDTH - 3));
        assert_eq!(found(&fits, Syntax::Rust), [""; 0]);
        let wide = format!("fn f() {{}}\n{fits}x");
        assert_eq!(
            found(&wide, Syntax::Rust),
            ["a:2: comment of 101 columns: wrap it at 100"]
        );
    }

    #[test]
    fn columns_are_characters_and_not_bytes() {
        let line = format!("// é {}", words(WIDTH - 5));
        assert!(line.len() > WIDTH);
        assert_eq!(found(&line, Syntax::Rust), [""; 0]);
    }

    #[test]
    fn every_kind_of_comment_counts_and_code_does_not() {
        for mark in ["//", "///", "//!", "    //", "let a = 1; //"] {
            let text = format!("{mark} {}", words(WIDTH));
            assert_eq!(found(&text, Syntax::Rust).len(), 1, "{mark}");
        }
        let code = format!("let a = \"// {}\";", words(WIDTH));
        assert_eq!(found(&code, Syntax::Rust), [""; 0]);
    }

    #[test]
    fn what_cannot_be_broken_may_be_wide() {
        let address = format!("https://example.org/{}", "a".repeat(WIDTH));
        let row = format!("| {} |", words(WIDTH));
        for text in [format!("// {address}"), format!("/// {row}")] {
            assert_eq!(found(&text, Syntax::Rust), [""; 0], "{text}");
        }
        let code = format!("/// ```\n/// {}\n/// ```\n", words(WIDTH));
        assert_eq!(found(&code, Syntax::Rust), [""; 0]);
        let after = format!("{code}/// {}", words(WIDTH));
        assert_eq!(found(&after, Syntax::Rust).len(), 1);
        for text in [
            address.clone(),
            format!("- {address}"),
            format!("1. {address}"),
            format!("[name]: {address} \"title\""),
            row,
            format!("```console\n{}\n```", words(WIDTH)),
            format!("~~~~\n```\n{}\n~~~~", words(WIDTH)),
        ] {
            assert_eq!(found(&text, Syntax::Markdown), [""; 0], "{text}");
        }
    }

    #[test]
    fn wide_markdown_is_found_with_its_line() {
        let text = format!("# Title\n\n```\ncode\n```\n- {}\n> {0}", words(WIDTH));
        assert_eq!(
            found(&text, Syntax::Markdown),
            [
                "a:6: line of 102 columns: wrap it at 100",
                "a:7: line of 102 columns: wrap it at 100",
            ]
        );
    }

    #[test]
    fn comments_of_scripts_count() {
        let text = format!("#!/bin/sh {0}\n# {0}\necho {0}\n  # {0}", words(WIDTH));
        let lines = found(&text, Syntax::Script);
        assert_eq!(lines.len(), 2);
        assert!(lines[0].starts_with("a:2: ") && lines[1].starts_with("a:4: "));
    }

    #[test]
    fn a_script_is_known_by_its_ending_or_its_first_line() {
        let of = |path: &str, text: &str| syntax(Path::new(path), text);
        assert_eq!(of("a.py", ""), Some(Syntax::Script));
        assert_eq!(
            of("bench/run", "#!/usr/bin/env python3"),
            Some(Syntax::Script)
        );
        assert_eq!(of("justfile", ""), Some(Syntax::Script));
        assert_eq!(of("fuzz/a.rs", "#![no_main]"), Some(Syntax::Rust));
        assert_eq!(of("a.md", ""), Some(Syntax::Markdown));
        assert_eq!(of("LICENSE-MIT", "MIT License"), None);
    }
}
