//! The tools, as a client lists them.

use std::sync::Arc;

use rmcp::handler::server::tool::schema_for_type;
use rmcp::model::{JsonObject, Tool, ToolAnnotations};
use schemars::JsonSchema;

use super::arguments::{Archive, Bash, Check, Python, Snap, Trace, Watch, Which, Why};
use super::output_schema;

/// Server instructions: a model reads them before it uses any tool.
pub(super) const INSTRUCTIONS: &str = "You have a Python session and a bash session on the host's machine. Both keep their state \
     between calls. Each runs one command at a time; the two can run in parallel. A command that \
     exceeds its timeout is interrupted, and the session continues. `interrupt` stops a command \
     early; `reset` restarts the interpreter. Background processes end with the session. `snap`, \
     `watch` and `doctor` show which file descriptors a process holds; the default is this host. \
     `trace` and `check` run a program and name the line of code that leaves descriptors open. Use \
     `check` to prove that a fix works.";

/// All tools. Those that examine processes need the `fdguard` command; `archive` needs root
/// directories.
pub(super) fn all(can_look: bool, can_archive: bool) -> Vec<Tool> {
    let mut tools = vec![python(), bash(), interrupt(), reset()];
    if can_archive {
        tools.push(archive());
    }
    if can_look {
        tools.extend([snap(), watch(), doctor(), trace(), why(), check()]);
    }
    tools
}

fn tool<T: JsonSchema + 'static>(
    name: &'static str,
    title: &'static str,
    description: &'static str,
    mut hints: ToolAnnotations,
) -> Tool {
    let schema: Arc<JsonObject> = schema_for_type::<T>();
    hints.title = Some(title.to_owned());
    Tool::new(name, description, schema)
        .with_title(title)
        .with_annotations(hints)
}

/// May do anything.
fn anything() -> ToolAnnotations {
    ToolAnnotations::new()
        .read_only(false)
        .destructive(true)
        .idempotent(false)
        .open_world(true)
}

/// Changes things of this host alone.
fn inside(destructive: bool, idempotent: bool) -> ToolAnnotations {
    ToolAnnotations::new()
        .read_only(false)
        .destructive(destructive)
        .idempotent(idempotent)
        .open_world(false)
}

/// Read-only.
fn looking() -> ToolAnnotations {
    ToolAnnotations::new()
        .read_only(true)
        .destructive(false)
        .idempotent(true)
        .open_world(false)
}

fn python() -> Tool {
    tool::<Python>(
        "python",
        "Run Python",
        "Run Python code in your own persistent session. Use it for calculations, data processing \
         and scripts. Variables, imports and the current directory persist between calls. Returns \
         what the code printed and the value of the last expression, as in an interactive session. \
         An exception is returned as its traceback with exit status 1. The last line of the result \
         states how the code ended. Long output is truncated in the middle and marked.",
        anything(),
    )
    .with_raw_output_schema(output_schema::exec())
}

fn bash() -> Tool {
    tool::<Bash>(
        "bash",
        "Run shell commands",
        "Run bash commands in your own persistent session. Variables, functions and the current \
         directory persist between calls. Returns stdout and stderr together; the last line of the \
         result states the exit status. Nothing can answer prompts, so use non-interactive options \
         such as -y. Long output is truncated in the middle and marked.",
        anything(),
    )
    .with_raw_output_schema(output_schema::exec())
}

fn interrupt() -> Tool {
    tool::<Which>(
        "interrupt",
        "Interrupt a running command",
        "Interrupt the command that is running in your python or bash session, like Ctrl-C. Use it \
         when a command hangs or is no longer needed. The waiting call returns with its output so \
         far. Variables are kept.",
        inside(false, true),
    )
    .with_raw_output_schema(output_schema::interrupted())
}

fn reset() -> Tool {
    tool::<Which>(
        "reset",
        "Restart an interpreter",
        "Stop everything in your python or bash session, including background processes, and start \
         a new interpreter in the same directory. Use it when the session is broken or stuck. All \
         variables are lost. Returns a receipt that counts processes killed and processes still \
         running.",
        inside(true, true),
    )
    .with_raw_output_schema(output_schema::reset())
}

fn archive() -> Tool {
    tool::<Archive>(
        "archive",
        "Archive log files",
        "Move log files into an archive directory without losing a line, even if a process is \
         still writing to them. Paths must be absolute and below a directory that the host allows. \
         Returns a receipt per file with its size and checksum. A file that is still being written \
         or locked after `wait_ms` stays where it is.",
        inside(true, false),
    )
    .with_raw_output_schema(output_schema::archive())
}

fn snap() -> Tool {
    tool::<Snap>(
        "snap",
        "Show open file descriptors",
        "Show which file descriptors a process has open right now: the count and the limit, the \
         number per class, and warnings. Use it for a first look at one process. Read-only. \
         Default process: this host.",
        looking(),
    )
    .with_raw_output_schema(output_schema::snapshot())
}

fn watch() -> Tool {
    tool::<Watch>(
        "watch",
        "Detect a descriptor leak",
        "Observe a process for some seconds and report whether it leaks file descriptors: which \
         class, how fast, and when it will reach its limit. Use it when a running process is \
         suspected to leak. Read-only. Default: this host, 10 seconds.",
        looking(),
    )
    .with_raw_output_schema(output_schema::diagnosis())
}

fn doctor() -> Tool {
    tool::<Watch>(
        "doctor",
        "Diagnose a process",
        "Diagnose a process in depth for some seconds: descriptors, limits, leaks, what is wrong \
         and how to fix it. Use it when it is unclear what is wrong. Read-only. Default: this \
         host, 10 seconds.",
        looking(),
    )
    .with_raw_output_schema(output_schema::diagnosis())
}

fn trace() -> Tool {
    tool::<Trace>(
        "trace",
        "Find the line that leaks descriptors",
        "Run a program, or attach to a running one by `pid`, and report the lines of code that \
         opened descriptors which are still open, and misuse such as a double close. Use it to \
         find the cause of a leak. A started program runs until it exits or until `seconds` have \
         passed; a running one goes on. Returns the diagnosis and a started program's output.",
        anything(),
    )
    .with_raw_output_schema(output_schema::diagnosis())
}

fn why() -> Tool {
    tool::<Why>(
        "why",
        "Find the object that holds descriptors open",
        "Report which object of a running Python, Java or Node program still holds each descriptor, \
         and what keeps that object alive: a global, an attribute, a local variable of a thread, a stored \
         traceback, or only an unreachable cycle. Use it after `trace` named the line that opens \
         them. The program is stopped for a few milliseconds and goes on; nothing is collected.",
        looking(),
    )
    .with_raw_output_schema(output_schema::why())
}

fn check() -> Tool {
    tool::<Check>(
        "check",
        "Prove that a program does not leak",
        "Run a program, or a server with an `exercise`, and test whether its descriptors return to \
         the baseline. Returns passed or failed, with the line of code that leaks. Run it before a \
         fix to confirm the leak and after the fix to prove that it is gone.",
        anything(),
    )
    .with_raw_output_schema(output_schema::diagnosis())
}

#[cfg(test)]
mod tests {
    use super::all;

    #[test]
    fn every_tool_says_what_it_takes_and_what_it_may_do() {
        let tools = all(true, true);
        let names: Vec<&str> = tools.iter().map(|tool| tool.name.as_ref()).collect();
        let expected = [
            "python",
            "bash",
            "interrupt",
            "reset",
            "archive",
            "snap",
            "watch",
            "doctor",
            "trace",
            "why",
            "check",
        ];
        assert_eq!(names, expected);
        for tool in &tools {
            let hints = tool.annotations.as_ref().unwrap();
            assert!(hints.title.is_some(), "{}", tool.name);
            assert!(hints.read_only_hint.is_some(), "{}", tool.name);
            assert!(hints.destructive_hint.is_some(), "{}", tool.name);
            assert_eq!(tool.input_schema["type"], "object", "{}", tool.name);
            let output = tool.output_schema.as_ref().unwrap();
            assert_eq!(output["type"], "object", "{}", tool.name);
            assert_eq!(output["required"][0], "schema", "{}", tool.name);
            let properties = tool.input_schema["properties"].as_object().unwrap();
            for (name, property) in properties {
                let text = property.to_string();
                assert!(text.contains("description"), "{} {name}", tool.name);
            }
        }
        let bare = all(false, false);
        assert!(
            bare.iter()
                .all(|tool| tool.name != "snap" && tool.name != "archive")
        );
    }
}
