//! What keeps an object alive: the ways from it to something that lives by itself.

use rustc_hash::FxHashSet;

use crate::attribute;
use crate::dict;
use crate::frame::{self, FrameName, Local};
use crate::graph::Index;
use crate::heap::Heap;
use crate::place::CodeOrigin;
use crate::types::Kind;

/// Objects that are looked at for one.
const MOST_VISITED: usize = 20_000;
/// The longest way.
const MOST_STEPS: usize = 48;

/// The rank of what Python's own modules have: after the frames of running threads, because
/// Python keeps a list of those.
const STANDARD: u8 = 5;
/// The rank of an event loop, and at least of what somebody watches: an object that is watched is
/// usually kept elsewhere, too.
const WATCHED: u8 = 3;
/// What a selector has of each descriptor that it watches.
const SELECTOR_KEY: &str = "selectors.SelectorKey";
/// The class of every event loop of `asyncio`.
const EVENT_LOOP: &str = "asyncio.BaseEventLoop";

/// What lives by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Root {
    /// A global of a module.
    Global {
        module: String,
        name: Option<String>,
    },
    /// An attribute of a class.
    Class { class: String, name: Option<String> },
    /// What a module written in C keeps.
    State { module: String },
    /// A local variable of a function that runs in a thread.
    Local {
        name: Option<String>,
        frame: Option<FrameName>,
        thread: u64,
    },
    /// Something that the interpreter keeps.
    Label(&'static str),
    /// Code that does not tell.
    Unknown,
}

/// A way from an object to what keeps it alive.
#[derive(Clone, Debug)]
pub(crate) struct Way {
    /// The object, then its holders.
    pub(crate) path: Vec<Index>,
    pub(crate) root: Root,
    pub(crate) rank: u8,
}

struct Step {
    object: Index,
    from: usize,
    depth: usize,
}

impl Heap<'_> {
    /// The ways from an object, the most likely reason first.
    pub(crate) fn ways(&self, object: Index) -> Vec<Way> {
        let mut steps = vec![Step {
            object,
            from: usize::MAX,
            depth: 0,
        }];
        let mut seen = FxHashSet::from_iter([object]);
        let mut ways: Vec<Way> = Vec::new();
        let mut at = 0;
        while let Some(step) = steps.get(at) {
            let (object, depth) = (step.object, step.depth);
            let path = || path_to(&steps, at);
            let before = steps.get(step.from);
            let earlier = before.and_then(|step| steps.get(step.from));
            let before = before.map(|step| step.object);
            let roots = self.roots(object, before, earlier.map(|step| step.object));
            let is_end = roots.iter().any(|(_, _, is_end)| *is_end);
            for (root, rank, _) in roots {
                let path = path();
                let rank = self.rank_of_way(rank, &root, &path);
                ways.push(Way { path, root, rank });
            }
            if !is_end && depth < MOST_STEPS && seen.len() < MOST_VISITED {
                let mut holders: Vec<Index> = self.graph.holders(object).to_vec();
                let is_unexplained = self.graph.unexplained(object).is_none_or(|count| count > 0);
                if is_unexplained {
                    holders.extend(self.hidden_holders(object));
                }
                let is_alone =
                    holders.is_empty() && !ways.iter().any(|way| way.path.last() == Some(&object));
                if is_alone {
                    let (path, root) = (path(), Root::Unknown);
                    ways.push(Way {
                        path,
                        root,
                        rank: 9,
                    });
                }
                for holder in holders {
                    // A module may hold it by two names.
                    let is_module = self.modules.contains_key(&self.graph.address(holder));
                    let is_weak = self.kind_of(holder) == Kind::Weak;
                    if !is_weak && (is_module || seen.insert(holder)) {
                        steps.push(Step {
                            object: holder,
                            from: at,
                            depth: depth + 1,
                        });
                    }
                }
            }
            at += 1;
        }
        ways.sort_by_key(|way| (way.rank, way.path.len()));
        ways
    }

    /// What an object is by itself, reached from the one before; and whether the search ends here.
    fn roots(
        &self,
        object: Index,
        before: Option<Index>,
        earlier: Option<Index>,
    ) -> Vec<(Root, u8, bool)> {
        let address = self.graph.address(object);
        let child = before.map(|before| self.graph.address(before));
        if let Some(module) = self.modules.get(&address) {
            let key = child.and_then(|child| dict::key_of(&self.reader, address, child));
            let root = Root::Global {
                module: module.name.clone(),
                name: key.and_then(|key| self.reader.text(key)),
            };
            return vec![(root, rank(module.origin), true)];
        }
        let mut roots: Vec<(Root, u8, bool)> = Vec::new();
        match self.kind_of(object) {
            Kind::Type if before.is_some() => {
                let earlier = earlier.map(|earlier| self.graph.address(earlier));
                roots.push(self.class_root(object, child, earlier));
            }
            Kind::Module if before.is_some() => {
                let dict = self.reader.pointer(address, 16).unwrap_or(0);
                let module = self.modules.get(&dict);
                let module = module.map_or_else(|| "?".to_owned(), |one| one.name.clone());
                roots.push((Root::State { module }, 6, true));
            }
            Kind::Other if before.is_some() => {
                roots.extend(self.anchor(object).map(|(root, rank)| (root, rank, true)));
            }
            _ => {}
        }
        if let Some(label) = self.labels.get(&address) {
            roots.push((Root::Label(label), 1, true));
        }
        roots.extend(
            self.best_local(address)
                .map(|(root, rank)| (root, rank, false)),
        );
        roots
    }

    /// What lives as long as the program or a thread wants it to, whoever else knows it: what
    /// knows it, a task or a logger, is not the reason.
    fn anchor(&self, object: Index) -> Option<(Root, u8)> {
        let of = self.type_of(object)?;
        let logging = |name: &str| Root::Global {
            module: "logging".to_owned(),
            name: Some(name.to_owned()),
        };
        match of.name.as_str() {
            "logging.Manager" => return Some((logging("Logger.manager"), STANDARD)),
            "logging.RootLogger" => return Some((logging("root"), STANDARD)),
            _ => {}
        }
        let mut bases = of.line.iter().filter_map(|base| self.class(*base));
        let is_loop = bases.any(|base| base.name == EVENT_LOOP);
        let thread = || attribute::get(&self.reader, self.graph.address(object), &of, "_thread_id");
        let kind = thread().filter(|_| is_loop);
        let kind = kind.and_then(|thread| self.class(self.reader.kind(thread)?))?;
        (kind.name == "int").then_some((Root::Label("a running event loop"), WATCHED))
    }

    fn class_root(
        &self,
        class: Index,
        child: Option<u64>,
        earlier: Option<u64>,
    ) -> (Root, u8, bool) {
        let address = self.graph.address(class);
        let of = self.class(address);
        let (name, module) = of.map_or_else(
            || ("?".to_owned(), String::new()),
            |one| (one.name.clone(), one.module.clone()),
        );
        let dict = self.reader.pointer(address, crate::layout::TYPE_DICT);
        let child = if child == dict { earlier } else { child };
        let key =
            child.and_then(|child| dict.and_then(|dict| dict::key_of(&self.reader, dict, child)));
        let origin = self.modules.values().find(|one| one.name == module);
        let root = Root::Class {
            class: name,
            name: key.and_then(|key| self.reader.text(key)),
        };
        let origin = origin.map_or(CodeOrigin::Standard, |one| one.origin);
        (root, rank(origin), true)
    }

    /// The local variable that is most likely the reason: one with a name, in the program's code.
    fn best_local(&self, address: u64) -> Option<(Root, u8)> {
        let locals = self.locals.get(&address)?;
        let named = locals.iter().map(|local| self.local_root(local));
        named.min_by_key(|(root, rank)| {
            let is_named = matches!(root, Root::Local { name: Some(_), .. });
            (*rank, !is_named)
        })
    }

    pub(crate) fn local_root(&self, local: &Local) -> (Root, u8) {
        let at = local.frame.frame;
        let name = frame::variable_name(&self.reader, at, local.slot);
        let frame = frame::name(&self.reader, at);
        let origin = frame
            .as_ref()
            .map(|frame| self.origins.of_file(&frame.file));
        let rank = match origin {
            Some(CodeOrigin::Own) => 1,
            Some(CodeOrigin::Package) => 3,
            _ => 4,
        };
        // What is on the stack of values may be left from before.
        let rank = if name.is_some() { rank } else { rank + 4 };
        let thread = local.frame.thread;
        let root = Root::Local {
            name,
            frame,
            thread,
        };
        (root, rank)
    }

    /// The rank of a way, which is that of its root unless it leads through something special.
    fn rank_of_way(&self, rank: u8, root: &Root, path: &[Index]) -> u8 {
        let is_nameless = matches!(root, Root::Local { name: None, .. });
        let rank = match is_nameless {
            true => rank,
            false => self.improved(rank, path),
        };
        match self.is_watched(path) {
            true => rank.max(WATCHED),
            false => rank,
        }
    }

    /// Whether a way leads through a selector that watches a descriptor.
    fn is_watched(&self, path: &[Index]) -> bool {
        let mut types = path.iter().skip(1).map(|object| self.type_of(*object));
        types.any(|of| of.is_some_and(|of| of.name == SELECTOR_KEY))
    }

    /// A way through a function of the program that waits is the program's own.
    fn improved(&self, rank: u8, path: &[Index]) -> u8 {
        if rank <= 1 {
            return rank;
        }
        let is_own = path.iter().skip(1).any(|object| {
            let address = self.graph.address(*object);
            let frame = match self.kind_of(*object) {
                Kind::Generator => frame::of_generator(&self.reader, address),
                Kind::Frame => frame::of_object(&self.reader, address),
                _ => None,
            };
            let name = frame.and_then(|frame| frame::name(&self.reader, frame));
            name.is_some_and(|name| self.origins.of_file(&name.file) == CodeOrigin::Own)
        });
        if is_own { 1 } else { rank }
    }
}

const fn rank(origin: CodeOrigin) -> u8 {
    match origin {
        CodeOrigin::Own => 0,
        CodeOrigin::Package => 2,
        CodeOrigin::Standard => STANDARD,
    }
}

fn path_to(steps: &[Step], last: usize) -> Vec<Index> {
    let mut path = Vec::new();
    let mut at = last;
    while let Some(step) = steps.get(at) {
        path.push(step.object);
        at = step.from;
    }
    path.reverse();
    path
}
