//! The answer: for each group of descriptors the chains that hold them.

use std::collections::BTreeSet;

use super::NodeHeap;
use super::search::{NodeLife, NodeWay};
use super::snapshot::NodeIndex;
use crate::answer::{Basis, Chain, Why, held_count, skip_wrappers};
use crate::hop::Hop;
use crate::number::FirstWalk;

/// The most descriptors of a group that are looked at one by one.
const MOST_SEARCHED: usize = 2000;

/// One descriptor's chain.
struct Holding {
    fd: u32,
    basis: Basis,
    owner: String,
    hops: Vec<Hop>,
    life: Option<NodeLife>,
    also: Option<String>,
}

impl NodeHeap {
    /// Answers for groups of descriptors. `files` are those that JavaScript may have as numbers;
    /// `first` is an earlier walk.
    #[must_use]
    pub fn answer(
        &self,
        groups: &[Vec<u32>],
        files: &BTreeSet<u32>,
        first: Option<&FirstWalk>,
    ) -> Vec<Why> {
        groups
            .iter()
            .map(|group| self.answer_group(group, files, first))
            .collect()
    }

    fn answer_group(&self, group: &[u32], files: &BTreeSet<u32>, first: Option<&FirstWalk>) -> Why {
        let mut found = Vec::new();
        let mut plain = Vec::new();
        for fd in group.iter().take(MOST_SEARCHED) {
            match self.owners.get(fd) {
                Some(owners) => found.push(self.holding(*fd, owners)),
                None if self.collected.contains(fd) => {
                    found.push(without_way(*fd, Basis::Unreachable, "FileHandle"));
                }
                None if files.contains(fd) => plain.push(*fd),
                None => found.push(without_way(*fd, Basis::NoHolderFound, "")),
            }
        }
        let mut chains = grouped(found);
        if !plain.is_empty() {
            chains.extend(self.plain_numbers(&plain, first));
        }
        chains.sort_by_key(|chain| std::cmp::Reverse(chain.count));
        Why {
            chains,
            more: group.len().saturating_sub(MOST_SEARCHED),
            ..Why::default()
        }
    }

    fn holding(&self, fd: u32, owners: &[(NodeIndex, String)]) -> Holding {
        let mut ways: Vec<(NodeWay, &str)> = Vec::new();
        for (object, class) in owners {
            let found = self.ways(*object).into_iter();
            ways.extend(found.map(|way| (way, class.as_str())));
        }
        ways.sort_by_key(|(way, _)| (way.rank, way.path.len()));
        let owner = owners.first().map_or("", |(_, class)| class.as_str());
        let Some((best, class)) = ways.first() else {
            return without_way(fd, Basis::NoHolderFound, owner);
        };
        let (hops, life) = self.shown(best);
        let text = life.text();
        let also = ways.iter().skip(1).map(|(way, _)| way);
        // Only what a reader can change.
        let also = also
            .filter(|way| way.rank <= 2)
            .map(|way| self.shown(way).1.text());
        let also = also.into_iter().find(|other| *other != text);
        let is_loop = life == NodeLife::EventLoop && best.path.is_empty();
        Holding {
            fd,
            basis: if is_loop {
                Basis::EventLoop
            } else {
                Basis::Object
            },
            owner: match is_loop {
                true => self.wrapper(owners).unwrap_or_else(|| (*class).to_owned()),
                false => (*class).to_owned(),
            },
            hops,
            life: Some(life),
            also,
        }
    }

    /// What a handle stands for: `Socket`.
    fn wrapper(&self, owners: &[(NodeIndex, String)]) -> Option<String> {
        let (handle, _) = owners.first()?;
        let owner = self.snapshot.target(*handle, "<symbol owner_symbol>")?;
        Some(self.snapshot.name(owner).to_owned())
    }

    /// The holders of a way, and what lives. What a module exports by a name is named so.
    pub(super) fn shown(&self, way: &NodeWay) -> (Vec<Hop>, NodeLife) {
        let mut hops = self.hops(way);
        let mut life = way.life.clone();
        if let NodeLife::Exports { file } = &life
            && let Some(Hop::Container { key: Some(key), .. }) = hops.last()
        {
            let name = format!("exports.{}", key.trim_matches('\''));
            let file = file.clone();
            life = NodeLife::Variable { name, file };
            hops.pop();
        }
        (hops, life)
    }
}

fn without_way(fd: u32, basis: Basis, owner: &str) -> Holding {
    Holding {
        fd,
        basis,
        owner: owner.to_owned(),
        hops: Vec::new(),
        life: None,
        also: None,
    }
}

/// Chains of one shape become one.
fn grouped(found: Vec<Holding>) -> Vec<Chain> {
    let mut groups: Vec<Vec<Holding>> = Vec::new();
    for one in found {
        let known = groups.iter_mut().find(|group| {
            let first = group.first();
            first.is_some_and(|first| is_same(first, &one))
        });
        match known {
            Some(group) => group.push(one),
            None => groups.push(vec![one]),
        }
    }
    groups.into_iter().filter_map(chain).collect()
}

fn is_same(one: &Holding, other: &Holding) -> bool {
    let shape = |of: &Holding| of.hops.iter().map(Hop::shape).collect::<Vec<_>>();
    let is_near = one.basis == other.basis && one.owner == other.owner;
    is_near && one.life == other.life && shape(one) == shape(other)
}

fn chain(group: Vec<Holding>) -> Option<Chain> {
    let fds: Vec<u32> = group.iter().map(|one| one.fd).collect();
    let mut group = group.into_iter();
    let first = group.next()?;
    let mut hops = first.hops;
    for one in group {
        let pairs = hops.into_iter().zip(&one.hops);
        hops = pairs.map(|(hop, other)| hop.common(other)).collect();
    }
    let text = match (first.basis, &first.life) {
        (Basis::Unreachable, _) => format!(
            "only garbage has the {}: Node closes it when it collects",
            first.owner
        ),
        (Basis::EventLoop, _) => {
            format!("only its event-loop handle keeps the {}", first.owner)
        }
        (_, Some(life)) => held_text(fds.len(), &first.owner, &hops, life),
        (_, None) if first.owner.is_empty() => {
            "no JavaScript object of the main thread has this number: Node itself, native code or a \
             worker opened it"
                .to_owned()
        }
        (_, None) => format!("{}: held by something that V8 does not tell", first.owner),
    };
    let text = match &first.also {
        Some(also) => format!("{text}; also {also}"),
        None => text,
    };
    Some(Chain {
        basis: first.basis,
        count: fds.len(),
        fds,
        owner: Some(first.owner).filter(|owner| !owner.is_empty()),
        holders: hops,
        root: first.life.map(|life| life.text()),
        also: first.also,
        text,
    })
}

/// A chain in words: wrappers of a handle are shown as the outermost of them.
pub(super) fn held_text(count: usize, owner: &str, hops: &[Hop], life: &NodeLife) -> String {
    let (owner, rest) = skip_wrappers(owner, hops);
    let count = held_count(count);
    let first = std::iter::once(owner.to_owned());
    let texts: Vec<String> = first.chain(rest.iter().map(Hop::text)).collect();
    format!("held by {count}{} ← {}", texts.join(" ← "), life.text())
}
