//! Short text form of a document: the verdict, the line of code, the next step. The document itself
//! is in `structuredContent`.

use fdguard_core::units::counted;
use serde_json::Value;

/// Findings, hazards and lints that a text names; the document has all of them.
const SHOWN: usize = 3;
/// Classes of a snapshot.
const CLASSES: usize = 6;
/// Characters of one line: a path can be as long as it likes.
const WIDEST: usize = 400;

/// The short form of a document, by its schema.
pub(super) fn answer(document: &Value) -> String {
    let lines = match text(&document["schema"]) {
        "fdguard.snapshot/1" => snapshot(document),
        "fdguard.archive/1" => archive(document),
        "fdguard.why/1" => why(document),
        _ => diagnosis(document),
    };
    let lines: Vec<String> = lines.iter().map(|line| cut(line)).collect();
    lines.join("\n")
}

fn diagnosis(document: &Value) -> Vec<String> {
    let mut lines = vec![headline(document)];
    let findings = list(&document["findings"]);
    let findings = findings.iter().filter(|it| counts(it));
    add(&mut lines, findings, "finding", finding);
    let hazards = list(&document["hazards"]).iter();
    add(&mut lines, hazards, "hazard", hazard);
    let lints = list(&document["lints"]).iter().filter(|it| counts(it));
    add(&mut lines, lints, "lint", lint);
    if let Some(gap) = list(&document["gaps"]).first() {
        lines.push(format!(
            "not seen: {}: {}",
            text(&gap["what"]),
            text(&gap["why"])
        ));
    }
    lines
}

/// The sentence of the doctor, the result of a check, or the verdict.
fn headline(document: &Value) -> String {
    if let Some(headline) = document["headline"].as_str() {
        return headline.to_owned();
    }
    let process = &document["process"];
    let mut line = format!(
        "{}: {} (pid {})",
        text(&document["verdict"]),
        text(&process["comm"]),
        process["pid"]
    );
    if let (Some(first), Some(last)) = (document["baseline"].as_u64(), document["final"].as_u64()) {
        line.push_str(&format!(", descriptors {first} at start, {last} at end"));
    }
    let check = &document["check"];
    match (check["passed"].as_bool(), check["blind"].as_bool()) {
        (Some(false), _) => format!("check failed; {line}"),
        (Some(true), Some(true)) => format!("check inconclusive; {line}"),
        (Some(true), _) => format!("check passed; {line}"),
        (None, _) => line,
    }
}

fn finding(finding: &Value) -> Vec<String> {
    let mut lines = vec![format!(
        "{} {}: {}",
        text(&finding["severity"]),
        text(&finding["rule"]),
        text(&finding["why"])
    )];
    lines.extend(place(&finding["origin"]["culprit"]).map(|place| format!("  line: {place}")));
    lines.extend(labelled("next", &finding["next_step"]));
    lines
}

fn hazard(hazard: &Value) -> Vec<String> {
    let mut lines = vec![format!(
        "hazard {}: {}",
        text(&hazard["rule"]),
        text(&hazard["message"])
    )];
    let parties = [("opened", "opener"), ("closed", "closer"), ("used", "user")];
    let places = parties.into_iter().filter_map(|(did, party)| {
        let place = place(&hazard[party]["culprit"])?;
        Some(format!("  {did} at: {place}"))
    });
    lines.extend(places);
    lines
}

fn lint(lint: &Value) -> Vec<String> {
    let mut lines = vec![format!(
        "{} {}: {}",
        text(&lint["severity"]),
        text(&lint["rule"]),
        text(&lint["message"])
    )];
    lines.extend(labelled("fix", &lint["fix"]));
    lines
}

fn snapshot(document: &Value) -> Vec<String> {
    let process = &document["process"];
    let known = |value: &Value| value.as_u64().map_or("?".to_owned(), |it| it.to_string());
    let share = document["percent_of_soft"].as_f64();
    let share = share.map_or_else(String::new, |share| format!(" ({share} %)"));
    let mut lines = vec![format!(
        "{} (pid {}): {} of {} descriptors{share}",
        text(&process["comm"]),
        process["pid"],
        known(&document["count"]),
        known(&document["limits"]["soft"]),
    )];
    let classes = list(&document["classes"]).iter().take(CLASSES);
    let classes: Vec<String> = classes
        .map(|it| format!("{} {}", it["count"], text(&it["class"])))
        .collect();
    if !classes.is_empty() {
        lines.push(classes.join(", "));
    }
    let lints = list(&document["lints"]).iter();
    add(&mut lines, lints, "lint", lint);
    lines
}

fn archive(document: &Value) -> Vec<String> {
    let files = list(&document["files"]);
    let is_archived = |file: &&Value| text(&file["outcome"]).contains("archived");
    let done = files.iter().filter(is_archived).count();
    let mut lines = vec![format!(
        "{done} of {} archived",
        counted(files.len() as u64, "file")
    )];
    let kept = files.iter().filter(|file| !is_archived(file));
    add(&mut lines, kept, "file", |file| {
        let why = text(&file["reason"]);
        vec![format!(
            "{}: {} {why}",
            text(&file["source"]),
            text(&file["outcome"])
        )]
    });
    lines
}

/// For each line that opened descriptors what holds them.
fn why(document: &Value) -> Vec<String> {
    let mut lines = Vec::new();
    for process in list(&document["processes"]) {
        let sites = list(&process["sites"]);
        lines.push(format!(
            "{} (pid {})",
            text(&process["comm"]),
            process["pid"]
        ));
        if let Some(refusal) = process["refusal"].as_str() {
            lines.push(format!("not known: {refusal}"));
        }
        add(&mut lines, sites.iter(), "site", |site| {
            let count = list(&site["fds"]).len();
            let opened = match place(&site["culprit"]) {
                Some(place) => format!("opened at {place}"),
                None => "opened before fdguard came".to_owned(),
            };
            let mut lines = vec![format!("{count} {} {opened}", text(&site["what"]))];
            for chain in list(&site["why"]["chains"]) {
                let basis = text(&chain["basis"]).replace('_', " ");
                lines.push(format!("  {} [{basis}]", text(&chain["text"])));
            }
            lines
        });
    }
    lines
}

/// The first few of a list, and how many more there are.
fn add(
    lines: &mut Vec<String>,
    all: impl Iterator<Item = impl std::borrow::Borrow<Value>>,
    noun: &str,
    shown: impl Fn(&Value) -> Vec<String>,
) {
    let mut more = 0_usize;
    for (index, one) in all.enumerate() {
        if index < SHOWN {
            lines.extend(shown(one.borrow()));
        } else {
            more += 1;
        }
    }
    if more > 0 {
        lines.push(format!(
            "{} in structuredContent",
            counted(more as u64, &format!("more {noun}"))
        ));
    }
}

/// Whether it deserves attention.
fn counts(one: &Value) -> bool {
    text(&one["severity"]) != "info" && one["cleared"].is_null()
}

/// `app.py:4 in work()`.
fn place(culprit: &Value) -> Option<String> {
    let function = culprit["function"].as_str();
    let file = culprit["file"].as_str();
    let line = culprit["line"].as_u64();
    let line = line.map_or_else(String::new, |line| format!(":{line}"));
    match (file, function) {
        (Some(file), Some(function)) => Some(format!("{file}{line} in {function}")),
        (Some(file), None) => Some(format!("{file}{line}")),
        (None, Some(function)) => Some(function.to_owned()),
        (None, None) => None,
    }
}

fn labelled(label: &str, value: &Value) -> Option<String> {
    let text = value.as_str().filter(|text| !text.is_empty())?;
    Some(format!("  {label}: {text}"))
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// Names that are not text are objects with their bytes.
fn text(value: &Value) -> &str {
    value.as_str().unwrap_or("?")
}

/// One line of limited length.
fn cut(line: &str) -> String {
    let flat = line.replace(['\n', '\r'], " ");
    match flat.char_indices().nth(WIDEST) {
        Some((at, _)) => format!("{}…", flat.get(..at).unwrap_or_default()),
        None => flat,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::answer;

    fn leak() -> Value {
        json!({
            "rule": "leak", "severity": "critical", "why": "60 more regular descriptors",
            "next_step": "close it", "cleared": null,
            "origin": {"culprit": {"file": "simple.py", "line": 4, "function": "work"}},
        })
    }

    #[test]
    fn a_diagnosis_is_verdict_line_and_next_step() {
        let document = json!({
            "schema": "fdguard.diagnosis/1", "verdict": "leaking", "baseline": 4, "final": 64,
            "process": {"pid": 7, "comm": "python3"},
            "findings": [leak(), {"rule": "plateau", "severity": "info", "why": "x"}],
            "hazards": [{"rule": "double-close", "message": "closed twice",
                         "closer": {"culprit": {"file": "a.c", "line": 9, "function": "main"}}}],
            "gaps": [{"what": "children", "why": "no permission"}],
        });
        let expected = "leaking: python3 (pid 7), descriptors 4 at start, 64 at end\n\
            critical leak: 60 more regular descriptors\n  line: simple.py:4 in work\n  next: close it\n\
            hazard double-close: closed twice\n  closed at: a.c:9 in main\n\
            not seen: children: no permission";
        assert_eq!(answer(&document), expected);
    }

    #[test]
    fn many_findings_and_long_lines_stay_short() {
        let mut long = leak();
        long["why"] = "x".repeat(5000).into();
        let document = json!({
            "schema": "fdguard.diagnosis/1", "verdict": "leaking",
            "process": {"pid": 7, "comm": {"bytes": "/w=="}},
            "findings": vec![long; 40], "check": {"passed": false, "blind": false},
        });
        let said = answer(&document);
        assert!(
            said.starts_with("check failed; leaking: ? (pid 7)\n"),
            "{said}"
        );
        assert!(
            said.ends_with("37 more findings in structuredContent"),
            "{said}"
        );
        assert!(said.len() < 2000 && said.lines().count() < 12, "{said}");
    }

    #[test]
    fn the_holders_of_each_line_are_named() {
        let chain = json!({"basis": "two_walks", "text": "held by 12 numbers ← __main__.raw"});
        let site = json!({"culprit": {"file": "a.py", "line": 4, "function": "work"},
            "what": "files", "fds": [3, 4], "why": {"chains": [chain], "more": 0}});
        let before = json!({"culprit": null, "what": "sockets", "fds": [5], "why": {"chains": []}});
        let document = json!({"schema": "fdguard.why/1", "processes": [
            {"pid": 7, "comm": "python3", "refusal": null, "sites": [site, before]}]});
        let expected = "python3 (pid 7)\n2 files opened at a.py:4 in work\n  \
            held by 12 numbers ← __main__.raw [two walks]\n\
            1 sockets opened before fdguard came";
        assert_eq!(answer(&document), expected);
    }

    #[test]
    fn a_snapshot_and_an_archive_are_counted() {
        let document = json!({
            "schema": "fdguard.snapshot/1", "count": 12, "limits": {"soft": 1024},
            "percent_of_soft": 1.2, "process": {"pid": 7, "comm": "nginx"},
            "classes": [{"class": "tcp:LISTEN", "count": 8}, {"class": "pipe", "count": 4}],
            "lints": [],
        });
        let expected = "nginx (pid 7): 12 of 1024 descriptors (1.2 %)\n8 tcp:LISTEN, 4 pipe";
        assert_eq!(answer(&document), expected);
        let document = json!({
            "schema": "fdguard.archive/1",
            "files": [{"source": "/a", "outcome": "archived"},
                      {"source": "/b", "outcome": "kept", "reason": "somebody writes"}],
        });
        assert_eq!(
            answer(&document),
            "1 of 2 files archived\n/b: kept somebody writes"
        );
        // Unexpected values must not panic.
        assert_eq!(answer(&Value::Null), "?: ? (pid null)");
    }
}
