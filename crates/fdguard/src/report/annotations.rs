//! Annotations as GitHub Actions reads them from a log: `::error file=…,line=…,title=…::…`.

use std::io::Write;

use fdguard_core::lint::Severity;

use super::problem::{CheckProblem, ProblemReport};

/// Writes one line for each problem; accepted ones become notices.
///
/// A line break comes first: the checked program shares this stream, its last line may be
/// incomplete, and an annotation counts only at the beginning of a line.
pub fn write(out: &mut dyn Write, told: &ProblemReport) -> anyhow::Result<()> {
    if !told.problems.is_empty() {
        writeln!(out)?;
    }
    for problem in &told.problems {
        writeln!(out, "{}", line(told, problem))?;
    }
    Ok(())
}

fn line(told: &ProblemReport, problem: &CheckProblem) -> String {
    let command = match (&problem.cleared, problem.severity) {
        (Some(_), _) | (None, Severity::Info) => "notice",
        (None, _) => "error",
    };
    let mut properties = Vec::new();
    if let Some(file) = told.file(problem) {
        properties.push(format!("file={}", property(&file)));
        let line = problem.culprit.as_ref().and_then(|one| one.line);
        properties.extend(line.map(|line| format!("line={line}")));
    }
    properties.push(format!(
        "title={}",
        property(&format!("fdguard: {}", problem.rule))
    ));
    let message = match &problem.cleared {
        Some(reason) => format!("{} (cleared: {reason})", problem.message),
        None => format!("{}\n{}", problem.message, problem.fix),
    };
    format!("::{command} {}::{}", properties.join(","), data(&message))
}

/// Escapes a message, which ends at the end of the line.
fn data(text: &str) -> String {
    text.replace('%', "%25")
        .replace('\r', "%0D")
        .replace('\n', "%0A")
}

/// Escapes a property, which also ends at a comma or a colon.
fn property(text: &str) -> String {
    data(text).replace(':', "%3A").replace(',', "%2C")
}

#[cfg(test)]
mod tests {
    use super::super::problem::tests::told;
    use super::write;

    #[test]
    fn a_line_cannot_be_broken_by_what_it_says() {
        let mut out = Vec::new();
        write(&mut out, &told(7)).unwrap();
        let said = String::from_utf8(out).unwrap();
        assert_eq!(
            said,
            "\n::error file=src/a%2Cb%3Ac.py,line=7,title=fdguard%3A leftover-descriptor::1 descriptor, 100 %25 \"open\" <here>%0Aand\u{1} there%0Aclose it\n"
        );
    }

    #[test]
    fn an_annotation_begins_a_line_and_without_one_nothing_is_written() {
        let mut out = b"no line break here".to_vec();
        write(&mut out, &told(7)).unwrap();
        assert!(String::from_utf8(out).unwrap().contains("here\n::error "));
        let mut none = told(7);
        none.problems.clear();
        let mut out = Vec::new();
        write(&mut out, &none).unwrap();
        assert!(out.is_empty());
    }

    #[test]
    fn what_was_cleared_is_a_notice() {
        let mut told = told(7);
        told.problems[0].cleared = Some("on purpose".to_owned());
        let mut out = Vec::new();
        write(&mut out, &told).unwrap();
        let said = String::from_utf8(out).unwrap();
        assert!(said.starts_with("\n::notice ") && said.contains("cleared: on purpose"));
    }
}
