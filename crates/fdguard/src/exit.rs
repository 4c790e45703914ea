//! Exit codes, and the one place that turns an error into one.

use std::io::Write as _;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use fdguard_diagnose::Error as DiagnoseError;
use fdguard_probe::Error as ProbeError;

use crate::terminal::sanitize_str;

/// Nothing found.
pub const CLEAN: u8 = 0;
/// Findings at or above `--fail-on`.
pub const FINDINGS: u8 = 1;
/// The command line is invalid.
pub const USAGE: u8 = 2;
/// Could not look: no such process, no permission, unsupported system, unreadable file.
pub const COULD_NOT_LOOK: u8 = 3;

/// Added to the number of a signal.
pub const SIGNALLED: u8 = 128;

/// An error with a hint.
#[derive(Debug)]
pub struct HintedError {
    /// What went wrong.
    pub message: String,
    /// What to do about it.
    pub hint: String,
    /// The exit code.
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

    /// A signal ended the command before it had a result.
    pub fn signalled(signal: i32) -> Self {
        Self {
            message: format!("stopped by signal {signal}"),
            hint: String::new(),
            code: SIGNALLED.saturating_add(u8::try_from(signal).unwrap_or(0)),
        }
    }

    /// A usage error.
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

/// Whether a signal ended the command.
#[cfg(feature = "trace")]
pub(crate) fn is_signalled(error: &anyhow::Error) -> bool {
    let hinted = error.downcast_ref::<HintedError>();
    hinted.is_some_and(|hinted| hinted.code > SIGNALLED)
}

/// Prints the error and its hint on stderr and returns the exit code.
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
    let hinted = error.downcast_ref::<HintedError>();
    let (hint, code) = match (hinted, error.downcast_ref()) {
        (Some(hinted), _) => (Some(hinted.hint.clone()), hinted.code),
        (_, Some(DiagnoseError::Input { hint, .. })) => (Some((*hint).to_owned()), COULD_NOT_LOOK),
        _ => (probe_error(error).and_then(hint_for), COULD_NOT_LOOK),
    };
    say(&text, hint.as_deref());
    code
}

/// The error of the probe, if that is the cause.
pub(crate) fn probe_error(error: &anyhow::Error) -> Option<&ProbeError> {
    match error.downcast_ref() {
        Some(DiagnoseError::Probe(probe)) => Some(probe),
        _ => error.downcast_ref(),
    }
}

/// Prints an error that does not stop the command.
pub fn warn(error: &anyhow::Error) {
    say(&format!("{error:#}"), None);
}

fn say(text: &str, hint: Option<&str>) {
    let mut stderr = anstream::stderr().lock();
    // File and command names are untrusted. If stderr is closed, there is nowhere to report that.
    drop(writeln!(stderr, "fdguard: {}", sanitize_str(text)));
    if let Some(hint) = hint.filter(|hint| !hint.is_empty()) {
        drop(writeln!(stderr, "hint: {}", sanitize_str(hint)));
    }
}

/// A reader that closes the pipe early is not a failure.
pub(crate) fn is_broken_pipe(error: &anyhow::Error) -> bool {
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
            "run `fdguard top` to list the processes, or use --name to find one by its command"
        }
        ProbeError::Vanished(_) => {
            "use --name to find its successor, or examine its parent with --tree"
        }
        ProbeError::Zombie { .. } => "examine the parent process: it must wait for its children",
        ProbeError::KernelThread(_) => "name a user process: run `fdguard top` to list them",
        ProbeError::NoProc { .. } => "mount it with mount -t proc proc /proc, or use --via lsof",
        ProbeError::Helper { .. } => "install lsof, or omit --via lsof",
        _ => return None,
    };
    Some(hint.to_owned())
}

/// Prints help and version to stdout with exit code 0; other errors as one line and a hint.
pub fn usage(error: &clap::Error) -> u8 {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            // A closed pipe while printing help does not matter.
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
    let first = lines.next().unwrap_or("invalid arguments");
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
    if let Some(ContextValue::String(command)) = error.get(ContextKind::InvalidSubcommand)
        && let Some(feature) = crate::cli::feature_of(command)
    {
        return format!(
            "this build has no `{command}`: install it with cargo install fdguard --features {feature}"
        );
    }
    match error
        .get(ContextKind::SuggestedArg)
        .or_else(|| error.get(ContextKind::SuggestedSubcommand))
    {
        Some(ContextValue::String(suggestion)) => format!("did you mean {suggestion}?"),
        Some(ContextValue::Strings(list)) if !list.is_empty() => {
            format!("did you mean {}?", list.join(" or "))
        }
        _ => "run fdguard --help or fdguard COMMAND --help".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::usage_hint;

    #[test]
    fn a_command_that_this_build_does_not_have_is_named_with_its_feature() {
        let without = clap::Command::new("fdguard").subcommand(clap::Command::new("snap"));
        let error = without
            .try_get_matches_from(["fdguard", "run"])
            .unwrap_err();
        let hint = usage_hint(&error);
        assert!(
            hint.ends_with("cargo install fdguard --features supervise"),
            "{hint}"
        );
    }
}
