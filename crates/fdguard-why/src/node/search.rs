//! The ways from an object to what keeps it alive, and which of them a reader wants to know.

use std::collections::VecDeque;

use rustc_hash::FxHashSet;

use super::NodeHeap;
use super::snapshot::{EdgeKind, NodeIndex, NodeKind, SnapshotEdge};

/// The most holders that are looked at for one descriptor.
const MOST_SEEN: usize = 20_000;
/// The most ways that are compared.
const MOST_WAYS: usize = 24;

/// The edge by which a function that was left has its variables.
pub(super) const REGISTERS: &str = "parameters_and_registers";

/// What lives by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum NodeLife {
    /// A variable of a module, or of a function whose closures live.
    Variable { name: String, file: String },
    /// A property of the global object.
    Global { name: String },
    /// What a module exports.
    Exports { file: String },
    /// A timer.
    Timer,
    /// A function that waits in an `await` or `yield`.
    Waiting {
        function: String,
        file: String,
        line: Option<u32>,
    },
    /// A handle that libuv watches.
    EventLoop,
    /// A request that libuv has not finished.
    Request { class: String },
    /// Code that runs now.
    Running,
    /// Native code.
    Native { class: String },
}

impl NodeLife {
    pub(super) fn text(&self) -> String {
        match self {
            Self::Variable { name, file } if file.is_empty() => format!("variable `{name}`"),
            Self::Variable { name, file } => format!("variable `{name}` of {}", base(file)),
            Self::Global { name } => format!("globalThis.{name}"),
            Self::Exports { file } => format!("exports of {}", base(file)),
            Self::Timer => "a timer".to_owned(),
            Self::Waiting {
                function,
                file,
                line,
            } => {
                let line = line.map_or_else(String::new, |line| format!(":{line}"));
                format!("{function}() {}{line}, which waits", base(file))
            }
            Self::EventLoop => "the event loop".to_owned(),
            Self::Request { class } => format!("a request that is not finished ({class})"),
            Self::Running => "code that runs now".to_owned(),
            Self::Native { class } => format!("native code ({class})"),
        }
    }
}

/// The last part of a path.
pub(super) fn base(file: &str) -> &str {
    match file.starts_with("node:") {
        true => file,
        false => file.rsplit('/').next().unwrap_or(file),
    }
}

/// A holder on a way, and the edge by which it holds the one before.
#[derive(Clone, Copy, Debug)]
pub(super) struct NodeStep {
    pub(super) holder: NodeIndex,
    pub(super) edge: SnapshotEdge,
}

/// A way.
#[derive(Clone, Debug)]
pub(super) struct NodeWay {
    pub(super) path: Vec<NodeStep>,
    pub(super) life: NodeLife,
    /// The lower, the likelier it is what a reader looks for.
    pub(super) rank: u8,
}

struct Visit {
    node: NodeIndex,
    step: Option<NodeStep>,
    from: usize,
}

impl NodeHeap {
    /// The ways from an object, the likeliest reason first.
    pub(super) fn ways(&self, object: NodeIndex) -> Vec<NodeWay> {
        let mut visits = vec![Visit {
            node: object,
            step: None,
            from: usize::MAX,
        }];
        let mut seen = FxHashSet::from_iter([object]);
        let mut queue = VecDeque::from([0]);
        let mut ways = Vec::new();
        while let Some(at) = queue.pop_front() {
            if visits.len() > MOST_SEEN || ways.len() >= MOST_WAYS {
                break;
            }
            let Some(node) = visits.get(at).map(|visit| visit.node) else {
                break;
            };
            for (holder, edge) in self.retainers.of(node) {
                // What lives only because of the object is not a reason for it.
                if !self.retainers.is_alive(*holder) || self.retainers.is_behind(*holder, object) {
                    continue;
                }
                let Some(edge) = self.snapshot.edge(*edge as usize).copied() else {
                    continue;
                };
                let step = NodeStep {
                    holder: *holder,
                    edge,
                };
                match self.life(node, step, at == 0) {
                    Some((life, rank)) => {
                        let mut path = path(&visits, at);
                        let is_holder = matches!(
                            life,
                            NodeLife::Exports { .. } | NodeLife::Timer | NodeLife::Waiting { .. }
                        );
                        path.extend(is_holder.then_some(step));
                        let rank = match life {
                            NodeLife::Timer => self.timer_rank(&path),
                            _ => rank,
                        };
                        ways.push(NodeWay { path, life, rank });
                    }
                    None if seen.insert(*holder) => {
                        queue.push_back(visits.len());
                        visits.push(Visit {
                            node: *holder,
                            step: Some(step),
                            from: at,
                        });
                    }
                    None => {}
                }
            }
        }
        ways.sort_by_key(|way| (way.rank, way.path.len()));
        ways
    }

    /// What a holder is, if it lives by itself, and its rank.
    fn life(&self, node: NodeIndex, step: NodeStep, is_first: bool) -> Option<(NodeLife, u8)> {
        let NodeStep { holder, edge } = step;
        let class = self.snapshot.name(holder);
        if self.snapshot.kind(holder) == NodeKind::Synthetic {
            return Some(self.native_life(node, class, is_first));
        }
        let name = self.snapshot.edge_name(&edge);
        match edge.kind {
            // The global object has it behind a getter.
            EdgeKind::Context if name == "process" && self.is_nodes_own(holder) => {
                let name = name.to_owned();
                Some((NodeLife::Global { name }, 4))
            }
            EdgeKind::Context if self.is_module_context(holder) => {
                let file = self.context_file(holder);
                let rank = rank_of(&file, 0, 1, 4);
                let name = name.to_owned();
                Some((NodeLife::Variable { name, file }, rank))
            }
            EdgeKind::Property if Some(holder) == self.global => {
                let rank = if is_builtin(name) { 4 } else { 0 };
                let name = name.to_owned();
                Some((NodeLife::Global { name }, rank))
            }
            EdgeKind::Property if class == "Module" && name == "exports" => {
                let file = self.module_file(holder);
                let rank = rank_of(&file, 0, 1, 4);
                Some((NodeLife::Exports { file }, rank))
            }
            // A neighbour in Node's list of timers: being in the list is the reason.
            EdgeKind::Property if matches!(name, "_idleNext" | "_idlePrev") => {
                Some((NodeLife::Timer, 1))
            }
            EdgeKind::Property if class == "Timeout" || class == "Immediate" => {
                matches!(name, "_onTimeout" | "_onImmediate" | "_timerArgs" | "_argv")
                    .then_some((NodeLife::Timer, 1))
            }
            // A generator is held by whoever wants its next value.
            EdgeKind::Internal if name == REGISTERS && self.is_awaiting(holder) => {
                let function = self.snapshot.target(holder, "function")?;
                let file = self.closure_file(function);
                let rank = rank_of(&file, 1, 2, 5);
                let line = self.snapshot.line(function);
                let function = named(self.snapshot.name(function));
                let life = NodeLife::Waiting {
                    function,
                    file,
                    line,
                };
                Some((life, rank))
            }
            _ => None,
        }
    }

    /// Whether a function that was left waits for a promise.
    fn is_awaiting(&self, suspended: NodeIndex) -> bool {
        let mut edges = self.snapshot.edges(suspended).iter();
        edges.any(|edge| self.snapshot.name(edge.to) == "Promise")
    }

    /// Whether a context is of a module of Node itself.
    fn is_nodes_own(&self, context: NodeIndex) -> bool {
        self.is_module_context(context) && self.context_file(context).starts_with("node:")
    }

    /// What native code keeps: the handles of libuv, first of all.
    fn native_life(&self, node: NodeIndex, class: &str, is_first: bool) -> (NodeLife, u8) {
        let held = self.snapshot.name(node);
        match class {
            "(Stack roots)" | "(Handle scope)" => (NodeLife::Running, 6),
            _ if is_handle(held) => (NodeLife::EventLoop, if is_first { 7 } else { 3 }),
            _ if held.ends_with("Wrap") || held.starts_with("FSReq") => {
                let class = held.to_owned();
                (NodeLife::Request { class }, 3)
            }
            _ => {
                let class = match held.is_empty() {
                    true => class.to_owned(),
                    false => held.to_owned(),
                };
                (NodeLife::Native { class }, 6)
            }
        }
    }

    /// A timer that Node made itself tells nothing about the program.
    fn timer_rank(&self, path: &[NodeStep]) -> u8 {
        let mut closures = path
            .iter()
            .map(|step| step.holder)
            .filter(|holder| self.snapshot.kind(*holder) == NodeKind::Closure);
        let is_own = closures.any(|closure| is_own(&self.closure_file(closure)));
        if is_own { 1 } else { 5 }
    }
}

fn path(visits: &[Visit], mut at: usize) -> Vec<NodeStep> {
    let mut path = Vec::new();
    while let Some(visit) = visits.get(at) {
        path.extend(visit.step);
        at = visit.from;
    }
    path.reverse();
    path
}

/// A function's name, as it is shown.
pub(super) fn named(name: &str) -> String {
    match name {
        "" => "<anonymous>".to_owned(),
        name => name.to_owned(),
    }
}

/// Whether a script is the program's own.
pub(super) fn is_own(file: &str) -> bool {
    !file.is_empty() && !file.starts_with("node:") && !file.contains("/node_modules/")
}

fn rank_of(file: &str, own: u8, library: u8, node: u8) -> u8 {
    match file {
        file if is_own(file) => own,
        file if file.contains("/node_modules/") => library,
        _ => node,
    }
}

/// Whether libuv keeps an object of this class as long as it is active.
fn is_handle(class: &str) -> bool {
    matches!(
        class,
        "TCP" | "Pipe" | "UDP" | "TTY" | "Process" | "FSEvent" | "StatWatcher" | "MessagePort"
    )
}

/// Properties that the global object has in every program.
fn is_builtin(name: &str) -> bool {
    const NAMES: [&str; 14] = [
        "process",
        "console",
        "Buffer",
        "global",
        "globalThis",
        "Object",
        "Function",
        "Array",
        "Map",
        "Set",
        "Promise",
        "Symbol",
        "Reflect",
        "WebAssembly",
    ];
    NAMES.contains(&name) || name.starts_with('<') || name.starts_with("__")
}
