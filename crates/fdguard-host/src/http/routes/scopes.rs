//! Scopes: what one agent holds, and its clean-up with a result for each thing.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use axum::response::{IntoResponse as _, Response};
use fdguard_process::identity::ProcessId;
use http::{Method, StatusCode};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::archive::find_root;
use crate::Error;
use crate::http::guard::Door;
use crate::http::problem::Problem;
use crate::http::route::{self, ApiRequest, Reply, Route};
use crate::scope::{
    CleanUp, CloseAnswer, CloseLimits, CloseTicket, FileEnd, Ownership, ProgramLaunch,
    ResourceRole, ScopeSpec, ScopeView, tcp_callers,
};

/// An agent that asks for its own end has this long to read the answer.
const SOON: Duration = Duration::from_secs(1);

/// A scope that is to be made.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct NewScope {
    /// For people.
    name: String,
    /// All its files are below this folder, which is below one of the host's roots.
    root: PathBuf,
    /// Whose it is: it ends with the client.
    client: Option<String>,
    /// Where files are archived; `archive` in the root when absent.
    archive_to: Option<PathBuf>,
}

/// Something that a scope shall hold.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
enum NewResource {
    /// A session that is open.
    Session {
        /// Which.
        id: String,
        /// `owned` when absent.
        whose: Option<Ownership>,
        /// `helper` when absent.
        role: Option<ResourceRole>,
    },
    /// A program that is started in the scope's folder, with everything below it.
    Program {
        /// The program and its words; it is looked for as a shell does.
        #[schemars(length(min = 1))]
        command: Vec<String>,
        /// Besides the host's own.
        #[serde(default)]
        environment: BTreeMap<String, String>,
        /// A file below the scope's root: what the program prints is added there, and archived at the end. Absent: nobody hears it.
        log: Option<PathBuf>,
        /// `helper` when absent.
        role: Option<ResourceRole>,
    },
    /// A process that somebody else started.
    Process {
        /// Which.
        pid: u32,
        /// `owned` when absent.
        whose: Option<Ownership>,
        /// `helper` when absent.
        role: Option<ResourceRole>,
    },
    /// A file below the scope's root, which need not be there yet.
    File {
        /// From the root on, or whole.
        path: PathBuf,
        /// What happens to it at the end.
        end: FileEnd,
    },
    /// A folder that is made below the root, and removed at the end.
    Directory {
        /// Its name.
        name: String,
    },
}

/// All scopes.
#[derive(Debug, Serialize, JsonSchema)]
struct ScopeList {
    /// With those that ended a short time ago.
    scopes: Vec<ScopeView>,
}

pub(in crate::http) fn routes() -> Vec<Route> {
    let found = |schema| (StatusCode::OK, schema);
    let made = |schema| (StatusCode::CREATED, schema);
    let one = "/v1/scopes/{id}";
    vec![
        Route::tell((Method::POST, "/v1/scopes"), "open_scope", made("fdguard.scope/1"), open)
            .summary("Make a scope: everything that it holds ends with it")
            .example(json!({"name": "agent 7", "root": "/srv/agents/7"}))
            .refuses(&[404]),
        Route::ask((Method::GET, "/v1/scopes"), "list_scopes", found("fdguard.scopes/1"), list)
            .summary("All scopes"),
        Route::ask((Method::GET, one), "get_scope", found("fdguard.scope/1"), get)
            .summary("One scope, and what it holds")
            .refuses(&[404]),
        Route::tell(
            (Method::POST, "/v1/scopes/{id}/resources"),
            "add_resource",
            made("fdguard.scope/1"),
            add,
        )
        .summary("Give something to a scope")
        .example(json!({"file": {"path": "log.jsonl", "end": "archive"}}))
        .refuses(&[404, 410]),
        Route::raw((Method::DELETE, one), "close_scope", close)
            .summary("End a scope. A process of the scope is answered 202 with a ticket first, and ended then")
            .gives::<CleanUp>(StatusCode::OK, "fdguard.cleanup/1")
            .accepts_later()
            .refuses(&[404]),
        Route::ask((Method::GET, "/v1/tickets/{id}"), "get_ticket", found("fdguard.ticket/1"), ticket)
            .summary("What became of a scope that a process of it ended")
            .refuses(&[404]),
    ]
}

async fn open(asked: ApiRequest, body: NewScope) -> Result<Reply<ScopeView>, Problem> {
    let roots = &asked.api.settings.roots;
    // The scope looks again, by opening them; this gives one clear refusal.
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
                let problem = Problem::senseless(format!("process {pid}: {error}"));
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
