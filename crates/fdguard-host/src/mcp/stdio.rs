//! The whole program on standard streams: one client, and an exit when it disconnects.

use std::os::fd::AsFd as _;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use fdguard_core::log_event::LogEvent;
use fdguard_process::signals::name_of;
use rmcp::service::{QuitReason, RunningService, ServerInitializeError};
use rmcp::transport::io::stdio_pipes;
use rmcp::{RoleServer, ServiceExt as _};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::io::{AsyncRead, ReadBuf};
use tokio_util::sync::CancellationToken;

use super::Options;
use super::client::Client;
use super::handler::Handler;
use super::lines::Lines;
use super::strangers::Strangers;
use crate::Error;
use crate::host::{self, Events, Host};
use crate::http::{SignalWait, with_runtime};

/// Time for the last answers after the end of input, if the client still reads.
const LAST_ANSWERS: Duration = Duration::from_secs(1);
/// After that, a client that has not taken them for this long does not read.
const UNREAD: Duration = Duration::from_secs(3);
/// Pause between two checks whether the client still reads.
const LOOK_AGAIN: Duration = Duration::from_millis(20);
/// Characters logged of a line that is not a message.
const BEGIN: usize = 40;

/// What to run.
#[derive(Debug)]
pub struct StdioLaunch {
    /// The host.
    pub host: host::Options,
    /// Options for its client.
    pub mcp: Options,
}

/// Runs until standard input ends, TERM or INT. Standard output carries only the protocol.
pub fn run(launch: StdioLaunch) -> Result<(), Error> {
    with_runtime(|signals| live(launch, signals))
}

async fn live(launch: StdioLaunch, signals: SignalWait) -> Result<(), Error> {
    let events = launch.host.events.clone();
    let host = Host::start(launch.host).await?;
    let client = Arc::new(Client::new(host.clone(), launch.mcp.output_cap));
    let handler = Handler::new(Arc::clone(&client), Arc::new(launch.mcp));
    let ended = CancellationToken::new();
    let why = tokio::select! {
        why = serve(handler, &client, &ended, &events) => why,
        signal = signals.next() => {
            client.gone.cancel();
            name_of(signal).to_owned()
        }
    };
    events.tell(&LogEvent::new("host_stopping").with("why", why));
    let end = async {
        // Each receipt has been reported as an event.
        let _receipts = client.end().await;
        let _receipts = host.shut_down().await;
    };
    let how = tokio::select! {
        () = end => "done",
        () = signals.interrupt() => "interrupted",
    };
    events.tell(&LogEvent::new("host_end").with("how", how));
    Ok(())
}

/// Serves the one client until it is gone, and returns the reason.
async fn serve(
    handler: Handler,
    client: &Arc<Client>,
    ended: &CancellationToken,
    events: &Events,
) -> String {
    let (input, output) = stdio_pipes();
    let input = MessageTap {
        input,
        ended: ended.clone(),
        strangers: Strangers::default(),
        events: events.clone(),
    };
    let transport = Lines::new(input, output);
    let serving = async {
        match handler.serve(transport).await {
            Ok(running) => quit(running).await,
            Err(ServerInitializeError::ConnectionClosed(_)) => "end of input".to_owned(),
            Err(error) => format!("handshake failed: {error}"),
        }
    };
    let leaving = async {
        ended.cancelled().await;
        let until = Instant::now() + LAST_ANSWERS;
        // A killed client loses one stream after the other.
        while has_reader() && Instant::now() < until {
            tokio::time::sleep(LOOK_AGAIN).await;
        }
        client.gone.cancel();
        // The results of its commands are on their way. A full pipe without a reader would block
        // forever.
        tokio::time::sleep(UNREAD).await;
        "end of input, and the client does not read".to_owned()
    };
    tokio::select! {
        why = serving => why,
        why = leaving => why,
    }
}

async fn quit(running: RunningService<RoleServer, Handler>) -> String {
    match running.waiting().await {
        Ok(QuitReason::Closed) => "end of input".to_owned(),
        Ok(reason) => format!("{reason:?}"),
        Err(error) => error.to_string(),
    }
}

/// Whether the client can still read answers: a killed client has closed both streams.
fn has_reader() -> bool {
    let stdout = std::io::stdout();
    let stdout = stdout.as_fd();
    let mut asked = [PollFd::new(&stdout, PollFlags::OUT)];
    let at_once = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    let looked = poll(&mut asked, Some(&at_once));
    let gone = PollFlags::ERR | PollFlags::HUP;
    looked.is_err() || !asked[0].revents().intersects(gone)
}

/// An input that signals its end and reports lines that are not messages.
struct MessageTap<R> {
    input: R,
    ended: CancellationToken,
    strangers: Strangers,
    events: Events,
}

impl<R> MessageTap<R> {
    fn look(&mut self, bytes: &[u8]) {
        for line in self.strangers.seen(bytes) {
            let begin = line.get(..line.len().min(BEGIN)).unwrap_or_default();
            let begin = String::from_utf8_lossy(begin).into_owned();
            let event = LogEvent::new("mcp_line_ignored").with("why", "not a JSON message");
            self.events.tell(&event.with("begins", begin));
        }
    }
}

impl<R: AsyncRead + Unpin> AsyncRead for MessageTap<R> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.input).poll_read(context, buffer);
        let is_over = match &read {
            Poll::Ready(Ok(())) => buffer.filled().len() == before && buffer.remaining() > 0,
            Poll::Ready(Err(_)) => true,
            Poll::Pending => false,
        };
        if is_over {
            self.ended.cancel();
        }
        let new = buffer.filled().get(before..).unwrap_or_default();
        self.look(new);
        read
    }
}
