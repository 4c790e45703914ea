//! Text of tool results: the output, then one line about how the command ended.

use fdguard_core::units::{duration_from_seconds, whole_milliseconds};
use rmcp::model::{CallToolResult, ContentBlock};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};

use super::answer::answer;
use super::trial::TrialEnd;
use crate::document::Document;
use crate::session::{ExecOutcome, ExecOutput, ExecResult};

/// Last lines of a failed program's stderr that a result shows.
const LAST_LINES: usize = 15;

/// Result of a command.
#[derive(Serialize, JsonSchema)]
pub(super) struct Ran {
    /// Id of the session that ran the command.
    pub(super) session: String,
    /// Why this is a new session; `null` if it is the same session as in the previous call.
    pub(super) renewed: Option<String>,
    #[serde(flatten)]
    pub(super) done: ExecResult,
}

/// Result of an interrupt.
#[derive(Serialize, JsonSchema)]
pub(super) struct InterruptedExec {
    /// Session id; `null` if there is no session.
    pub(super) id: Option<String>,
    /// A command was running.
    pub(super) was_running: bool,
}

/// Result of a command.
pub(super) fn ran(ran: Ran) -> CallToolResult {
    let text = text(&ran.done, ran.renewed.as_deref());
    let failed = failed(ran.done.outcome);
    result(text, &Document::new("fdguard.exec/1", ran), failed)
}

/// A document in a few lines, with itself.
pub(super) fn seen(document: &Value, failed: bool) -> CallToolResult {
    result(answer(document), document, failed)
}

/// Result of `trace` or `check`: the text, then how it ended. The document has one more member,
/// `run`.
pub(super) fn tried(ended: TrialEnd) -> CallToolResult {
    let failed = ended.status.is_none_or(|status| status > 1);
    let mut text = match &ended.document {
        Some(document) => answer(document),
        None => "no diagnosis".to_owned(),
    };
    if failed || ended.document.is_none() {
        let lines: Vec<&str> = ended.stderr.text.lines().collect();
        let skipped = lines.len().saturating_sub(LAST_LINES);
        for line in lines.iter().skip(skipped) {
            text.push_str(&format!("\n| {line}"));
        }
    }
    let (status, ms) = (ended.status, ended.took.as_millis());
    let took = whole_milliseconds(ended.took);
    let shown = status.map_or("unknown".to_owned(), |status| status.to_string());
    text.push_str(&format!("\n[exit status {shown}, {took}]"));
    let Some(mut document) = ended.document else {
        return CallToolResult::error(vec![ContentBlock::text(text)]);
    };
    if let Some(fields) = document.as_object_mut() {
        let run =
            json!({"status": status, "ms": ms, "stdout": ended.stdout, "stderr": ended.stderr});
        fields.insert("run".to_owned(), run);
    }
    result(text, &document, false)
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

/// One clear line.
pub(super) fn refused(error: impl std::fmt::Display) -> CallToolResult {
    let line = error.to_string();
    let parts = line.split(['\n', '\r']).map(str::trim);
    let parts: Vec<&str> = parts.filter(|part| !part.is_empty()).collect();
    CallToolResult::error(vec![ContentBlock::text(parts.join("; "))])
}

/// Whether it did not finish by itself. A nonzero status is a normal result: `grep` returns it,
/// too.
fn failed(outcome: ExecOutcome) -> bool {
    !matches!(
        outcome,
        ExecOutcome::Exited { .. } | ExecOutcome::ProgramEnded { status: Some(0) }
    )
}

fn text(done: &ExecResult, renewed: Option<&str>) -> String {
    let mut text = String::new();
    if let Some(why) = renewed {
        text.push_str(&format!(
            "[new session, earlier variables are lost: {why}]\n"
        ));
    }
    if let Some(earlier) = done.earlier.as_ref().filter(|it| !it.text.is_empty()) {
        add(
            &mut text,
            "[output of background processes from earlier commands]\n",
            earlier,
        );
        text.push_str("[output of this command]\n");
    }
    add(&mut text, "", &done.stdout);
    if let Some(stderr) = done.stderr.as_ref().filter(|it| !it.text.is_empty()) {
        add(&mut text, "[stderr]\n", stderr);
    }
    text.push_str(&last_line(done));
    text
}

fn add(text: &mut String, head: &str, output: &ExecOutput) {
    text.push_str(head);
    text.push_str(&output.text);
    if !output.text.is_empty() && !output.text.ends_with('\n') {
        text.push('\n');
    }
}

/// How it ended, how much output is missing, and whether variables are lost.
fn last_line(done: &ExecResult) -> String {
    let took = duration_from_seconds(done.ms / 1e3).unwrap_or_default();
    let took = whole_milliseconds(took);
    let end = match done.outcome {
        ExecOutcome::Exited { status } => format!("exit status {status}, {took}"),
        ExecOutcome::Interrupted => format!("interrupted after {took}"),
        ExecOutcome::TimedOut => format!("timed out: interrupted after {took}"),
        ExecOutcome::ProgramEnded { status } => {
            let status = status.map_or("unknown".to_owned(), |status| status.to_string());
            format!("the interpreter exited with status {status}; the next call starts a new one")
        }
        ExecOutcome::LimitReached => {
            "the session exceeded a resource limit and was closed; the next call starts a new one"
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
        bytes => format!("; {bytes} bytes omitted from the middle"),
    };
    let reset = if done.was_reset {
        "; the interpreter did not respond and was restarted: variables are lost"
    } else {
        ""
    };
    format!("[{end}{lost}{reset}]")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{Ran, ran, refused, tried};
    use crate::mcp::trial::TrialEnd;
    use crate::session::{DroppedOutput, ExecOutcome, ExecOutput, ExecResult};

    fn done(outcome: ExecOutcome, text: &str) -> ExecResult {
        ExecResult {
            number: 1,
            outcome,
            stdout: ExecOutput {
                text: text.to_owned(),
                bytes: 0,
                dropped: None,
            },
            stderr: None,
            earlier: None,
            dir: None,
            ms: 12.4,
            was_reset: false,
        }
    }

    fn said(done: ExecResult, renewed: Option<&str>) -> (Value, bool) {
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
        let plain = done(ExecOutcome::Exited { status: 3 }, "hello");
        assert_eq!(
            said(plain.clone(), None),
            (json!("hello\n[exit status 3, 12 ms]"), false)
        );
        let mut lossy = done(ExecOutcome::TimedOut, "a\n");
        lossy.was_reset = true;
        lossy.stdout.dropped = Some(DroppedOutput {
            bytes: 77,
            lines: 2,
            sha256: String::new(),
        });
        let text = "a\n[timed out: interrupted after 12 ms; 77 bytes omitted from the middle; \
                    the interpreter did not respond and was restarted: variables are lost]";
        assert_eq!(said(lossy, None), (json!(text), true));
        let text = "[new session, earlier variables are lost: idle]\nhello\n[exit status 3, 12 ms]";
        assert_eq!(said(plain, Some("idle")), (json!(text), false));
    }

    #[test]
    fn both_streams_and_earlier_output_are_apart() {
        let mut both = done(ExecOutcome::Interrupted, "out");
        both.stderr = Some(ExecOutput {
            text: "err\n".to_owned(),
            ..ExecOutput::default()
        });
        both.earlier = Some(ExecOutput {
            text: "old".to_owned(),
            ..ExecOutput::default()
        });
        let text = "[output of background processes from earlier commands]\nold\n[output of this command]\nout\n[stderr]\nerr\n\
                    [interrupted after 12 ms]";
        assert_eq!(said(both, None), (json!(text), true));
    }

    #[test]
    fn a_refusal_is_one_line() {
        let result = refused("it said\n\n no ");
        assert_eq!(
            serde_json::to_value(result.content).unwrap()[0]["text"],
            "it said; no"
        );
    }
    fn ended(status: i32, document: Option<Value>) -> TrialEnd {
        let mut words: Vec<String> = (0..40).map(|number| format!("line {number}")).collect();
        words.push("boom".to_owned());
        TrialEnd {
            document,
            status: Some(status),
            stdout: ExecOutput::default(),
            stderr: ExecOutput {
                text: words.join("\n"),
                ..ExecOutput::default()
            },
            took: std::time::Duration::from_millis(12),
        }
    }

    #[test]
    fn a_trial_has_its_answer_its_end_and_its_output() {
        let document = json!({
            "schema": "fdguard.diagnosis/1", "verdict": "stable", "findings": [],
            "process": {"pid": 7, "comm": "sh"},
        });
        let result = serde_json::to_value(tried(ended(0, Some(document.clone())))).unwrap();
        let text = "stable: sh (pid 7)\n[exit status 0, 12 ms]";
        assert_eq!(result["content"][0]["text"], text);
        assert_eq!(result["structuredContent"]["verdict"], "stable");
        assert_eq!(result["structuredContent"]["run"]["status"], 0);
        assert_eq!(result["isError"], false);
        // If the program failed, its last output is what matters.
        let result = serde_json::to_value(tried(ended(3, Some(document)))).unwrap();
        let text = result["content"][0]["text"].as_str().unwrap();
        assert!(text.contains("\n| boom\n[exit status 3"), "{text}");
        assert!(!text.contains("line 3\n"), "{text}");
        let result = serde_json::to_value(tried(ended(127, None))).unwrap();
        assert_eq!(result["isError"], true);
    }
}
