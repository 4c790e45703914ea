//! Compares the glossary with the sources: each word once, each type and each JSON key exists.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::Context as _;

use crate::borders::Complaint;
use crate::{markdown, source};

const PAGE: &str = "docs/guide/glossary.md";
const HEADINGS: [&str; 4] = ["word", "meaning", "type", "JSON key"];
/// Pages that list every key of the JSON documents.
const KEYS: [&str; 2] = ["docs/guide/json.md", "docs/guide/host-api.md"];

/// Checks the glossary under `root`.
pub(crate) fn check(root: &Path, types: &BTreeSet<&str>) -> anyhow::Result<Vec<Complaint>> {
    let read = |page: &str| std::fs::read_to_string(root.join(page)).context(page.to_owned());
    let keys = KEYS.map(read).into_iter().collect::<Result<Vec<_>, _>>()?;
    Ok(words(&read(PAGE)?, types, &keys.concat()))
}

fn words(text: &str, types: &BTreeSet<&str>, keys: &str) -> Vec<Complaint> {
    let page = Path::new(PAGE);
    let Some(rows) = markdown::table(text, &HEADINGS) else {
        let text = format!("no table with the columns {}", HEADINGS.join(", "));
        return vec![Complaint::new(page, 1, text)];
    };
    let mut complaints = Vec::new();
    let mut lines: BTreeMap<&str, usize> = BTreeMap::new();
    for row in rows {
        let mut complain = |text: String| complaints.push(Complaint::new(page, row.line, text));
        let [word, _meaning, kind, key] = row.cells.as_slice() else {
            complain(format!("{} columns in place of 4", row.cells.len()));
            continue;
        };
        for one in word.split(',').map(str::trim) {
            if let Some(first) = lines.insert(one, row.line) {
                complain(format!("{one} has a row already: line {first}"));
            }
        }
        for one in markdown::inline(kind).filter(|one| !types.contains(one)) {
            complain(format!("no type is called {one}"));
        }
        for one in markdown::inline(key) {
            let is_listed = |part: &str| source::whole_words(keys, part).next().is_some();
            let mut parts = one.split(['.', '[', ']']).filter(|part| !part.is_empty());
            if !parts.all(is_listed) {
                complain(format!("{one} is on none of the pages {}", KEYS.join(", ")));
            }
        }
        if kind.is_empty() || key.is_empty() {
            complain("an empty cell: write –".to_owned());
        }
    }
    complaints
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use crate::borders::Complaint;

    fn words(rows: &str) -> Vec<String> {
        let head = "| word | meaning | type | JSON key |\n| --- | --- | --- | --- |\n";
        let types = BTreeSet::from(["Gap", "Snapshot"]);
        let found = super::words(&format!("{head}{rows}"), &types, "`gaps: [{what}]`, `fd`");
        found.iter().map(Complaint::to_string).collect()
    }

    #[test]
    fn each_word_has_one_row() {
        let gap = "| gap | what could not be read | `Gap` | `gaps` |\n";
        assert!(words(gap).is_empty());
        let twice = format!("{gap}| snapshot, gap | | `Snapshot` | – |\n");
        assert_eq!(
            words(&twice),
            ["docs/guide/glossary.md:4: gap has a row already: line 3"]
        );
    }

    #[test]
    fn each_type_and_each_key_exists() {
        assert!(words("| fd | a number | – | `fd`, `gaps[].what` |\n").is_empty());
        let found = words("| told | | `Told` | `said` |\n");
        assert_eq!(found.len(), 2);
        assert!(found[0].ends_with("no type is called Told"));
        assert!(found[1].contains("said is on none of the pages"));
    }

    #[test]
    fn a_table_of_another_shape_is_refused() {
        let types = BTreeSet::new();
        assert_eq!(super::words("| word | meaning |\n", &types, "").len(), 1);
        assert_eq!(words("| a | b | – |\n").len(), 1);
        assert_eq!(words("| a | b | – | |\n").len(), 1);
    }
}
