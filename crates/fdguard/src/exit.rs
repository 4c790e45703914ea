//! Exit codes, and the one place that turns an error into one.

use std::io::Write as _;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use fdguard_probe::Error as ProbeError;

use crate::terminal::sanitize_str;

/// Nothing found.
pub const CLEAN: u8 = 0;
/// Findings at or above `--fail-on`.
pub const FINDINGS: u8 = 1;
/// The command line makes no sense.
pub const USAGE: u8 = 2;
/// Could not look: no such process, no permission, unsupported system, unreadable file.
pub const COULD_NOT_LOOK: u8 = 3;

/// An error with the one thing that would help.
#[derive(Debug)]
pub struct HintedError {
    /// What went wrong.
    pub message: String,
    /// What to do about it.
    pub hint: String,
    /// Which exit code it gives.
    pub code: u8,
}

impl HintedError {
    /// A failure to look.
    pub fn look(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            hint: hint.into(),
            code: COULD_NOT_LOOK,
        }
    }

    /// A mistake on the command line.
    pub fn usage(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            hint: hint.into(),
            code: USAGE,
        }
    }
}

impl std::fmt::Display for HintedError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for HintedError {}

/// Says on stderr what went wrong, in one line and a hint, and gives the exit code.
pub fn report(error: &anyhow::Error) -> u8 {
    if is_broken_pipe(error) {
        return CLEAN;
    }
    let mut text = String::new();
    for (index, cause) in error.chain().enumerate() {
        if index > 0 {
            text.push_str(": ");
        }
        text.push_str(&cause.to_string());
    }
    let (hint, code) = match (
        error.downcast_ref::<HintedError>(),
        error.downcast_ref::<ProbeError>(),
    ) {
        (Some(hinted), _) => (Some(hinted.hint.clone()), hinted.code),
        (_, Some(probe)) => (hint_for(probe), COULD_NOT_LOOK),
        _ => (None, COULD_NOT_LOOK),
    };
    say(&text, hint.as_deref());
    code
}

/// Says what went wrong beside the work, which goes on.
pub fn warn(error: &anyhow::Error) {
    say(&format!("{error:#}"), None);
}

fn say(text: &str, hint: Option<&str>) {
    let mut stderr = anstream::stderr().lock();
    // Names of files and commands come from outside. Nobody is left to tell when stderr is gone.
    drop(writeln!(stderr, "fdguard: {}", sanitize_str(text)));
    if let Some(hint) = hint.filter(|hint| !hint.is_empty()) {
        drop(writeln!(stderr, "hint: {}", sanitize_str(hint)));
    }
}

/// A reader that has seen enough is no failure.
fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        let io = cause.downcast_ref::<std::io::Error>();
        let json = cause
            .downcast_ref::<serde_json::Error>()
            .and_then(serde_json::Error::io_error_kind);
        io.map(std::io::Error::kind).or(json) == Some(std::io::ErrorKind::BrokenPipe)
    })
}

fn hint_for(error: &ProbeError) -> Option<String> {
    let hint = match error {
        ProbeError::NoSuchProcess(_) => {
            "`fdguard top` lists the processes there are; --name finds one by its command"
        }
        ProbeError::Vanished(_) => {
            "use --name to find its successor, or look at its parent with --tree"
        }
        ProbeError::Zombie { .. } => "look at the parent: it should wait for its children",
        ProbeError::KernelThread(_) => "name a process of a user: `fdguard top` lists them",
        ProbeError::NoProc { .. } => "mount it (mount -t proc proc /proc), or use --via lsof",
        ProbeError::Helper { .. } => "install lsof, or leave out --via lsof",
        _ => return None,
    };
    Some(hint.to_owned())
}

/// Help and version go to stdout and are no error; everything else is one line and a hint.
pub fn usage(error: &clap::Error) -> u8 {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            // A closed pipe while showing help is nobody's problem.
            drop(error.print());
            CLEAN
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            drop(error.print());
            USAGE
        }
        _ => {
            say(&first_line(error), Some(&usage_hint(error)));
            USAGE
        }
    }
}

/// The first line of clap's message, with the arguments that it lists below joined in.
fn first_line(error: &clap::Error) -> String {
    let rendered = error.render().to_string();
    let mut lines = rendered.lines();
    let first = lines.next().unwrap_or("wrong arguments");
    let mut text = first
        .strip_prefix("error: ")
        .unwrap_or(first)
        .trim()
        .to_owned();
    if text.ends_with(':') {
        let listed: Vec<&str> = lines
            .take_while(|line| line.starts_with("  "))
            .map(str::trim)
            .collect();
        text = format!("{text} {}", listed.join(", "));
    }
    text
}

fn usage_hint(error: &clap::Error) -> String {
    match error
        .get(ContextKind::SuggestedArg)
        .or_else(|| error.get(ContextKind::SuggestedSubcommand))
    {
        Some(ContextValue::String(suggestion)) => format!("did you mean {suggestion}?"),
        Some(ContextValue::Strings(list)) if !list.is_empty() => {
            format!("did you mean {}?", list.join(" or "))
        }
        _ => "fdguard --help, or fdguard COMMAND --help".to_owned(),
    }
}
