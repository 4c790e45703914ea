//! Plain numbers: which place keeps them. One walk cannot tell, because tables of constants have
//! small integers, too; two walks can, because a place that keeps descriptors has the number only
//! after the descriptor was opened.

use std::collections::{BTreeMap, BTreeSet};

use rustc_hash::{FxHashMap, FxHashSet};

use crate::answer::{Basis, Chain, held_text, plural};
use crate::attribute::{self, Attributes};
use crate::dict;
use crate::frame::Local;
use crate::graph::Index;
use crate::heap::Heap;
use crate::hop::Hop;
use crate::search::Root;
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

/// An object with more numbers than this may be a table of constants.
const FEW: usize = 8;
/// The most objects of one shape that are compared.
const MOST_COMPARED: usize = 64;
/// What says that nothing in the heap has the numbers.
const NOWHERE: &str = "no object and no place in the heap holds these numbers";

/// Where numbers are kept.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Place {
    /// One container with several of them.
    Container(Index),
    /// An attribute of a class.
    Attribute(String, String),
    /// Objects that have one each and are held in the same way: tuples of a list.
    Alike(String),
}

/// A place with what it has: numbers, and the objects that have them.
type NumberPlace = (Place, BTreeSet<u32>, Vec<Index>);

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
        let known: Vec<u32> = group.iter().copied().filter(|fd| !is_new(fd)).collect();
        let held = self.precise_holders(group, open);
        let mut found = held.clone();
        found.retain(|(number, holder)| {
            new.contains(number) && !first.has(self.graph.address(*holder), *number)
        });
        let mut chains = Vec::new();
        if let Some((place, _, holders)) = self.best_place(&new, &found) {
            chains.push(self.place_chain(&place, holders, group));
        } else if let Some(chain) = self.local_chain(&new) {
            chains.push(chain);
        } else {
            // Nothing has those of the first walk either, if nothing has them at all.
            let is_held = |fd: &u32| held.iter().any(|(number, _)| number == fd);
            let gone = known.iter().copied().filter(|fd| !is_held(fd));
            let fds: BTreeSet<u32> = new.iter().copied().chain(gone).collect();
            let text = self.nowhere(&new, &found);
            chains.push(chain(Basis::TwoWalks, fds.into_iter().collect(), text));
        }
        let is_named = |fd: &u32| chains.iter().any(|chain| chain.fds.contains(fd));
        let rest: Vec<u32> = new.iter().copied().filter(|fd| !is_named(fd)).collect();
        let known: Vec<u32> = known.into_iter().filter(|fd| !is_named(fd)).collect();
        if !rest.is_empty() {
            chains.push(chain(Basis::TwoWalks, rest, NOWHERE.to_owned()));
        }
        if !known.is_empty() {
            let text =
                "no object owns these numbers; they were open at the first walk: not decided";
            chains.push(chain(Basis::OneWalk, known, text.to_owned()));
        }
        chains
    }

    /// The numbers with the objects that have them, without tables of constants.
    fn precise_holders(&self, group: &[u32], open: &BTreeMap<u32, String>) -> Vec<(u32, Index)> {
        let wanted: BTreeSet<u32> = group.iter().copied().collect();
        let mut all: FxHashMap<Index, (usize, usize)> = FxHashMap::default();
        for (number, holder) in &self.graph.numbers {
            let counts = all.entry(*holder).or_default();
            counts.0 += 1;
            counts.1 += usize::from(open.contains_key(number));
        }
        let mut held = self.number_holders();
        held.retain(|(number, holder)| {
            let (values, hits) = all.get(holder).copied().unwrap_or_default();
            wanted.contains(number) && (values <= FEW || hits * 2 >= values)
        });
        held
    }

    /// The place that has most of the new numbers.
    fn best_place(&self, new: &BTreeSet<u32>, held: &[(u32, Index)]) -> Option<NumberPlace> {
        let mut counts: FxHashMap<Index, usize> = FxHashMap::default();
        for (_, holder) in held {
            *counts.entry(*holder).or_default() += 1;
        }
        let mut places: FxHashMap<Place, (BTreeSet<u32>, Vec<Index>)> = FxHashMap::default();
        for (number, holder) in held {
            let is_many = counts.get(holder).is_some_and(|count| *count >= ENOUGH);
            let place = places.entry(self.place(*holder, *number, is_many));
            let place = place.or_default();
            place.0.insert(*number);
            place.1.push(*holder);
        }
        let most = places.values().map(|(numbers, _)| numbers.len()).max()?;
        if most < ENOUGH || most * 2 < new.len() {
            return None;
        }
        let equal = places.into_iter();
        let equal = equal.map(|(place, (numbers, holders))| (place, numbers, holders));
        let equal = equal.filter(|(_, numbers, _)| numbers.len() == most);
        // A function that was just called with the numbers has them, too, but only until it
        // returns: what lives longer is the reason.
        equal.min_by_key(|(_, _, holders)| {
            let way = holders
                .first()
                .and_then(|one| self.ways(*one).into_iter().next());
            let rank = way.as_ref().map_or(u8::MAX, |way| way.rank);
            let address = holders.first().map(|one| self.graph.address(*one));
            (rank, holders.len(), address)
        })
    }

    fn place(&self, holder: Index, number: u32, is_many: bool) -> Place {
        if let Some((class, name)) = self.attribute_place(holder, number) {
            return Place::Attribute(class, name);
        }
        if is_many {
            return Place::Container(holder);
        }
        let hops = self.place_hops(holder, number);
        let shapes = hops.0.iter().map(|hop| hop.shape().text());
        let root = hops.1.map_or_else(String::new, |root| root.text());
        let key = match hops.0.first() {
            Some(Hop::Container { key: Some(key), .. }) => key.clone(),
            _ => String::new(),
        };
        let shapes: Vec<String> = shapes.chain([key, root]).collect();
        Place::Alike(shapes.join("←"))
    }

    /// What holds a number, the object itself first, and what lives by itself.
    fn place_hops(&self, holder: Index, number: u32) -> (Vec<Hop>, Option<Root>) {
        let Some(mut way) = self.ways(holder).into_iter().next() else {
            return (Vec::new(), None);
        };
        // The number itself is where the way begins.
        let attribute = self.attribute_place(holder, number);
        let kind = self.kind_of(holder);
        let skipped = attribute.is_some() && kind == Kind::Dict && way.path.len() > 1;
        way.path.drain(..usize::from(skipped));
        let first = match attribute {
            Some((class, name)) => Some(Hop::Object {
                class,
                attribute: Some(name),
            }),
            // The function that closes over it comes next.
            None if kind == Kind::Cell => None,
            None if matches!(kind, Kind::Generator | Kind::Frame) => {
                self.frame_hop(kind, self.graph.address(holder), 0)
            }
            None => Some(self.container(holder, number)),
        };
        let mut hops: Vec<Hop> = first.into_iter().collect();
        hops.extend(self.hops(&way));
        (hops, Some(way.root))
    }

    /// A variable of functions that run and have the numbers: a place like others, but what runs
    /// is no object.
    fn local_chain(&self, new: &BTreeSet<u32>) -> Option<Chain> {
        let mut found: BTreeMap<String, BTreeSet<u32>> = BTreeMap::new();
        for (number, local) in self.local_numbers(new) {
            let root = self.local_root(local).0.without_thread();
            // What has no name may be left from before.
            if matches!(root, Root::Local { name: Some(_), .. }) {
                found.entry(root.text()).or_default().insert(number);
            }
        }
        let (text, fds) = found.into_iter().max_by_key(|(_, fds)| fds.len())?;
        let is_enough = fds.len() >= ENOUGH && fds.len() * 2 >= new.len();
        is_enough.then(|| Chain {
            root: Some(text.clone()),
            ..chain(Basis::TwoWalks, fds.into_iter().collect(), text)
        })
    }

    /// The new numbers that variables of running functions have.
    fn local_numbers(&self, new: &BTreeSet<u32>) -> Vec<(u32, &Local)> {
        let mut found = Vec::new();
        for (address, locals) in &self.locals {
            let number = self.number_at(*address).filter(|one| new.contains(one));
            let named = locals.iter();
            found.extend(number.into_iter().flat_map(|one| {
                let of_number = move |local| (one, local);
                named.clone().map(of_number)
            }));
        }
        found
    }

    /// The value of an integer.
    fn number_at(&self, address: u64) -> Option<u32> {
        let of = self.class(self.reader.kind(address)?)?;
        (of.name == "int").then(|| self.small_number(address))?
    }

    /// What is said if no place has most of the numbers.
    fn nowhere(&self, new: &BTreeSet<u32>, held: &[(u32, Index)]) -> String {
        let mut seen: BTreeSet<u32> = held.iter().map(|(number, _)| *number).collect();
        seen.extend(self.local_numbers(new).iter().map(|(number, _)| *number));
        if seen.len() * 2 >= new.len() {
            return "no object owns these numbers, and no single place has most of them: not decided"
                .to_owned();
        }
        format!(
            "{NOWHERE}: the result was dropped, or is where Python's objects do not show it \
             (an array, a string, C memory)"
        )
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

    fn place_chain(&self, place: &Place, mut holders: Vec<Index>, group: &[u32]) -> Chain {
        // Those that were open at the first walk may be in the same place.
        let wanted: BTreeSet<u32> = group.iter().copied().collect();
        let known: BTreeSet<Index> = holders.iter().copied().collect();
        let mut numbers: FxHashMap<Index, u32> = FxHashMap::default();
        let mut fds: BTreeSet<u32> = BTreeSet::new();
        // To find the place of a holder is a search, and a heap has millions of numbers.
        let is_container = matches!(place, Place::Container(_));
        let mut looked: FxHashMap<Index, bool> = FxHashMap::default();
        let pairs = self.graph.numbers.iter();
        for (number, holder) in pairs.filter(|(number, _)| wanted.contains(number)) {
            let is_same = || self.place(*holder, *number, false) == *place;
            let is_there = known.contains(holder)
                || match place {
                    Place::Container(_) => false,
                    // Another number of the object may be in another attribute.
                    Place::Attribute(..) => is_same(),
                    Place::Alike(_) => *looked.entry(*holder).or_insert_with(is_same),
                };
            if is_there {
                fds.insert(*number);
                let first = numbers.insert(*holder, *number).is_none();
                if first && !known.contains(holder) {
                    holders.push(*holder);
                }
            }
        }
        let number_of = |holder: &Index| numbers.get(holder).copied().unwrap_or(0);
        let mut all = holders
            .iter()
            .take(MOST_COMPARED)
            .map(|holder| self.place_hops(*holder, number_of(holder)));
        let (mut hops, root) = all.next().unwrap_or_default();
        for (other, _) in all.filter(|_| !is_container) {
            if other.len() == hops.len() {
                let pairs = hops.into_iter().zip(&other);
                hops = pairs.map(|(hop, other)| hop.common(other)).collect();
            }
        }
        let root = root.unwrap_or(Root::Unknown);
        let fds: Vec<u32> = group
            .iter()
            .copied()
            .filter(|fd| fds.contains(fd))
            .collect();
        let text = held_text(fds.len(), &plural(fds.len(), "number"), &hops, &root);
        Chain {
            holders: hops,
            root: Some(root.text()),
            ..chain(Basis::TwoWalks, fds, text)
        }
    }

    fn container(&self, holder: Index, number: u32) -> Hop {
        let class = self.type_of(holder);
        let address = self.graph.address(holder);
        let kind = self.kind_of(holder);
        let entries = match kind {
            Kind::Dict | Kind::List | Kind::Tuple | Kind::Deque => self.reader.field(address, 16),
            Kind::Set => self.reader.field(address, 24),
            _ => None,
        };
        // A key that is text names the one number: a table of numbers has none.
        let pairs = match kind {
            Kind::Dict if entries.is_some_and(|entries| entries <= FEW as u64) => {
                dict::pairs(&self.reader, address)
            }
            _ => Vec::new(),
        };
        let mut pairs = pairs.into_iter();
        let pair = pairs.find(|(_, value)| self.number_at(*value) == Some(number));
        let key = pair.and_then(|(key, _)| self.key_text(key));
        Hop::Container {
            class: class.map_or_else(|| "object".to_owned(), |of| of.name.clone()),
            entries,
            key,
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
