//! `fdguard host`: agent sessions over HTTP and MCP.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Context as _;
use fdguard_host::Roots;
use fdguard_host::host::{Events, Options, ReconcileOutcome};
use fdguard_host::http::{self, ApiSettings, HttpLaunch};
use fdguard_host::mcp;
use fdguard_host::scope::{Journals, UnfinishedJournal};
use fdguard_process::listen::activation;
use fdguard_process::reserve;
use fdguard_supervise::event::{EventSink, LogEvent};
use serde::Serialize;

use super::listening::{ListenRules, Sockets};
use crate::cli::HostArgs;
use crate::exit::{self, HintedError};
use crate::output;

mod secrecy;
mod token;

/// Runs the command.
pub(super) fn run(args: &HostArgs) -> anyhow::Result<u8> {
    // Before anything else is opened: the numbers of passed descriptors are fixed.
    secrecy::leave_environment()?;
    let inherited = activation::from_environment();
    if args.openapi {
        let text = serde_json::to_string_pretty(&http::openapi())?;
        output::emit(None, |out| Ok(writeln!(out, "{text}")?))?;
        return Ok(exit::CLEAN);
    }
    if let Some(state) = args.state.as_deref().filter(|_| args.reconcile) {
        return reconcile(state, args.dry_run);
    }
    if is_hidden(args) {
        secrecy::hide_memory()?;
    }
    let roots = roots(&args.sessions.root)?;
    if args.mcp {
        return serve_one(args, roots);
    }
    let sockets = Sockets::plan(listen_rules(args), &inherited)?;
    let token = token::find(args)?;
    let bound = sockets.bind(inherited)?;
    let sink = sink(args)?;
    let mut settings = ApiSettings::default();
    settings.token = token.as_ref().map(|found| found.token.clone());
    settings.hosts.clone_from(&args.access.allow_host);
    settings.origins.clone_from(&args.access.allow_origin);
    settings.max_body = args.bounds.max_body;
    settings.max_connections = args.bounds.max_connections;
    settings.max_requests = args.bounds.max_requests;
    settings.mcp = tools(args, roots.clone());
    settings.roots = roots;
    settings.lease = args.sessions.lease;
    let launch = HttpLaunch {
        host: options(args, events(&sink)),
        settings,
        sockets: bound.fds,
    };
    let paths = bound.paths;
    let told = Arc::clone(&sink);
    let ready = move |addresses: &[SocketAddr]| {
        let from = token.map(|found| found.from);
        announce(&told, addresses, &paths, from);
    };
    let ended = http::run(launch, ready);
    lock(&sink).finish();
    drop(bound.files);
    ended.map_err(anyhow::Error::new).context("host")?;
    Ok(exit::CLEAN)
}

fn listen_rules(args: &HostArgs) -> ListenRules<'_> {
    ListenRules {
        listen: &args.listen,
        default: "127.0.0.1:7878",
        allow_remote: args.access.allow_remote,
        no_token: args.access.no_token,
        mode: args.access.mode,
    }
}

/// Whether there is a token in memory that sessions must not read. With one MCP client there is
/// none, and the tools can examine the host completely.
fn is_hidden(args: &HostArgs) -> bool {
    !(args.mcp || args.access.no_token || args.access.inspectable)
}

/// Serves one MCP client. Only the protocol goes to stdout.
fn serve_one(args: &HostArgs, roots: Roots) -> anyhow::Result<u8> {
    let sink = sink(args)?;
    let launch = mcp::StdioLaunch {
        host: options(args, events(&sink)),
        mcp: tools(args, roots),
    };
    let ended = mcp::run(launch);
    lock(&sink).finish();
    ended.map_err(anyhow::Error::new).context("host")?;
    Ok(exit::CLEAN)
}

/// What MCP clients may do.
fn tools(args: &HostArgs, roots: Roots) -> mcp::Options {
    let mut options = mcp::Options::default();
    // Works even if the file was replaced by a newer one.
    options.program = Some(PathBuf::from("/proc/self/exe"));
    options.roots = roots;
    options.idle = args.sessions.idle;
    options
}

/// What a host left behind.
#[derive(Debug, Serialize)]
struct Leftovers {
    #[serde(flatten)]
    found: ReconcileOutcome,
    /// Files of agents: the next host with this state cleans them up.
    scopes: Vec<UnfinishedJournal>,
}

fn reconcile(state: &Path, dry_run: bool) -> anyhow::Result<u8> {
    let found = fdguard_host::host::reconcile(state, dry_run);
    let found = found.map_err(|error| {
        HintedError::look(
            error.to_string(),
            "name the directory that the host was started with (--state)",
        )
    })?;
    let scopes = Journals::unfinished(state);
    let is_clean = found.is_clean() && scopes.is_empty();
    let text = serde_json::to_string_pretty(&Leftovers { found, scopes })?;
    output::emit(None, |out| Ok(writeln!(out, "{text}")?))?;
    Ok(if is_clean {
        exit::CLEAN
    } else {
        exit::FINDINGS
    })
}

fn options(args: &HostArgs, events: Events) -> Options {
    let mut options = Options::default();
    options.max_sessions = args.sessions.max_sessions;
    options.idle_after = args.sessions.idle;
    options.reap_every = args.sessions.reap_every;
    options.state.clone_from(&args.state);
    options.warm_python = !args.sessions.no_warm;
    options.keeper_program = Some(secrecy::keeper_program(is_hidden(args)));
    options.events = events;
    options
}

/// The directories whose files may be archived, held open: a directory that takes the name later is
/// a different one.
fn roots(given: &[PathBuf]) -> anyhow::Result<Roots> {
    Roots::open(given).map_err(|(root, error)| {
        let message = format!("--root {}: {error}", root.display());
        HintedError::usage(message, "name an existing directory").into()
    })
}

type Shared = Arc<Mutex<EventSink>>;

fn sink(args: &HostArgs) -> anyhow::Result<Shared> {
    let form = args.log_format.parse().map_err(anyhow::Error::msg)?;
    let stderr = rustix::io::dup(rustix::stdio::stderr()).ok();
    let sink = EventSink::new(form, stderr.map(reserve::raise));
    Ok(Arc::new(Mutex::new(sink)))
}

fn lock(sink: &Shared) -> std::sync::MutexGuard<'_, EventSink> {
    sink.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The sink never blocks, so it may be called from anywhere.
fn events(sink: &Shared) -> Events {
    let sink = Arc::clone(sink);
    Events::to(move |event| lock(&sink).emit(event))
}

/// Prints one line for people and scripts on stdout, and emits an event with all details.
fn announce(sink: &Shared, addresses: &[SocketAddr], paths: &[PathBuf], from: Option<String>) {
    let tcp = addresses.iter().map(|address| format!("http://{address}"));
    let unix = paths.iter().map(|path| format!("unix:{}", path.display()));
    let all: Vec<String> = tcp.chain(unix).collect();
    let token = from.unwrap_or_else(|| "none: anyone who can connect has full access".to_owned());
    let event = LogEvent::new("host_ready").with("at", all.join(","));
    lock(sink).emit(&event.with("token", token));
    let line = format!("fdguard host listens at {}\n", all.join(" "));
    // A closed stdout is not a reason to stop.
    drop(output::emit(
        None,
        |out| Ok(out.write_all(line.as_bytes())?),
    ));
}
