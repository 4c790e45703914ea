//! YAML, with anchors and merges resolved.

use std::collections::HashMap;

use saphyr_parser::{Event, Parser, ScanError, Span, StrInput};

use super::{UnitNode, UnitValue, UnreadableUnit};

const DEEPEST: usize = 64;
/// Anchors that refer to each other could expand without limit.
const MOST: usize = 100_000;

pub(in crate::unit) fn read(text: &str) -> Result<UnitNode, UnreadableUnit> {
    let mut reader = Reader {
        events: Parser::new_from_str(text),
        anchors: HashMap::new(),
        left: MOST,
    };
    loop {
        match reader.next()? {
            (Event::StreamStart | Event::DocumentStart(_) | Event::Nothing, _) => {}
            (Event::StreamEnd | Event::DocumentEnd, _) => {
                return Err(UnreadableUnit {
                    line: None,
                    why: "empty file".to_owned(),
                });
            }
            (event, line) => return reader.node(event, line, 0),
        }
    }
}

struct Reader<'a> {
    events: Parser<'a, StrInput<'a>>,
    anchors: HashMap<usize, UnitNode>,
    left: usize,
}

impl<'a> Reader<'a> {
    fn next(&mut self) -> Result<(Event<'a>, usize), UnreadableUnit> {
        let wrong = |error: ScanError| UnreadableUnit::at(error.marker().line(), error.info());
        let end = || UnreadableUnit {
            line: None,
            why: "unexpected end of file".to_owned(),
        };
        let (event, span): (Event<'a>, Span) =
            self.events.next().ok_or_else(end)?.map_err(wrong)?;
        Ok((event, span.start.line()))
    }

    fn node(
        &mut self,
        event: Event<'a>,
        line: usize,
        depth: usize,
    ) -> Result<UnitNode, UnreadableUnit> {
        self.left = self.left.saturating_sub(1);
        if self.left == 0 || depth > DEEPEST {
            return Err(UnreadableUnit::at(line, "too large or nested too deeply"));
        }
        let (anchor, value) = match event {
            Event::Scalar(text, _, anchor, _) => (anchor, UnitValue::Text(text.into_owned())),
            Event::SequenceStart(anchor, _) => (anchor, UnitValue::List(self.list(depth)?)),
            Event::MappingStart(anchor, _) => (anchor, UnitValue::Map(self.map(depth)?)),
            Event::Alias(id) => {
                let known = self.anchors.get(&id).cloned();
                let known =
                    known.ok_or_else(|| UnreadableUnit::at(line, "alias without an anchor"))?;
                self.left = self.left.saturating_sub(size(&known));
                return Ok(UnitNode { line, ..known });
            }
            _ => return Err(UnreadableUnit::at(line, "value missing")),
        };
        let node = UnitNode { line, value };
        if anchor > 0 {
            self.anchors.insert(anchor, node.clone());
        }
        Ok(node)
    }

    fn list(&mut self, depth: usize) -> Result<Vec<UnitNode>, UnreadableUnit> {
        let mut list = Vec::new();
        loop {
            match self.next()? {
                (Event::SequenceEnd, _) => return Ok(list),
                (event, line) => list.push(self.node(event, line, depth + 1)?),
            }
        }
    }

    fn map(&mut self, depth: usize) -> Result<Vec<(String, UnitNode)>, UnreadableUnit> {
        let mut pairs = Vec::new();
        let mut merged = Vec::new();
        loop {
            let (event, line) = self.next()?;
            if event == Event::MappingEnd {
                // The map's own entries win, so they come later.
                merged.append(&mut pairs);
                return Ok(merged);
            }
            let key = self.node(event, line, depth + 1)?;
            let key = key.text().unwrap_or_default().to_owned();
            let (event, value_line) = self.next()?;
            let value = self.node(event, value_line, depth + 1)?;
            match (key.as_str(), &value.value) {
                ("<<", UnitValue::List(list)) => {
                    // Of several merged maps the first wins.
                    let all = list.iter().rev().flat_map(UnitNode::pairs);
                    merged.extend(all.cloned());
                }
                ("<<", _) => merged.extend(value.pairs().iter().cloned()),
                _ => pairs.push((key, UnitNode { line, ..value })),
            }
        }
    }
}

fn size(node: &UnitNode) -> usize {
    1 + match &node.value {
        UnitValue::Text(_) => 0,
        UnitValue::List(list) => list.iter().map(size).sum(),
        UnitValue::Map(pairs) => pairs.iter().map(|it| size(&it.1)).sum(),
    }
}
