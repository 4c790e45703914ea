//! What each tool takes. The doc comments are what a model reads.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use rmcp::model::JsonObject;
use schemars::JsonSchema;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::Error;

/// A day.
const LONGEST: u64 = 86_400_000;
/// A watch that takes longer is better started in a shell.
const LONGEST_WATCH: u64 = 600;

/// Code for Python.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Python {
    /// Python code, any number of lines. The value of the last expression is not shown: print it.
    pub(super) code: String,
    /// Milliseconds until it is interrupted; 60000 when absent.
    #[schemars(range(min = 1, max = 86_400_000))]
    pub(super) timeout_ms: Option<u64>,
}

/// Commands for bash.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Bash {
    /// Shell commands, any number of lines.
    #[serde(alias = "code")]
    pub(super) command: String,
    /// Milliseconds until it is interrupted; 60000 when absent.
    #[schemars(range(min = 1, max = 86_400_000))]
    pub(super) timeout_ms: Option<u64>,
}

/// Which of the two sessions.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Which {
    /// The session that is meant.
    pub(super) tool: Kind,
}

/// One of a client's two sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Kind {
    /// The Python session.
    Python,
    /// The shell session.
    Bash,
}

/// Files for an archive.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Archive {
    /// Whole paths of files below one of the host's roots.
    #[schemars(length(min = 1, max = 10_000))]
    pub(super) files: Vec<PathBuf>,
    /// The folder that they go to, below the same root; made where it is missing.
    pub(super) to: PathBuf,
    /// Milliseconds to wait for writers and locks, for all files together; 10000 when absent.
    #[schemars(range(max = 600_000))]
    pub(super) wait_ms: Option<u64>,
}

/// A process to look at.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Snap {
    /// Its number; the host itself when absent.
    #[schemars(range(min = 1))]
    pub(super) pid: Option<u32>,
}

/// A process to look at for a while.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Watch {
    /// Its number; the host itself when absent.
    #[schemars(range(min = 1))]
    pub(super) pid: Option<u32>,
    /// How long to watch; 10 when absent.
    #[schemars(range(min = 1, max = 600))]
    pub(super) seconds: Option<u64>,
}

/// A program to be traced.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Trace {
    /// The program and its arguments, one word each. No shell is involved.
    #[schemars(length(min = 1, max = 1000))]
    pub(super) command: Vec<String>,
    /// The directory it starts in, an absolute path; the host's own when absent.
    pub(super) cwd: Option<PathBuf>,
    /// Variables that are added to the host's environment.
    #[serde(default)]
    pub(super) env: BTreeMap<String, String>,
    /// Seconds until the program is asked to end (SIGTERM); 60 when absent.
    #[schemars(range(min = 1, max = 600))]
    pub(super) seconds: Option<u64>,
}

/// A program, or a server and its exercise, to be checked.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Check {
    /// The program and its arguments, one word each. No shell is involved.
    #[schemars(length(min = 1, max = 1000))]
    pub(super) command: Vec<String>,
    /// The directory it starts in, an absolute path; the host's own when absent.
    pub(super) cwd: Option<PathBuf>,
    /// Variables that are added to the host's environment.
    #[serde(default)]
    pub(super) env: BTreeMap<String, String>,
    /// Seconds until the program is asked to end (SIGTERM), or that an exercise may take in all; 60 when absent.
    #[schemars(range(min = 1, max = 600))]
    pub(super) seconds: Option<u64>,
    /// For a server: a shell command that uses it once. It is run again and again, and what each run leaves open is counted.
    pub(super) exercise: Option<String>,
    /// When the server is ready: `tcp:PORT`, `http:URL`, or `line:REGEX` in its output.
    pub(super) ready: Option<String>,
    /// How many runs of the exercise count; 30 when absent.
    #[schemars(range(min = 10, max = 100_000))]
    pub(super) cycles: Option<u32>,
    /// What may stay open: a class, a path, or FILE:LINE.
    #[serde(default)]
    pub(super) allow: Vec<String>,
}

impl Check {
    /// The options of `fdguard check`. An option and its value are one word: a value that begins with a dash is no option.
    pub(super) fn words(&self, seconds: u64) -> Vec<String> {
        let mut words = vec!["check".to_owned()];
        match &self.exercise {
            Some(exercise) => words.push(format!("--exercise={exercise}")),
            None => words.push(format!("--for={seconds}s")),
        }
        words.extend(self.ready.iter().map(|ready| format!("--ready={ready}")));
        words.extend(
            self.cycles
                .iter()
                .map(|cycles| format!("--cycles={cycles}")),
        );
        words.extend(self.allow.iter().map(|allow| format!("--allow={allow}")));
        words
    }
}

/// The arguments of a call, or one line that says what is wrong with them.
pub(super) fn read<T: DeserializeOwned>(given: Option<JsonObject>) -> Result<T, Error> {
    let given = Value::Object(given.unwrap_or_default());
    let read = serde_path_to_error::deserialize(given);
    read.map_err(|error| {
        let at = error.path().to_string();
        let why = error.into_inner();
        Error::Bad(match at.as_str() {
            "." => format!("arguments: {why}"),
            at => format!("arguments: {at}: {why}"),
        })
    })
}

/// The time that a command may take.
pub(super) fn timeout(ms: Option<u64>) -> Result<Option<Duration>, Error> {
    within(ms, LONGEST, "timeout_ms").map(|ms| ms.map(Duration::from_millis))
}

/// The seconds of a watch.
pub(super) fn seconds(given: Option<u64>) -> Result<Option<u64>, Error> {
    within(given, LONGEST_WATCH, "seconds")
}

fn within(given: Option<u64>, most: u64, name: &str) -> Result<Option<u64>, Error> {
    match given {
        Some(number) if !(1..=most).contains(&number) => {
            let why = format!("arguments: {name}: {number} is not from 1 to {most}");
            Err(Error::Bad(why))
        }
        given => Ok(given),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{Bash, Check, Kind, Which, read, seconds, timeout};

    #[test]
    fn a_shell_takes_a_command_by_both_names() {
        for name in ["command", "code"] {
            let given = json!({name: "true"}).as_object().cloned();
            assert_eq!(read::<Bash>(given).unwrap().command, "true");
        }
    }

    #[test]
    fn wrong_arguments_are_one_clear_line() {
        let given = json!({"tool": "perl"}).as_object().cloned();
        let error = read::<Which>(given).unwrap_err().to_string();
        assert!(
            error.starts_with("arguments: tool: unknown variant `perl`"),
            "{error}"
        );
        let error = read::<Which>(None).unwrap_err().to_string();
        assert_eq!(error, "arguments: missing field `tool`");
        let given = json!({"tool": "bash"}).as_object().cloned();
        assert_eq!(read::<Which>(given).unwrap().tool, Kind::Bash);
        assert!(timeout(Some(0)).is_err());
        assert!(timeout(Some(86_400_001)).is_err());
        assert_eq!(seconds(None).unwrap(), None);
        let error = seconds(Some(601)).unwrap_err().to_string();
        assert_eq!(error, "arguments: seconds: 601 is not from 1 to 600");
    }

    #[test]
    fn a_check_becomes_the_options_of_the_command() {
        let given = json!({"command": ["x"], "exercise": "-v", "cycles": 12, "allow": ["a.py:3"]});
        let check: Check = read(given.as_object().cloned()).unwrap();
        let expected = ["check", "--exercise=-v", "--cycles=12", "--allow=a.py:3"];
        assert_eq!(check.words(9), expected);
        let given = json!({"command": ["x"]});
        let check: Check = read(given.as_object().cloned()).unwrap();
        assert_eq!(check.words(9), ["check", "--for=9s"]);
    }
}
