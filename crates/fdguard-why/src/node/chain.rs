//! A way in words.

use super::NodeHeap;
use super::search::{NodeLife, NodeStep, NodeWay, REGISTERS, named};
use super::snapshot::{EdgeKind, NodeIndex, NodeKind};
use crate::hop::Hop;

impl NodeHeap {
    /// The holders on a way, the one next to the owner first.
    pub(super) fn hops(&self, way: &NodeWay) -> Vec<Hop> {
        let mut hops = Vec::new();
        for step in &way.path {
            hops.extend(self.hop(*step));
        }
        // What lives is named by itself.
        match way.life {
            NodeLife::Exports { .. } | NodeLife::Timer | NodeLife::Waiting { .. } => {
                drop(hops.pop())
            }
            _ => {}
        }
        hops
    }

    fn hop(&self, step: NodeStep) -> Option<Hop> {
        let NodeStep { holder, edge } = step;
        let class = self.snapshot.name(holder);
        let name = self.snapshot.edge_name(&edge);
        match (self.snapshot.kind(holder), edge.kind) {
            (_, EdgeKind::Context) => Some(self.variable(holder, name)),
            (NodeKind::Object, EdgeKind::Element) => Some(self.container(holder)),
            (NodeKind::Object, EdgeKind::Internal) if name == REGISTERS => {
                let function = self.snapshot.target(holder, "function");
                let name = function.map_or("", |function| self.snapshot.name(function));
                Some(Hop::Local {
                    name: None,
                    function: named(name),
                    file: function.map_or_else(String::new, |one| self.closure_file(one)),
                    line: function.and_then(|one| self.snapshot.line(one)),
                })
            }
            (NodeKind::Object, EdgeKind::Internal) if name == "table" => {
                Some(self.container(holder))
            }
            (NodeKind::Object, EdgeKind::Property) => Some(self.property(holder, class, name)),
            (NodeKind::Closure, EdgeKind::Property) => Some(Hop::Object {
                class: format!("function {}", named(class)),
                attribute: Some(plain(name)),
            }),
            // Functions that were bound to something.
            (NodeKind::Closure, EdgeKind::Internal) if name.starts_with("bound_") => {
                Some(Hop::Closure {
                    function: named(class),
                })
            }
            _ => None,
        }
    }

    /// A variable of a function that closures keep.
    fn variable(&self, context: NodeIndex, name: &str) -> Hop {
        let closure = self.closures.get(&context).copied();
        let function = closure.map_or("", |closure| self.snapshot.name(closure));
        Hop::Local {
            name: Some(name.to_owned()),
            function: named(function),
            file: self.context_file(context),
            line: closure.and_then(|closure| self.snapshot.line(closure)),
        }
    }

    pub(super) fn container(&self, object: NodeIndex) -> Hop {
        Hop::Container {
            class: class_of(self.snapshot.name(object)),
            entries: self.sizes.get(&object).copied(),
            key: None,
        }
    }

    fn property(&self, holder: NodeIndex, class: &str, name: &str) -> Hop {
        let class = class_of(class);
        if class == "Object" {
            let properties = self.snapshot.edges(holder).iter().filter(|edge| {
                edge.kind == EdgeKind::Property && self.snapshot.edge_name(edge) != "__proto__"
            });
            return Hop::Container {
                class,
                entries: u64::try_from(properties.count()).ok(),
                key: Some(format!("'{}'", plain(name))),
            };
        }
        // Of these the object itself says more.
        let is_wrapper = matches!(
            name,
            "_handle" | "<symbol kHandle>" | "<symbol owner_symbol>"
        );
        Hop::Object {
            class,
            attribute: (!is_wrapper).then(|| plain(name)),
        }
    }
}

/// The name of a symbol without its brackets.
fn plain(name: &str) -> String {
    let inner = name.strip_prefix("<symbol ");
    let inner = inner.and_then(|name| name.strip_suffix('>'));
    inner.unwrap_or(name).to_owned()
}

/// `Array`, where V8 adds what is in it.
fn class_of(name: &str) -> String {
    match name.split(" / ").next() {
        Some("") | None => "Object".to_owned(),
        Some(class) => class.to_owned(),
    }
}
