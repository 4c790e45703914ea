//! Result of a cleanup: one result per resource, and whether all of it is proven to be gone.

use schemars::JsonSchema;
use serde::Serialize;

use crate::receipt::Receipt;

/// The name and version of the document.
pub const SCHEMA: &str = "fdguard.cleanup/1";

/// Definition of `success`; part of every document.
pub const SUCCESS_RULE: &str = "Every process that the scope owned is gone, no process with the scope's mark in its environment is left, and every file, directory and descriptor was handled. Absent resources count as handled. Lent resources are not examined.";

/// Result of closing a scope.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct CleanUp {
    /// `fdguard.cleanup/1`.
    pub schema: &'static str,
    /// Scope id.
    pub scope: String,
    /// Scope name.
    pub name: String,
    /// Why it was closed.
    pub reason: CloseReason,
    /// The scope was cleaned up, as defined by `success_rule`.
    pub success: bool,
    /// What `success` means.
    pub success_rule: &'static str,
    /// Start time, RFC 3339.
    pub started_at: String,
    /// End time, RFC 3339.
    pub ended_at: String,
    /// Total duration in milliseconds.
    pub total_ms: f64,
    /// One result per resource, in the order in which they were added.
    pub resources: Vec<ResourceOutcome>,
    /// Search for processes of the scope without a keeper; `null` if it could not be done.
    pub look: Option<EnvironmentScan>,
    /// Errors that do not belong to one resource.
    pub errors: Vec<String>,
}

impl CleanUp {
    /// Judges by the rule.
    #[must_use]
    pub fn is_success(resources: &[ResourceOutcome], look: Option<&EnvironmentScan>) -> bool {
        let nobody_left = look.is_some_and(|look| look.leftovers.is_empty());
        nobody_left && resources.iter().all(|it| it.ok)
    }
}

/// Why a scope was closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum CloseReason {
    /// A caller outside the scope requested it.
    Asked,
    /// A process of the scope requested it.
    AskedFromInside,
    /// Its owner dropped it or panicked.
    OwnerGone,
    /// The client's lease expired or its connection closed.
    ClientGone,
    /// A resource it needs could not be started.
    StartFailed,
    /// Its agent had ended while resources were still alive.
    Ended,
    /// It was idle for too long.
    Idle,
    /// The host is shutting down.
    Shutdown,
    /// The host that owned it was killed; the next host closed it.
    HostGone,
}

impl CloseReason {
    /// As it is written.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Asked => "asked",
            Self::AskedFromInside => "asked-from-inside",
            Self::OwnerGone => "owner-gone",
            Self::ClientGone => "client-gone",
            Self::StartFailed => "start-failed",
            Self::Ended => "ended",
            Self::Idle => "idle",
            Self::Shutdown => "shutdown",
            Self::HostGone => "host-gone",
        }
    }
}

/// Result for one resource.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct ResourceOutcome {
    /// Number of the resource in the scope.
    pub number: u64,
    /// What it is.
    pub kind: Kind,
    /// Its id, command, path or name.
    pub name: String,
    /// The process is gone, or the file is where it should be.
    pub ok: bool,
    /// What was done.
    pub did: CleanUpAction,
    /// First error. If `ok` is true, the second attempt succeeded.
    pub error: Option<String>,
    /// Duration in milliseconds.
    pub ms: f64,
    /// Further details.
    pub details: ResourceDetails,
}

/// Kind of resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Kind {
    /// A session of the host.
    Session,
    /// A program that the scope started, with everything below it.
    Program,
    /// A process that was started elsewhere.
    Process,
    /// A process without a keeper, found by its environment.
    Leftover,
    /// A socket held by the host.
    Socket,
    /// Any other descriptor held by the host.
    Descriptor,
    /// A file.
    File,
    /// A temporary directory made by the scope.
    Directory,
}

/// What was done with the resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum CleanUpAction {
    /// It was running and was ended.
    Ended,
    /// It was open and was closed.
    Closed,
    /// It existed and was deleted.
    Deleted,
    /// It is complete in the archive.
    Archived,
    /// It was already gone.
    Absent,
    /// It was left alone: it was lent, marked to be kept, or could not be handled.
    Kept,
}

/// Further details; fields that do not apply to the kind of resource are `null`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct ResourceDetails {
    /// Process ids still running; `null` if unknown or not applicable.
    pub survivors: Option<Vec<u32>>,
    /// Number of processes that did not terminate when asked and were killed.
    pub killed: Option<u32>,
    /// Number of processes reaped in addition to the program itself.
    pub reaped: Option<u32>,
    /// How it ended: `exit 0`, `signal 15`.
    pub exit: Option<String>,
    /// Receipt of the session.
    pub session: Option<Receipt>,
    /// Receipt of the archive attempt.
    pub archive: Option<serde_json::Value>,
    /// It was attempted twice.
    pub tried_twice: bool,
    /// Errors after the first one.
    pub more_errors: Vec<String>,
}

/// Search of all process environments after everything was ended.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct EnvironmentScan {
    /// Number of processes examined.
    pub seen: u32,
    /// Number of processes whose environment could not be read; they may belong to the scope.
    pub unreadable: u32,
    /// Processes of the scope that are still running.
    pub leftovers: Vec<ScopeLeftover>,
}

/// A process of the scope without a keeper.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ScopeLeftover {
    /// Process id.
    pub pid: u32,
    /// Process name.
    pub comm: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(kind: Kind, ok: bool) -> ResourceOutcome {
        ResourceOutcome {
            number: 1,
            kind,
            name: String::new(),
            ok,
            did: CleanUpAction::Kept,
            error: None,
            ms: 0.0,
            details: ResourceDetails::default(),
        }
    }

    #[test]
    fn r49_the_success_rule() {
        let nobody = EnvironmentScan::default();
        let somebody = EnvironmentScan {
            leftovers: vec![ScopeLeftover {
                pid: 7,
                comm: "x".to_owned(),
            }],
            ..EnvironmentScan::default()
        };
        let fine = [outcome(Kind::Program, true), outcome(Kind::File, true)];
        let one_bad = [outcome(Kind::Program, true), outcome(Kind::File, false)];
        let cases = [
            (&fine[..], Some(&nobody), true),
            (&[][..], Some(&nobody), true),
            (&one_bad[..], Some(&nobody), false),
            (&fine[..], Some(&somebody), false),
            (&fine[..], None, false),
        ];
        for (resources, look, expected) in cases {
            let is = CleanUp::is_success(resources, look);
            assert_eq!(is, expected, "{resources:?} {look:?}");
        }
    }

    #[test]
    fn the_document_begins_with_its_schema_and_has_one() {
        let clean_up = CleanUp {
            schema: SCHEMA,
            scope: "a".to_owned(),
            name: "b".to_owned(),
            reason: CloseReason::Asked,
            success: true,
            success_rule: SUCCESS_RULE,
            started_at: String::new(),
            ended_at: String::new(),
            total_ms: 0.0,
            resources: vec![outcome(Kind::Session, true)],
            look: None,
            errors: Vec::new(),
        };
        let text = serde_json::to_string(&clean_up).unwrap();
        assert!(
            text.starts_with(r#"{"schema":"fdguard.cleanup/1""#),
            "{text}"
        );
        assert!(text.contains(r#""look":null"#), "{text}");
        let schema = serde_json::to_string(&schemars::schema_for!(CleanUp)).unwrap();
        assert!(schema.contains("success_rule"), "{schema}");
    }
}
