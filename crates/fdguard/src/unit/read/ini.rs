//! INI files of systemd and supervisord, which continue lines in different ways.

use super::{UnitNode, UnitValue, UnreadableUnit};

/// The dialect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::unit) enum Style {
    /// A backslash at the end continues a line; a section or key may be repeated; an empty value
    /// resets earlier ones.
    Systemd,
    /// An indented line continues; `;` and `#` after a space begin a comment.
    Supervisord,
}

type Pairs = Vec<(String, UnitNode)>;

pub(in crate::unit) fn read(text: &str, style: Style) -> Result<UnitNode, UnreadableUnit> {
    let mut sections: Vec<(String, UnitNode)> = Vec::new();
    let mut lines = text
        .lines()
        .enumerate()
        .map(|(at, line)| (at + 1, line))
        .peekable();
    while let Some((number, line)) = lines.next() {
        let trimmed = line.trim();
        if trimmed.is_empty() || trimmed.starts_with(['#', ';']) {
            continue;
        }
        let is_indented = line.starts_with([' ', '\t']);
        if style == Style::Supervisord
            && is_indented
            && let Some(last) = last_value(&mut sections)
        {
            last.push(' ');
            last.push_str(without_comment(trimmed));
            continue;
        }
        if let Some(name) = trimmed.strip_prefix('[') {
            let name = match style {
                Style::Systemd => name.strip_suffix(']'),
                Style::Supervisord => name.split_once(']').map(|it| it.0),
            };
            let name =
                name.ok_or_else(|| UnreadableUnit::at(number, "section header without ]"))?;
            open(&mut sections, name, number);
            continue;
        }
        let mut whole = trimmed.to_owned();
        while style == Style::Systemd && whole.ends_with('\\') {
            whole.pop();
            let Some((_, next)) = lines.next() else { break };
            // A comment inside a continued line is skipped.
            if next.trim_start().starts_with(['#', ';']) {
                whole.push('\\');
            } else {
                whole.push(' ');
                whole.push_str(next.trim());
            }
        }
        let (key, value) = split(&whole, style)
            .ok_or_else(|| UnreadableUnit::at(number, "not a section header or KEY=VALUE"))?;
        let Some(pairs) = sections.last_mut().and_then(pairs) else {
            return Err(UnreadableUnit::at(number, "key before the first section"));
        };
        let (line, value) = (number, UnitValue::Text(value.to_owned()));
        pairs.push((key.to_owned(), UnitNode { line, value }));
    }
    if sections.is_empty() {
        return Err(UnreadableUnit {
            line: None,
            why: "no section found".to_owned(),
        });
    }
    Ok(UnitNode {
        line: 1,
        value: UnitValue::Map(sections),
    })
}

/// Opens a section, or reopens it: then it moves to the end, with its contents.
fn open(sections: &mut Pairs, name: &str, line: usize) {
    let known = sections.iter().position(|it| it.0 == name);
    let section = known.map(|at| sections.remove(at)).unwrap_or_else(|| {
        let value = UnitValue::Map(Vec::new());
        (name.to_owned(), UnitNode { line, value })
    });
    sections.push(section);
}

fn pairs(section: &mut (String, UnitNode)) -> Option<&mut Pairs> {
    match &mut section.1.value {
        UnitValue::Map(pairs) => Some(pairs),
        _ => None,
    }
}

fn last_value(sections: &mut Pairs) -> Option<&mut String> {
    let last = pairs(sections.last_mut()?)?.last_mut()?;
    match &mut last.1.value {
        UnitValue::Text(text) => Some(text),
        _ => None,
    }
}

fn split(line: &str, style: Style) -> Option<(&str, &str)> {
    let at = match style {
        Style::Systemd => line.find('=')?,
        Style::Supervisord => line.find(['=', ':'])?,
    };
    let (key, value) = (line[..at].trim(), line[at + 1..].trim());
    let value = match style {
        Style::Systemd => value,
        Style::Supervisord => without_comment(value),
    };
    (!key.is_empty()).then_some((key, value))
}

fn without_comment(value: &str) -> &str {
    let mut before = ' ';
    for (at, c) in value.char_indices() {
        if matches!(c, ';' | '#') && before.is_whitespace() {
            return value[..at].trim_end();
        }
        before = c;
    }
    value
}
