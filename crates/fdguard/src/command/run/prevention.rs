//! Reports what protection prevented or detected too late: each place in the code once, or each
//! time.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;

use fdguard_core::Gap;
use fdguard_core::hazard::{Hazard, Party};
use fdguard_core::units::counted;
use fdguard_trace::{ReportPolicy, UntracedProgram};

use crate::report::diagnosis;
use crate::report::trace::hazard;
use crate::terminal;

/// Hazards already reported, by place.
#[derive(Debug, Default)]
pub(super) struct ReportedHazards(BTreeMap<Key, u64>);

/// A hazard to report.
#[derive(Debug)]
pub(super) struct News<'h> {
    pub(super) hazard: &'h Hazard,
    /// In total.
    pub(super) count: u64,
    /// Since the last report; 0 at a new place.
    pub(super) more: u64,
}

impl ReportedHazards {
    /// What is new at this level.
    pub(super) fn news<'h>(
        &mut self,
        report: ReportPolicy,
        hazards: &'h [Hazard],
    ) -> Vec<News<'h>> {
        let mut now: BTreeMap<Key, (&Hazard, u64)> = BTreeMap::new();
        let is_told = |one: &&Hazard| one.prevented || HARM.contains(&one.rule.as_str());
        for one in hazards.iter().filter(is_told) {
            now.entry(key(one)).or_insert((one, 0)).1 += one.count;
        }
        let mut news = Vec::new();
        for (key, (hazard, count)) in now {
            let before = self.0.insert(key, count).unwrap_or(0);
            let is_more = report == ReportPolicy::Always && count > before.max(1);
            if before == 0 {
                news.push(News {
                    hazard,
                    count: if is_more { 1 } else { count },
                    more: 0,
                });
            }
            if is_more {
                news.push(News {
                    hazard,
                    count,
                    more: count - before.max(1),
                });
            }
        }
        news
    }
}

/// Reports to people on stderr.
#[derive(Debug)]
pub(super) struct PreventionReporter {
    report: ReportPolicy,
    told: ReportedHazards,
    unprotected: BTreeSet<u32>,
}

/// Misuse that is reported even if it was detected too late to prevent it.
const HARM: [&str; 4] = [
    "double-close",
    "recycled-write",
    "stranger-close",
    "use-after-close",
];

/// Reports with the same key are merged: the kind and the places in the code, in any process.
type Key = (bool, String, [String; 3]);

impl PreventionReporter {
    pub(super) fn new(report: ReportPolicy) -> Self {
        Self {
            report,
            told: ReportedHazards::default(),
            unprotected: BTreeSet::new(),
        }
    }

    /// Reports each process once that executed a program without the library.
    pub(super) fn tell_unprotected(&mut self, became: &BTreeMap<u32, UntracedProgram>) {
        for (pid, one) in became {
            if self.unprotected.insert(*pid) {
                let comm = terminal::sanitize_str(&one.comm);
                let why = one.blind.why();
                drop(writeln!(
                    anstream::stderr(),
                    "fdguard: not protected: {comm} (pid {pid}): {why}"
                ));
            }
        }
    }

    /// Reports what is new.
    pub(super) fn tell(&mut self, hazards: &[Hazard]) {
        let text = self.text(hazards, diagnosis::columns(terminal::width()));
        // If stderr is gone there is nowhere to report it.
        drop(anstream::stderr().write_all(&text));
    }

    fn text(&mut self, hazards: &[Hazard], width: usize) -> Vec<u8> {
        let mut out = Vec::new();
        for News {
            hazard,
            count,
            more,
        } in self.told.news(self.report, hazards)
        {
            // Writing to memory does not fail.
            if more == 0 {
                drop(hazard::write(&mut out, hazard, None, width));
            } else {
                let what = if hazard.prevented {
                    "prevented"
                } else {
                    "happened"
                };
                drop(writeln!(
                    out,
                    "fdguard: {} {what} {more} more times, {count} in all: {}",
                    hazard.rule,
                    terminal::sanitize_str(&hazard.message)
                ));
            }
        }
        out
    }

    /// Prints one line at the end.
    pub(super) fn conclude(&self, counts: &BTreeMap<&'static str, u64>, gaps: &[Gap]) {
        let mut out = Vec::new();
        let all: u64 = counts.values().sum();
        if all > 0 {
            let parts: Vec<String> = counts
                .iter()
                .map(|(rule, count)| format!("{count} {rule}"))
                .collect();
            drop(writeln!(
                out,
                "fdguard: prevented {}: {}",
                counted(all, "time"),
                parts.join(", ")
            ));
            for gap in gaps.iter().filter(|gap| gap.what.contains("hazards")) {
                drop(writeln!(
                    out,
                    "fdguard: not reported: {}: {}",
                    gap.what, gap.why
                ));
            }
        }
        drop(anstream::stderr().write_all(&out));
    }
}

fn key(hazard: &Hazard) -> Key {
    let place = |party: &Option<Party>| {
        let culprit = party.as_ref().and_then(|party| party.culprit.as_ref());
        culprit.map_or_else(String::new, |culprit| format!("{culprit:?}"))
    };
    let places = [&hazard.opener, &hazard.closer, &hazard.user].map(place);
    (hazard.prevented, hazard.rule.clone(), places)
}

#[cfg(test)]
mod tests {
    use fdguard_core::hazard::Hazard;
    use fdguard_trace::ReportPolicy;

    use super::PreventionReporter;
    use crate::report::trace::testing::hazard;

    fn said(teller: &mut PreventionReporter, hazards: &[Hazard]) -> String {
        let bytes = anstream::adapter::strip_bytes(&teller.text(hazards, 100)).into_vec();
        String::from_utf8(bytes).unwrap()
    }

    fn prevented(count: u64) -> Hazard {
        Hazard {
            prevented: true,
            count,
            ..hazard()
        }
    }

    #[test]
    fn what_came_too_late_to_be_prevented_is_told_as_it_is() {
        let mut teller = PreventionReporter::new(ReportPolicy::Once);
        let other = Hazard {
            rule: "exhaustion".to_owned(),
            ..hazard()
        };
        assert_eq!(said(&mut teller, &[other]), "");
        let told = said(&mut teller, &[hazard()]);
        assert!(told.starts_with("critical double-close  fd 9"), "{told}");
    }

    #[test]
    fn once_is_once_a_place() {
        let mut teller = PreventionReporter::new(ReportPolicy::Once);
        let first = said(&mut teller, &[prevented(3)]);
        assert!(
            first.starts_with("critical double-close  prevented: fd 9"),
            "{first}"
        );
        assert_eq!(said(&mut teller, &[prevented(5)]), "");
    }

    #[test]
    fn always_counts_every_time() {
        let mut teller = PreventionReporter::new(ReportPolicy::Always);
        let first = said(&mut teller, &[prevented(1)]);
        assert!(!first.contains("more times"), "{first}");
        let more = said(&mut teller, &[prevented(4)]);
        assert!(
            more.starts_with("fdguard: double-close prevented 3 more times, 4 in all: "),
            "{more}"
        );
        assert_eq!(said(&mut teller, &[prevented(4)]), "");
    }
}
