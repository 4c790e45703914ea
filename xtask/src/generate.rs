//! Pages generated from the code: man pages from the command line, the index of rules from the
//! tables of rules, the public interface of fdguard-canary from its source. The output is
//! reproducible: no dates, no machine names.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::{Command, CommandFactory as _};
use fdguard::cli::Cli;
use fdguard::report::rules;
use fdguard_core::rule::{Rule, RuleKind, Severity};

use crate::api;

/// The output directory; it must contain nothing else.
const DIR: &str = "docs/generated";

/// Files by their path below the directory.
type Files = BTreeMap<PathBuf, Vec<u8>>;

/// Writes every file, and removes those that are made no more.
pub(crate) fn write(root: &Path) -> anyhow::Result<()> {
    let dir = root.join(DIR);
    let wanted = files(root)?;
    for (name, bytes) in &wanted {
        let path = dir.join(name);
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent)?;
        }
        std::fs::write(&path, bytes).with_context(|| path.display().to_string())?;
    }
    for name in stored(&dir)?
        .keys()
        .filter(|name| !wanted.contains_key(*name))
    {
        std::fs::remove_file(dir.join(name))?;
    }
    Ok(())
}

/// Reports files that are not up to date.
pub(crate) fn check(root: &Path) -> anyhow::Result<Vec<String>> {
    Ok(differences(&files(root)?, &stored(&root.join(DIR))?))
}

fn differences(wanted: &Files, stored: &Files) -> Vec<String> {
    let mut complaints = Vec::new();
    let mut complain = |name: &Path, problem: &str| {
        let path = Path::new(DIR).join(name);
        let remedy = "cargo run -p xtask -- gen";
        complaints.push(format!("{}: {problem}; run {remedy}", path.display()));
    };
    for (name, bytes) in wanted {
        match stored.get(name) {
            None => complain(name, "is missing"),
            Some(old) if old != bytes => complain(name, "is stale"),
            Some(_) => {}
        }
    }
    for name in stored.keys().filter(|name| !wanted.contains_key(*name)) {
        complain(name, "is made by nothing");
    }
    complaints
}

fn stored(dir: &Path) -> anyhow::Result<Files> {
    let mut files = Files::new();
    let mut dirs = vec![dir.to_owned()];
    while let Some(at) = dirs.pop() {
        if !at.exists() {
            continue;
        }
        for entry in std::fs::read_dir(&at)? {
            let path = entry?.path();
            if path.is_dir() {
                dirs.push(path);
            } else {
                let name = path.strip_prefix(dir)?.to_owned();
                files.insert(name, std::fs::read(&path)?);
            }
        }
    }
    Ok(files)
}

fn files(root: &Path) -> anyhow::Result<Files> {
    let mut files = Files::new();
    let mut command = Cli::command().disable_help_subcommand(true);
    command.build();
    add_man_pages(&command, &mut files)?;
    files.insert("rules.md".into(), rules().into_bytes());
    let canary = api::listing(&root.join("crates/fdguard-canary"))?;
    files.insert("canary-api.txt".into(), canary.into_bytes());
    Ok(files)
}

fn add_man_pages(command: &Command, files: &mut Files) -> anyhow::Result<()> {
    let man = clap_mangen::Man::new(command.clone());
    let mut page = Vec::new();
    man.render(&mut page)?;
    files.insert(Path::new("man").join(man.get_filename()), page);
    for verb in command.get_subcommands().filter(|verb| !verb.is_hide_set()) {
        add_man_pages(verb, files)?;
    }
    Ok(())
}

fn rules() -> String {
    let all = rules::all();
    let mut text = String::from("# Rules\n\nEvery rule of fdguard, by kind.\n");
    for kind in RuleKind::ALL {
        let of_kind: Vec<&Rule> = all.iter().copied().filter(|it| it.kind == kind).collect();
        let (title, about) = section(kind);
        text.push_str(&format!("\n## {title}\n\n{about}\n\n{}", table(&of_kind)));
    }
    text
}

/// The heading of a kind, and what its rules examine.
fn section(kind: RuleKind) -> (&'static str, &'static str) {
    match kind {
        RuleKind::Lint => ("Lints", "`fdguard snap` checks a single snapshot."),
        RuleKind::Growth => (
            "Growth rules",
            "`fdguard watch` checks the descriptors of a process over time.",
        ),
        RuleKind::Hazard => (
            "Hazards",
            "`fdguard trace` and `fdguard check` prove misuse from the events of a trace.",
        ),
        RuleKind::Proof => (
            "Proofs",
            "`fdguard check` reports descriptors and processes that a program left behind.",
        ),
        RuleKind::Unit => (
            "Unit rules",
            "`fdguard unit --lint` checks a service definition. See [unit](../guide/unit.md).",
        ),
        RuleKind::Symptom => (
            "Symptoms",
            "`fdguard explain` looks for these in logs. A certain line is critical, a likely one is a\n\
             warning, and one that is only possible or not about a kernel limit is info. See\n\
             [explain](../guide/explain.md).",
        ),
    }
}

fn table(rules: &[&Rule]) -> String {
    let mut text = String::from(
        "| rule | severity | looks for | weakness | requirement |\n\
         | --- | --- | --- | --- | --- |\n",
    );
    for rule in rules {
        let id = rule.id;
        let name = if rule.kind.has_pages() {
            format!("[{id}](../guide/rules/{id}.md)")
        } else {
            id.to_owned()
        };
        let severity = match rule.severity {
            Severity::Info => "info",
            Severity::Warning => "warning",
            Severity::Critical => "critical",
        };
        let cwe = rule
            .cwe
            .map_or_else(|| "–".to_owned(), |cwe| format!("CWE-{cwe}"));
        let summary = rule.summary.replace('|', "\\|");
        let requirement = rule.requirement;
        text.push_str(&format!(
            "| {name} | {severity} | {summary} | {cwe} | {requirement} |\n"
        ));
    }
    text
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{Files, differences, files};

    fn made(files: &[(&str, &str)]) -> Files {
        let owned = |(name, text): &(&str, &str)| (name.into(), text.as_bytes().to_vec());
        files.iter().map(owned).collect()
    }

    #[test]
    fn stale_missing_and_left_over_files_are_named() {
        let wanted = made(&[("a", "1"), ("b", "2"), ("c", "3")]);
        let stored = made(&[("a", "1"), ("b", "old"), ("d", "4")]);
        let found = differences(&wanted, &stored);
        let problems = ["b: is stale", "c: is missing", "d: is made by nothing"];
        assert_eq!(found.len(), problems.len());
        for (found, problem) in found.iter().zip(problems) {
            assert!(
                found.starts_with(&format!("docs/generated/{problem}")),
                "{found}"
            );
        }
    }

    #[test]
    fn the_same_code_gives_the_same_bytes() {
        let root = crate::root().unwrap();
        assert_eq!(files(&root).unwrap(), files(&root).unwrap());
    }

    #[test]
    fn the_index_lists_every_kind_of_rule() {
        let index = super::rules();
        for id in [
            "close-wait-pile",
            "leak",
            "double-close",
            "leftover-process",
        ] {
            assert!(
                index.contains(&format!("| [{id}](../guide/rules/{id}.md) |")),
                "{id}"
            );
        }
        for id in ["systemd-forking", "inotify-watches"] {
            assert!(index.contains(&format!("| {id} | ")), "{id}");
        }
    }

    #[test]
    fn every_verb_has_its_page() {
        let files = files(&crate::root().unwrap()).unwrap();
        for page in [
            "fdguard.1",
            "fdguard-top.1",
            "fdguard-snap.1",
            "fdguard-diff.1",
        ] {
            assert!(files.contains_key(&Path::new("man").join(page)), "{page}");
        }
    }
}
