//! What is known of one service, one process or one finding, and of the fleet: answers that read
//! files or ask others.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use fdguard_core::document::SnapshotDocument;
use fdguard_core::{Pid, Summary};
use fdguard_http::Problem;
use fdguard_probe::{Options, Probe};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::api::Api;
use super::query::{MomentQuery, ServiceQuery, service_kind};
use super::viewed::Viewed;
use crate::finding_book::FindingRecord;
use crate::fleet::{Fleet, FleetOrder};
use crate::overview::{ServiceView, WatchedView};
use crate::service::ServiceKey;
use crate::store::{self, ServiceHistory};

/// Services that the view of the fleet shows.
const FLEET_ROWS: usize = 200;
/// The largest profile or set of stacks that is served.
const MOST_BYTES: u64 = 32 << 20;

/// One service with everything that is known.
#[derive(Serialize)]
struct ServiceDocument {
    schema: &'static str,
    service: ServiceKey,
    /// Absent while it has no process.
    now: Option<ServiceView>,
    watched: Vec<WatchedView>,
    findings: Vec<FindingRecord>,
    /// Absent without a history.
    history: Option<ServiceHistory>,
    /// Why the history cannot be read; absent if it can, or if there is none.
    history_error: Option<String>,
}

pub(super) async fn service(
    State(api): Api,
    Viewed(query): Viewed<ServiceQuery>,
) -> Result<Response, Problem> {
    let kind = query.kind.as_deref().map(service_kind).transpose()?;
    let overview = api.published.overview();
    let is_it =
        |key: &ServiceKey| key.name == query.name && kind.is_none_or(|kind| key.kind == kind);
    let now = overview
        .services
        .iter()
        .find(|view| is_it(&view.key))
        .cloned();
    let length = SignedDuration::try_from(query.history()?);
    let since = length
        .ok()
        .and_then(|length| Timestamp::now().checked_sub(length).ok());
    let read = match api.sources.history.clone() {
        None => Ok(Vec::new()),
        Some(path) => {
            let name = query.name.clone();
            api.dear(move || Ok(store::read_history(&path, &name, since)))
                .await?
        }
    };
    let (mut histories, history_error) = match read {
        Ok(histories) => (histories, None),
        Err(error) => (Vec::new(), Some(error.to_string())),
    };
    histories.retain(|history| is_it(&history.service));
    let history = histories.into_iter().next();
    let key = now.as_ref().map(|view| view.key.clone());
    let key = key.or_else(|| history.as_ref().map(|history| history.service.clone()));
    let Some(key) = key else {
        if let Some(why) = history_error {
            let detail = format!("the history cannot be read: {why}");
            let status = StatusCode::SERVICE_UNAVAILABLE;
            return Err(Problem::new(status, "no-history", detail));
        }
        let detail = format!("no service is named {:?}", query.name);
        return Err(Problem::new(StatusCode::NOT_FOUND, "unknown", detail));
    };
    let watched = overview
        .watched
        .iter()
        .filter(|one| one.service == key)
        .cloned();
    let findings = overview
        .findings
        .iter()
        .filter(|one| one.key.service == key)
        .cloned();
    Ok(Json(ServiceDocument {
        schema: "fdguard.serve.service/1",
        now,
        watched: watched.collect(),
        findings: findings.collect(),
        history,
        history_error,
        service: key,
    })
    .into_response())
}

/// What a service held at a kept moment.
pub(super) async fn moment(
    State(api): Api,
    Viewed(query): Viewed<MomentQuery>,
) -> Result<Response, Problem> {
    let key = ServiceKey::new(service_kind(&query.kind)?, query.name);
    let missing = |why: String| Problem::new(StatusCode::NOT_FOUND, "no-moment", why);
    let Some(path) = api.sources.history.clone() else {
        return Err(missing("this server keeps no history".to_owned()));
    };
    let found = api
        .dear(move || {
            let found = store::read_moment(&path, &key, query.at);
            let found = found.map_err(|error| missing(error.to_string()))?;
            found.ok_or_else(|| missing(format!("nothing is kept of {key} up to {}", query.at)))
        })
        .await?;
    Ok(Json(found).into_response())
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SnapshotQuery {
    pid: Pid,
}

pub(super) async fn snapshot(
    State(api): Api,
    Viewed(query): Viewed<SnapshotQuery>,
) -> Result<Response, Problem> {
    let text = api
        .dear(move || {
            let look = || {
                let options = Options {
                    peers: false,
                    ..Options::default()
                };
                Probe::new()?.snapshot(query.pid, options)
            };
            let failed = |error: &dyn std::fmt::Display| {
                Problem::new(StatusCode::NOT_FOUND, "could-not-look", error.to_string())
            };
            let snapshot = look().map_err(|error| failed(&error))?;
            let summary = Summary::summarize(&snapshot);
            serde_json::to_vec(&SnapshotDocument::new(&snapshot, &summary))
                .map_err(|error| failed(&error))
        })
        .await?;
    let kind = HeaderValue::from_static("application/json");
    Ok(([(header::CONTENT_TYPE, kind)], text).into_response())
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TraceQuery {
    finding: u64,
}

/// The stacks of the trace that was made for a finding.
pub(super) async fn trace(
    State(api): Api,
    Viewed(query): Viewed<TraceQuery>,
) -> Result<Response, Problem> {
    let overview = api.published.overview();
    let is_it = |one: &&FindingRecord| one.id == query.finding;
    let record = overview.findings.iter().find(is_it).cloned();
    let record = match (record, api.sources.history.clone()) {
        (None, Some(path)) => {
            let older = api.dear(move || Ok(store::read_findings(&path))).await?;
            let older = older.unwrap_or_default().into_iter();
            older.into_iter().find(|one| is_it(&one))
        }
        (record, _) => record,
    };
    let note = record.and_then(|record| record.trace);
    let Some(note) = note.filter(|note| note.folded) else {
        let detail = format!("finding {} has no trace", query.finding);
        return Err(Problem::new(StatusCode::NOT_FOUND, "no-trace", detail));
    };
    let path = note.stem.with_extension("folded");
    let folded = api.dear(move || read(&path)).await?;
    Ok(Json(json!({
        "schema": "fdguard.serve.trace/1",
        "finding": query.finding,
        "lines": note.lines,
        "folded": String::from_utf8_lossy(&folded),
    }))
    .into_response())
}

/// Scrapers send the parameters of Go's `net/http/pprof`. What is open now has no length, and has
/// one form.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ProfileQuery {
    pid: Pid,
    #[serde(rename = "seconds")]
    _seconds: Option<String>,
    #[serde(rename = "debug")]
    _debug: Option<String>,
    #[serde(rename = "gc")]
    _gc: Option<String>,
}

/// A profile of open descriptors, as pprof reads it: of a process that is traced now, or of the
/// last trace that fdguard serve made of it.
pub(super) async fn profile(
    State(api): Api,
    Viewed(query): Viewed<ProfileQuery>,
) -> Result<Response, Problem> {
    let (program, traces) = (api.sources.program.clone(), api.sources.traces.clone());
    let scratch = api.sources.scratch.clone();
    let bytes = api
        .dear(move || {
            let now =
                program.and_then(|program| report_trace(&program, query.pid, scratch.as_deref()));
            let kept = || {
                let path = traces?.join(format!("pid-{}.pb.gz", query.pid));
                read(&path).ok()
            };
            now.or_else(kept).ok_or_else(|| {
                let detail = format!(
                    "process {} is not traced: run fdguard trace {} on this host",
                    query.pid, query.pid
                );
                Problem::new(StatusCode::NOT_FOUND, "not-traced", detail)
            })
        })
        .await?;
    let kind = HeaderValue::from_static("application/octet-stream");
    let name = HeaderValue::from_static("attachment; filename=\"fds.pb.gz\"");
    let headers = [
        (header::CONTENT_TYPE, kind),
        (header::CONTENT_DISPOSITION, name),
    ];
    Ok((headers, bytes).into_response())
}

/// The profile of a process that is being traced.
fn report_trace(program: &Path, pid: Pid, scratch: Option<&Path>) -> Option<Vec<u8>> {
    let dir = PrivateDir::make(scratch)?;
    let path = dir.0.join("fds.pb.gz");
    let ended = Command::new(program)
        .args(["trace", "--report", &pid.to_string(), "--pprof"])
        .arg(&path)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    let is_done = ended.is_ok_and(|status| matches!(status.code(), Some(0 | 1)));
    is_done.then(|| read(&path).ok()).flatten()
}

/// A directory for one answer, removed with it.
struct PrivateDir(PathBuf);

impl PrivateDir {
    /// In the system's directory for temporary files, or in the other one: a container may have no
    /// `/tmp` that can be written.
    fn make(other: Option<&Path>) -> Option<Self> {
        use std::os::unix::fs::DirBuilderExt as _;
        use std::sync::atomic::{AtomicU64, Ordering};
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let next = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("fdguard-serve-{}-{next}", std::process::id());
        let usual = std::env::temp_dir();
        let mut places = [Some(usual.as_path()), other].into_iter().flatten();
        places.find_map(|place| {
            let path = place.join(&name);
            // Fails if it exists: another user could have prepared it.
            std::fs::DirBuilder::new().mode(0o700).create(&path).ok()?;
            Some(Self(path))
        })
    }
}

impl Drop for PrivateDir {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}

fn read(path: &Path) -> Result<Vec<u8>, Problem> {
    let failed = |why: String| Problem::new(StatusCode::NOT_FOUND, "no-trace", why);
    let size = std::fs::metadata(path)
        .map_err(|error| failed(error.to_string()))?
        .len();
    if size > MOST_BYTES {
        return Err(failed(format!(
            "the trace has {size} bytes, which is too much"
        )));
    }
    std::fs::read(path).map_err(|error| failed(error.to_string()))
}

/// The services of all hosts that are nearest to a limit.
pub(super) async fn fleet(State(api): Api, headers: HeaderMap) -> Result<Response, Problem> {
    api.settings.may_view(&headers)?;
    let Some(options) = api.sources.fleet.clone() else {
        let detail = "the fleet is not configured: start fdguard serve with --fleet-from URL";
        return Err(Problem::new(StatusCode::NOT_FOUND, "no-fleet", detail));
    };
    let top = api
        .ask_fleet(move || {
            let top = Fleet::new(options).and_then(|it| it.top(FleetOrder::TimeLeft, FLEET_ROWS));
            top.map_err(|error| {
                Problem::new(
                    StatusCode::BAD_GATEWAY,
                    "fleet-unreachable",
                    error.to_string(),
                )
            })
        })
        .await?;
    Ok(Json(top).into_response())
}
