//! JUnit XML: a test case for each problem, and one for each rule that found nothing.

use std::io::Write;

use fdguard_core::lint::Severity;
use fdguard_core::proof;
use fdguard_core::rule::{self, RuleKind};

use super::problem::{CheckProblem, ProblemReport};

/// Whether it fails the check, or would if it were not cleared.
fn is_case(problem: &&CheckProblem) -> bool {
    problem.severity >= Severity::Warning || problem.cleared.is_some()
}

/// Rules that a check always applies.
const ALWAYS: &[&str] = &["leak", "double-close", "use-after-close"];

/// Writes the document.
pub fn write(out: &mut dyn Write, told: &ProblemReport) -> anyhow::Result<()> {
    let of_proof = rule::of_kind(RuleKind::Proof)
        .into_iter()
        .map(|rule| rule.id);
    let asked = ALWAYS.iter().copied().chain(of_proof);
    let counts = |problem: &&CheckProblem| problem.cleared.is_none();
    let problems: Vec<&CheckProblem> = told.problems.iter().filter(is_case).collect();
    let has = |rule: &str| problems.iter().any(|one| one.rule == rule);
    let quiet: Vec<&str> = asked.filter(|rule| !has(rule)).collect();
    let failures = problems.iter().copied().filter(counts).count();
    let skipped = problems.len() - failures;
    let tests = problems.len() + quiet.len();
    let name = attribute(&format!("fdguard check {}", told.name));
    let numbers = format!(
        "tests=\"{tests}\" failures=\"{failures}\" errors=\"0\" skipped=\"{skipped}\" time=\"{:.3}\"",
        told.seconds
    );
    writeln!(out, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>")?;
    writeln!(out, "<testsuites name=\"fdguard\" {numbers}>")?;
    writeln!(out, "  <testsuite name=\"{name}\" {numbers}>")?;
    for problem in problems {
        write_problem(out, told, problem)?;
    }
    for rule in quiet {
        writeln!(
            out,
            "    <testcase classname=\"fdguard\" name=\"{rule}\" time=\"0\"/>"
        )?;
    }
    writeln!(out, "  </testsuite>\n</testsuites>")?;
    Ok(())
}

fn write_problem(
    out: &mut dyn Write,
    told: &ProblemReport,
    problem: &CheckProblem,
) -> anyhow::Result<()> {
    let place = problem.place().unwrap_or_default();
    let class = problem.class.as_deref().unwrap_or_default();
    let name = format!("{} {place} {class}", problem.rule);
    let mut place = String::new();
    if let Some(file) = told.file(problem) {
        place = format!(" file=\"{}\"", attribute(&file));
        if let Some(line) = problem.culprit.as_ref().and_then(|one| one.line) {
            place.push_str(&format!(" line=\"{line}\""));
        }
    }
    writeln!(
        out,
        "    <testcase classname=\"fdguard\" name=\"{}\" time=\"0\"{place}>",
        attribute(name.trim())
    )?;
    let message = attribute(&problem.message);
    match &problem.cleared {
        Some(reason) => writeln!(
            out,
            "      <skipped message=\"cleared: {}\"/>",
            attribute(reason)
        )?,
        None => {
            writeln!(
                out,
                "      <failure type=\"{}\" message=\"{message}\">",
                problem.rule
            )?;
            let mut body = format!("{}\n{}\n", problem.message, problem.fix);
            for frame in &problem.stack {
                let frame = proof::place(&frame.into());
                body.push_str(&format!("    at {frame}\n"));
            }
            writeln!(out, "{}      </failure>", text(&body))?;
        }
    }
    writeln!(out, "    </testcase>")?;
    Ok(())
}

/// Text between tags. XML cannot represent most control characters.
fn text(value: &str) -> String {
    let mut out = String::with_capacity(value.len());
    for character in value.chars() {
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '\n' | '\t' => out.push(character),
            '\u{fffe}' | '\u{ffff}' => out.push('\u{fffd}'),
            control if control.is_control() => out.push('\u{fffd}'),
            plain => out.push(plain),
        }
    }
    out
}

/// Text in an attribute.
fn attribute(value: &str) -> String {
    text(value)
        .replace('"', "&quot;")
        .replace('\n', "&#10;")
        .replace('\t', "&#9;")
}

#[cfg(test)]
mod tests {
    use super::super::problem::tests::told;
    use super::write;

    #[test]
    fn a_problem_is_a_failure_and_the_rest_passed() {
        let mut out = Vec::new();
        write(&mut out, &told(7)).unwrap();
        let said = String::from_utf8(out).unwrap();
        assert!(
            said.contains("tests=\"7\" failures=\"1\" errors=\"0\" skipped=\"0\" time=\"1.500\""),
            "{said}"
        );
        assert!(said.contains("name=\"fdguard check ./tests &lt;all&gt; &amp; more\""));
        assert!(
            said.contains("&quot;open&quot; &lt;here&gt;&#10;and\u{fffd} there"),
            "{said}"
        );
        assert!(said.contains("file=\"src/a,b:c.py\" line=\"7\""), "{said}");
        assert!(
            said.contains("name=\"leftover-process\" time=\"0\"/>"),
            "{said}"
        );
        assert!(!said.contains('\u{1}'));
    }
}
