//! Plain numbers, as `fs.openSync` returns them: which array, collection or property keeps them.
//! One walk cannot tell, because other small numbers look the same; two can (decision 151).

use std::collections::{BTreeMap, BTreeSet};
use std::hash::Hasher as _;

use rustc_hash::{FxHashMap, FxHasher};

use super::answer::held_text;
use super::search::NodeLife;
use super::{NodeHeap, NumberPlace};
use crate::answer::{Basis, Chain, plural};
use crate::hop::Hop;
use crate::number::{FirstWalk, chain};

/// Fewer numbers prove nothing.
const ENOUGH: usize = 3;

/// Where numbers are kept, as it is shown.
#[derive(Clone, Debug)]
struct ShownPlace {
    hops: Vec<Hop>,
    life: Option<NodeLife>,
    rank: u8,
    /// The same in both walks.
    key: String,
}

impl NodeHeap {
    /// What a later walk needs of this one.
    #[must_use]
    pub fn first_walk(&self, open: BTreeMap<u32, u64>) -> FirstWalk {
        let mut pairs = Vec::new();
        for place in &self.places {
            for (fd, property) in &place.numbers {
                let key = hash(&self.shown_place(place, property).key);
                pairs.push((key, *fd));
            }
        }
        FirstWalk::new(open, pairs)
    }

    pub(super) fn plain_numbers(&self, group: &[u32], first: Option<&FirstWalk>) -> Vec<Chain> {
        let is_new = |fd: &u32| first.is_some_and(|first| !first.open.contains_key(fd));
        let new: BTreeSet<u32> = group.iter().copied().filter(is_new).collect();
        let Some(first) = first.filter(|_| new.len() >= ENOUGH) else {
            let text = "no object owns these numbers; what keeps a plain number takes a second \
                        walk after more are opened";
            return vec![chain(Basis::OneWalk, group.to_vec(), text.to_owned())];
        };
        let mut found: FxHashMap<String, (ShownPlace, BTreeSet<u32>, BTreeSet<u32>)> =
            FxHashMap::default();
        for place in &self.places {
            // Half of its numbers are open descriptors; a property counts by itself.
            let is_precise = place.numbers.len() * 2 >= place.count;
            for (fd, property) in &place.numbers {
                if !group.contains(fd) || (property.is_empty() && !is_precise) {
                    continue;
                }
                let shown = self.shown_place(place, property);
                let is_before = first.has(hash(&shown.key), *fd);
                let key = shown.key.clone();
                let entry = found.entry(key);
                let (_, now, all) = entry.or_insert((shown, BTreeSet::new(), BTreeSet::new()));
                all.insert(*fd);
                if new.contains(fd) && !is_before {
                    now.insert(*fd);
                }
            }
        }
        let enough = found
            .into_values()
            .filter(|(_, now, _)| now.len() >= ENOUGH && now.len() * 2 >= new.len());
        let best = enough.max_by(|one, other| {
            let order = |of: &(ShownPlace, BTreeSet<u32>, BTreeSet<u32>)| {
                let (place, now, _) = of;
                let far = (place.rank, place.hops.len(), place.key.clone());
                (now.len(), std::cmp::Reverse(far))
            };
            order(one).cmp(&order(other))
        });
        let nobody = "no object, array, Map or Set has these numbers: they were dropped, or are in \
                      variables, which V8 does not show";
        let Some((shown, _, all)) = best else {
            return vec![chain(Basis::TwoWalks, group.to_vec(), nobody.to_owned())];
        };
        let fds: Vec<u32> = all.into_iter().collect();
        let rest: Vec<u32> = group
            .iter()
            .copied()
            .filter(|fd| !fds.contains(fd))
            .collect();
        let mut chains = vec![number_chain(fds, shown)];
        if !rest.is_empty() {
            chains.push(chain(Basis::TwoWalks, rest, nobody.to_owned()));
        }
        chains
    }

    /// A place, its holders and what keeps them.
    fn shown_place(&self, place: &NumberPlace, property: &str) -> ShownPlace {
        let mut hops = vec![match property {
            "" => self.container(place.object),
            property => Hop::Object {
                class: self.snapshot.name(place.object).to_owned(),
                attribute: Some(property.to_owned()),
            },
        }];
        let way = self.ways(place.object).into_iter().next();
        let rank = way.as_ref().map_or(u8::MAX, |way| way.rank);
        let mut life = None;
        if let Some(way) = way {
            let (more, root) = self.shown(&way);
            hops.extend(more);
            life = Some(root);
        }
        let shapes: Vec<String> = hops.iter().map(|hop| hop.shape().text()).collect();
        let root = life.as_ref().map(NodeLife::text);
        let key = format!("{} ← {}", shapes.join(" ← "), root.unwrap_or_default());
        ShownPlace {
            hops,
            life,
            rank,
            key,
        }
    }
}

fn number_chain(fds: Vec<u32>, shown: ShownPlace) -> Chain {
    let what = plural(fds.len(), "number");
    let text = match &shown.life {
        Some(life) => held_text(fds.len(), &what, &shown.hops, life),
        None => format!("held by {} {what} in {}", fds.len(), shown.key),
    };
    Chain {
        holders: shown.hops,
        root: shown.life.map(|life| life.text()),
        ..chain(Basis::TwoWalks, fds, text)
    }
}

fn hash(text: &str) -> u64 {
    let mut hasher = FxHasher::default();
    hasher.write(text.as_bytes());
    hasher.finish()
}
