//! As much of Markdown as the checks of pages need: tables and inline code, with their lines.

/// One row of a table: the cells without the bars around them.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Row<'a> {
    pub(crate) line: usize,
    pub(crate) cells: Vec<&'a str>,
}

/// A piece of code in a page.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Code<'a> {
    pub(crate) line: usize,
    pub(crate) text: &'a str,
    /// Whether it is a line of a fenced block.
    pub(crate) is_fenced: bool,
}

/// The rows of the table with these headings, without the heading; `None` if there is no such
/// table.
pub(crate) fn table<'a>(text: &'a str, headings: &[&str]) -> Option<Vec<Row<'a>>> {
    let mut rows = text
        .lines()
        .enumerate()
        .map(|(at, line)| (at + 1, cells(line)))
        .skip_while(|(_, cells)| cells.as_deref() != Some(headings));
    rows.next()?;
    let rows = rows.skip(1).map_while(|(line, cells)| {
        Some(Row {
            line,
            cells: cells?,
        })
    });
    Some(rows.collect())
}

fn cells(line: &str) -> Option<Vec<&str>> {
    let inside = line.strip_prefix('|')?.trim_end().strip_suffix('|')?;
    Some(inside.split('|').map(str::trim).collect())
}

/// Inline code, and the lines of fenced blocks.
pub(crate) fn code(text: &str) -> Vec<Code<'_>> {
    let mut found = Vec::new();
    let mut is_fenced = false;
    for (at, text) in text.lines().enumerate() {
        let line = at + 1;
        if text.starts_with("```") {
            is_fenced = !is_fenced;
        } else if is_fenced {
            found.push(Code {
                line,
                text,
                is_fenced,
            });
        } else {
            let spans = inline(text).map(|text| Code {
                line,
                text,
                is_fenced,
            });
            found.extend(spans);
        }
    }
    found
}

/// The inline code of one line.
pub(crate) fn inline(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2)
}

#[cfg(test)]
mod tests {
    use super::{Code, code, inline, table};

    #[test]
    fn a_table_is_found_by_its_headings_and_ends_with_its_rows() {
        let text =
            "| a |\n| --- |\n| 1 |\n\n| b | c |\n| --- | --- |\n| `2` | 3 |\n| 4 | 5 |\nend\n";
        let rows = table(text, &["b", "c"]).unwrap();
        assert_eq!(rows.len(), 2);
        assert_eq!(
            (rows[0].line, rows[0].cells.as_slice()),
            (7, ["`2`", "3"].as_slice())
        );
        assert!(table(text, &["b"]).is_none());
    }

    #[test]
    fn code_is_inline_or_fenced() {
        let found = code("a `b` c `d`\n```\ne `f`\n```\n`g`\n");
        let texts: Vec<_> = found.iter().map(|one| (one.line, one.text)).collect();
        assert_eq!(texts, [(1, "b"), (1, "d"), (3, "e `f`"), (5, "g")]);
        let fenced: Vec<&Code> = found.iter().filter(|one| one.is_fenced).collect();
        assert_eq!(fenced.len(), 1);
        assert_eq!(inline("none").count(), 0);
    }
}
