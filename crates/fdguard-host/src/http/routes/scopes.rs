//! Scopes: the resources of one agent, and their cleanup with a result per resource.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use axum::response::{IntoResponse as _, Response};
use fdguard_proc::ProcessId;
use http::{Method, StatusCode};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::archive::find_root;
use crate::Error;
use crate::http::route::{self, ApiRequest, Reply, Route};
use crate::scope::{
    CleanUp, CloseAnswer, CloseLimits, CloseTicket, FileEnd, Ownership, ProgramLaunch,
    ResourceRole, ScopeSpec, ScopeView, tcp_callers,
};
use fdguard_http::Door;
use fdguard_http::Problem;

/// Time for an agent that closes its own scope to read the answer.
const SOON: Duration = Duration::from_secs(1);

/// A scope to create.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NewScope {
    /// Name for people.
    name: String,
    /// Directory for all files of the scope, below one of the host's roots.
    root: PathBuf,
    /// Id of the client that owns it. The scope ends with the client.
    client: Option<String>,
    /// Archive directory; default: `archive` in the root.
    archive_to: Option<PathBuf>,
}

/// A resource to add to a scope.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
enum NewResource {
    /// An open session.
    Session {
        /// Session id.
        id: String,
        /// Default: `owned`.
        whose: Option<Ownership>,
        /// Default: `helper`.
        role: Option<ResourceRole>,
    },
    /// A program to start in the scope's directory. All its descendants belong to the scope.
    Program {
        /// The program and its arguments. The program is looked up in `PATH`, as a shell does.
        #[schemars(length(min = 1))]
        command: Vec<String>,
        /// Environment variables to add to the host's environment.
        #[serde(default)]
        environment: BTreeMap<String, String>,
        /// File below the scope's root that the program's output is appended to. It is archived at
        /// the end. Without it, output is discarded.
        log: Option<PathBuf>,
        /// Default: `helper`.
        role: Option<ResourceRole>,
    },
    /// A process that was started elsewhere.
    Process {
        /// Process id.
        pid: u32,
        /// Default: `owned`.
        whose: Option<Ownership>,
        /// Default: `helper`.
        role: Option<ResourceRole>,
    },
    /// A file below the scope's root. It need not exist yet.
    File {
        /// Absolute, or relative to the root.
        path: PathBuf,
        /// What happens to the file when the scope closes.
        end: FileEnd,
    },
    /// A directory that is created below the root and removed when the scope closes.
    Directory {
        /// Directory name.
        name: String,
    },
}

/// All scopes.
#[derive(Debug, Serialize, JsonSchema)]
struct ScopeList {
    /// Includes recently closed scopes.
    scopes: Vec<ScopeView>,
}

pub(in crate::http) fn routes() -> Vec<Route> {
    let found = |schema| (StatusCode::OK, schema);
    let made = |schema| (StatusCode::CREATED, schema);
    let one = "/v1/scopes/{id}";
    vec![
        Route::tell((Method::POST, "/v1/scopes"), "open_scope", made("fdguard.scope/1"), open)
            .summary("Create a scope. Everything it holds ends with it.")
            .example(json!({"name": "agent 7", "root": "/srv/agents/7"}))
            .refuses(&[404]),
        Route::ask((Method::GET, "/v1/scopes"), "list_scopes", found("fdguard.scopes/1"), list)
            .summary("List scopes"),
        Route::ask((Method::GET, one), "get_scope", found("fdguard.scope/1"), get)
            .summary("Get a scope and its resources")
            .refuses(&[404]),
        Route::tell(
            (Method::POST, "/v1/scopes/{id}/resources"),
            "add_resource",
            made("fdguard.scope/1"),
            add,
        )
        .summary("Add a resource to a scope")
        .example(json!({"file": {"path": "log.jsonl", "end": "archive"}}))
        .refuses(&[404, 410]),
        Route::raw((Method::DELETE, one), "close_scope", close)
            .summary("Close a scope. A caller that runs inside the scope receives 202 with a ticket before it is terminated.")
            .gives::<CleanUp>(StatusCode::OK, "fdguard.cleanup/1")
            .accepts_later()
            .refuses(&[404]),
        Route::ask((Method::GET, "/v1/tickets/{id}"), "get_ticket", found("fdguard.ticket/1"), ticket)
            .summary("Get the result of a close that was requested from inside the scope")
            .refuses(&[404]),
    ]
}

async fn open(asked: ApiRequest, body: NewScope) -> Result<Reply<ScopeView>, Problem> {
    let roots = &asked.api.settings.roots;
    // The scope checks again by opening them; this check gives one clear error.
    find_root(roots, &body.root)?;
    if let Some(to) = &body.archive_to {
        find_root(roots, to)?;
    }
    if let Some(client) = &body.client {
        asked.api.host.renew(client)?;
    }
    let scope = asked.api.scopes.create(ScopeSpec {
        name: body.name,
        root: body.root,
        client: body.client,
        archive_to: body.archive_to,
    })?;
    let path = format!("/v1/scopes/{}", scope.id());
    Ok(Reply::new(scope.view()).at(&path))
}

async fn list(asked: ApiRequest) -> Result<Reply<ScopeList>, Problem> {
    let scopes = asked.api.scopes.list();
    Ok(Reply::new(ScopeList { scopes }))
}

async fn get(asked: ApiRequest) -> Result<Reply<ScopeView>, Problem> {
    Ok(Reply::new(asked.api.scopes.get(asked.id())?.view()))
}

async fn add(asked: ApiRequest, body: NewResource) -> Result<Reply<ScopeView>, Problem> {
    let scope = asked.api.scopes.get(asked.id())?;
    let (owned, helper) = (Ownership::Owned, ResourceRole::Helper);
    match body {
        NewResource::Session { id, whose, role } => {
            asked.api.host.session(&id)?;
            scope.take_session(&id, whose.unwrap_or(owned), role.unwrap_or(helper))?;
        }
        NewResource::Program {
            command,
            environment,
            log,
            role,
        } => {
            let role = role.unwrap_or(helper);
            let launch = ProgramLaunch {
                command,
                environment,
                log,
                role,
            };
            scope.launch(launch).await?;
        }
        NewResource::Process { pid, whose, role } => {
            let identity = ProcessId::read(pid).map_err(|error| {
                let problem = Problem::senseless(format!("cannot add process {pid}: {error}"));
                problem.at("process.pid".to_owned())
            })?;
            scope.take_process(identity, whose.unwrap_or(owned), role.unwrap_or(helper))?;
        }
        NewResource::File { path, end } => {
            scope.take_file(&path, end)?;
        }
        NewResource::Directory { name } => {
            scope.make_directory(&name)?;
        }
    }
    let path = format!("/v1/scopes/{}", scope.id());
    Ok(Reply::new(scope.view()).at(&path))
}

async fn close(asked: ApiRequest, _body: bytes::Bytes) -> Result<Response, Problem> {
    let door = asked.door;
    let callers = tokio::task::spawn_blocking(move || match door {
        Some(Door::Tcp { local, peer }) => tcp_callers(local, peer),
        Some(Door::Unix { pid }) => pid.into_iter().collect(),
        None => Vec::new(),
    });
    let callers = callers.await.map_err(|_ended| Error::Closing)?;
    let scopes = &asked.api.scopes;
    let closing = scopes
        .close(asked.id(), CloseLimits::default(), &callers, SOON)
        .await?;
    match closing {
        CloseAnswer::Done(clean_up) => route::json(StatusCode::OK, &*clean_up),
        CloseAnswer::Soon(accepted) => {
            let path = format!("/v1/tickets/{}", accepted.ticket);
            let later = route::document(StatusCode::ACCEPTED, "fdguard.accepted/1", accepted)?;
            Ok(([(http::header::LOCATION, path)], later).into_response())
        }
    }
}

async fn ticket(asked: ApiRequest) -> Result<Reply<CloseTicket>, Problem> {
    Ok(Reply::new(asked.api.scopes.ticket(asked.id())?))
}
