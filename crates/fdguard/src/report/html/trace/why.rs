//! What holds the descriptors of each line, as small graphs: the descriptors, their holders one
//! after the other, and what lives by itself.

use std::fmt::Write as _;

use fdguard_core::origin::Culprit;
use fdguard_core::units::{plural, singular};
use fdguard_trace::{Chain, Hop, ProcessWhy, SiteWhy};

use super::super::escape;
use super::name;
use crate::report::document::{Block, Section};
use crate::report::table::thousands;
use crate::terminal::sanitize_str;

/// The width of a graph, and the height of a row of it.
const WIDTH: usize = 920;
const ROW: usize = 74;
/// A box: its height, the room around its text, and the room for an arrow after it.
const HEIGHT: usize = 34;
const MARGIN: usize = 12;
const GAP: usize = 34;
/// A wide estimate of a character.
const CHARACTER: usize = 8;
/// Longer texts are cut; the whole chain is in words below.
const LONGEST: usize = 44;

/// A node of a graph.
struct Node {
    text: String,
    /// Below it.
    size: Option<String>,
    class: &'static str,
    is_container: bool,
}

/// The section; `None` if nothing was asked.
pub(super) fn section(whys: &[ProcessWhy]) -> Option<Section> {
    let mut blocks = Vec::new();
    for process in whys {
        let comm = sanitize_str(&process.comm);
        if let Some(refusal) = &process.refusal {
            let refusal = sanitize_str(refusal);
            let text = format!("{comm} (pid {}): not known: {refusal}", process.pid);
            blocks.push(Block::Remark(text));
        }
        for site in &process.sites {
            blocks.extend(
                site.why
                    .chains
                    .iter()
                    .flat_map(|chain| chain_blocks(site, chain)),
            );
        }
    }
    Section::of("what holds them", blocks)
}

fn chain_blocks(site: &SiteWhy, chain: &Chain) -> Vec<Block> {
    let words = Block::Sentence(format!(
        "{} of {} {}, {}: {} [{}]",
        thousands(chain.count as u64),
        thousands(site.fds.len() as u64),
        site.what,
        opened(site.culprit.as_ref()),
        sanitize_str(&chain.text),
        chain.basis.text(),
    ));
    let nodes = nodes(site, chain);
    match nodes.len() {
        // Nothing holds them.
        0..2 => vec![words],
        _ => vec![words, Block::Picture(graph(&nodes, &chain.text))],
    }
}

fn opened(culprit: Option<&Culprit>) -> String {
    match culprit {
        Some(_) => format!("opened at {}", name::place(culprit)),
        None => "opened before fdguard came".to_owned(),
    }
}

fn nodes(site: &SiteWhy, chain: &Chain) -> Vec<Node> {
    let plain = |text: &str, class| Node {
        text: sanitize_str(text).into_owned(),
        size: None,
        class,
        is_container: false,
    };
    let what = match chain.count {
        1 => singular(&site.what),
        _ => site.what.clone(),
    };
    let count = format!("{} {what}", thousands(chain.count as u64));
    let first = Node {
        size: chain
            .owner
            .as_deref()
            .map(|owner| sanitize_str(owner).into_owned()),
        ..plain(&count, "descriptors")
    };
    let holders = chain.holders.iter().map(|hop| match hop {
        Hop::Container {
            class,
            entries,
            key,
        } => Node {
            size: entries
                .map(|entries| format!("{} {}", thousands(entries), plural(entries, "entry"))),
            is_container: true,
            ..match key {
                Some(key) => plain(&format!("{class}[{key}]"), "holder"),
                None => plain(class, "holder"),
            }
        },
        hop => plain(&hop.text(), "holder"),
    });
    let root = chain.root.as_deref().map(|root| plain(root, "root"));
    std::iter::once(first).chain(holders).chain(root).collect()
}

/// The nodes from left to right, in as many rows as they need.
fn graph(nodes: &[Node], title: &str) -> String {
    let (mut x, mut row, mut before) = (2, 0, None);
    let mut drawn = String::new();
    for node in nodes {
        let text = cut(&node.text);
        let longest = text.chars().count();
        let longest = longest.max(node.size.as_ref().map_or(0, |size| size.chars().count()));
        let width = longest * CHARACTER + 2 * MARGIN;
        if x > 2 && x + width > WIDTH {
            (x, row) = (GAP, row + 1);
        }
        let y = row * ROW + 10;
        if let Some(from) = before {
            arrow(&mut drawn, from, (x, y + HEIGHT / 2));
        }
        before = Some((x + width, y + HEIGHT / 2));
        draw(&mut drawn, node, (x, y, width), &text);
        x += width + GAP;
    }
    let height = (row + 1) * ROW;
    format!(
        "<svg class=\"why\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" height=\"{height}\" \
         role=\"img\">\n<title>{}</title>\n{drawn}</svg>\n",
        escape(&sanitize_str(title)),
    )
}

fn draw(out: &mut String, node: &Node, (x, y, width): (usize, usize, usize), text: &str) {
    // Writing to a String cannot fail.
    let _ = writeln!(out, "<g class=\"{}\">", node.class);
    if node.is_container {
        // A container looks like a pile.
        for step in [8, 4] {
            let (x, y) = (x + step, y - step);
            let _ = writeln!(
                out,
                "<rect class=\"back\" x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{HEIGHT}\" rx=\"4\"/>"
            );
        }
    }
    let _ = writeln!(
        out,
        "<rect x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{HEIGHT}\" rx=\"4\"/>\n\
         <text x=\"{}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
        x + width / 2,
        y + HEIGHT / 2 + 5,
        escape(text),
    );
    if let Some(size) = &node.size {
        let (x, y) = (x + width / 2, y + HEIGHT + 14);
        let size = escape(size);
        let _ = writeln!(
            out,
            "<text class=\"size\" x=\"{x}\" y=\"{y}\" text-anchor=\"middle\">{size}</text>"
        );
    }
    out.push_str("</g>\n");
}

/// From a holder, which is right of it or in the next row, to what it holds.
fn arrow(out: &mut String, (to_x, to_y): (usize, usize), (x, y): (usize, usize)) {
    let middle = y.min(to_y) + ROW / 2 + 2;
    let way = match y == to_y {
        true => format!("M{x} {y}H{}", to_x + 9),
        false => format!("M{x} {y}H10V{middle}H{}V{to_y}H{}", to_x + 22, to_x + 9),
    };
    let (tip, left) = (to_x + 9, to_x + 15);
    let (above, below) = (to_y - 4, to_y + 4);
    let _ = writeln!(
        out,
        "<path d=\"{way}M{left} {above}L{tip} {to_y}L{left} {below}\"/>"
    );
}

fn cut(text: &str) -> String {
    match text.char_indices().nth(LONGEST) {
        Some((at, _)) => format!("{}…", text.get(..at).unwrap_or_default()),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use fdguard_trace::{Basis, Chain, Hop, ProcessWhy, SiteWhy, Why};

    use super::section;
    use crate::report::document::Block;

    fn chain(holders: Vec<Hop>, root: Option<&str>) -> Chain {
        Chain {
            basis: Basis::Object,
            count: 42,
            fds: (3..45).collect(),
            owner: Some("TextIOWrapper".to_owned()),
            holders,
            root: root.map(str::to_owned),
            also: None,
            text: "held by <42>".to_owned(),
        }
    }

    fn pictures(chain: Chain) -> Vec<String> {
        let site = SiteWhy {
            culprit: None,
            what: "files".to_owned(),
            fds: (3..45).collect(),
            why: Why {
                chains: vec![chain],
                more: 0,
                last_use: None,
            },
        };
        let process = ProcessWhy {
            pid: 7,
            comm: "python3".to_owned(),
            objects: Some(9),
            unreachable: None,
            stop_ms: None,
            waited_ms: None,
            walks: 1,
            stale: None,
            refusal: None,
            sites: vec![site],
            more_sites: 0,
        };
        let section = section(&[process]).unwrap();
        let blocks = section.blocks.into_iter();
        blocks
            .filter_map(|block| match block {
                Block::Picture(markup) => Some(markup),
                _ => None,
            })
            .collect()
    }

    #[test]
    fn a_chain_is_a_graph_with_the_sizes_of_its_containers() {
        let entries = Some(42);
        let list = Hop::Container {
            class: "<list>".to_owned(),
            entries,
            key: None,
        };
        let object = Hop::Object {
            class: "Writer".to_owned(),
            attribute: Some("f".to_owned()),
        };
        let drawn = pictures(chain(vec![object, list], Some("__main__.registry")));
        let [drawn] = drawn.as_slice() else {
            panic!("{drawn:?}")
        };
        for text in [
            ">42 files<",
            ">Writer.f<",
            ">&lt;list&gt;<",
            ">42 entries<",
            ">__main__.registry<",
        ] {
            assert!(drawn.contains(text), "{text}: {drawn}");
        }
        // Three arrows between four nodes, and nothing from elsewhere.
        assert_eq!(drawn.matches("<path").count(), 3, "{drawn}");
        assert!(
            !drawn.contains("href") && !drawn.contains("http"),
            "{drawn}"
        );
    }

    #[test]
    fn a_long_chain_takes_several_rows_and_no_holder_no_graph() {
        let hop = |class: &str| Hop::Object {
            class: class.to_owned(),
            attribute: None,
        };
        let long = (0..12).map(|_| hop(&"x".repeat(60))).collect();
        let drawn = pictures(chain(long, Some("root")));
        assert!(drawn[0].contains("height=\"518\""), "{}", drawn[0]);
        assert!(pictures(chain(Vec::new(), None)).is_empty());
    }
}
