//! What keeps a Java object alive: the ways from it to something that lives by itself.

use fdguard_wire::{JavaEdge, JavaRoot};
use rustc_hash::FxHashSet;

use super::names::JavaMethod;
use super::{FIELD, JavaHeap, STATIC_FIELD};

/// Objects that are looked at for one.
const MOST_VISITED: usize = 20_000;
/// The longest way.
const MOST_STEPS: usize = 64;
/// The most ways of an object.
const MOST_WAYS: usize = 32;

/// The thread of a `java.net.http.HttpClient`.
const CLIENT_THREAD: &str = "jdk/internal/net/http/HttpClientImpl$SelectorManager";

const JNI_GLOBAL: u64 = 21;
const MONITOR: u64 = 23;
const STACK_LOCAL: u64 = 24;
const JNI_LOCAL: u64 = 25;
const THREAD: u64 = 26;

/// What lives by itself in a JVM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum JavaLife {
    /// A static field.
    Static {
        /// `com/example/Main`.
        class: String,
        field: Option<String>,
    },
    /// A variable of a thread.
    ThreadLocal { thread: Option<String> },
    /// A local variable of a method that runs.
    Slot {
        slot: u64,
        method: Option<JavaMethod>,
        thread: Option<String>,
    },
    /// A thread that runs.
    Thread { name: Option<String> },
    /// Native code.
    Native,
    /// Native code in a thread.
    NativeFrame { thread: Option<String> },
    /// Something that the JVM keeps.
    Machine(&'static str),
}

/// A way from an object to what keeps it alive.
#[derive(Clone, Debug)]
pub(super) struct JavaWay {
    /// The references from the object outwards.
    pub(super) path: Vec<JavaEdge>,
    pub(super) life: JavaLife,
    pub(super) rank: u8,
}

struct Step {
    object: u32,
    /// The reference that led here, and the step before.
    edge: Option<JavaEdge>,
    from: usize,
    depth: usize,
}

/// Whether a class belongs to the JDK.
pub(super) fn is_jdk(class: &str) -> bool {
    ["java/", "javax/", "jdk/", "sun/", "com/sun/"]
        .iter()
        .any(|start| class.starts_with(start))
}

impl JavaHeap {
    /// The ways from an object, the most likely reason first.
    pub(super) fn ways(&self, object: u32) -> Vec<JavaWay> {
        let mut steps = vec![Step {
            object,
            edge: None,
            from: 0,
            depth: 0,
        }];
        let mut seen: FxHashSet<u32> = FxHashSet::default();
        seen.insert(object);
        let mut ways: Vec<JavaWay> = Vec::new();
        let mut at = 0;
        while let Some(step) = steps.get(at) {
            let (holder, depth, edge) = (step.object, step.depth, step.edge);
            let found = self.lives(holder, edge);
            let is_end = !found.is_empty() && self.is_own_life(holder);
            for (life, rank) in found {
                if ways.len() < MOST_WAYS * 4 {
                    let path = path(&steps, at);
                    ways.push(JavaWay { path, life, rank });
                }
            }
            if !is_end && depth < MOST_STEPS && steps.len() < MOST_VISITED {
                for edge in self.edges_to(holder) {
                    let is_way = edge.kind() != STATIC_FIELD
                        && !self.is_class(edge.from)
                        && self.is_reachable(edge.from)
                        && self.is_strong(edge);
                    if is_way && seen.insert(edge.from) {
                        steps.push(Step {
                            object: edge.from,
                            edge: Some(edge),
                            from: at,
                            depth: depth + 1,
                        });
                    }
                }
            }
            at += 1;
        }
        ways.sort_by_key(|way| (way.rank, way.path.len()));
        ways.truncate(MOST_WAYS);
        ways
    }

    /// Whether an object is a thread that runs as long as it wants. That of an `HttpClient` ends
    /// when nobody has the client any more.
    fn is_own_life(&self, object: u32) -> bool {
        let class = self.class_of(object);
        self.names.is_a(class, "java/lang/Thread") && self.names.class(class) != CLIENT_THREAD
    }

    /// Why an object lives by itself, with the rank of each reason. `edge` is what it holds on the
    /// way.
    fn lives(&self, object: u32, edge: Option<JavaEdge>) -> Vec<(JavaLife, u8)> {
        let mut lives = Vec::new();
        for edge in self
            .edges_to(object)
            .filter(|edge| edge.kind() == STATIC_FIELD)
        {
            let class = self.names.class(edge.from).to_owned();
            let rank = if is_jdk(&class) { 4 } else { 0 };
            let field = self.names.static_field(edge.from, edge.index());
            let field = field.map(str::to_owned);
            lives.push((JavaLife::Static { class, field }, rank));
        }
        let roots = self
            .roots
            .get(&object)
            .map(Vec::as_slice)
            .unwrap_or_default();
        lives.extend(
            roots
                .iter()
                .filter_map(|root| self.life(object, edge, root)),
        );
        lives
    }

    fn life(&self, object: u32, edge: Option<JavaEdge>, root: &JavaRoot) -> Option<(JavaLife, u8)> {
        let name = |tag: u64| {
            let name = u32::try_from(tag)
                .ok()
                .and_then(|tag| self.names.thread(tag));
            name.map(str::to_owned)
        };
        let thread = name(root.thread);
        Some(match root.kind {
            STACK_LOCAL => {
                let method = self.names.method(root.method, root.location).cloned();
                let is_own = method.as_ref().is_some_and(|method| !is_jdk(&method.class));
                let slot = root.slot;
                let life = JavaLife::Slot {
                    slot,
                    method,
                    thread,
                };
                (life, if is_own { 1 } else { 5 })
            }
            THREAD => {
                let field = edge.filter(|edge| edge.kind() == FIELD);
                let field =
                    field.and_then(|edge| self.names.field(self.class_of(object), edge.index()));
                let thread = name(u64::from(object));
                match field {
                    Some("threadLocals" | "inheritableThreadLocals") => {
                        (JavaLife::ThreadLocal { thread }, 1)
                    }
                    _ => (JavaLife::Thread { name: thread }, 2),
                }
            }
            JNI_GLOBAL => (JavaLife::Native, 3),
            JNI_LOCAL => (JavaLife::NativeFrame { thread }, 5),
            MONITOR => (JavaLife::Machine("a lock that is in use"), 6),
            _ if self.is_class(object) => return None,
            _ => (JavaLife::Machine("the JVM"), 6),
        })
    }
}

fn path(steps: &[Step], at: usize) -> Vec<JavaEdge> {
    let mut path = Vec::new();
    let mut at = at;
    while let Some(step) = steps.get(at) {
        let Some(edge) = step.edge else {
            break;
        };
        path.push(edge);
        at = step.from;
    }
    path.reverse();
    path
}
