//! Checks that the command accepts every example in the README and the guide.

use std::path::{Path, PathBuf};

use clap::Parser as _;
use clap::error::ErrorKind;
use fdguard::cli::Cli;

/// Prefixes of examples that run the fdguard command.
const STARTS: [&str; 2] = ["fdguard ", "cargo run --release -- "];

/// A command of a page, with its line.
#[derive(Debug)]
struct Example {
    line: usize,
    words: Vec<String>,
}

/// The examples in the `console` blocks of a page, with an optional `$ ` or `# ` prompt and `sudo`.
/// After a line with `$ `, lines without a prompt are output.
fn examples(page: &str) -> Vec<Example> {
    let mut found = Vec::new();
    let (mut inside, mut has_prompt) = (false, false);
    for (at, line) in page.lines().enumerate() {
        if let Some(language) = line.trim_start().strip_prefix("```") {
            inside = !inside && language.trim() == "console";
            has_prompt = false;
        } else if inside {
            let prompt = line.trim_start().starts_with("$ ");
            has_prompt |= prompt;
            let words = arguments(line).filter(|_| prompt || !has_prompt);
            found.extend(words.map(|words| Example {
                line: at + 1,
                words,
            }));
        }
    }
    found
}

/// The arguments, up to a comment, a pipe or a redirection.
fn arguments(line: &str) -> Option<Vec<String>> {
    let line = line.trim_start();
    let line = line
        .strip_prefix("$ ")
        .or_else(|| line.strip_prefix("# "))
        .unwrap_or(line);
    let line = line.strip_prefix("sudo ").unwrap_or(line);
    let rest = STARTS.iter().find_map(|start| line.strip_prefix(start))?;
    let words = rest
        .split_whitespace()
        .take_while(|word| !matches!(*word, "#" | "|" | ">" | "<" | ";" | "&" | "&&" | "||"))
        .map(number_for_shell);
    Some(std::iter::once("fdguard".to_owned()).chain(words).collect())
}

/// A shell would put a process number here, and take quotes away.
fn number_for_shell(word: &str) -> String {
    let word = word.trim_matches(['"', '\'']);
    if word.starts_with('$') { "1" } else { word }.to_owned()
}

fn pages() -> Vec<PathBuf> {
    let root = crate::root().unwrap();
    let mut pages = vec![root.join("README.md"), root.join("CONTRIBUTING.md")];
    for dir in ["docs/guide", "docs/guide/rules"] {
        let listing = std::fs::read_dir(root.join(dir)).unwrap();
        let paths = listing.map(|entry| entry.unwrap().path());
        pages.extend(paths.filter(|path| path.extension().is_some_and(|end| end == "md")));
    }
    pages
}

#[test]
fn every_example_is_something_that_the_command_takes() {
    let mut count = 0;
    for page in pages() {
        let text = std::fs::read_to_string(&page).unwrap();
        for Example { line, words } in examples(&text) {
            count += 1;
            let problem = match Cli::try_parse_from(&words) {
                Ok(_) => None,
                Err(error) if error.kind() == ErrorKind::DisplayHelp => None,
                Err(error) if error.kind() == ErrorKind::DisplayVersion => None,
                Err(error) => Some(error.to_string()),
            };
            assert_eq!(problem, None, "{}:{line}: {words:?}", page.display());
        }
    }
    assert!(
        count > 10,
        "only {count} examples found: is the reader of pages broken?"
    );
}

#[test]
fn every_class_has_its_row_in_the_guide() {
    let page = crate::root().unwrap().join("docs/guide/classes.md");
    let text = std::fs::read_to_string(page).unwrap();
    let listed: Vec<&str> = text
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split_once('`'))
        .map(|(name, _)| name)
        .collect();
    let mut expected: Vec<&str> = fdguard_core::class::NAMES
        .iter()
        .map(|(_, name)| *name)
        .collect();
    expected.push("other:RAWNAME");
    assert_eq!(listed, expected);
}

#[test]
fn every_playbook_of_the_guide_can_be_read() {
    let page = crate::root().unwrap().join("docs/guide/playbook.md");
    let text = std::fs::read_to_string(page).unwrap();
    let blocks = text.split("```toml\n").skip(1);
    let blocks: Vec<&str> = blocks.filter_map(|rest| rest.split("```").next()).collect();
    assert_eq!(blocks.len(), 2);
    for block in blocks {
        let read = fdguard_core::playbook::Playbook::parse(block);
        assert!(read.is_ok(), "{read:?}");
    }
}

#[test]
fn every_link_of_a_page_leads_somewhere() {
    let root = crate::root().unwrap();
    let mut linked = pages();
    linked.extend(["ARCHITECTURE.md", "CHANGELOG.md"].map(|page| root.join(page)));
    let design = std::fs::read_dir(root.join("docs/design")).unwrap();
    let design = design.map(|entry| entry.unwrap().path());
    linked.extend(design.filter(|path| path.is_file()));
    for page in linked {
        let text = std::fs::read_to_string(&page).unwrap();
        for link in links(&text) {
            let dir = page.parent().unwrap();
            assert!(dir.join(link).exists(), "{}: {link}", page.display());
        }
    }
}

/// The relative targets of `[text](target)`, without the part after a `#`.
fn links(text: &str) -> impl Iterator<Item = &str> {
    text.split("](").skip(1).filter_map(|rest| {
        let target = rest.split_once(')')?.0;
        let path = target.split('#').next()?;
        (!path.is_empty() && !target.contains("://") && !Path::new(path).is_absolute())
            .then_some(path)
    })
}

#[test]
fn commands_are_found_in_console_blocks_only() {
    let page = "fdguard snap 1\n```console\n$ sudo fdguard snap $PID --fds | head\nfdguard (pid 1)\n```\n```\nfdguard top\n```\n";
    let found = examples(page);
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].line, 3);
    assert_eq!(found[0].words, ["fdguard", "snap", "1", "--fds"]);
}

#[test]
fn links_are_found_without_their_anchors() {
    let text = "[a](b.md#c) [d](https://e.org/) [f](#g) [h](../i.md)";
    assert_eq!(links(text).collect::<Vec<_>>(), ["b.md", "../i.md"]);
}
