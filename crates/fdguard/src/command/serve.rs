//! `fdguard serve`: the whole host all the time.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::Context as _;
use fdguard_core::bearer::BearerToken;
use fdguard_process::listen::activation;
use fdguard_process::reserve;
use fdguard_process::signals::{ENDING, Signals, name_of};
use fdguard_serve::fleet::FleetOptions;
use fdguard_serve::{
    EvidenceOptions, LogSink, PushOptions, ServeError, ServeOptions, Serving, StoreOptions,
    TraceOptions, WebSettings, WebhookSecret, read_tls,
};
use fdguard_supervise::event::{EventSink, LogEvent};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Resource, getrlimit, setrlimit};

use super::fleet::token;
use super::header_file::{read_beside_token, read_headers};
use super::listening::{ListenRules, Sockets};
use super::settings;
use super::token_file::{default_file, read_or_make};
use crate::cli::{KeepArgs, ServeArgs, ServeFleetArgs, ServeTraceArgs, WebArgs};
use crate::exit::{self, HintedError};
use crate::output;

/// The history in its directory.
pub(super) const HISTORY_FILE: &str = "history.db";

/// Runs the command.
pub(super) fn run(args: &ServeArgs) -> anyhow::Result<u8> {
    // Before anything else is opened: the numbers of passed descriptors are fixed.
    let inherited = activation::from_environment();
    let mut config = settings::config(&args.settings)?;
    let traced = std::mem::take(&mut config.traced_services);
    let settings = settings::rule_settings(&args.settings, config)?;
    let sockets = Sockets::plan(listen_rules(&args.web), &inherited)?;
    let (options, token_from) = options(args, traced)?;
    let bound = sockets.bind(inherited)?;
    raise_limit();
    let sink = sink(args)?;
    let signals = Signals::listen(ENDING).context("cannot set up signal handling")?;
    let has_tls = args.web.tls_cert.is_some();
    let serving = Serving::start(options, settings, bound.fds, log(&sink)).map_err(explain)?;
    announce(&sink, &serving, &bound.paths, has_tls, token_from);
    let signal = wait(&signals);
    let event = LogEvent::new("serve_stopping").with("signal", name_of(signal));
    lock(&sink).emit(&event);
    serving.stop();
    lock(&sink).emit(&LogEvent::new("serve_end"));
    lock(&sink).finish();
    drop(bound.files);
    Ok(exit::CLEAN)
}

fn listen_rules(web: &WebArgs) -> ListenRules<'_> {
    ListenRules {
        listen: &web.listen,
        default: "127.0.0.1:9187",
        allow_remote: web.allow_remote,
        no_token: web.no_token,
        mode: web.mode,
    }
}

/// The options, and where the token for viewing is.
fn options(
    args: &ServeArgs,
    traced: Vec<String>,
) -> anyhow::Result<(ServeOptions, Option<PathBuf>)> {
    let state = state_dir(args.history.state.as_deref());
    let needs_state = !(args.history.no_history && args.history.no_evidence);
    if needs_state {
        make_state_dir(state.as_deref())?;
    }
    let scratch = state.clone().filter(|_| needs_state);
    let (web, token_from) = web(&args.web)?;
    let delivery = &args.delivery;
    let webhook = delivery
        .webhook
        .clone()
        .zip(delivery.webhook_secret_file.as_ref());
    let webhook = webhook.map(|(url, file)| anyhow::Ok((url, secret(file)?)));
    // Works even if the file was replaced by a newer one.
    let program = PathBuf::from("/proc/self/exe");
    let trace = trace(&args.trace, traced, state.as_deref(), &program)?;
    let options = ServeOptions {
        host: args.host_name.clone().unwrap_or_else(host_name),
        every: args.every,
        budget: args.budget,
        max_watched: args.max_watched,
        resolve_after: args.resolve_after,
        sample_every: args.history.sample_every,
        history: state.as_deref().and_then(|dir| history(&args.history, dir)),
        evidence: state
            .filter(|_| !args.history.no_evidence)
            .map(|dir| EvidenceOptions {
                program: program.clone(),
                dir: dir.join("evidence"),
            }),
        alertmanager: delivery.alertmanager.clone(),
        webhook: webhook.transpose()?,
        push: push(&args.fleet)?,
        trace,
        fleet: fleet(&args.fleet)?,
        program: Some(program),
        scratch,
        web,
    };
    Ok((options, token_from))
}

/// Receivers of metrics.
fn push(args: &ServeFleetArgs) -> anyhow::Result<PushOptions> {
    let headers = |file: &Option<PathBuf>, option| read_headers(file.as_deref(), option);
    let remote_write = &args.remote_write_header_file;
    Ok(PushOptions {
        remote_write: args.remote_write.clone(),
        remote_write_headers: headers(remote_write, "--remote-write-header-file")?,
        otlp: args.otlp.clone(),
        otlp_headers: headers(&args.otlp_header_file, "--otlp-header-file")?,
        every: args.push_every,
    })
}

/// Where metrics of all hosts are.
fn fleet(args: &ServeFleetArgs) -> anyhow::Result<Option<FleetOptions>> {
    let Some(from) = args.fleet_from.clone() else {
        return Ok(None);
    };
    let token = token(args.fleet_token_file.as_deref(), "--fleet-token-file")?;
    let file = args.fleet_header_file.as_deref();
    Ok(Some(FleetOptions {
        from,
        headers: read_beside_token(file, "--fleet-header-file", token.is_some())?,
        token,
        host_label: args.host_label.clone(),
        within: Duration::from_secs(10),
    }))
}

/// Traces of confirmed leaks, if services are named: by the command line or in the file.
fn trace(
    args: &ServeTraceArgs,
    mut services: Vec<String>,
    state: Option<&Path>,
    program: &Path,
) -> anyhow::Result<Option<TraceOptions>> {
    services.extend(args.trace_service.iter().cloned());
    if services.is_empty() {
        return Ok(None);
    }
    make_state_dir(state)?;
    Ok(state.map(|dir| TraceOptions {
        program: program.to_owned(),
        dir: dir.join("traces"),
        services,
        length: args.trace_for,
    }))
}

fn history(args: &KeepArgs, dir: &Path) -> Option<StoreOptions> {
    (!args.no_history).then(|| StoreOptions {
        path: dir.join(HISTORY_FILE),
        keep: args.keep,
        max_disk: args.max_disk,
    })
}

/// The directory of history and evidence.
pub(super) fn state_dir(given: Option<&Path>) -> Option<PathBuf> {
    if let Some(given) = given {
        return Some(given.to_owned());
    }
    if rustix::process::geteuid().is_root() {
        return Some(PathBuf::from("/var/lib/fdguard"));
    }
    let absolute = |name: &str| {
        let path = std::env::var_os(name).map(PathBuf::from);
        path.filter(|path| path.is_absolute())
    };
    let home = || Some(absolute("HOME")?.join(".local/state"));
    Some(absolute("XDG_STATE_HOME").or_else(home)?.join("fdguard"))
}

fn make_state_dir(dir: Option<&Path>) -> anyhow::Result<()> {
    use std::os::unix::fs::DirBuilderExt as _;
    let hint = "name a directory with --state DIR, or use --no-history --no-evidence";
    let Some(dir) = dir else {
        return Err(HintedError::usage("cannot keep a history: $HOME is not set", hint).into());
    };
    let made = std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(dir);
    made.map_err(|error| {
        let message = format!("--state {}: {error}", dir.display());
        HintedError::look(message, hint).into()
    })
}

/// Access, and where the token for viewing is.
fn web(args: &WebArgs) -> anyhow::Result<(WebSettings, Option<PathBuf>)> {
    let view = match (&args.token_file, args.no_token) {
        (_, true) => None,
        (Some(path), false) => Some(path.clone()),
        (None, false) => {
            let file = default_file(|name| std::env::var_os(name), "serve.token");
            Some(file.ok_or_else(|| {
                let message = "cannot store the token: $HOME is not set";
                HintedError::usage(message, "name a file with --token-file FILE")
            })?)
        }
    };
    let token = |flag: &str, path: &Path| -> anyhow::Result<BearerToken> {
        read_or_make(path).map_err(|error| {
            let message = format!("{flag} {}: {error}", path.display());
            let hint = "name a file that you own and only you can read (chmod 600)";
            HintedError::usage(message, hint).into()
        })
    };
    let act = args.act_token_file.as_deref();
    let tls = args.tls_cert.as_deref().zip(args.tls_key.as_deref());
    let tls = tls.map(|(certificate, key)| {
        read_tls(certificate, key).map_err(|why| {
            let hint = "give a PEM file with the certificate first, and its key";
            HintedError::usage(format!("--tls-cert, --tls-key: {why}"), hint)
        })
    });
    let settings = WebSettings {
        view: view
            .as_deref()
            .map(|path| token("--token-file", path))
            .transpose()?,
        act: act
            .map(|path| token("--act-token-file", path))
            .transpose()?,
        public_metrics: args.public_metrics,
        hosts: args.allow_host.clone(),
        origins: args.allow_origin.clone(),
        max_connections: args.max_connections,
        max_series: args.max_series,
        tls: tls.transpose()?,
    };
    Ok((settings, view))
}

fn secret(file: &Path) -> anyhow::Result<WebhookSecret> {
    let wrong = |why: String| {
        let message = format!("--webhook-secret-file {}: {why}", file.display());
        HintedError::usage(message, "put at least 16 characters into a private file")
    };
    let text = std::fs::read(file).map_err(|error| wrong(error.to_string()))?;
    Ok(WebhookSecret::new(&text).map_err(wrong)?)
}

fn host_name() -> String {
    let name = rustix::system::uname();
    name.nodename().to_string_lossy().into_owned()
}

/// Each watched process takes a few descriptors. A lack of room is reported later.
fn raise_limit() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    let _kept = setrlimit(Resource::Nofile, limit);
}

type Shared = Arc<Mutex<EventSink>>;

fn sink(args: &ServeArgs) -> anyhow::Result<Shared> {
    let form = args.log_format.parse().map_err(anyhow::Error::msg)?;
    let stderr = rustix::io::dup(rustix::stdio::stderr()).ok();
    let sink = EventSink::new(form, stderr.map(reserve::raise));
    Ok(Arc::new(Mutex::new(sink)))
}

fn lock(sink: &Shared) -> MutexGuard<'_, EventSink> {
    sink.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The sink never blocks, so the loop may call it.
fn log(sink: &Shared) -> LogSink {
    let sink = Arc::clone(sink);
    Arc::new(move |event: &LogEvent| lock(&sink).emit(event))
}

fn explain(error: ServeError) -> anyhow::Error {
    let hint = match &error {
        ServeError::Store(_) => {
            "check the directory and its free space, or use --no-history or another --state DIR"
        }
        ServeError::Receiver(_) => "check the address of the receiver",
        ServeError::Probe(_) => "check that /proc is mounted and readable",
        ServeError::Io { .. } => "",
    };
    HintedError::look(error.to_string(), hint).into()
}

fn announce(
    sink: &Shared,
    serving: &Serving,
    paths: &[PathBuf],
    has_tls: bool,
    token_from: Option<PathBuf>,
) {
    let scheme = if has_tls { "https" } else { "http" };
    let tcp = serving.addresses().iter();
    let tcp = tcp.map(|address| format!("{scheme}://{address}"));
    let unix = paths.iter().map(|path| format!("unix:{}", path.display()));
    let all: Vec<String> = tcp.chain(unix).collect();
    let token = token_from.map(|path| path.display().to_string());
    let token = token.unwrap_or_else(|| "none: every client that can connect may view".to_owned());
    let event = LogEvent::new("serve_ready").with("at", all.join(","));
    lock(sink).emit(&event.with("token", token.as_str()));
    let line = format!(
        "fdguard serve listens at {} (token: {token})\n",
        all.join(" ")
    );
    // A closed stdout is not a reason to stop.
    drop(output::emit(
        None,
        |out| Ok(out.write_all(line.as_bytes())?),
    ));
}

/// Waits for a signal that ends the command.
fn wait(signals: &Signals) -> i32 {
    loop {
        // An interrupted wait begins again.
        let _woken = poll(&mut [PollFd::new(signals, PollFlags::IN)], None);
        if let Some(received) = signals.next() {
            return received.signal;
        }
    }
}
