//! What the user accepts, `--allow` and `[[cleared]]`, applied to all findings of a trace or a
//! check.

use jiff::civil::Date;

use super::{Allowance, Remains};
use crate::Text;
use crate::config::{Suppression, SuppressionQuery, Suppressions};
use crate::finding::{ClearedNote, Finding};
use crate::hazard::{Fault, Hazard, Party};
use crate::origin::Frame;
use crate::rule::RuleSettings;

/// Everything accepted in advance.
#[derive(Clone, Copy, Debug)]
pub struct Clearance<'a> {
    allow: &'a [Allowance],
    suppressions: &'a Suppressions,
    today: Date,
}

impl<'a> Clearance<'a> {
    /// From the command line and the user's file.
    #[must_use]
    pub fn new(allow: &'a [Allowance], settings: &'a RuleSettings) -> Self {
        Self {
            allow,
            suppressions: &settings.suppressions,
            today: settings.today,
        }
    }

    /// Why a finding does not count. The watch has already applied entries of the file that name
    /// neither a rule nor a line.
    #[must_use]
    pub fn of_finding(&self, finding: &Finding) -> Option<ClearedNote> {
        let (class, target) = (finding.class.as_ref(), finding.target.as_ref());
        let origin = finding.origin.as_ref();
        let covers =
            |one: &&Allowance| one.covers_rule(&finding.rule) || one.covers(class, target, origin);
        let query = SuppressionQuery {
            rule: &finding.rule,
            class,
            target: target.map(Text::as_bytes),
            owner: finding.comm.as_bytes(),
            count: finding.count.unwrap_or(u64::MAX),
            stack: origin
                .map(|origin| origin.stack.as_slice())
                .unwrap_or_default(),
        };
        let by_flag = self.allow.iter().find(covers);
        by_flag.map(|one| self.by_flag(one)).or_else(|| {
            let entry = self.suppressions.find_entry(&query, self.today);
            entry.map(by_entry)
        })
    }

    /// Why a leftover that this rule would report does not count.
    #[must_use]
    pub fn of_remains(&self, remains: &Remains, rule: &str) -> Option<String> {
        let (class, target) = (remains.class.as_ref(), remains.target.as_ref());
        let origin = remains.origin.as_ref();
        let covers = |one: &&Allowance| one.covers_rule(rule) || one.covers(class, target, origin);
        if let Some(one) = self.allow.iter().find(covers) {
            return Some(format!("--allow {one}"));
        }
        let query = SuppressionQuery {
            rule,
            class,
            target: target.map(Text::as_bytes),
            owner: remains.comm.as_bytes(),
            count: remains.count,
            stack: origin
                .map(|origin| origin.stack.as_slice())
                .unwrap_or_default(),
        };
        let by_group = class.and_then(|class| {
            let SuppressionQuery {
                target,
                owner,
                count,
                ..
            } = query;
            self.suppressions
                .find(class, target, owner, count, self.today)
        });
        let entry = by_group.or_else(|| self.suppressions.find_entry(&query, self.today));
        entry.map(|entry| format!("{} ({})", entry.reason, entry.date))
    }

    /// Why a hazard in a process with this command does not count: its rule was accepted, or a line
    /// of the party at fault, or of any party if none is known to be at fault.
    #[must_use]
    pub fn of_hazard(&self, hazard: &Hazard, comm: Option<&str>) -> Option<ClearedNote> {
        let stacks = stacks_at_fault(hazard);
        let covers = |one: &&Allowance| match one {
            Allowance::Rule(rule) => *rule == hazard.rule,
            Allowance::Line(line) => stacks.iter().any(|stack| line.is_in(stack)),
            Allowance::Class(_) | Allowance::Target(_) => false,
        };
        if let Some(one) = self.allow.iter().find(covers) {
            return Some(self.by_flag(one));
        }
        let query = |stack| SuppressionQuery {
            rule: &hazard.rule,
            class: hazard.class.as_ref(),
            target: None,
            owner: comm.unwrap_or_default().as_bytes(),
            count: hazard.count,
            stack,
        };
        let none: &[Frame] = &[];
        let mut asked = stacks.into_iter().chain([none]);
        let entry = asked.find_map(|stack| self.suppressions.find_entry(&query(stack), self.today));
        entry.map(by_entry)
    }

    /// The flags and entries that cleared nothing, given the reasons that did clear something.
    #[must_use]
    pub fn unused(&self, reasons: &[&str]) -> Vec<String> {
        let flags = self.allow.iter().map(|one| format!("--allow {one}"));
        let flags = flags.filter(|flag| !reasons.contains(&flag.as_str()));
        let entries = self.suppressions.entries().iter().filter(|entry| {
            let dated = format!("{} ({})", entry.reason, entry.date);
            let is_used = |reason: &&str| **reason == entry.reason || **reason == dated;
            !entry.is_expired(self.today) && !reasons.iter().any(is_used)
        });
        let entries = entries.map(|entry| format!("[[cleared]] entry {:?}", entry.reason));
        flags.chain(entries).collect()
    }

    fn by_flag(&self, one: &Allowance) -> ClearedNote {
        ClearedNote {
            reason: format!("--allow {one}"),
            date: self.today.to_string(),
        }
    }
}

fn by_entry(entry: &Suppression) -> ClearedNote {
    ClearedNote {
        reason: entry.reason.clone(),
        date: entry.date.to_string(),
    }
}

fn stacks_at_fault(hazard: &Hazard) -> Vec<&[Frame]> {
    let parties: Vec<&Option<Party>> = match hazard.fault {
        Some(Fault::Closer) => vec![&hazard.closer],
        Some(Fault::User) => vec![&hazard.user],
        None => vec![&hazard.closer, &hazard.user, &hazard.opener],
    };
    let known = parties.into_iter().flatten();
    known.map(|party| party.stack.as_slice()).collect()
}

#[cfg(test)]
mod tests;
