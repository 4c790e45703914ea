//! What a trace found, as values that every output is made from, and the outputs: folded stacks, a flame graph, a profile.
//! The page is [`super::html::trace`].

pub mod answer;
pub mod flame;
pub mod folded;
pub mod hazard;
pub mod name;
pub mod pprof;
mod protobuf;
pub mod svg;
#[cfg(test)]
pub(crate) mod testing;

use fdguard_core::diagnosis::Diagnosis;
use fdguard_core::event::Tid;
use fdguard_core::evidence::Curves;
use fdguard_core::origin::{Culprit, Stack};
use fdguard_core::{Class, Text};

/// A trace, ready to be shown.
#[derive(Clone, Debug)]
pub struct Seen<'a> {
    /// The verdict, the findings and the hazards.
    pub diagnosis: &'a Diagnosis,
    /// Who holds what is still open.
    pub holders: Vec<Holder<'a>>,
}

/// One process and where it opened what it holds.
#[derive(Clone, Debug)]
pub struct Holder<'a> {
    /// Its number.
    pub pid: u32,
    /// Its command, as it calls itself.
    pub comm: &'a str,
    /// Its sites, the largest first.
    pub places: Vec<Place<'a>>,
    /// Stacks that left nothing open; only where they were asked for.
    pub spent: Vec<Way<'a>>,
    /// How many it held over time, where somebody looked.
    pub curves: Option<&'a Curves>,
}

/// One site.
#[derive(Clone, Debug)]
pub struct Place<'a> {
    /// The line to be looked at; absent where the stack was lost.
    pub culprit: Option<&'a Culprit>,
    /// The caller that leaks, where others use the same line well.
    pub telling: Option<&'a Culprit>,
    /// The stack that most of them have, innermost first.
    pub stack: &'a Stack,
    /// The call that opened them.
    pub how: &'static str,
    /// The thread that opened the oldest.
    pub thread: Option<Tid>,
    /// How many are open.
    pub live: u64,
    /// How many the same stacks ever opened.
    pub opened: u64,
    /// How many of those ended.
    pub closed: u64,
    /// How fast they became more; absent where there are too few to tell.
    pub per_second: Option<f64>,
    /// Seconds that the oldest has been open.
    pub oldest: Option<f64>,
    /// What most of them are; absent where nobody looked.
    pub class: Option<&'a Class>,
    /// What all of that class point at; absent where they differ.
    pub target: Option<&'a Text>,
    /// Every stack that leads here.
    pub ways: Vec<Way<'a>>,
}

/// One stack of a site.
#[derive(Clone, Debug)]
pub struct Way<'a> {
    /// Innermost first.
    pub stack: &'a Stack,
    /// How many are open of each class, in the order of classes; those of an unknown class come first.
    pub live: Vec<(Option<&'a Class>, u64)>,
    /// How many it ever opened.
    pub opened: u64,
    /// How many of those ended.
    pub closed: u64,
}

impl Way<'_> {
    /// How many are open.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.live.iter().map(|(_, count)| count).sum()
    }
}

impl<'a> Seen<'a> {
    /// Every stack that left something open, with the process and the site that it belongs to.
    pub fn ways(&self) -> impl Iterator<Item = (&Holder<'a>, &Place<'a>, &Way<'a>)> {
        self.holders.iter().flat_map(|holder| {
            let places = holder.places.iter();
            places.flat_map(move |place| place.ways.iter().map(move |way| (holder, place, way)))
        })
    }
}
