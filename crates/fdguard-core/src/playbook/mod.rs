//! The playbook: for a class of descriptors the usual cause, how to confirm it and what to change;
//! for a log line the limit that it is about. Both are data (`data/*.toml`), and a file of the user
//! in the same format takes precedence.

use std::cmp::Reverse;
use std::sync::LazyLock;

use serde::Serialize;

use crate::Class;
use crate::class_pattern::ClassPattern;
use crate::explain::{LinePattern, Symptom};
use crate::glob::Glob;
use crate::located::ConfigMistake;
use crate::rule::Rule;
use crate::summary::ClassCount;

mod file;
#[cfg(test)]
mod incidents;
#[cfg(test)]
mod tests;

/// Schema name of the playbook listing.
pub const PLAYBOOK_SCHEMA: &str = "fdguard.playbook/1";

const ADVICE: &str = include_str!("../../data/playbook.toml");
const SYMPTOMS: &str = include_str!("../../data/symptoms.toml");

/// All entries, in the order of the files.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Playbook {
    advice: Vec<Advice>,
    symptoms: Vec<Symptom>,
    ignore: Vec<LinePattern>,
}

/// One entry: the conditions under which it applies, and its advice.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Advice {
    /// Its name, in kebab-case.
    pub id: String,
    /// The classes it is about; empty where the problem has no class.
    pub class: Vec<ClassPattern>,
    /// Applies only if the target is one of these.
    pub target: Vec<Glob>,
    /// Applies only if all of these classes are numerous, the suspect's own among them.
    pub with: Vec<ClassPattern>,
    /// Applies only to these commands; a match in `exe` is enough.
    pub comm: Vec<Glob>,
    /// Applies only to these executables; a match in `comm` is enough.
    pub exe: Vec<Glob>,
    /// Words that find it apart from classes: lint rules, kinds of problems.
    pub topic: Vec<String>,
    /// The usual cause.
    pub source: String,
    /// How to confirm it.
    pub confirm: String,
    /// What to change.
    pub fix: String,
    /// Public incidents.
    pub incidents: Vec<String>,
    /// 0 for built-in entries, higher for those that take precedence.
    #[serde(skip)]
    layer: u32,
}

/// Descriptors that are open in large numbers and need an explanation.
#[derive(Clone, Copy, Debug)]
pub struct Suspect<'a> {
    /// Its class.
    pub class: &'a Class,
    /// What most of them point at, where that is known.
    pub target: Option<&'a [u8]>,
    /// The command name of the holder.
    pub comm: &'a [u8],
    /// Its executable, where that is known.
    pub exe: Option<&'a [u8]>,
    /// The other classes that are numerous: see [`beside`].
    pub beside: &'a [Class],
}

/// The built-in symptoms as rules.
pub(crate) fn symptom_rules() -> &'static [Rule] {
    static BUILT_IN: LazyLock<Playbook> = LazyLock::new(Playbook::embedded);
    static RULES: LazyLock<Vec<Rule>> =
        LazyLock::new(|| BUILT_IN.symptoms.iter().map(Symptom::rule).collect());
    &RULES
}

/// How well an entry matches; the greatest wins. In the order of weight.
type Fit = (u32, bool, bool, bool, usize);

impl Playbook {
    /// The built-in playbook.
    ///
    /// # Panics
    ///
    /// Never: a test reads the built-in data.
    #[must_use]
    #[expect(clippy::expect_used, reason = "a test reads the same texts")]
    pub fn embedded() -> Self {
        let advice = Self::parse(ADVICE).expect("the built-in advice is valid");
        let symptoms = Self::parse(SYMPTOMS).expect("the built-in symptoms are valid");
        Self {
            advice: advice.advice,
            ..symptoms
        }
    }

    /// Reads a file.
    ///
    /// # Errors
    ///
    /// When it is not a playbook; the error is one line and names the position.
    pub fn parse(text: &str) -> Result<Self, ConfigMistake> {
        file::read(text)
    }

    /// Puts another one before this: its entries are tried first and replace built-in ones with the
    /// same id.
    #[must_use]
    pub fn extended_by(self, user: Self) -> Self {
        let above = 1 + self
            .advice
            .iter()
            .map(|advice| advice.layer)
            .max()
            .unwrap_or(0);
        let mut advice = user.advice;
        for entry in &mut advice {
            entry.layer += above;
        }
        for ours in self.advice {
            if advice.iter().all(|theirs| theirs.id != ours.id) {
                advice.push(ours);
            }
        }
        let mut symptoms = user.symptoms;
        for ours in self.symptoms {
            if symptoms.iter().all(|theirs| theirs.id != ours.id) {
                symptoms.push(ours);
            }
        }
        Self {
            advice,
            symptoms,
            ignore: [user.ignore, self.ignore].concat(),
        }
    }

    /// The best match: a user's entry before a built-in one; then one that names the target, the
    /// other classes, the command, the class more precisely. Of equals the first one.
    #[must_use]
    pub fn advise(&self, suspect: &Suspect<'_>) -> Option<&Advice> {
        // In reverse, since `max_by_key` keeps the last of equals.
        let fitting = self.advice.iter().rev();
        let fitting = fitting.filter_map(|advice| Some((advice.fit(suspect)?, advice)));
        fitting
            .max_by_key(|(fit, _)| *fit)
            .map(|(_, advice)| advice)
    }

    /// Every entry.
    #[must_use]
    pub fn advice(&self) -> &[Advice] {
        &self.advice
    }

    /// Every symptom, in the order in which they are tried.
    #[must_use]
    pub fn symptoms(&self) -> &[Symptom] {
        &self.symptoms
    }

    /// Lines that are never a symptom.
    #[must_use]
    pub fn ignore(&self) -> &[LinePattern] {
        &self.ignore
    }

    /// Every entry that may apply to a class: first the general one, then those with conditions.
    #[must_use]
    pub fn about(&self, class: &Class) -> Vec<&Advice> {
        let name = class.to_string();
        let mut found: Vec<(Fit, &Advice)> = self
            .advice
            .iter()
            .filter_map(|advice| Some((advice.rank(advice.exactness(&name)?), advice)))
            .collect();
        found.sort_by_key(|(fit, advice)| {
            let (layer, _, _, _, exactness) = *fit;
            (advice.is_conditional(), Reverse(layer), Reverse(exactness))
        });
        // A second general answer would never be used.
        let general = found.iter().filter(|(_, advice)| !advice.is_conditional());
        let never_given = 1..general.count().max(1);
        found.drain(never_given);
        found.into_iter().map(|(_, advice)| advice).collect()
    }

    /// Every entry under a topic: the id of a lint, or a kind of problem without a class.
    pub fn on_topic<'a>(&'a self, topic: &'a str) -> impl Iterator<Item = &'a Advice> {
        let mut all = self.advice.iter();
        std::iter::from_fn(move || all.find(|advice| advice.topic.iter().any(|word| word == topic)))
    }

    /// Every entry that contains this word, ignoring case.
    #[must_use]
    pub fn search(&self, word: &str) -> Vec<&Advice> {
        let word = word.to_lowercase();
        let has = |advice: &&Advice| {
            let mut texts = advice.texts();
            texts.any(|text| text.to_lowercase().contains(&word))
        };
        self.advice.iter().filter(has).collect()
    }
}

impl Advice {
    /// Whether it has conditions besides a class.
    #[must_use]
    pub fn is_conditional(&self) -> bool {
        !(self.target.is_empty()
            && self.with.is_empty()
            && self.comm.is_empty()
            && self.exe.is_empty())
    }

    fn fit(&self, suspect: &Suspect<'_>) -> Option<Fit> {
        let exactness = self.exactness(&suspect.class.to_string())?;
        let any = |globs: &[Glob], bytes: Option<&[u8]>| {
            bytes.is_some_and(|bytes| globs.iter().any(|glob| glob.matches(bytes)))
        };
        let target = self.target.is_empty() || any(&self.target, suspect.target);
        let who = (self.comm.is_empty() && self.exe.is_empty())
            || any(&self.comm, Some(suspect.comm))
            || any(&self.exe, suspect.exe);
        let with = self.with.iter().all(|glob| {
            let mut there = suspect.beside.iter().chain([suspect.class]);
            there.any(|class| glob.exactness(&class.to_string()).is_some())
        });
        (target && who && with).then(|| self.rank(exactness))
    }

    fn exactness(&self, class: &str) -> Option<usize> {
        let globs = self.class.iter();
        globs.filter_map(|glob| glob.exactness(class)).max()
    }

    fn rank(&self, exactness: usize) -> Fit {
        let who = !(self.comm.is_empty() && self.exe.is_empty());
        let (target, with) = (!self.target.is_empty(), !self.with.is_empty());
        (self.layer, target, with, who, exactness)
    }

    fn texts(&self) -> impl Iterator<Item = &str> {
        let classes = self
            .class
            .iter()
            .chain(&self.with)
            .map(ClassPattern::as_str);
        let globs = self.target.iter().chain(&self.comm).chain(&self.exe);
        let words = self.topic.iter().chain(&self.incidents);
        let sentences = [&self.id, &self.source, &self.confirm, &self.fix];
        classes
            .chain(globs.map(Glob::as_str))
            .chain(words.map(String::as_str))
            .chain(sentences.map(String::as_str))
    }
}

/// The classes that are numerous next to a class: at least a tenth as many. Every process has one
/// of something, which means nothing.
#[must_use]
pub fn beside(classes: &[ClassCount], class: &Class) -> Vec<Class> {
    let of = classes.iter().find(|row| row.class == *class);
    let count = of.map_or(0, |row| row.count);
    let many = |row: &&ClassCount| row.class != *class && row.count.saturating_mul(10) >= count;
    let found = classes.iter().filter(many);
    found.map(|row| row.class.clone()).collect()
}
