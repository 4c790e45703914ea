//! Handles MCP requests: lists the tools and runs them.

use std::borrow::Cow;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, CompleteRequestMethod,
    CompleteRequestParams, CompleteResult, CustomRequest, CustomResult, ErrorCode, ErrorData,
    Implementation, InitializeRequestParams, JsonObject, ListPromptsRequestMethod,
    ListPromptsResult, ListResourceTemplatesRequestMethod, ListResourceTemplatesResult,
    ListResourcesRequestMethod, ListResourcesResult, ListToolsResult, PaginatedRequestParams,
    ProtocolVersion, ServerCapabilities, ServerConfig, Tool,
};
use rmcp::service::{NotificationContext, RequestContext};
use rmcp::{RoleServer, ServerHandler};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::arguments::{self, Archive, Bash, Check, Kind, Python, Snap, Trace, Watch, Which, Why};
use super::client::{Client, Place};
use super::say::{self, InterruptedExec, Ran};
use super::trial::Trial;
use super::web::KnownClients;
use super::{Options, look, progress, tools};
use crate::Error;
use crate::document::Document;
use crate::http::{NewArchive, archive};
use crate::session::{Exec, ExecResult};

/// Pieces of output queued for progress notifications before the program has to wait.
const WAITING: usize = 64;
/// Default observation time.
const SECONDS: u64 = 10;
/// Default time limit of a program under the tracer.
const TRIAL_SECONDS: u64 = 60;

/// The methods that there are.
const METHODS: [&str; 5] = [
    "initialize",
    "ping",
    "server/discover",
    "tools/call",
    "tools/list",
];

/// Answers one client.
#[derive(Debug)]
pub(super) struct Handler {
    client: Arc<Client>,
    options: Arc<Options>,
    /// The registry of the HTTP server's MCP sessions; `None` on standard streams.
    known: Option<Arc<KnownClients>>,
}

impl Handler {
    pub(super) fn new(client: Arc<Client>, options: Arc<Options>) -> Self {
        Self {
            client,
            options,
            known: None,
        }
    }

    /// For a client of the HTTP server.
    pub(super) fn known_by(mut self, known: Arc<KnownClients>) -> Self {
        self.known = Some(known);
        self
    }

    fn tools(&self) -> Vec<Tool> {
        let can_archive = !self.options.roots.is_empty();
        tools::all(self.options.program.is_some(), can_archive)
    }

    async fn call(
        &self,
        name: &str,
        given: Option<JsonObject>,
        context: &RequestContext<RoleServer>,
    ) -> Result<CallToolResult, Error> {
        match name {
            "python" => {
                let Python { code, timeout_ms } = arguments::read(given)?;
                self.run(Kind::Python, code, timeout_ms, context).await
            }
            "bash" => {
                let Bash {
                    command,
                    timeout_ms,
                } = arguments::read(given)?;
                self.run(Kind::Bash, command, timeout_ms, context).await
            }
            "interrupt" => self.interrupt(arguments::read(given)?).await,
            "reset" => self.reset(arguments::read(given)?).await,
            "archive" => self.archive(arguments::read(given)?).await,
            "snap" => {
                let Snap { pid } = arguments::read(given)?;
                self.run_look("snap", pid, None, context).await
            }
            "trace" => self.trace(arguments::read(given)?, context).await,
            "why" => {
                let Why { pid, seconds } = arguments::read(given)?;
                let seconds = arguments::seconds(seconds)?.unwrap_or(SECONDS);
                let words = [
                    "why",
                    &pid.to_string(),
                    "--json",
                    &format!("--wait={seconds}s"),
                ]
                .map(str::to_owned);
                self.look(&words, context).await
            }
            "check" => {
                let asked: Check = arguments::read(given)?;
                let seconds = arguments::seconds(asked.seconds)?.unwrap_or(TRIAL_SECONDS);
                let trial = Trial {
                    words: asked.words(seconds),
                    command: asked.command,
                    dir: asked.cwd,
                    environment: asked.env,
                    limit: Duration::from_secs(seconds),
                    output_cap: self.options.output_cap,
                };
                self.try_out(trial, context).await
            }
            // `watch` and `doctor`: no other name gets here.
            verb => {
                let Watch { pid, seconds } = arguments::read(given)?;
                let seconds = arguments::seconds(seconds)?.unwrap_or(SECONDS);
                self.run_look(verb, pid, Some(seconds), context).await
            }
        }
    }

    /// Starts a command under the tracer, or attaches to a process.
    async fn trace(
        &self,
        asked: Trace,
        context: &RequestContext<RoleServer>,
    ) -> Result<CallToolResult, Error> {
        let seconds = arguments::seconds(asked.seconds)?.unwrap_or(TRIAL_SECONDS);
        if asked.pid.is_some() {
            if !asked.command.is_empty() {
                let why = "invalid arguments: give command or pid, not both";
                return Err(Error::Bad(why.to_owned()));
            }
            let look = self.run_look("trace", asked.pid, Some(seconds), context);
            return look.await;
        }
        let trial = Trial {
            words: vec!["trace".to_owned(), format!("--for={seconds}s")],
            command: asked.command,
            dir: asked.cwd,
            environment: asked.env,
            limit: Duration::from_secs(seconds),
            output_cap: self.options.output_cap,
        };
        self.try_out(trial, context).await
    }

    async fn run(
        &self,
        kind: Kind,
        code: String,
        timeout_ms: Option<u64>,
        context: &RequestContext<RoleServer>,
    ) -> Result<CallToolResult, Error> {
        let mut command = Exec::new(code);
        if let Some(timeout) = arguments::timeout(timeout_ms)? {
            command.timeout = timeout;
        }
        let name = context.client_info().map(|info| info.name);
        let place = self.client.open(kind, name.as_deref()).await?;
        let done = self.exec(&place.id, command.clone(), context).await;
        let (place, done) = match done {
            // It ended between two calls, for example after `exit`: that is not a reason to reject
            // this one.
            Err(error @ (Error::Ended { .. } | Error::Unknown { .. })) => {
                self.client.forget(kind, &place.id).await;
                let mut next = self.client.open(kind, name.as_deref()).await?;
                next.renewed = Some(error.to_string());
                let done = self.exec(&next.id, command, context).await?;
                (next, done)
            }
            done => (place, done?),
        };
        let Place { id, renewed } = place;
        Ok(say::ran(Ran {
            session: id,
            renewed,
            done,
        }))
    }

    /// Runs it to its end. Cancelling the call or disconnecting interrupts it, and its end is still
    /// awaited, so that the session is free afterwards.
    async fn exec(
        &self,
        id: &str,
        command: Exec,
        context: &RequestContext<RoleServer>,
    ) -> Result<ExecResult, Error> {
        let host = self.client.host();
        let (live, told) = match context.meta.get_progress_token() {
            Some(token) => {
                let (live, chunks) = mpsc::channel(WAITING);
                let telling = progress::tell(context.peer.clone(), token, chunks);
                (Some(live), Some(tokio::spawn(telling)))
            }
            None => (None, None),
        };
        let mut work = std::pin::pin!(host.exec(id, command, live));
        let done = tokio::select! {
            biased;
            done = &mut work => done,
            () = self.unwanted(&context.ct) => {
                let (done, _interrupted) = tokio::join!(work, host.interrupt(id));
                done
            }
        };
        if let Some(told) = told {
            // No notification may follow the answer. The result of sending does not matter.
            drop(told.await);
        }
        done
    }

    /// Completes when the call is cancelled or its client is gone.
    async fn unwanted(&self, call: &CancellationToken) {
        tokio::select! {
            () = call.cancelled() => {}
            () = self.client.gone.cancelled() => {}
        }
    }

    async fn interrupt(&self, which: Which) -> Result<CallToolResult, Error> {
        let id = self.client.session(which.tool).await;
        let was_running = match &id {
            Some(id) => match self.client.host().interrupt(id).await {
                Err(Error::Ended { .. } | Error::Unknown { .. }) => false,
                interrupted => interrupted?,
            },
            None => false,
        };
        let text = match (was_running, &id) {
            (true, _) => "interrupted: the waiting call returns with its output so far",
            (false, Some(_)) => "no command is running",
            (false, None) => "no session yet: nothing to interrupt",
        };
        let document = Document::new("fdguard.interrupted/1", InterruptedExec { id, was_running });
        Ok(say::result(text.to_owned(), &document, false))
    }

    async fn reset(&self, which: Which) -> Result<CallToolResult, Error> {
        let none = || {
            let text = "no session to reset: the next call starts one";
            let document = json!({"schema": "fdguard.reset/1", "was_open": false});
            Ok(say::result(text.to_owned(), &document, false))
        };
        let Some(id) = self.client.session(which.tool).await else {
            return none();
        };
        let receipt = match self.client.host().reset(&id).await {
            Err(Error::Ended { .. } | Error::Unknown { .. }) => {
                self.client.forget(which.tool, &id).await;
                return none();
            }
            receipt => receipt?,
        };
        let count = |number: Option<u32>| number.map_or("unknown".to_owned(), |it| it.to_string());
        let text = format!(
            "interpreter restarted, variables are lost; processes still running: {}, killed: {}",
            count(receipt.survivors),
            count(receipt.killed)
        );
        let document = Document::new("fdguard.receipt/1", receipt);
        Ok(say::result(text, &document, false))
    }

    async fn archive(&self, asked: Archive) -> Result<CallToolResult, Error> {
        let asked = NewArchive {
            files: asked.files,
            to: asked.to,
            wait_ms: asked.wait_ms,
        };
        let report = archive(&self.options.roots, asked).await;
        let report = report.map_err(|problem| Error::Bad(problem.detail().to_owned()))?;
        let document = serde_json::to_value(&report).unwrap_or_default();
        Ok(say::seen(&document, !report.success))
    }

    async fn run_look(
        &self,
        verb: &str,
        pid: Option<u32>,
        seconds: Option<u64>,
        context: &RequestContext<RoleServer>,
    ) -> Result<CallToolResult, Error> {
        let pid = pid.unwrap_or_else(std::process::id);
        let mut words = vec![verb.to_owned(), pid.to_string(), "--json".to_owned()];
        if let Some(seconds) = seconds {
            words.extend(["--for".to_owned(), format!("{seconds}s")]);
        }
        self.look(&words, context).await
    }

    /// Runs the command with these arguments, which returns a document.
    async fn look(
        &self,
        words: &[String],
        context: &RequestContext<RoleServer>,
    ) -> Result<CallToolResult, Error> {
        let program = self.options.program.as_deref().unwrap_or(Path::new(""));
        let seen = tokio::select! {
            seen = look::run_look(program, words) => seen?,
            () = self.unwanted(&context.ct) => return Err(Error::Bad("cancelled".to_owned())),
        };
        Ok(say::seen(&seen, false))
    }

    /// Runs a command under the tracer. Cancelling the call or disconnecting ends all of it.
    async fn try_out(
        &self,
        trial: Trial,
        context: &RequestContext<RoleServer>,
    ) -> Result<CallToolResult, Error> {
        let program = self.options.program.as_deref().unwrap_or(Path::new(""));
        let _turn = self.client.trial()?;
        tokio::select! {
            ended = trial.run(program) => Ok(say::tried(ended?)),
            () = self.unwanted(&context.ct) => Err(Error::Bad("cancelled".to_owned())),
        }
    }
}

impl ServerHandler for Handler {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder().enable_tools().build();
        let us = Implementation::new("fdguard", env!("CARGO_PKG_VERSION"));
        ServerConfig::new(capabilities)
            .with_server_info(us.with_title("fdguard host"))
            .with_instructions(tools::INSTRUCTIONS)
    }

    /// Over HTTP the newest version knows no sessions: each request would be a client of its own,
    /// and its Python gone with it.
    fn supported_protocol_versions(&self) -> Cow<'static, [ProtocolVersion]> {
        Cow::Borrowed(match self.known {
            Some(_) => ProtocolVersion::known_up_to(&ProtocolVersion::V_2025_11_25),
            None => ProtocolVersion::KNOWN_VERSIONS,
        })
    }

    async fn on_initialized(&self, context: NotificationContext<RoleServer>) {
        if let Some(known) = &self.known {
            known.learn(&context.extensions, &self.client);
        }
    }

    async fn list_tools(
        &self,
        page: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        // There is one page, so no cursor was ever issued.
        if let Some(cursor) = page.and_then(|page| page.cursor) {
            let why = format!("unknown cursor {cursor:?}: all tools are on one page");
            return Err(ErrorData::invalid_params(why, None));
        }
        Ok(ListToolsResult::with_all_items(self.tools()))
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        self.tools().into_iter().find(|tool| tool.name == name)
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let name = request.name.as_ref();
        if self.get_tool(name).is_none() {
            let why = format!("unknown tool {name:?}");
            return Err(ErrorData::invalid_params(why, None));
        }
        if let Some(known) = &self.known {
            known.learn(&context.extensions, &self.client);
        }
        let _call = self.client.call();
        let answered = self.call(name, request.arguments, &context).await;
        Ok(answered.unwrap_or_else(say::refused).into())
    }

    /// The library would answer methods of capabilities that are not declared with empty lists.
    async fn list_prompts(
        &self,
        _page: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        Err(ErrorData::method_not_found::<ListPromptsRequestMethod>())
    }

    async fn list_resources(
        &self,
        _page: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        Err(ErrorData::method_not_found::<ListResourcesRequestMethod>())
    }

    async fn list_resource_templates(
        &self,
        _page: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        Err(ErrorData::method_not_found::<
            ListResourceTemplatesRequestMethod,
        >())
    }

    async fn complete(
        &self,
        _request: CompleteRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<CompleteResult, ErrorData> {
        Err(ErrorData::method_not_found::<CompleteRequestMethod>())
    }

    /// Requests that the library could not parse also arrive here: a known method with invalid
    /// parameters.
    async fn on_custom_request(
        &self,
        request: CustomRequest,
        _context: RequestContext<RoleServer>,
    ) -> Result<CustomResult, ErrorData> {
        let method = request.method.as_str();
        if !METHODS.contains(&method) {
            let why = format!("unknown method {method:?}");
            return Err(ErrorData::new(ErrorCode::METHOD_NOT_FOUND, why, None));
        }
        let why = wrong_parameters(method, request.params.unwrap_or_else(|| json!({})));
        Err(ErrorData::invalid_params(why, None))
    }
}

/// The error message for a method's parameters.
fn wrong_parameters(method: &str, given: Value) -> String {
    let why = match method {
        "tools/call" => serde_path_to_error::deserialize::<_, CallToolRequestParams>(given)
            .err()
            .map(|error| error.to_string()),
        "initialize" => serde_path_to_error::deserialize::<_, InitializeRequestParams>(given)
            .err()
            .map(|error| error.to_string()),
        _ => None,
    };
    let why = why.unwrap_or_else(|| "they do not match the method".to_owned());
    format!("invalid parameters for {method}: {why}")
}
