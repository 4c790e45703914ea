//! Heals a database: backup, repair of a copy, SQLite's integrity check, swap. Anything uncertain
//! is refused without changes.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

use fdguard_core::Text;
use fdguard_probe::Probe;
use serde::Serialize;

use crate::holding::{HolderRole, Holding, HoldingProcess};
use crate::inspection::{FileVerdict, Inspection, Kind, Options, inspect};
use crate::lease::{HeldLease, LeaseAnswer};
use crate::{Error, LockFile, read};

pub mod backup;
pub mod rebuild;
mod swap;
mod trial;

/// How long to wait for another heal of the same database.
const PATIENCE: Duration = Duration::from_secs(10);

/// How to heal.
#[derive(Clone, Debug, Default)]
pub struct HealPlan {
    /// Try it on a copy and report what would be done.
    pub dry_run: bool,
    /// Backup directory; default: `NAME.fdguard-backups` next to the database.
    pub backup_dir: Option<PathBuf>,
}

/// The outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum HealOutcome {
    /// The healed database is in place.
    Healed,
    /// It would be healed, without `--dry-run`.
    WouldHeal,
    /// Nothing is damaged.
    NothingToDo,
    /// It cannot be healed, or not now. Nothing was changed.
    Refused,
    /// Could not verify that no process holds it. Nothing was changed.
    Unsure,
}

/// What was done.
#[derive(Clone, Debug, Serialize)]
pub struct HealResult {
    /// The outcome.
    pub outcome: HealOutcome,
    /// The reason or the method.
    pub message: String,
    /// The backup directory; absent if no backup was made.
    #[serde(serialize_with = "as_text")]
    pub backup: Option<PathBuf>,
}

/// A path in JSON: a string, or bytes if it is not UTF-8.
fn as_text<S: serde::Serializer>(path: &Option<PathBuf>, serializer: S) -> Result<S::Ok, S::Error> {
    let text = path
        .as_ref()
        .map(|path| Text::from(path.as_os_str().as_encoded_bytes()));
    text.serialize(serializer)
}

impl HealResult {
    fn refused(message: impl Into<String>) -> Self {
        Self {
            outcome: HealOutcome::Refused,
            message: message.into(),
            backup: None,
        }
    }
}

/// Heals a database, or returns the reason why not.
pub fn heal(probe: &Probe, path: &Path, plan: &HealPlan) -> Result<HealResult, Error> {
    let real = path
        .canonicalize()
        .map_err(|error| Error::io(path, "cannot find", error))?;
    let _lock = LockFile::acquire(&beside(&real, ".fdguard-lock"), PATIENCE)?;
    let seen = inspect(probe, &real, Options::default())?;
    if let Some(said) = not_for_us(&seen, &real)? {
        return Ok(said);
    }
    if let Err(said) = free(probe, &real)? {
        return Ok(said);
    }
    let stamps = stamps(&real);
    let dir = trial::dir(&real)?;
    let healed = match trial::heal_copy(&real, dir.path())? {
        Ok(healed) => healed,
        Err(why) => return Ok(HealResult::refused(why)),
    };
    if plan.dry_run {
        let message = format!(
            "a copy was healed {}, and SQLite's integrity_check reports ok",
            healed.by
        );
        return Ok(HealResult {
            outcome: HealOutcome::WouldHeal,
            message,
            backup: None,
        });
    }
    let backups = plan
        .backup_dir
        .clone()
        .unwrap_or_else(|| beside(&real, ".fdguard-backups"));
    let backup = backup::make(&real, &backups)?;
    let said = |outcome, message: String| HealResult {
        outcome,
        message,
        backup: Some(backup.clone()),
    };
    // The second check, with leases that are kept: from here on a new writer has to wait.
    let leases = match free(probe, &real)? {
        Ok(leases) => leases,
        Err(refused) => return Ok(said(refused.outcome, refused.message)),
    };
    if stamps != self::stamps(&real) {
        return Ok(said(
            HealOutcome::Refused,
            "the database was modified meanwhile".to_owned(),
        ));
    }
    match swap::swap(&real, &healed.path, dir.path(), &leases)? {
        Ok(()) => {}
        Err(why) => return Ok(said(HealOutcome::Refused, why)),
    }
    drop(leases);
    Ok(said(
        HealOutcome::Healed,
        format!("healed {}; SQLite's integrity_check reports ok", healed.by),
    ))
}

fn beside(database: &Path, suffix: &str) -> PathBuf {
    let mut path = database.as_os_str().to_owned();
    path.push(suffix);
    path.into()
}

/// Rejects files that are not damaged databases, or where healing would make the damage worse.
fn not_for_us(seen: &Inspection, real: &Path) -> Result<Option<HealResult>, Error> {
    use std::os::unix::fs::MetadataExt as _;
    if seen.kind == Kind::Empty {
        return Ok(Some(HealResult::refused(
            "the file is empty: replacing it with a new database would only hide the loss",
        )));
    }
    if seen.kind != Kind::Sqlite {
        return Ok(Some(HealResult::refused("not a SQLite database")));
    }
    if seen.verdict == FileVerdict::Encrypted {
        return Ok(Some(HealResult {
            outcome: HealOutcome::Unsure,
            message: "the database is encrypted: damage cannot be detected without the key"
                .to_owned(),
            backup: None,
        }));
    }
    if !matches!(seen.verdict, FileVerdict::Damaged | FileVerdict::Endangered) {
        return Ok(Some(HealResult {
            outcome: HealOutcome::NothingToDo,
            message: seen.summary.clone(),
            backup: None,
        }));
    }
    let log = seen.findings.iter().find(|one| {
        matches!(
            one.rule,
            "wal-header" | "wal-chain" | "wal-short" | "wal-page-size"
        )
    });
    if let Some(finding) = log {
        let why = format!(
            "{}: healing would discard these transactions",
            finding.message
        );
        return Ok(Some(HealResult::refused(why)));
    }
    let names = real
        .metadata()
        .map_err(|error| Error::io(real, "cannot read", error))?
        .nlink();
    if names > 1 {
        return Ok(Some(HealResult::refused(format!(
            "the file has {names} hard links, and the others would stay damaged"
        ))));
    }
    Ok(None)
}

/// Takes leases on all files if no process holds them; otherwise returns the holders.
fn free(
    probe: &Probe,
    real: &Path,
) -> Result<Result<Vec<(HolderRole, HeldLease)>, HealResult>, Error> {
    let mut leases = Vec::new();
    let mut is_unsure = None;
    for role in [
        HolderRole::Main,
        HolderRole::Wal,
        HolderRole::Shm,
        HolderRole::Journal,
    ] {
        let path = role.path(real);
        let file: File = match read::open(&path) {
            Ok(file) => file,
            Err(Error::Io { source, .. })
                if role != HolderRole::Main && source.kind() == std::io::ErrorKind::NotFound =>
            {
                continue;
            }
            Err(error) => return Err(error),
        };
        match HeldLease::acquire(file) {
            Ok(kept) => leases.push((role, kept)),
            Err(LeaseAnswer::Writer) => {
                is_unsure = is_unsure.or(Some(
                    "a process can write it, but is in no descriptor table",
                ))
            }
            Err(LeaseAnswer::Denied) => {
                is_unsure = is_unsure.or(Some(
                    "only its owner and root can ask the kernel whether it has writers",
                ))
            }
            Err(_) => {}
        }
    }
    let has_all = leases.iter().any(|(role, _)| *role == HolderRole::Main);
    let holding = Holding::find_holders(probe, real, !has_all)?;
    let names = holding.processes.iter().map(HoldingProcess::name);
    let holders: Vec<String> = names.collect();
    if !holders.is_empty() {
        let why = format!(
            "the database is open in {}: stop them first",
            holders.join(", ")
        );
        return Ok(Err(HealResult::refused(why)));
    }
    let unsure = is_unsure.or((!has_all && !holding.is_complete)
        .then_some("neither the kernel nor the descriptor tables show who holds it"));
    Ok(match unsure {
        Some(why) => Err(HealResult {
            outcome: HealOutcome::Unsure,
            message: why.to_owned(),
            backup: None,
        }),
        None => Ok(leases),
    })
}

fn stamps(real: &Path) -> Vec<Option<read::Stamp>> {
    let roles = [HolderRole::Main, HolderRole::Wal, HolderRole::Journal];
    roles
        .iter()
        .map(|role| read::Stamp::at(&role.path(real)))
        .collect()
}
