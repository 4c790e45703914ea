//! SARIF 2.1.0, as code scanning reads it.

use std::io::Write;

use fdguard_core::lint::Severity;
use fdguard_core::origin::Frame;
use fdguard_core::rule::{self, Rule, RuleKind};
use serde_json::{Value, json};

use super::problem::{CheckProblem, ProblemReport, page, relative};

const SCHEMA: &str =
    "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json";

/// Writes the document.
pub fn write(out: &mut dyn Write, told: &ProblemReport) -> anyhow::Result<()> {
    serde_json::to_writer_pretty(&mut *out, &document(told))?;
    writeln!(out)?;
    Ok(())
}

fn document(told: &ProblemReport) -> Value {
    let kinds = [RuleKind::Growth, RuleKind::Hazard, RuleKind::Proof];
    let rules: Vec<&Rule> = kinds.into_iter().flat_map(rule::of_kind).collect();
    let results: Vec<Value> = told
        .problems
        .iter()
        .map(|problem| result(told, problem, &rules))
        .collect();
    json!({
        "$schema": SCHEMA,
        "version": "2.1.0",
        "runs": [{
            "tool": {"driver": {
                "name": "fdguard",
                "version": env!("CARGO_PKG_VERSION"),
                "informationUri": env!("CARGO_PKG_REPOSITORY"),
                "rules": rules.iter().map(described).collect::<Vec<Value>>(),
            }},
            "columnKind": "unicodeCodePoints",
            "originalUriBaseIds": {"%SRCROOT%": {"description": {"text": "the directory that fdguard was run in"}}},
            "automationDetails": {"id": format!("fdguard check/{}", told.name)},
            "results": results,
        }],
    })
}

fn described(rule: &&Rule) -> Value {
    let fix = rule.fix.unwrap_or("see the guide");
    let mut tags = vec!["file-descriptors".to_owned(), "reliability".to_owned()];
    tags.extend(rule.cwe.map(|cwe| format!("external/cwe/cwe-{cwe}")));
    let help = format!("{}. {}.", sentence(rule.summary), sentence(fix));
    json!({
        "id": rule.id,
        "name": camel(rule.id),
        "shortDescription": {"text": sentence(rule.summary)},
        "fullDescription": {"text": sentence(rule.summary)},
        "help": {"text": help, "markdown": format!("{help}\n\n[The guide]({})", page(rule.id))},
        "helpUri": page(rule.id),
        "defaultConfiguration": {"level": level(rule.severity)},
        "properties": {"tags": tags, "precision": "high", "requirement": rule.requirement},
    })
}

fn result(told: &ProblemReport, problem: &CheckProblem, rules: &[&Rule]) -> Value {
    let mut result = json!({
        "ruleId": problem.rule,
        "level": level(problem.severity),
        "message": {"text": format!("{}. {}", sentence(&problem.message), problem.fix)},
        "partialFingerprints": {"fdguard/v1": fingerprint(told, problem)},
    });
    if let Some(index) = rules.iter().position(|rule| rule.id == problem.rule) {
        result["ruleIndex"] = json!(index);
    }
    let frame = problem.culprit.as_ref().map(|culprit| Frame {
        file: culprit.file.clone(),
        function: culprit.function.clone(),
        line: culprit.line,
        module: None,
        language: culprit.language,
    });
    let place = frame.as_ref().and_then(|frame| location(told, frame));
    if let Some(place) = with_file(told, place) {
        result["locations"] = json!([place]);
    }
    let frames = problem
        .stack
        .iter()
        .filter_map(|frame| location(told, frame));
    let frames: Vec<Value> = frames.map(|place| json!({"location": place})).collect();
    if !frames.is_empty() {
        result["stacks"] = json!([{"message": {"text": "opened here"}, "frames": frames}]);
    }
    if let Some(reason) = &problem.cleared {
        result["suppressions"] = json!([{"kind": "external", "justification": reason}]);
    }
    result
}

fn location(told: &ProblemReport, frame: &Frame) -> Option<Value> {
    let mut location = json!({});
    if let Some(function) = &frame.function {
        location["logicalLocations"] =
            json!([{"fullyQualifiedName": function, "kind": "function"}]);
    }
    // A relative path that leads up belongs to the machine that built a library, not to this
    // repository.
    let file = frame.file.as_ref();
    if let Some(file) = file.filter(|file| !leads_up(&file.to_lossy())) {
        location["physicalLocation"] =
            json!({"artifactLocation": artifact(told, &file.to_lossy())});
        if let Some(line) = frame.line.filter(|line| *line > 0) {
            location["physicalLocation"]["region"] = json!({"startLine": line});
        }
    }
    (frame.file.is_some() || frame.function.is_some()).then_some(location)
}

/// A place in a file. Code scanning rejects a result without one: if the line is unknown, the file
/// of the program is used, and the message of the location explains it.
fn with_file(told: &ProblemReport, place: Option<Value>) -> Option<Value> {
    let mut place = place.unwrap_or_else(|| json!({}));
    if place.get("physicalLocation").is_some() {
        return Some(place);
    }
    let program = told.program.as_ref()?.to_string_lossy();
    place["physicalLocation"] = json!({
        "artifactLocation": artifact(told, &program),
        "region": {"startLine": 1},
    });
    place["message"] = json!({"text": "The line is unknown; this is the program under test."});
    Some(place)
}

fn leads_up(path: &str) -> bool {
    !path.starts_with('/') && path.split('/').any(|part| part == "..")
}

/// A file as a URI, relative to the working directory if it is below it.
fn artifact(told: &ProblemReport, file: &str) -> Value {
    let path = relative(file, &told.base);
    match path.strip_prefix('/') {
        Some(_) => json!({"uri": format!("file://{}", encoded(&path))}),
        None => json!({"uri": encoded(&path), "uriBaseId": "%SRCROOT%"}),
    }
}

/// Identifies the same problem in the next version of the program, whatever changed above it: no
/// line, no number.
fn fingerprint(told: &ProblemReport, problem: &CheckProblem) -> String {
    let file = told.file(problem).unwrap_or_default();
    let culprit = problem.culprit.as_ref();
    let function = culprit
        .and_then(|one| one.function.clone())
        .unwrap_or_default();
    let class = problem.class.clone().unwrap_or_default();
    let parts = [problem.rule.as_str(), &file, &function, &class];
    format!("{:016x}", fnv(parts.join("\u{1f}").as_bytes()))
}

/// FNV-1a: stable across machines and versions.
fn fnv(bytes: &[u8]) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, step)
}

fn level(severity: Severity) -> &'static str {
    match severity {
        Severity::Info => "note",
        Severity::Warning => "warning",
        Severity::Critical => "error",
    }
}

/// A path as a part of a URI.
fn encoded(path: &str) -> String {
    let mut out = String::with_capacity(path.len());
    for byte in path.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => {
                out.push(char::from(byte));
            }
            other => out.push_str(&format!("%{other:02X}")),
        }
    }
    out
}

fn camel(id: &str) -> String {
    let word = |word: &str| {
        let (first, rest) = word.split_at(word.len().min(1));
        format!("{}{rest}", first.to_uppercase())
    };
    id.split('-').map(word).collect()
}

/// With a capital letter, without a full stop.
fn sentence(text: &str) -> String {
    let text = text.trim().trim_end_matches('.');
    let mut chars = text.chars();
    let first = chars.next().map(|first| first.to_uppercase().to_string());
    format!("{}{}", first.unwrap_or_default(), chars.as_str())
}

#[cfg(test)]
mod tests {
    use fdguard_core::lint::Severity;

    use super::super::problem::tests::told;
    use super::document;

    #[test]
    fn a_result_has_its_rule_its_place_and_its_weakness() {
        let document = document(&told(7));
        let run = &document["runs"][0];
        let result = &run["results"][0];
        let rules = run["tool"]["driver"]["rules"].as_array().unwrap();
        let index = usize::try_from(result["ruleIndex"].as_u64().unwrap()).unwrap();
        assert_eq!(rules[index]["id"], "leftover-descriptor");
        assert_eq!(
            rules[index]["properties"]["tags"][2],
            "external/cwe/cwe-775"
        );
        let place = &result["locations"][0]["physicalLocation"];
        assert_eq!(place["artifactLocation"]["uri"], "src/a%2Cb%3Ac.py");
        assert_eq!(place["artifactLocation"]["uriBaseId"], "%SRCROOT%");
        assert_eq!(place["region"]["startLine"], 7);
        assert_eq!(result["level"], "warning");
        let weaknesses: Vec<_> = [("double-close", 1341), ("use-after-close", 910)]
            .iter()
            .map(|(id, cwe)| {
                let rule = rules.iter().find(|rule| rule["id"] == *id).unwrap();
                rule["properties"]["tags"][2] == format!("external/cwe/cwe-{cwe}")
            })
            .collect();
        assert_eq!(weaknesses, [true, true]);
    }

    #[test]
    fn a_fingerprint_survives_lines_that_move_and_nothing_else() {
        let print = |told| document(&told)["runs"][0]["results"][0]["partialFingerprints"].clone();
        assert_eq!(print(told(7)), print(told(70)));
        let mut other = told(7);
        other.problems[0].class = Some("pipe".to_owned());
        assert_ne!(print(told(7)), print(other));
        // Pinned: a change would reopen every known alert.
        assert_eq!(print(told(7))["fdguard/v1"].as_str().unwrap().len(), 16);
    }

    #[test]
    fn a_level_is_the_severity_of_the_text() {
        let level = |severity| {
            let mut told = told(7);
            told.problems[0].severity = severity;
            document(&told)["runs"][0]["results"][0]["level"].clone()
        };
        assert_eq!(level(Severity::Info), "note");
        assert_eq!(level(Severity::Warning), "warning");
        assert_eq!(level(Severity::Critical), "error");
    }

    #[test]
    fn a_problem_without_a_line_is_in_the_file_of_the_program() {
        let mut told = told(7);
        told.problems[0].culprit = None;
        let place = &document(&told)["runs"][0]["results"][0]["locations"][0];
        let file = &place["physicalLocation"]["artifactLocation"];
        assert_eq!(
            (&file["uri"], &file["uriBaseId"]),
            (&"start.sh".into(), &"%SRCROOT%".into())
        );
        assert!(
            place["message"]["text"]
                .as_str()
                .unwrap()
                .contains("unknown")
        );
        // A function without a file keeps its name.
        told.problems[0].culprit = told_function();
        told.program = Some("/usr/bin/bash".into());
        let place = &document(&told)["runs"][0]["results"][0]["locations"][0];
        assert_eq!(place["logicalLocations"][0]["fullyQualifiedName"], "load");
        let file = &place["physicalLocation"]["artifactLocation"];
        assert_eq!(file["uri"], "file:///usr/bin/bash");
    }

    #[test]
    fn a_source_of_the_c_library_is_no_file_of_the_repository() {
        let mut told = told(7);
        let culprit = told.problems[0].culprit.as_mut().unwrap();
        culprit.file = Some("csu/../sysdeps/nptl/libc_start_call_main.h".into());
        let place = &document(&told)["runs"][0]["results"][0]["locations"][0];
        let file = &place["physicalLocation"]["artifactLocation"];
        assert_eq!(file["uri"], "start.sh", "{place:#}");
    }

    fn told_function() -> Option<fdguard_core::origin::Culprit> {
        let mut culprit = told(7).problems[0].culprit.clone()?;
        culprit.file = None;
        Some(culprit)
    }

    #[test]
    fn what_was_cleared_is_suppressed_and_not_hidden() {
        let mut told = told(7);
        told.problems[0].cleared = Some("on purpose".to_owned());
        let document = document(&told);
        let suppression = &document["runs"][0]["results"][0]["suppressions"][0];
        assert_eq!(suppression["justification"], "on purpose");
    }
}
