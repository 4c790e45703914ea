//! What each tool takes. The doc comments are what a model reads.

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

    use super::{Bash, Kind, Which, read, seconds, timeout};

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
}
