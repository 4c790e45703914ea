//! What a clean-up came to: one result for each thing that the scope held, and whether all of it is proven to be gone.

use schemars::JsonSchema;
use serde::Serialize;

use crate::receipt::Receipt;

/// The name and version of the document.
pub const SCHEMA: &str = "fdguard.cleanup/1";

/// When a clean-up is a success; every document says it.
pub const SUCCESS_RULE: &str = "Every process that the scope owned is gone, none of its processes is found by their environment, and every file, folder and descriptor that had to be handled was handled. What was absent counts as handled; what was only lent is not looked at.";

/// The end of a scope.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct CleanUp {
    /// `fdguard.cleanup/1`.
    pub schema: &'static str,
    /// Which scope.
    pub scope: String,
    /// Its name.
    pub name: String,
    /// Why it was closed.
    pub reason: CloseReason,
    /// By the rule that is written beside it.
    pub success: bool,
    /// What `success` means.
    pub success_rule: &'static str,
    /// RFC 3339.
    pub started_at: String,
    /// RFC 3339.
    pub ended_at: String,
    /// From the first step to the last.
    pub total_ms: f64,
    /// One for each thing that it held, in the order in which the scope got them.
    pub resources: Vec<ResourceOutcome>,
    /// The look for processes that nobody keeps any more; `null` when it could not be made.
    pub look: Option<EnvironmentScan>,
    /// What went wrong besides single resources.
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
    /// Somebody outside asked.
    Asked,
    /// A process of the scope asked.
    AskedFromInside,
    /// Its owner let go of it: dropped, panicked, or forgot it.
    OwnerGone,
    /// Its client's lease or connection ended.
    ClientGone,
    /// Something that it needs could not be started.
    StartFailed,
    /// Its agent had ended, and things of it still lived.
    Ended,
    /// Nothing happened in it for too long.
    Idle,
    /// The host shuts down.
    Shutdown,
    /// The host that had it was killed; this is its successor's work.
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

/// What became of one thing.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct ResourceOutcome {
    /// Its number in the scope.
    pub number: u64,
    /// What it is.
    pub kind: Kind,
    /// Its id, command, path or name.
    pub name: String,
    /// It is gone, or where it had to go.
    pub ok: bool,
    /// What was done.
    pub did: CleanUpAction,
    /// What went wrong first. With `ok` the second try mended it.
    pub error: Option<String>,
    /// How long it took.
    pub ms: f64,
    /// What is known besides.
    pub details: ResourceDetails,
}

/// What a scope can hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Kind {
    /// A session of the host.
    Session,
    /// A program that the scope started, with everything below it.
    Program,
    /// A process that somebody else started.
    Process,
    /// A process that nobody kept any more, found by its environment.
    Leftover,
    /// A socket of the host.
    Socket,
    /// Any other descriptor of the host.
    Descriptor,
    /// A file.
    File,
    /// A folder that the scope made for a while.
    Directory,
}

/// What was done with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum CleanUpAction {
    /// It ran, and was ended.
    Ended,
    /// It was open, and was closed.
    Closed,
    /// It was there, and was deleted.
    Deleted,
    /// It is whole in the archive.
    Archived,
    /// It was gone already.
    Absent,
    /// It was left as it is: it was lent, was to be kept, or could not be handled.
    Kept,
}

/// What is known about an end besides; `null` for kinds that do not have it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct ResourceDetails {
    /// Processes of it that live on; `null` when nobody can say, or where it has none.
    pub survivors: Option<Vec<u32>>,
    /// Processes that did not end when they were asked to.
    pub killed: Option<u32>,
    /// Processes that were reaped besides the program.
    pub reaped: Option<u32>,
    /// `exit 0`, `signal 15`.
    pub exit: Option<String>,
    /// Of a session.
    pub session: Option<Receipt>,
    /// Of a file that was archived, or could not be.
    pub archive: Option<serde_json::Value>,
    /// It was tried twice.
    pub tried_twice: bool,
    /// What went wrong later than the first error.
    pub more_errors: Vec<String>,
}

/// What a look at the environment of all processes found, after everything had been ended.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct EnvironmentScan {
    /// Processes that were looked at.
    pub seen: u32,
    /// Processes whose environment may not be read: they could belong to it.
    pub unreadable: u32,
    /// Processes of the scope that live.
    pub leftovers: Vec<ScopeLeftover>,
}

/// A process of a scope that nobody keeps.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ScopeLeftover {
    /// Its number.
    pub pid: u32,
    /// Its name.
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
