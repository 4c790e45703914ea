//! A heap snapshot of V8, as `v8.writeHeapSnapshot` writes it: nodes, edges and strings. Bytes that
//! are not what they should be give fewer nodes or none, never a fault.

use std::ops::Range;

/// The position of an object among the nodes.
pub(crate) type NodeIndex = u32;

/// How an edge holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EdgeKind {
    /// A variable of a function that is kept for its closures.
    Context,
    Element,
    Property,
    Internal,
    /// Keeps nothing alive, or is said twice.
    Weak,
}

/// What a node is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NodeKind {
    Array,
    Object,
    Closure,
    Synthetic,
    Other,
}

/// An edge.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SnapshotEdge {
    pub(crate) kind: EdgeKind,
    /// A string, or a position if it is an element.
    name: u32,
    pub(crate) to: NodeIndex,
}

#[derive(Clone, Copy, Debug)]
struct SnapshotNode {
    kind: NodeKind,
    name: u32,
    first_edge: u32,
    /// Script and line, if it is a function.
    line: u32,
}

/// All of it.
#[derive(Debug, Default)]
pub(crate) struct Snapshot {
    nodes: Vec<SnapshotNode>,
    edges: Vec<SnapshotEdge>,
    strings: Vec<String>,
}

impl Snapshot {
    /// Reads a snapshot; `None` if it is not whole.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        let mut rest = bytes;
        let node_fields = names_after(&mut rest, b"\"node_fields\":[")?;
        let node_kinds = names_after(&mut rest, b"\"node_types\":[[")?;
        let edge_fields = names_after(&mut rest, b"\"edge_fields\":[")?;
        let edge_kinds = names_after(&mut rest, b"\"edge_types\":[[")?;
        let field = |of: &[String], name: &str| of.iter().position(|one| one == name);
        let kind_at = field(&node_fields, "type")?;
        let name_at = field(&node_fields, "name")?;
        let count_at = field(&node_fields, "edge_count")?;
        let edge_at = [
            field(&edge_fields, "type")?,
            field(&edge_fields, "name_or_index")?,
            field(&edge_fields, "to_node")?,
        ];
        let node_kinds: Vec<NodeKind> = node_kinds.iter().map(|one| node_kind(one)).collect();
        let edge_kinds: Vec<EdgeKind> = edge_kinds.iter().map(|one| edge_kind(one)).collect();
        let node_numbers = numbers_after(&mut rest, b"\"nodes\":[")?;
        let edge_numbers = numbers_after(&mut rest, b"\"edges\":[")?;
        let locations = numbers_after(&mut rest, b"\"locations\":[")?;
        let strings = strings_after(&mut rest, b"\"strings\":[")?;

        let width = node_fields.len();
        let mut first_edge = 0_u32;
        let mut nodes = Vec::with_capacity(node_numbers.len() / width);
        for fields in node_numbers.chunks_exact(width) {
            let kind = usize::try_from(*fields.get(kind_at)?).ok()?;
            nodes.push(SnapshotNode {
                kind: node_kinds.get(kind).copied().unwrap_or(NodeKind::Other),
                name: *fields.get(name_at)?,
                first_edge,
                line: 0,
            });
            first_edge = first_edge.checked_add(*fields.get(count_at)?)?;
        }
        let mut edges = Vec::with_capacity(edge_numbers.len() / 3);
        let per_node = u32::try_from(width).ok()?;
        for fields in edge_numbers.chunks_exact(edge_fields.len()) {
            let kind = usize::try_from(*fields.get(edge_at[0])?).ok()?;
            edges.push(SnapshotEdge {
                kind: edge_kinds.get(kind).copied().unwrap_or(EdgeKind::Weak),
                name: *fields.get(edge_at[1])?,
                to: fields.get(edge_at[2])? / per_node,
            });
        }
        let is_whole = usize::try_from(first_edge).is_ok_and(|count| count == edges.len());
        let is_inside = |edge: &SnapshotEdge| (edge.to as usize) < nodes.len();
        if !is_whole || nodes.is_empty() || !edges.iter().all(is_inside) {
            return None;
        }
        // An object's place, its script, line and column, both from 0.
        for place in locations.chunks_exact(4) {
            let node = (place[0] / per_node) as usize;
            if let Some(node) = nodes.get_mut(node) {
                node.line = place[2].saturating_add(1);
            }
        }
        Some(Self {
            nodes,
            edges,
            strings,
        })
    }

    pub(crate) fn len(&self) -> usize {
        self.nodes.len()
    }

    pub(crate) fn indices(&self) -> Range<NodeIndex> {
        0..u32::try_from(self.nodes.len()).unwrap_or(u32::MAX)
    }

    pub(crate) fn kind(&self, node: NodeIndex) -> NodeKind {
        let node = self.nodes.get(node as usize);
        node.map_or(NodeKind::Other, |node| node.kind)
    }

    /// The class of an object, the name of a function, the text of a string.
    pub(crate) fn name(&self, node: NodeIndex) -> &str {
        let node = self.nodes.get(node as usize);
        node.map_or("", |node| self.string(node.name))
    }

    /// The line of a function; `None` if it is not known.
    pub(crate) fn line(&self, node: NodeIndex) -> Option<u32> {
        let line = self.nodes.get(node as usize).map(|node| node.line);
        line.filter(|line| *line > 0)
    }

    /// The positions of a node's edges.
    pub(crate) fn edge_range(&self, node: NodeIndex) -> Range<usize> {
        let start = |at: usize| self.nodes.get(at).map(|node| node.first_edge as usize);
        let at = node as usize;
        let end = start(at + 1).unwrap_or(self.edges.len());
        start(at).unwrap_or(end)..end
    }

    pub(crate) fn edges(&self, node: NodeIndex) -> &[SnapshotEdge] {
        self.edges.get(self.edge_range(node)).unwrap_or_default()
    }

    pub(crate) fn edge(&self, at: usize) -> Option<&SnapshotEdge> {
        self.edges.get(at)
    }

    /// The name of an edge; empty for elements.
    pub(crate) fn edge_name(&self, edge: &SnapshotEdge) -> &str {
        match edge.kind {
            EdgeKind::Element => "",
            _ => self.string(edge.name),
        }
    }

    /// What a node holds by this name.
    pub(crate) fn target(&self, node: NodeIndex, name: &str) -> Option<NodeIndex> {
        let mut edges = self.edges(node).iter();
        let edge = edges.find(|edge| self.edge_name(edge) == name)?;
        Some(edge.to)
    }

    fn string(&self, at: u32) -> &str {
        self.strings.get(at as usize).map_or("", String::as_str)
    }
}

fn node_kind(name: &str) -> NodeKind {
    match name {
        "array" => NodeKind::Array,
        "object" => NodeKind::Object,
        "closure" => NodeKind::Closure,
        "synthetic" | "native" => NodeKind::Synthetic,
        _ => NodeKind::Other,
    }
}

fn edge_kind(name: &str) -> EdgeKind {
    match name {
        "context" => EdgeKind::Context,
        "element" => EdgeKind::Element,
        "property" => EdgeKind::Property,
        "internal" | "hidden" => EdgeKind::Internal,
        // A shortcut stands for other edges.
        _ => EdgeKind::Weak,
    }
}

/// Skips to what follows a key.
fn skip_to(rest: &mut &[u8], key: &[u8]) -> Option<()> {
    let at = rest.windows(key.len()).position(|part| part == key)?;
    *rest = rest.get(at + key.len()..)?;
    Some(())
}

fn names_after(rest: &mut &[u8], key: &[u8]) -> Option<Vec<String>> {
    skip_to(rest, key)?;
    strings(rest)
}

fn strings_after(rest: &mut &[u8], key: &[u8]) -> Option<Vec<String>> {
    names_after(rest, key)
}

/// A list of numbers, up to its end.
fn numbers_after(rest: &mut &[u8], key: &[u8]) -> Option<Vec<u32>> {
    skip_to(rest, key)?;
    let mut numbers = Vec::new();
    let mut number: Option<u32> = None;
    for (at, byte) in rest.iter().enumerate() {
        match byte {
            b'0'..=b'9' => {
                let digit = u32::from(byte - b'0');
                let before = number.unwrap_or(0);
                // Sizes and identifiers may be larger, and are not used.
                number = Some(before.wrapping_mul(10).wrapping_add(digit));
            }
            b',' | b']' => numbers.extend(number.take()),
            b'\n' | b' ' | b'-' => {}
            _ => return None,
        }
        if *byte == b']' {
            *rest = rest.get(at + 1..)?;
            return Some(numbers);
        }
    }
    None
}

/// A list of strings, up to its end.
fn strings(rest: &mut &[u8]) -> Option<Vec<String>> {
    let mut found = Vec::new();
    loop {
        let (first, after) = rest.split_first()?;
        *rest = after;
        match first {
            b'"' => found.push(string(rest)?),
            b']' => return Some(found),
            b',' | b'\n' | b' ' => {}
            _ => return None,
        }
    }
}

/// A string after its first quote.
fn string(rest: &mut &[u8]) -> Option<String> {
    let mut bytes = Vec::new();
    loop {
        let length = rest.iter().position(|byte| matches!(byte, b'"' | b'\\'))?;
        bytes.extend_from_slice(rest.get(..length)?);
        let mark = *rest.get(length)?;
        *rest = rest.get(length + 1..)?;
        if mark == b'"' {
            return Some(String::from_utf8_lossy(&bytes).into_owned());
        }
        let (escaped, after) = rest.split_first()?;
        *rest = after;
        match escaped {
            b'n' => bytes.push(b'\n'),
            b't' => bytes.push(b'\t'),
            b'r' => bytes.push(b'\r'),
            b'b' => bytes.push(8),
            b'f' => bytes.push(12),
            b'u' => {
                let digits = std::str::from_utf8(rest.get(..4)?).ok()?;
                let unit = u32::from_str_radix(digits, 16).ok()?;
                let letter = char::from_u32(unit).unwrap_or(char::REPLACEMENT_CHARACTER);
                bytes.extend(letter.to_string().into_bytes());
                *rest = rest.get(4..)?;
            }
            other => bytes.push(*other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{EdgeKind, Snapshot};

    const SMALL: &str = r#"{"snapshot":{"meta":{"node_fields":["type","name","id","self_size",
"edge_count","trace_node_id","detachedness"],"node_types":[["hidden","object","closure"],"string"],
"edge_fields":["type","name_or_index","to_node"],"edge_types":[["context","property","weak"],"x"]},
"node_count":2},"nodes":[1,0,1,0,1,0,0
,2,1,99999999999,0,0,0,0],
"edges":[1,2,7],"trace_tree":[],"locations":[7,3,11,5],"strings":["global","serve","na\"me\u0041"]}"#;

    #[test]
    fn a_snapshot_is_read() {
        let read = Snapshot::parse(SMALL.as_bytes()).unwrap();
        assert_eq!(
            (read.len(), read.name(0), read.name(1)),
            (2, "global", "serve")
        );
        let edge = read.edges(0)[0];
        assert_eq!((edge.kind, edge.to), (EdgeKind::Property, 1));
        assert_eq!(read.edge_name(&edge), "na\"meA");
        assert_eq!((read.line(1), read.line(0)), (Some(12), None));
        assert_eq!(read.target(0, "na\"meA"), Some(1));
    }

    #[test]
    fn part_of_a_snapshot_is_none() {
        for length in 0..SMALL.len() - 1 {
            let part = SMALL.as_bytes().get(..length).unwrap();
            assert!(Snapshot::parse(part).is_none() || length + 2 >= SMALL.len());
        }
        let beyond = SMALL.replace("\"edges\":[1,2,7]", "\"edges\":[1,2,70]");
        assert!(Snapshot::parse(beyond.as_bytes()).is_none());
    }
}
