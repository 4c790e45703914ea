//! The answer: for each group of descriptors the chains that hold them.

use std::collections::{BTreeMap, BTreeSet};

use rustc_hash::FxHashMap;
use serde::ser::SerializeStruct as _;
use serde::{Serialize, Serializer};

use crate::graph::Index;
use crate::heap::Heap;
use crate::hop::Hop;
use crate::number::FirstWalk;
use crate::search::{Root, Way};
use crate::wait::ThreadWait;

/// The most descriptors of a group that are looked at one by one.
const MOST_SEARCHED: usize = 2000;
/// The most ways that are compared.
const MOST_WAYS: usize = 32;

/// What an answer rests on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Basis {
    /// An object owns the descriptor.
    Object,
    /// An object owns it that a full collection would take.
    Unreachable,
    /// Two walks, for plain numbers.
    TwoWalks,
    /// One walk: nothing can be said of plain numbers.
    OneWalk,
    /// An object owns it, and what holds that object does not say so.
    NoHolderFound,
    /// Nothing but a handle that the event loop watches (Node).
    EventLoop,
    /// The language keeps no record of it.
    NotAvailable,
}

impl Basis {
    /// As it is shown.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::Object => "object",
            Self::Unreachable => "unreachable",
            Self::TwoWalks => "two walks",
            Self::OneWalk => "one walk",
            Self::NoHolderFound => "no holder found",
            Self::EventLoop => "event loop",
            Self::NotAvailable => "not available",
        }
    }
}

/// What holds some descriptors.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Chain {
    /// What this rests on.
    pub basis: Basis,
    /// How many descriptors it is about.
    pub count: usize,
    /// Their numbers.
    pub fds: Vec<u32>,
    /// The class of the object that owns them; `None` for plain numbers.
    pub owner: Option<String>,
    /// The holders, the one next to the owner first.
    pub holders: Vec<Hop>,
    /// What lives by itself and holds the last one.
    pub root: Option<String>,
    /// Another thing that holds them, too.
    pub also: Option<String>,
    /// All of it in words.
    pub text: String,
}

/// The line that used descriptors last.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LastUse {
    /// The file.
    pub file: Option<String>,
    /// The function.
    pub function: Option<String>,
    /// The line.
    pub line: Option<u32>,
    /// How many of the descriptors it used last.
    pub count: usize,
}

/// The answer for the descriptors of one opening site. Serialized with [`Why::basis`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Why {
    /// The chains, the one with the most descriptors first.
    pub chains: Vec<Chain>,
    /// Descriptors that further chains hold, or that were not looked at because there are too many.
    pub more: usize,
    /// The line that used most of them last, where that is recorded.
    pub last_use: Option<LastUse>,
}

impl Serialize for Why {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = serializer.serialize_struct("Why", 4)?;
        fields.serialize_field("chains", &self.chains)?;
        fields.serialize_field("basis", &self.basis())?;
        fields.serialize_field("more", &self.more)?;
        fields.serialize_field("last_use", &self.last_use)?;
        fields.end()
    }
}

impl Why {
    /// What the answer for most of the descriptors rests on: the basis of the first chain.
    #[must_use]
    pub fn basis(&self) -> Option<Basis> {
        self.chains.first().map(|chain| chain.basis)
    }

    /// Keeps this many chains, those with the most descriptors.
    pub fn truncate(&mut self, most: usize) {
        let rest = self.chains.iter().skip(most);
        self.more += rest.map(|one| one.count).sum::<usize>();
        self.chains.truncate(most);
    }

    /// Nothing can be said in this language.
    #[must_use]
    pub fn not_available(fds: &[u32], text: String) -> Self {
        let chain = Chain {
            basis: Basis::NotAvailable,
            count: fds.len(),
            fds: fds.to_vec(),
            owner: None,
            holders: Vec::new(),
            root: None,
            also: None,
            text,
        };
        Self {
            chains: vec![chain],
            ..Self::default()
        }
    }
}

/// What may hold a descriptor.
struct Reasons {
    /// Its owner, if only garbage holds it.
    garbage: Option<Index>,
    /// The most likely first.
    ways: Vec<(Index, Way)>,
}

impl Reasons {
    /// The ways that are as likely as the first.
    fn best(&self) -> impl Iterator<Item = &(Index, Way)> {
        let rank = self.ways.first().map(|(_, way)| way.rank);
        self.ways
            .iter()
            .filter(move |(_, way)| Some(way.rank) == rank)
    }
}

/// One descriptor's chain.
struct Holding {
    fd: u32,
    basis: Basis,
    owner: String,
    hops: Vec<Hop>,
    root: Root,
    also: Option<String>,
}

impl Heap<'_> {
    /// Answers for groups of descriptors. `paths` are the files that are open; `first` is an
    /// earlier walk.
    #[must_use]
    pub fn answer(
        &self,
        groups: &[Vec<u32>],
        paths: &BTreeMap<u32, String>,
        first: Option<&FirstWalk>,
    ) -> Vec<Why> {
        let wanted: BTreeSet<u32> = groups.iter().flatten().copied().collect();
        let mut owners: FxHashMap<u32, Vec<Index>> = FxHashMap::default();
        for one in self.owners(&|fd| wanted.contains(&fd), paths) {
            owners.entry(one.fd).or_default().push(one.object);
        }
        groups
            .iter()
            .map(|group| self.answer_group(group, &owners, paths, first))
            .collect()
    }

    fn answer_group(
        &self,
        group: &[u32],
        owners: &FxHashMap<u32, Vec<Index>>,
        paths: &BTreeMap<u32, String>,
        first: Option<&FirstWalk>,
    ) -> Why {
        let mut chains = Vec::new();
        let (owned, plain): (Vec<u32>, Vec<u32>) =
            group.iter().partition(|fd| owners.contains_key(fd));
        let more = owned.len().saturating_sub(MOST_SEARCHED);
        let ways: Vec<(u32, Reasons)> = owned
            .iter()
            .take(MOST_SEARCHED)
            .filter_map(|fd| Some((*fd, self.reasons(owners.get(fd)?))))
            .collect();
        // Of several things that hold a descriptor, the one that holds most of the group.
        let mut votes: FxHashMap<String, usize> = FxHashMap::default();
        for (_, reasons) in &ways {
            let roots: BTreeSet<String> = reasons.best().map(|(_, way)| way.root.text()).collect();
            for root in roots {
                *votes.entry(root).or_default() += 1;
            }
        }
        let found = ways.into_iter();
        let found = found.map(|(fd, reasons)| self.found(fd, reasons, &votes));
        chains.extend(self.grouped(found.collect()));
        if !plain.is_empty() {
            chains.extend(self.plain_numbers(&plain, paths, first));
        }
        chains.sort_by_key(|chain| std::cmp::Reverse(chain.count));
        Why {
            chains,
            more,
            ..Why::default()
        }
    }

    /// The ways that hold the owners of a descriptor: if several objects own it, those that live.
    fn reasons(&self, objects: &[Index]) -> Reasons {
        let live = objects
            .iter()
            .filter(|object| !self.is_unreachable(**object));
        let live: Vec<Index> = live.copied().collect();
        let garbage = objects.first().copied().filter(|_| live.is_empty());
        let mut ways: Vec<(Index, Way)> = Vec::new();
        for object in live {
            ways.extend(self.ways(object).into_iter().map(|way| (object, way)));
        }
        ways.sort_by_key(|(_, way)| (way.rank, way.path.len()));
        ways.truncate(MOST_WAYS);
        Reasons { garbage, ways }
    }

    fn found(&self, fd: u32, reasons: Reasons, votes: &FxHashMap<String, usize>) -> Holding {
        if let Some(object) = reasons.garbage {
            return self.found_garbage(fd, object);
        }
        let count = |way: &Way| votes.get(&way.root.text()).copied().unwrap_or(0);
        let best = reasons
            .best()
            .max_by_key(|(_, way)| (count(way), std::cmp::Reverse(way.path.len())));
        let best = best.cloned();
        let own = best.as_ref().map(|(_, way)| way.root.text());
        let mut others = reasons.ways.iter().map(|(_, way)| way);
        let also = others.find(|way| way.rank < 4 && Some(way.root.text()) != own);
        let also = also.map(|way| way.root.text());
        let (object, hops, root) = match best {
            Some((object, way)) => (Some(object), self.hops(&way), way.root),
            None => (None, Vec::new(), Root::Unknown),
        };
        let owner = object.and_then(|object| self.type_of(object));
        let basis = match root {
            Root::Unknown => Basis::NoHolderFound,
            _ => Basis::Object,
        };
        Holding {
            fd,
            basis,
            owner: owner.map_or_else(|| "object".to_owned(), |of| of.name.clone()),
            hops,
            root,
            also,
        }
    }

    /// Whether a full collection would take an object, or the last holder of a leaf.
    fn is_unreachable(&self, object: Index) -> bool {
        if self.graph.is_walked(object) {
            return self.is_garbage(object);
        }
        let holders = self.graph.holders(object);
        let count = self.reader.field(self.graph.address(object), 0);
        let is_explained = count.is_some_and(|count| count & 0xffff_ffff <= holders.len() as u64);
        !holders.is_empty() && is_explained && holders.iter().all(|holder| self.is_garbage(*holder))
    }

    fn found_garbage(&self, fd: u32, object: Index) -> Holding {
        let mut path = vec![object];
        // The nearest objects are enough to recognise the cycle.
        let mut at = object;
        while path.len() < 12 {
            let holders = self.graph.holders(at).iter().copied();
            let next = holders.filter(|one| self.is_garbage(*one) && !path.contains(one));
            let Some(next) = next.min_by_key(|one| self.graph.holders(*one).len()) else {
                break;
            };
            path.push(next);
            at = next;
        }
        let way = Way {
            path,
            root: Root::Unknown,
            rank: 0,
        };
        let owner = self.type_of(object);
        Holding {
            fd,
            basis: Basis::Unreachable,
            owner: owner.map_or_else(|| "object".to_owned(), |of| of.name.clone()),
            hops: self.hops(&way),
            root: Root::Unknown,
            also: None,
        }
    }

    /// Chains of one shape become one.
    fn grouped(&self, found: Vec<Holding>) -> Vec<Chain> {
        let mut groups: Vec<(Vec<Hop>, String, Vec<Holding>)> = Vec::new();
        for one in found {
            let shape: Vec<Hop> = one.hops.iter().map(Hop::shape).collect();
            let root = one.root.clone().without_thread().text();
            let known = groups.iter_mut().find(|(hops, of, group)| {
                let same = group
                    .first()
                    .is_some_and(|first| first.basis == one.basis && first.owner == one.owner);
                *hops == shape && *of == root && same
            });
            match known {
                Some((.., group)) => group.push(one),
                None => groups.push((shape, root, vec![one])),
            }
        }
        groups
            .into_iter()
            .filter_map(|(.., group)| self.chain(group))
            .collect()
    }

    fn chain(&self, group: Vec<Holding>) -> Option<Chain> {
        let fds: Vec<u32> = group.iter().map(|one| one.fd).collect();
        let wait = self.common_wait(&group);
        let mut group = group.into_iter();
        let first = group.next()?;
        let (basis, owner, root, also) = (first.basis, first.owner, first.root, first.also);
        let mut holders = first.hops;
        for one in group {
            holders = holders
                .into_iter()
                .zip(&one.hops)
                .map(|(hop, other)| hop.common(other))
                .collect();
        }
        let text = match basis {
            Basis::Unreachable => self.cycle_text(&owner, &holders),
            _ => held_text(fds.len(), &owner, &holders, &root),
        };
        let text = match wait {
            Some(wait) => format!("{text}, {}", wait.text()),
            None => text,
        };
        let text = match &also {
            Some(also) => format!("{text}; also {also}"),
            None => text,
        };
        let is_known = basis == Basis::Object;
        Some(Chain {
            basis,
            count: fds.len(),
            fds,
            owner: Some(owner),
            holders,
            root: is_known.then(|| root.text()),
            also,
            text,
        })
    }

    /// How long the thread waits whose variable holds them, if it is one thread.
    fn common_wait(&self, group: &[Holding]) -> Option<&ThreadWait> {
        let thread = |one: &Holding| match &one.root {
            Root::Local { thread, .. } => Some(*thread),
            _ => None,
        };
        let first = thread(group.first()?)?;
        let is_one = group.iter().all(|one| thread(one) == Some(first));
        self.waits.get(&first).filter(|_| is_one)
    }

    fn cycle_text(&self, owner: &str, holders: &[Hop]) -> String {
        let mut names: Vec<String> = vec![owner.to_owned()];
        for hop in holders {
            let name = match hop {
                Hop::Object { class, .. } => class.clone(),
                hop => hop.shape().text(),
            };
            if names.last() != Some(&name) && names.len() < 5 {
                names.push(name);
            }
        }
        // The wrappers of a file say no more than the outermost of them.
        while names.len() > 2 && names.first().is_some_and(|name| is_wrapped(name)) {
            names.remove(0);
        }
        names.reverse();
        let state = if self.is_collecting { "on" } else { "off" };
        format!(
            "only an unreachable cycle holds them: {}; gc is {state}",
            names.join(" → ")
        )
    }
}

/// Whether another object usually stands for this one.
fn is_wrapped(class: &str) -> bool {
    class == "FileIO" || class.starts_with("Buffered")
}

/// Wrappers of a file or a socket are shown as the outermost of them: its class, and the holders
/// after it.
pub(crate) fn skip_wrappers<'a>(owner: &'a str, holders: &'a [Hop]) -> (&'a str, &'a [Hop]) {
    let (mut owner, mut rest) = (owner, holders);
    while let [
        Hop::Object {
            class,
            attribute: None,
        },
        after @ ..,
    ] = rest
    {
        (owner, rest) = (class, after);
    }
    (owner, rest)
}

/// `number`, or `numbers`.
pub(crate) fn plural(count: usize, noun: &str) -> String {
    match count {
        1 => noun.to_owned(),
        _ => format!("{noun}s"),
    }
}

/// How many are held, before the name of what they are: nothing for one.
pub(crate) fn held_count(count: usize) -> String {
    match count {
        1 => String::new(),
        count => format!("{count} "),
    }
}

/// A chain in words.
pub(crate) fn held_text(count: usize, owner: &str, holders: &[Hop], root: &Root) -> String {
    let (owner, rest) = skip_wrappers(owner, holders);
    let mut rest = rest.iter().peekable();
    let is_named = matches!(
        rest.peek(),
        Some(Hop::Object {
            attribute: Some(_),
            ..
        })
    );
    let first = (!is_named).then(|| owner.to_owned());
    let texts: Vec<String> = first.into_iter().chain(rest.map(Hop::text)).collect();
    let is_local = matches!(root, Root::Local { .. }) && texts.len() == 1;
    if is_local {
        return root.text();
    }
    let count = held_count(count);
    format!("held by {count}{} ← {}", texts.join(" ← "), root.text())
}
