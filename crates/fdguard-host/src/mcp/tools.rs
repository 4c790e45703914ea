//! The tools, as a client lists them.

use std::sync::Arc;

use rmcp::handler::server::tool::schema_for_type;
use rmcp::model::{JsonObject, Tool, ToolAnnotations};
use schemars::JsonSchema;

use super::arguments::{Archive, Bash, Check, Python, Snap, Trace, Watch, Which};
use super::output_schema;

/// Said to a model before it uses any of them.
pub(super) const INSTRUCTIONS: &str = "A Python and a bash session that keep their state between calls, on the machine of this host. One command runs at \
    a time in each; both can run at once. A command that takes too long is interrupted and the session lives on; `interrupt` ends one early, `reset` starts \
    the interpreter anew. Background processes end with the session. `snap`, `watch` and `doctor` show what a process holds open, by default this host itself. \
    `trace` and `check` run a program and name the line of code that leaves descriptors open: use `check` to prove that a fix works.";

/// All tools. Those that look at processes need the command that does it, `archive` needs folders in which it may.
pub(super) fn all(can_look: bool, can_archive: bool) -> Vec<Tool> {
    let mut tools = vec![python(), bash(), interrupt(), reset()];
    if can_archive {
        tools.push(archive());
    }
    if can_look {
        tools.extend([snap(), watch(), doctor(), trace(), check()]);
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

/// Only looks.
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
        "Run Python code in your own session and get what it printed. Variables, imports and the folder stay for the next call. Exceptions are shown with \
         their traceback and status 1. The last line of the result says how it ended. Very long output is cut in the middle, and that is said.",
        anything(),
    )
    .with_raw_output_schema(output_schema::exec())
}

fn bash() -> Tool {
    tool::<Bash>(
        "bash",
        "Run shell commands",
        "Run bash commands in your own session and get what they printed, standard error included, and the exit status. Variables, functions and the folder \
         stay for the next call. There is nobody to type answers: use options such as -y. Very long output is cut in the middle, and that is said.",
        anything(),
    )
    .with_raw_output_schema(output_schema::exec())
}

fn interrupt() -> Tool {
    tool::<Which>(
        "interrupt",
        "Interrupt a running command",
        "Interrupt the command that runs in your python or bash session, as Ctrl-C does. That call returns with what it printed so far; variables stay.",
        inside(false, true),
    )
    .with_raw_output_schema(output_schema::interrupted())
}

fn reset() -> Tool {
    tool::<Which>(
        "reset",
        "Start an interpreter anew",
        "End everything in your python or bash session, background processes included, and start its interpreter anew in the same folder. Variables are gone. \
         The receipt counts what was ended and what is left.",
        inside(true, true),
    )
    .with_raw_output_schema(output_schema::reset())
}

fn archive() -> Tool {
    tool::<Archive>(
        "archive",
        "Archive log files",
        "Move log files into an archive folder without losing a line, also while somebody writes to them. Each file gets a receipt with its size and checksum. \
         Only below the folders that the host allows.",
        inside(true, false),
    )
    .with_raw_output_schema(output_schema::archive())
}

fn snap() -> Tool {
    tool::<Snap>(
        "snap",
        "What a process holds open",
        "Show the file descriptors of a process right now: how many of which limit, by class, with warnings. Default: this host itself.",
        looking(),
    )
    .with_raw_output_schema(output_schema::snapshot())
}

fn watch() -> Tool {
    tool::<Watch>(
        "watch",
        "Is a process leaking?",
        "Watch a process for some seconds and judge whether its file descriptors leak, which class, how fast, and when they hit a limit. Default: this host, 10 seconds.",
        looking(),
    )
    .with_raw_output_schema(output_schema::diagnosis())
}

fn doctor() -> Tool {
    tool::<Watch>(
        "doctor",
        "Examine a process",
        "Examine a process in depth for some seconds: descriptors, limits, leaks, what is wrong and what to do about it. Default: this host, 10 seconds.",
        looking(),
    )
    .with_raw_output_schema(output_schema::diagnosis())
}

fn trace() -> Tool {
    tool::<Trace>(
        "trace",
        "Which line leaves descriptors open?",
        "Run a program and name the lines of code that opened what is still open, and misuse such as double close. It runs until it ends, or for `seconds`.",
        anything(),
    )
    .with_raw_output_schema(output_schema::diagnosis())
}

fn check() -> Tool {
    tool::<Check>(
        "check",
        "Prove that a program leaks nothing",
        "Run a program, or a server with an exercise, and judge whether it returns to its baseline: passed or failed, with the line of code that leaks. Run it \
         before and after a fix.",
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
