//! What a trace adds to the doctor's report: the lines, the hazards, and what was open before.

use fdguard_core::diagnosis::Diagnosis;
use fdguard_core::evidence::Holders;
use fdguard_core::lifetimes::report::SiteReport;
use fdguard_core::opened_before::OpenedBefore;

use crate::report::document::{Block, Section};
use crate::report::table::{class_name, counted};
use crate::report::trace::name;
use crate::terminal::{sanitize, sanitize_str};

/// How many lines and kinds are listed; all of them are in the JSON.
const MOST: usize = 20;

/// The sections; none without a trace.
pub(super) fn sections(diagnosis: &Diagnosis) -> impl Iterator<Item = Section> {
    let hazards = diagnosis.hazards.iter().take(MOST).map(|one| {
        let text = format!("pid {}: {}", one.pid, sanitize_str(&one.message));
        Block::note(Some(one.severity), text, Some(&one.rule), Vec::new())
    });
    let sites = diagnosis.sites.iter().flatten();
    let held = sites.filter(|site| site.live > 0).take(MOST).map(site);
    let before = diagnosis.opened_before_attach.iter().flatten();
    let before = before.take(MOST).map(opened_before);
    let sections = [
        Section::of("hazards", hazards.collect()),
        Section::of("lines that opened what is open", held.collect()),
        Section::of("opened before the attach", before.collect()),
    ];
    sections.into_iter().flatten()
}

/// Which objects hold the descriptors.
pub(super) fn holders(of: &Holders) -> Option<Section> {
    let sentences = of.sentences.iter().cloned().map(Block::Sentence);
    Section::of("what holds them", sentences.collect())
}

/// `8 open of 12: store.py:17 save (sqlite-db /srv/state.db)`.
fn site(site: &SiteReport) -> Block {
    let line = name::place(site.culprit.as_ref());
    let class = site.class.as_ref().map(class_name);
    let target = site.target.as_ref().map(sanitize);
    let what: Vec<String> = class.into_iter().chain(target).collect();
    let what = match what.is_empty() {
        true => String::new(),
        false => format!(" ({})", what.join(" ")),
    };
    let (live, opened) = (site.live, site.opened);
    Block::Sentence(format!("{live} open of {opened}: {line}{what}"))
}

fn opened_before(one: &OpenedBefore) -> Block {
    let class = class_name(&one.class);
    let since = one.opened_since.iter().map(|site| {
        let line = name::culprit(&site.culprit);
        format!("; {line} has opened {} more since", site.opened)
    });
    let count = counted(one.count, "descriptor");
    let since: String = since.collect();
    Block::Sentence(format!("{count}: {class} {}{since}", sanitize(&one.target)))
}
