//! `fdguard inspect`: is this file damaged, by what, and which process holds it?

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use fdguard_core::{Gap, Text};
use fdguard_files::check::CheckDepth;
use fdguard_files::heal::{HealOutcome, HealPlan, HealResult};
use fdguard_files::{Error, Inspection, Options};
use fdguard_probe::Probe;
use jiff::Timestamp;
use serde::Serialize;

use crate::cli::{InspectArgs, InspectCheck};
use crate::exit::{self, HintedError};
use crate::output;

mod facts;
mod text;
mod trace;
mod watch;

pub(super) fn run(args: &InspectArgs) -> anyhow::Result<u8> {
    if args.watch {
        return watch::run(args);
    }
    let probe = Probe::new()?;
    let mut document = Document {
        schema: "fdguard.inspection/1",
        taken_at: Timestamp::now(),
        files: Vec::new(),
        gaps: Vec::new(),
    };
    for path in named(args)? {
        match one(&probe, &path, args) {
            Ok(file) => document.files.push(file),
            Err(error) => document.fail(&path, error),
        }
    }
    write(args, &document)?;
    Ok(document.exit_code())
}

/// One file of the document.
#[derive(Debug, Serialize)]
struct Inspected {
    #[serde(flatten)]
    inspection: Inspection,
    /// What `--heal` did; the rest is the state afterwards.
    #[serde(skip_serializing_if = "Option::is_none")]
    healed: Option<HealResult>,
}

#[derive(Debug, Serialize)]
struct Document {
    schema: &'static str,
    taken_at: Timestamp,
    files: Vec<Inspected>,
    /// Files that could not be examined.
    gaps: Vec<Gap>,
}

impl Document {
    fn fail(&mut self, path: &Path, error: Error) {
        let remedy = remedy(&error);
        let what = path.display().to_string();
        let error = anyhow::Error::from(error);
        let why = format!("{error:#}");
        let why = why
            .strip_prefix(&format!("{what}: "))
            .unwrap_or(&why)
            .to_owned();
        self.gaps.push(Gap::new(what, why, remedy));
    }

    /// "Could not look" takes precedence, as everywhere; the other files are still printed.
    fn exit_code(&self) -> u8 {
        let found = |file: &Inspected| match &file.healed {
            Some(healed) if healed.outcome != HealOutcome::NothingToDo => {
                matches!(
                    healed.outcome,
                    HealOutcome::Refused | HealOutcome::WouldHeal
                )
            }
            _ => file.inspection.is_finding(),
        };
        let is_unsure = |file: &Inspected| {
            file.healed
                .as_ref()
                .is_some_and(|healed| healed.outcome == HealOutcome::Unsure)
        };
        let is_unread = |file: &Inspected| file.inspection.is_unread();
        if !self.gaps.is_empty()
            || self
                .files
                .iter()
                .any(|one| is_unsure(one) || is_unread(one))
        {
            exit::COULD_NOT_LOOK
        } else if self.files.iter().any(found) {
            exit::FINDINGS
        } else {
            exit::CLEAN
        }
    }
}

fn remedy(error: &Error) -> &'static str {
    match error {
        Error::Io { source, .. } => match source.kind() {
            std::io::ErrorKind::NotFound => "name an existing file",
            std::io::ErrorKind::PermissionDenied => "run as the file's owner or with sudo",
            _ => "check the kernel log (dmesg): the disk may be failing",
        },
        Error::NotAFile { .. } => "name a regular file or a directory of databases",
        Error::Locked { .. } => "wait until the other process is done",
        _ => "",
    }
}

/// The files to inspect; a directory means the databases in it.
fn named(args: &InspectArgs) -> anyhow::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for path in &args.files {
        if !path.is_dir() {
            files.push(path.clone());
            continue;
        }
        if args.heal {
            let hint = "name each database to heal";
            return Err(
                HintedError::usage(format!("{} is a directory", path.display()), hint).into(),
            );
        }
        let found = databases(path).with_context(|| path.display().to_string())?;
        if found.is_empty() {
            let message = format!("no database in {}", path.display());
            let hint = "name subdirectories explicitly: they are not searched";
            return Err(HintedError::look(message, hint).into());
        }
        files.extend(found);
    }
    Ok(files)
}

fn databases(dir: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in dir.read_dir()? {
        let path = entry?.path();
        if path.is_file() && looks_like_one(&path) {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

/// Recognises a database by its first bytes, a side file, or its name: a damaged one may lack the
/// magic.
fn looks_like_one(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().as_encoded_bytes();
    if [&b"-wal"[..], b"-shm", b"-journal"]
        .iter()
        .any(|end| name.ends_with(end))
    {
        return false;
    }
    let first = fdguard_files::read::open(path)
        .ok()
        .and_then(|file| fdguard_files::read::piece(&file, 0, 4096).ok());
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    let first = first.unwrap_or_default();
    !first.is_empty()
        && fdguard_files::sqlite::judge::is_database(&first, name, Path::new(&log).exists())
}

fn one(probe: &Probe, path: &Path, args: &InspectArgs) -> Result<Inspected, Error> {
    let options = Options {
        check: match args.check {
            Some(InspectCheck::Quick) => Some(CheckDepth::Quick),
            None | Some(InspectCheck::Full) => Some(CheckDepth::Full),
            Some(InspectCheck::None) => None,
        },
        however_large: args.check.is_some(),
    };
    let healed = args.heal.then(|| {
        let plan = HealPlan {
            dry_run: args.dry_run,
            backup_dir: args.backup_dir.clone(),
        };
        fdguard_files::heal(probe, path, &plan)
    });
    let healed = healed.transpose()?;
    let inspection = fdguard_files::inspect(probe, path, options)?;
    Ok(Inspected { inspection, healed })
}

fn write(args: &InspectArgs, document: &Document) -> anyhow::Result<()> {
    let file = args.output.as_deref();
    if args.json {
        return output::emit(file, |out| {
            serde_json::to_writer(&mut *out, document)?;
            Ok(out.write_all(b"\n")?)
        });
    }
    if !document.files.is_empty() {
        let width = file.map_or_else(crate::terminal::width, |_| None);
        output::emit_styled(file, |out| text::write(out, document, width))?;
    }
    // A file that could not be examined is not a result.
    for gap in &document.gaps {
        let message = format!("{}: {}", gap.what, gap.why);
        exit::report(&HintedError::look(message, gap.remedy.clone()).into());
    }
    Ok(())
}

/// A path for people and for JSON.
fn text_of(path: &Path) -> Text {
    Text::from(path.as_os_str().as_encoded_bytes())
}
