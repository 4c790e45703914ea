//! The answer: for each group of descriptors the chains that hold them.

use std::collections::{BTreeMap, BTreeSet};

use super::JavaHeap;
use super::chain::{self, JavaHop, display_class};
use super::search::{JavaLife, JavaWay};
use crate::answer::{Basis, Chain, Why};
use crate::memory::Memory;

/// The most descriptors of a group that are looked at one by one.
const MOST_SEARCHED: usize = 2000;
/// Reasons of this rank and above are the JDK's own.
const JDK_RANK: u8 = 4;

/// One descriptor's chain.
struct Holding {
    fd: u32,
    owner: String,
    hops: Vec<JavaHop>,
    /// `None` if only garbage holds it, or nothing does.
    life: Option<JavaLife>,
    basis: Basis,
    also: Option<String>,
}

/// What may hold a descriptor.
struct Candidates {
    fd: u32,
    owner: Option<u32>,
    is_live: bool,
    ways: Vec<(u32, JavaWay)>,
}

impl Candidates {
    fn best(&self) -> impl Iterator<Item = &(u32, JavaWay)> {
        let rank = self.ways.first().map(|(_, way)| way.rank);
        let is_best = move |one: &&(u32, JavaWay)| Some(one.1.rank) == rank;
        self.ways.iter().filter(is_best)
    }
}

impl JavaHeap {
    /// Answers for groups of descriptors. `memory` is the program's.
    #[must_use]
    pub fn answer(&self, groups: &[Vec<u32>], memory: &dyn Memory) -> Vec<Why> {
        let wanted: BTreeSet<u32> = groups.iter().flatten().copied().collect();
        let owners = self.owners(&|fd| wanted.contains(&fd), memory);
        let answer = |group: &Vec<u32>| {
            let searched = group.iter().take(MOST_SEARCHED);
            let found: Vec<Candidates> = searched
                .map(|fd| {
                    let owners = owners.get(fd).map(Vec::as_slice);
                    self.candidates(*fd, owners.unwrap_or_default())
                })
                .collect();
            Why {
                more: group.len().saturating_sub(MOST_SEARCHED),
                ..self.judge(found)
            }
        };
        groups.iter().map(answer).collect()
    }

    fn candidates(&self, fd: u32, owners: &[u32]) -> Candidates {
        let live: Vec<u32> = owners
            .iter()
            .copied()
            .filter(|one| self.is_reachable(*one))
            .collect();
        let mut ways: Vec<(u32, JavaWay)> = Vec::new();
        for object in &live {
            ways.extend(self.ways(*object).into_iter().map(|way| (*object, way)));
        }
        ways.sort_by_key(|(_, way)| (way.rank, way.path.len()));
        Candidates {
            fd,
            owner: live.first().or(owners.first()).copied(),
            is_live: !live.is_empty(),
            ways,
        }
    }

    fn judge(&self, found: Vec<Candidates>) -> Why {
        // Of several things that hold a descriptor, the one that holds most of the group.
        let mut votes: BTreeMap<String, usize> = BTreeMap::new();
        for one in &found {
            let lives: BTreeSet<String> =
                one.best().map(|(_, way)| way.life.shape().text()).collect();
            for life in lives {
                *votes.entry(life).or_default() += 1;
            }
        }
        let mut groups: Vec<Vec<Holding>> = Vec::new();
        for one in found.into_iter().map(|one| self.holding(one, &votes)) {
            let known = groups
                .iter_mut()
                .find(|group| group.first().is_some_and(|first| is_same(first, &one)));
            match known {
                Some(group) => group.push(one),
                None => groups.push(vec![one]),
            }
        }
        let mut chains: Vec<Chain> = groups
            .into_iter()
            .filter_map(|group| self.chain(group))
            .collect();
        chains.sort_by_key(|chain| std::cmp::Reverse(chain.count));
        Why {
            chains,
            ..Why::default()
        }
    }

    fn holding(&self, of: Candidates, votes: &BTreeMap<String, usize>) -> Holding {
        let count = |way: &JavaWay| votes.get(&way.life.shape().text()).copied().unwrap_or(0);
        let best = of
            .best()
            .max_by_key(|(_, way)| (count(way), std::cmp::Reverse(way.path.len())))
            .cloned();
        let own = best.as_ref().map(|(_, way)| way.life.shape());
        let mut others = of.ways.iter().map(|(_, way)| way);
        let also = others.find(|way| way.rank < JDK_RANK && Some(way.life.shape()) != own);
        let also = also.map(|way| way.life.text()).filter(|_| best.is_some());
        let basis = match (&best, of.owner) {
            (Some(_), _) => Basis::Object,
            (None, Some(_)) if !of.is_live && !self.is_partial => Basis::Unreachable,
            _ => Basis::NoHolderFound,
        };
        let owner = best.as_ref().map(|(object, _)| *object).or(of.owner);
        let owner = owner.map(|object| self.owner_name(object));
        Holding {
            fd: of.fd,
            owner: owner.unwrap_or_default(),
            hops: best
                .as_ref()
                .map(|(_, way)| self.hops(way))
                .unwrap_or_default(),
            life: best.map(|(_, way)| way.life),
            basis,
            also,
        }
    }

    /// The class of an owner; garbage has no node, but its number has its class.
    fn owner_name(&self, object: u32) -> String {
        let number = self.numbers.iter().find(|number| number.object == object);
        let class = number.map_or_else(|| self.class_of(object), |number| number.class);
        display_class(self.names.class(class))
    }

    fn chain(&self, group: Vec<Holding>) -> Option<Chain> {
        let fds: Vec<u32> = group.iter().map(|one| one.fd).collect();
        let mut group = group.into_iter();
        let first = group.next()?;
        let (mut hops, mut life) = (first.hops, first.life);
        for one in group {
            // Two ways through the JDK are shown as one.
            if hops.len() == one.hops.len() {
                let pairs = hops.into_iter().zip(&one.hops);
                hops = pairs.map(|(hop, other)| hop.common(other)).collect();
            }
            if life != one.life {
                life = life.map(|life| life.shape());
            }
        }
        let also = first.also;
        let mut text = match &life {
            Some(life) => chain::text(fds.len(), &first.owner, &hops, life),
            None => self.nobody(first.basis, &first.owner),
        };
        if let Some(also) = &also {
            text.push_str("; also ");
            text.push_str(also);
        }
        Some(Chain {
            basis: first.basis,
            count: fds.len(),
            fds,
            owner: (!first.owner.is_empty()).then_some(first.owner),
            holders: hops.into_iter().map(|one| one.hop).collect(),
            root: life.map(|life| life.text()),
            also,
            text,
        })
    }

    /// Why there is no chain.
    fn nobody(&self, basis: Basis, owner: &str) -> String {
        match (basis, owner) {
            (Basis::Unreachable, owner) => {
                format!("only garbage carries the number: nothing holds the {owner} any more")
            }
            _ if self.is_partial => {
                "not decided: the room or the time of the walk was over; fdguard why --force has more"
                    .to_owned()
            }
            (_, "") => {
                "no Java object that fdguard knows as an owner has this number: the JVM, native code \
                 or a class of its own opened it"
                    .to_owned()
            }
            (_, owner) => format!("{owner}: held by something that the JVM does not tell"),
        }
    }
}

/// Whether two descriptors have one chain: the same as it is shown.
fn is_same(one: &Holding, other: &Holding) -> bool {
    let shape = |of: &Holding| {
        let hops: Vec<JavaHop> = of.hops.iter().map(JavaHop::shape).collect();
        let life = of.life.as_ref().map(JavaLife::shape);
        life.map(|life| chain::text(1, &of.owner, &hops, &life))
    };
    let is_owner = one.life.is_some() || one.owner == other.owner;
    one.basis == other.basis && is_owner && shape(one) == shape(other)
}
