//! Property lists in XML.

use roxmltree::{Document, Node as Element, ParsingOptions};

use super::{UnitNode, UnitValue, UnreadableUnit};

/// Much deeper than the property list of any service.
const DEEPEST: usize = 64;

pub(in crate::unit) fn read(text: &str) -> Result<UnitNode, UnreadableUnit> {
    if text.starts_with("bplist") {
        let why = "binary property list: convert it with `plutil -convert xml1`";
        return Err(UnreadableUnit::at(1, why));
    }
    // Every property list has a document type; its own entities are not resolved.
    let options = ParsingOptions {
        allow_dtd: true,
        nodes_limit: 100_000,
        ..ParsingOptions::default()
    };
    let document = Document::parse_with_options(text, options).map_err(|error| {
        let line = usize::try_from(error.pos().row).unwrap_or(1);
        UnreadableUnit::at(line, error.to_string())
    })?;
    let root = document.root_element();
    let first = root.children().find(Element::is_element);
    let wrong = |why: &str| UnreadableUnit::at(line_of(root), why);
    if root.tag_name().name() != "plist" {
        return Err(wrong(
            "not a property list: the root element is not <plist>",
        ));
    }
    node(first.ok_or_else(|| wrong("empty property list"))?, 0)
}

fn line_of(element: Element<'_, '_>) -> usize {
    let position = element.document().text_pos_at(element.range().start);
    usize::try_from(position.row).unwrap_or(1)
}

fn node(element: Element<'_, '_>, depth: usize) -> Result<UnitNode, UnreadableUnit> {
    let line = line_of(element);
    if depth > DEEPEST {
        return Err(UnreadableUnit::at(line, "nested too deeply"));
    }
    let children = element.children().filter(Element::is_element);
    let value = match element.tag_name().name() {
        "dict" => UnitValue::Map(pairs(children, depth)?),
        "array" => {
            let list: Result<_, _> = children.map(|child| node(child, depth + 1)).collect();
            UnitValue::List(list?)
        }
        "true" => UnitValue::Text("true".to_owned()),
        "false" => UnitValue::Text("false".to_owned()),
        "string" | "integer" | "real" | "date" | "data" => UnitValue::Text(text_of(element)),
        other => {
            let why = format!("<{other}> is not a property list element");
            return Err(UnreadableUnit::at(line, why));
        }
    };
    Ok(UnitNode { line, value })
}

fn text_of(element: Element<'_, '_>) -> String {
    let parts = element.children().filter_map(|child| child.text());
    parts.collect()
}

fn pairs<'a>(
    mut children: impl Iterator<Item = Element<'a, 'a>>,
    depth: usize,
) -> Result<Vec<(String, UnitNode)>, UnreadableUnit> {
    let mut pairs = Vec::new();
    while let Some(key) = children.next() {
        let line = line_of(key);
        if key.tag_name().name() != "key" {
            return Err(UnreadableUnit::at(line, "value without a <key>"));
        }
        let value = children.next();
        let value = value.ok_or_else(|| UnreadableUnit::at(line, "<key> without a value"))?;
        let value = UnitNode {
            line,
            ..node(value, depth + 1)?
        };
        pairs.push((text_of(key), value));
    }
    Ok(pairs)
}
