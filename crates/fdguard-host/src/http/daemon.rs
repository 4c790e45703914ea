//! The whole program: runtime, sockets, signals, and a shutdown that closes everything.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use fdguard_core::log_event::LogEvent;
use fdguard_process::adopt::adopt_orphans_of_trees;
use fdguard_process::notify::{NotifyClient, NotifyMessage};
use fdguard_process::signals::{Signals, name_of};
use rustix::process::Signal;

use super::api::ApiSettings;
use super::serve::HttpServer;
use super::signal::SignalWait;
use crate::Error;
use crate::host::{Events, Host, Options};
use crate::scope::daemon::{self, Daemon};
use fdguard_http::ListeningSocket;

/// Threads of the runtime; sessions need none of their own.
const WORKERS: usize = 2;
/// Threads for blocking work, and how long they stay idle.
const BLOCKING: usize = 16;
const KEEP: Duration = Duration::from_secs(1);
/// Time for the last responses after the last session has ended.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// What to run.
#[derive(Debug)]
pub struct HttpLaunch {
    /// The host.
    pub host: Options,
    /// The server.
    pub settings: ApiSettings,
    /// Sockets that listen already.
    pub sockets: Vec<OwnedFd>,
}

/// Runs until TERM or INT. Calls `ready` with the addresses (none for sockets with a path) once
/// requests are answered. A second INT does not wait for sessions: their keepers end them.
pub fn run(launch: HttpLaunch, ready: impl FnOnce(&[SocketAddr])) -> Result<(), Error> {
    with_runtime(|signals| live(launch, signals, ready))
}

/// Runs a program on its runtime, with the signals that end it.
pub(crate) fn with_runtime<F>(live: impl FnOnce(SignalWait) -> F) -> Result<(), Error>
where
    F: Future<Output = Result<(), Error>>,
{
    let ends = [Signal::TERM, Signal::INT].map(Signal::as_raw);
    let signals = Signals::listen(ends).map_err(Error::io("cannot set up signal handling"))?;
    // Sessions may kill their keepers. All children of the host are keepers, so any other child is
    // an orphan of such a session.
    adopt_orphans_of_trees().map_err(Error::io("cannot become a child subreaper"))?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(WORKERS)
        .max_blocking_threads(BLOCKING)
        .thread_keep_alive(KEEP)
        .thread_name("fdguard-host")
        .enable_all()
        .build()
        .map_err(Error::io("cannot start the runtime"))?;
    let ended = runtime.block_on(async {
        let signals =
            SignalWait::new(signals).map_err(Error::io("cannot set up signal handling"))?;
        live(signals).await
    });
    // Threads that still block are not waited for.
    runtime.shutdown_background();
    ended
}

async fn live(
    launch: HttpLaunch,
    signals: SignalWait,
    ready: impl FnOnce(&[SocketAddr]),
) -> Result<(), Error> {
    let listening: Result<Vec<ListeningSocket>, _> = launch
        .sockets
        .into_iter()
        .map(ListeningSocket::from_fd)
        .collect();
    let listening = listening.map_err(Error::io("cannot use the listening socket"))?;
    let addresses: Vec<SocketAddr> = listening
        .iter()
        .filter_map(ListeningSocket::address)
        .collect();
    let events = launch.host.events.clone();
    let host = Host::start(launch.host).await?;
    let server = HttpServer::start(host.clone(), listening, launch.settings);
    let cleaner = cleaner(&host, &server).await?;
    if cleaner.is_some() {
        // Their ends are reported as events.
        let _inherited = server.inherit().await;
    }
    let mut parent = Parent::find(&events);
    parent.tell(&NotifyMessage {
        ready: true,
        ..NotifyMessage::default()
    });
    ready(&addresses);
    let signal = signals.next().await;
    let event = LogEvent::new("host_stopping");
    events.tell(&event.with("signal", name_of(signal)));
    parent.tell(&NotifyMessage {
        stopping: true,
        ..NotifyMessage::default()
    });
    server.close();
    let end = async {
        if let Some(cleaner) = cleaner {
            cleaner.stop().await;
        }
        server.release().await;
        // Each receipt has been reported as an event.
        let _receipts = host.shut_down().await;
        server.ended(LAST_WORDS).await
    };
    let how = tokio::select! {
        is_all = end => if is_all { "done" } else { "connections-left" },
        () = signals.interrupt() => "interrupted",
    };
    events.tell(&LogEvent::new("host_end").with("how", how));
    Ok(())
}

/// The cleanup daemon. It is tied to the state directory: a second host there gets an error that
/// names the first.
async fn cleaner(host: &Host, server: &HttpServer) -> Result<Option<Daemon>, Error> {
    let Some(state) = host.state() else {
        return Ok(None);
    };
    let options = daemon::Options::new(state.to_owned());
    Daemon::start(server.scopes(), options).await.map(Some)
}

/// The parent process, if it wants notifications.
struct Parent(Option<NotifyClient>);

impl Parent {
    fn find(events: &Events) -> Self {
        match NotifyClient::from_environment() {
            Ok(client) => Self(client),
            Err(gap) => {
                let event = LogEvent::new("parent_not_told").with("why", gap.why);
                events.tell(&event);
                Self(None)
            }
        }
    }

    fn tell(&mut self, message: &NotifyMessage) {
        if let Some(client) = &mut self.0 {
            // A parent that does not listen is not a reason to stop.
            drop(client.tell(message, Instant::now()));
        }
    }
}
