//! Plain numbers: which place keeps them. One walk cannot tell, because tables of constants have
//! small integers, too; two walks can, because a place that keeps descriptors has the number only
//! after the descriptor was opened.

use std::collections::{BTreeMap, BTreeSet};

use rustc_hash::{FxHashMap, FxHashSet};

use crate::answer::{Basis, Chain, held_text};
use crate::attribute::{self, Attributes};
use crate::graph::Index;
use crate::heap::Heap;
use crate::hop::Hop;
use crate::types::Kind;

/// Fewer numbers prove nothing.
const ENOUGH: usize = 3;

/// What an earlier walk saw of plain numbers.
#[derive(Clone, Debug, Default)]
pub struct FirstWalk {
    /// The descriptors that were open then, by number, with what tells one from the next.
    pub open: BTreeMap<u32, u64>,
    /// Which object held which number.
    pairs: FxHashSet<(u64, u32)>,
}

/// Where numbers are kept: one container, or an attribute of a class.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Place {
    Container(Index),
    Attribute(String, String),
    Local(String),
}

impl FirstWalk {
    pub(crate) fn new(
        open: BTreeMap<u32, u64>,
        pairs: impl IntoIterator<Item = (u64, u32)>,
    ) -> Self {
        Self {
            open,
            pairs: pairs.into_iter().collect(),
        }
    }

    /// Whether a place had a number then.
    pub(crate) fn has(&self, place: u64, number: u32) -> bool {
        self.pairs.contains(&(place, number))
    }
}

impl Heap<'_> {
    /// What a later walk needs of this one. `open` are the descriptors, with what tells one from
    /// the next.
    #[must_use]
    pub fn first_walk(&self, open: BTreeMap<u32, u64>) -> FirstWalk {
        let pairs = self.number_holders();
        FirstWalk {
            open,
            pairs: pairs
                .into_iter()
                .map(|(number, holder)| (self.graph.address(holder), number))
                .collect(),
        }
    }

    fn number_holders(&self) -> Vec<(u32, Index)> {
        self.graph.numbers.clone()
    }

    pub(crate) fn plain_numbers(
        &self,
        group: &[u32],
        open: &BTreeMap<u32, String>,
        first: Option<&FirstWalk>,
    ) -> Vec<Chain> {
        let is_new = |fd: &u32| first.is_some_and(|first| !first.open.contains_key(fd));
        let new: BTreeSet<u32> = group.iter().copied().filter(is_new).collect();
        let Some(first) = first.filter(|_| new.len() >= ENOUGH) else {
            return vec![unknown(group)];
        };
        let best = self.best_place(&new, open, first);
        let Some((numbers, holders)) = best else {
            let text =
                "no object and no place in the heap holds these numbers: the result was dropped";
            return vec![chain(Basis::TwoWalks, group.to_vec(), text.to_owned())];
        };
        let mut chains = vec![self.place_chain(&numbers, &holders, group)];
        let rest: Vec<u32> = group
            .iter()
            .copied()
            .filter(|fd| !chains[0].fds.contains(fd))
            .collect();
        if !rest.is_empty() {
            let text = "no object and no place in the heap holds these numbers";
            chains.push(chain(Basis::TwoWalks, rest, text.to_owned()));
        }
        chains
    }

    /// The place that has most of the new numbers, and little else.
    fn best_place(
        &self,
        new: &BTreeSet<u32>,
        open: &BTreeMap<u32, String>,
        first: &FirstWalk,
    ) -> Option<(BTreeSet<u32>, Vec<Index>)> {
        let mut places: FxHashMap<Place, (BTreeSet<u32>, Vec<Index>)> = FxHashMap::default();
        let mut all: FxHashMap<Index, (usize, usize)> = FxHashMap::default();
        for (number, holder) in &self.graph.numbers {
            let counts = all.entry(*holder).or_default();
            counts.0 += 1;
            counts.1 += usize::from(open.contains_key(number));
        }
        for (number, holder) in self.number_holders() {
            let pair = (self.graph.address(holder), number);
            let (values, hits) = all.get(&holder).copied().unwrap_or_default();
            let is_precise = hits * 2 >= values;
            if !new.contains(&number) || first.pairs.contains(&pair) || !is_precise {
                continue;
            }
            let place = places.entry(self.place(holder, number)).or_default();
            place.0.insert(number);
            place.1.push(holder);
        }
        let most = places.values().map(|(numbers, _)| numbers.len()).max()?;
        if most < ENOUGH || most * 2 < new.len() {
            return None;
        }
        let equal = places.into_values();
        let equal = equal.filter(|(numbers, _)| numbers.len() == most);
        // A function that was just called with the numbers has them, too, but only until it
        // returns: what lives longer is the reason.
        equal.min_by_key(|(_, holders)| {
            let way = holders
                .first()
                .and_then(|one| self.ways(*one).into_iter().next());
            let rank = way.as_ref().map_or(u8::MAX, |way| way.rank);
            let address = holders.first().map(|one| self.graph.address(*one));
            (rank, holders.len(), address)
        })
    }

    fn place(&self, holder: Index, number: u32) -> Place {
        match self.attribute_place(holder, number) {
            Some((class, name)) => Place::Attribute(class, name),
            None if self.kind_of(holder) == Kind::Generator => Place::Local(
                self.type_of(holder)
                    .map_or_else(String::new, |of| of.name.clone()),
            ),
            None => Place::Container(holder),
        }
    }

    /// The attribute of an object that has this number; a dict may be an object's.
    fn attribute_place(&self, holder: Index, number: u32) -> Option<(String, String)> {
        let address = self.graph.address(holder);
        let object = match self.kind_of(holder) {
            Kind::Dict => {
                let mut owners = self.graph.holders(holder).iter().copied();
                owners.find(|owner| {
                    let of = self.type_of(*owner);
                    let owner = self.graph.address(*owner);
                    of.is_some_and(|of| {
                        attribute::attributes(&self.reader, owner, &of)
                            == Some(Attributes::Dict(address))
                    })
                })?
            }
            Kind::Other => holder,
            _ => return None,
        };
        let of = self.type_of(object)?;
        let name = attribute::names(&self.reader, self.graph.address(object), &of)
            .into_iter()
            .find(|(_, value)| self.small_number(*value) == Some(number))?;
        Some((of.name.clone(), name.0))
    }

    fn place_chain(&self, numbers: &BTreeSet<u32>, holders: &[Index], group: &[u32]) -> Chain {
        let held = |fd: &u32| {
            let mut pairs = self.graph.numbers.iter();
            pairs.any(|(number, holder)| number == fd && holders.contains(holder))
        };
        let fds: Vec<u32> = group.iter().copied().filter(held).collect();
        let first = holders.first().copied();
        let mut hops = Vec::new();
        let mut root = None;
        if let Some((holder, number)) = first.zip(numbers.first()) {
            let way = self.ways(holder).into_iter().next();
            if let Some(mut way) = way {
                // The number itself is where the way begins.
                let attribute = self.attribute_place(holder, *number);
                let is_dict = self.kind_of(holder) == Kind::Dict;
                let skipped = usize::from(attribute.is_some() && is_dict && way.path.len() > 1);
                way.path.drain(..skipped);
                hops.push(match attribute {
                    Some((class, name)) => Hop::Object {
                        class,
                        attribute: Some(name),
                    },
                    None => self.container(holder),
                });
                hops.extend(self.hops(&way));
                root = Some(way.root);
            }
        }
        let root = root.unwrap_or(crate::search::Root::Unknown);
        let text = held_text(
            fds.len(),
            if fds.len() == 1 { "number" } else { "numbers" },
            &hops,
            &root,
        );
        Chain {
            holders: hops,
            root: Some(root.text()),
            ..chain(Basis::TwoWalks, fds, text)
        }
    }

    fn container(&self, holder: Index) -> Hop {
        let class = self.type_of(holder);
        let address = self.graph.address(holder);
        let entries = match self.kind_of(holder) {
            Kind::Dict | Kind::List | Kind::Tuple | Kind::Deque => self.reader.field(address, 16),
            Kind::Set => self.reader.field(address, 24),
            _ => None,
        };
        Hop::Container {
            class: class.map_or_else(|| "object".to_owned(), |of| of.name.clone()),
            entries,
            key: None,
        }
    }
}

fn unknown(group: &[u32]) -> Chain {
    let text = "no object owns these numbers; what keeps a plain number takes a second walk after more are opened";
    chain(Basis::OneWalk, group.to_vec(), text.to_owned())
}

/// A chain without an owner: only numbers are known.
pub(crate) fn chain(basis: Basis, fds: Vec<u32>, text: String) -> Chain {
    Chain {
        basis,
        count: fds.len(),
        fds,
        owner: None,
        holders: Vec::new(),
        root: None,
        also: None,
        text,
    }
}
