//! Gaps for languages whose lines are not read, one per language.

use std::collections::BTreeSet;

use fdguard_core::Gap;
use fdguard_core::blame::{language_of_program, unread_language};
use fdguard_trace::Site;

/// The gaps of a program of this file name, with these sites.
pub(in crate::command) fn gaps<'a>(
    programs: impl IntoIterator<Item = &'a str>,
    sites: impl IntoIterator<Item = &'a Site>,
) -> Vec<Gap> {
    let name = |path: &'a str| path.rsplit('/').next().unwrap_or(path);
    let by_name = programs
        .into_iter()
        .map(name)
        .filter_map(language_of_program);
    let by_stack = sites
        .into_iter()
        .filter_map(|site| unread_language(&site.stack));
    let languages: BTreeSet<&str> = by_name.chain(by_stack).collect();
    languages.into_iter().map(gap).collect()
}

fn gap(language: &str) -> Gap {
    Gap::new(
        format!("the {language} lines that opened descriptors"),
        format!("fdguard does not read {language} stacks yet"),
        "use class, target and count; the stack shows the interpreter's C functions",
    )
}
