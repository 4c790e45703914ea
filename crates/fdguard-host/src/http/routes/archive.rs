//! Archives: moves logs, only below the root directories of the host.

use std::path::{Path, PathBuf};
use std::time::Duration;

use axum::response::Response;
use fdguard_files::Dir;
use fdguard_files::archive::{Archive, ArchiveReport};
use http::{Method, StatusCode};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::sessions::within;
use crate::Error;
use crate::http::body;
use crate::http::route::{self, ApiRequest, Route};
use crate::roots::{Below, OutsideRoots, Roots};
use fdguard_http::Problem;

const SCHEMA: &str = "fdguard.archive/1";
/// A caller that needs more time asks again.
const LONGEST_WAIT: u64 = 600_000;
/// More are more than one request.
const MOST_FILES: usize = 10_000;

/// Files to archive.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewArchive {
    /// Absolute paths below one of the host's roots.
    #[schemars(length(min = 1, max = 10_000))]
    pub(crate) files: Vec<PathBuf>,
    /// Archive directory, below the same root. Created if missing.
    pub(crate) to: PathBuf,
    /// Milliseconds to wait for writers and locks, for all files together; default 10000.
    #[schemars(range(max = 600_000))]
    pub(crate) wait_ms: Option<u64>,
}

/// Result for each file, as in `fdguard archive --json`.
#[derive(Debug, Serialize, JsonSchema)]
struct Reported {
    /// Start time, RFC 3339.
    taken_at: String,
    /// Archive directory.
    to: Value,
    /// Every file is now in an archive.
    success: bool,
    /// One receipt per file.
    files: Vec<Value>,
    /// Total duration in milliseconds.
    took_ms: f64,
}

pub(in crate::http) fn routes() -> Vec<Route> {
    vec![
        Route::raw((Method::POST, "/v1/archive"), "archive", archive)
            .summary("Move log files below a host root into an archive without losing a line")
            .takes::<NewArchive>()
            .gives::<Reported>(StatusCode::OK, SCHEMA)
            .example(json!({"files": ["/srv/agents/a/log.jsonl"], "to": "/srv/agents/archive", "wait_ms": 2000})),
    ]
}

async fn archive(asked: ApiRequest, bytes: bytes::Bytes) -> Result<Response, Problem> {
    let body: NewArchive = body::decode(&asked.headers, &bytes)?;
    let report = run(&asked.api.settings.roots, body).await?;
    route::json(StatusCode::OK, &report)
}

/// Archives files below these roots.
pub(crate) async fn run(roots: &Roots, asked: NewArchive) -> Result<ArchiveReport, Problem> {
    within(asked.files.len(), 1, MOST_FILES, "files")?;
    let to = find_root(roots, &asked.to)?;
    let mut archive = Archive::new(asked.to);
    if let Some(ms) = asked.wait_ms {
        archive.wait = Duration::from_millis(within(ms, 0, LONGEST_WAIT, "wait_ms")?);
    }
    let files = asked.files;
    for file in &files {
        below(&to.root, file)?;
    }
    // What was found above are names. From here on directories are opened below the root, and stay
    // open.
    let work = move || archive.run_below(&to.root, to.make(), &files);
    let report = tokio::task::spawn_blocking(work).await;
    Ok(report.map_err(|_ended| Error::Closing)?)
}

/// The root that a directory is below, with links resolved now.
pub(in crate::http) fn find_root(roots: &Roots, dir: &Path) -> Result<Below, Problem> {
    roots.find(dir).map_err(|error| match &error {
        OutsideRoots::NotWhole(_) => Problem::senseless(error.to_string()),
        _ => Problem::new(StatusCode::FORBIDDEN, "outside-roots", error.to_string()),
    })
}

/// The archive checks again by opening below the root; this check gives one clear error for all
/// files.
fn below(root: &Dir, file: &Path) -> Result<(), Problem> {
    let dir = file.parent().and_then(|dir| root.relative(dir));
    if dir.is_some() {
        return Ok(());
    }
    let why = format!(
        "{} is not below the root {}",
        file.display(),
        root.path().display()
    );
    Err(Problem::new(StatusCode::FORBIDDEN, "outside-roots", why))
}
