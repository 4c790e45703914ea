//! What a model reads: the output, then one line about how it ended.

use rmcp::model::{CallToolResult, ContentBlock};
use serde::Serialize;
use serde_json::Value;

use crate::document::Document;
use crate::session::{Done, Outcome, Output};

/// Elements of a list that a text shows; a document's structured form has all of them.
const SHOWN: usize = 24;

/// The result of a command. `renewed` says why the session is a new one.
#[derive(Serialize)]
pub(super) struct Ran {
    /// The session that it ran in.
    pub(super) session: String,
    /// Why this session is another one than that of the call before; `null` when it is the same.
    pub(super) renewed: Option<String>,
    #[serde(flatten)]
    pub(super) done: Done,
}

/// What a command came to.
pub(super) fn ran(ran: Ran) -> CallToolResult {
    let text = text(&ran.done, ran.renewed.as_deref());
    let failed = failed(ran.done.outcome);
    result(text, &Document::new("fdguard.exec/1", ran), failed)
}

/// A text with its document.
pub(super) fn result(text: String, document: &impl Serialize, failed: bool) -> CallToolResult {
    let content = vec![ContentBlock::text(text)];
    let mut result = if failed {
        CallToolResult::error(content)
    } else {
        CallToolResult::success(content)
    };
    // Text and numbers always can be written.
    result.structured_content = serde_json::to_value(document).ok();
    result
}

/// An answer without a document.
pub(super) fn plain(text: &str) -> CallToolResult {
    CallToolResult::success(vec![ContentBlock::text(text)])
}

/// One clear line.
pub(super) fn refused(error: impl std::fmt::Display) -> CallToolResult {
    let line = error.to_string();
    let parts = line.split(['\n', '\r']).map(str::trim);
    let parts: Vec<&str> = parts.filter(|part| !part.is_empty()).collect();
    CallToolResult::error(vec![ContentBlock::text(parts.join("; "))])
}

/// Whether it did not end by itself. A status other than 0 is an answer: `grep` gives it, too.
fn failed(outcome: Outcome) -> bool {
    !matches!(
        outcome,
        Outcome::Exited { .. } | Outcome::ProgramEnded { status: Some(0) }
    )
}

fn text(done: &Done, renewed: Option<&str>) -> String {
    let mut text = String::new();
    if let Some(why) = renewed {
        text.push_str(&format!(
            "[this is a new session, variables are gone: {why}]\n"
        ));
    }
    if let Some(earlier) = done.earlier.as_ref().filter(|it| !it.text.is_empty()) {
        add(&mut text, "[processes of earlier commands said]\n", earlier);
        text.push_str("[this command said]\n");
    }
    add(&mut text, "", &done.stdout);
    if let Some(stderr) = done.stderr.as_ref().filter(|it| !it.text.is_empty()) {
        add(&mut text, "[stderr]\n", stderr);
    }
    text.push_str(&last_line(done));
    text
}

fn add(text: &mut String, head: &str, output: &Output) {
    text.push_str(head);
    text.push_str(&output.text);
    if !output.text.is_empty() && !output.text.ends_with('\n') {
        text.push('\n');
    }
}

/// How it ended, what is missing, and whether variables are gone.
fn last_line(done: &Done) -> String {
    let ms = done.ms.round();
    let end = match done.outcome {
        Outcome::Exited { status } => format!("exit status {status}, {ms} ms"),
        Outcome::Interrupted => format!("interrupted after {ms} ms"),
        Outcome::TimedOut => format!("timed out: interrupted after {ms} ms"),
        Outcome::ProgramEnded { status } => {
            let status = status.map_or("unknown".to_owned(), |status| status.to_string());
            format!("the interpreter ended with status {status}; the next call starts a new one")
        }
        Outcome::LimitReached => {
            "the session used more than it may and was ended; the next call starts a new one"
                .to_owned()
        }
    };
    let outputs = [Some(&done.stdout), done.stderr.as_ref()];
    let lost = outputs
        .into_iter()
        .flatten()
        .filter_map(|output| output.dropped.as_ref());
    let lost: u64 = lost.map(|dropped| dropped.bytes).sum();
    let lost = match lost {
        0 => String::new(),
        bytes => format!("; {bytes} bytes are left out of the middle"),
    };
    let reset = if done.was_reset {
        "; it did not come back and was replaced: variables are gone"
    } else {
        ""
    };
    format!("[{end}{lost}{reset}]")
}

/// A document as text: its name first, and long lists by their begin.
pub(super) fn brief(document: &Value) -> String {
    let mut rest = shortened(document);
    let name = rest.as_object_mut().and_then(|it| it.remove("schema"));
    match name {
        Some(name) => format!(
            "{{\"schema\":{name},{}",
            rest.to_string().trim_start_matches('{')
        ),
        None => rest.to_string(),
    }
}

fn shortened(value: &Value) -> Value {
    match value {
        Value::Array(list) => {
            let mut shown: Vec<Value> = list.iter().take(SHOWN).map(shortened).collect();
            if let more @ 1.. = list.len().saturating_sub(SHOWN) {
                shown.push(format!("… {more} more in structuredContent").into());
            }
            Value::Array(shown)
        }
        Value::Object(fields) => {
            let fields = fields.iter();
            Value::Object(
                fields
                    .map(|(key, value)| (key.clone(), shortened(value)))
                    .collect(),
            )
        }
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{Ran, brief, ran, refused};
    use crate::session::{Done, Dropped, Outcome, Output};

    fn done(outcome: Outcome, text: &str) -> Done {
        Done {
            number: 1,
            outcome,
            stdout: Output {
                text: text.to_owned(),
                bytes: 0,
                dropped: None,
            },
            stderr: None,
            earlier: None,
            folder: None,
            ms: 12.4,
            was_reset: false,
        }
    }

    fn said(done: Done, renewed: Option<&str>) -> (Value, bool) {
        let result = ran(Ran {
            session: "s".to_owned(),
            renewed: renewed.map(str::to_owned),
            done,
        });
        let text = serde_json::to_value(&result.content).unwrap()[0]["text"].clone();
        (text, result.is_error.unwrap())
    }

    #[test]
    fn the_output_comes_first_and_the_end_last() {
        let plain = done(Outcome::Exited { status: 3 }, "hello");
        assert_eq!(
            said(plain.clone(), None),
            (json!("hello\n[exit status 3, 12 ms]"), false)
        );
        let mut lossy = done(Outcome::TimedOut, "a\n");
        lossy.was_reset = true;
        lossy.stdout.dropped = Some(Dropped {
            bytes: 77,
            lines: 2,
            sha256: String::new(),
        });
        let text = "a\n[timed out: interrupted after 12 ms; 77 bytes are left out of the middle; \
                    it did not come back and was replaced: variables are gone]";
        assert_eq!(said(lossy, None), (json!(text), true));
        let text =
            "[this is a new session, variables are gone: idle]\nhello\n[exit status 3, 12 ms]";
        assert_eq!(said(plain, Some("idle")), (json!(text), false));
    }

    #[test]
    fn both_streams_and_earlier_output_are_apart() {
        let mut both = done(Outcome::Interrupted, "out");
        both.stderr = Some(Output {
            text: "err\n".to_owned(),
            ..Output::default()
        });
        both.earlier = Some(Output {
            text: "old".to_owned(),
            ..Output::default()
        });
        let text = "[processes of earlier commands said]\nold\n[this command said]\nout\n[stderr]\nerr\n\
                    [interrupted after 12 ms]";
        assert_eq!(said(both, None), (json!(text), true));
    }

    #[test]
    fn a_refusal_is_one_line_and_long_lists_are_cut() {
        let result = refused("it said\n\n no ");
        assert_eq!(
            serde_json::to_value(result.content).unwrap()[0]["text"],
            "it said; no"
        );
        let long: Vec<u32> = (0..30).collect();
        let text = brief(&json!({"fds": long, "count": 30, "schema": "x/1"}));
        assert!(
            text.starts_with("{\"schema\":\"x/1\",\"count\":30,"),
            "{text}"
        );
        assert!(
            text.contains("23,\"… 6 more in structuredContent\"]"),
            "{text}"
        );
    }
}
