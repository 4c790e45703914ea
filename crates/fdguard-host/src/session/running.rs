//! A running program: its start, and how it receives commands.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use fdguard_process::plan::Plan;
use fdguard_process::tree::{Options, StopPlan, Tree};
use rustix::net::SocketAddrUnix;
use tokio::time::{Instant, timeout_at};

use super::collect::Collector;
use super::end;
use super::fd_count::FdCount;
use super::hub::{Expected, Hub};
use super::keeper::{Keeper, Place, words};
use super::message::{self, End, Kind};
use super::program;
use super::streams::Streams;
use super::text_file::TextFile;
use super::types::{SessionProgram, SessionSpec};
use crate::Error;
use crate::warm::WarmPool;

/// Bytes that one read may bring.
pub(super) const ROOM: usize = 1 << 16;
/// How much output of a program that did not become ready is shown.
const SAID: usize = 2048;
/// How long the keeper of a dead host gives its sessions.
const ORPHAN_GRACE: Duration = Duration::from_millis(500);

/// A program, and the host's ends of its streams and channels.
#[derive(Debug)]
pub(super) struct Running {
    pub(super) streams: Streams,
    pub(super) keeper: Keeper,
    pub(super) held: FdCount,
    pub(super) descriptors: u32,
    pub(super) address: SocketAddrUnix,
    pub(super) inline: usize,
    /// A command was abandoned in it: it must be replaced before the next.
    pub(super) is_dirty: bool,
}

/// Everything that a start needs.
#[derive(Debug)]
pub(super) struct Recipe {
    pub(super) id: String,
    pub(super) spec: SessionSpec,
    pub(super) hub: Arc<Hub>,
    pub(super) pool: Option<Arc<WarmPool>>,
    pub(super) place: Place,
}

impl Recipe {
    /// Starts the program and waits until it accepts commands. On failure nothing is left.
    pub(super) async fn start(&self, dir: Option<PathBuf>) -> Result<(Running, End), Error> {
        program::check(&self.spec)?;
        let pool = self.pool.as_ref();
        if let Some(pool) = pool.filter(|_| self.spec.program == SessionProgram::Python)
            && let Some(started) = self.attempt(dir.clone(), Some(pool)).await?
        {
            return Ok(started);
        }
        // All ends are new: a failed fork may have taken over the terminal.
        let started = self.attempt(dir, None).await?;
        started.ok_or(Error::Closing)
    }

    /// Starts it from the pool, or without one. `None` if the pool failed, which keeps the reason:
    /// a cold start may work.
    async fn attempt(
        &self,
        dir: Option<PathBuf>,
        pool: Option<&Arc<WarmPool>>,
    ) -> Result<Option<(Running, End)>, Error> {
        let deadline = Instant::now() + self.spec.ready_within;
        let held = FdCount::default();
        let side = self.hub.side()?;
        let address = side.address.clone();
        let expected = self.hub.expect(&address)?;
        let ends = program::ends(&self.spec, &held)?;
        let plan = program::plan(&self.spec, dir, &ends, side.fd, &expected.nonce);
        let streams = ends.ours;
        // The other ends are only in the plan, which ends with the start.
        drop(ends.theirs);
        let tree = match pool {
            None => start_cold(plan).await?,
            Some(pool) => match pool.fork(&plan, &expected.nonce).await {
                Ok(tree) => tree,
                Err(_kept_by_the_pool) => return Ok(None),
            },
        };
        let keeper = Keeper::watch(tree, &self.place, &held)?;
        let mut running = Running {
            streams,
            keeper,
            descriptors: held.count(),
            held,
            address,
            inline: 0,
            is_dirty: false,
        };
        match self.ready(&mut running, expected, deadline).await {
            Ok(end) => {
                running.inline = program::inline_limit(&self.spec.program, end.status);
                Ok(Some((running, end)))
            }
            Err(error) => {
                end::end(running, end::AT_ONCE).await;
                Err(error)
            }
        }
    }

    /// Waits for the first message. Earlier output is shown only if the message never comes.
    async fn ready(
        &self,
        running: &mut Running,
        mut expected: Expected,
        deadline: Instant,
    ) -> Result<End, Error> {
        if let SessionProgram::Repl(repl) = &self.spec.program {
            let text = program::filled(repl, Path::new("/dev/null"), &expected.nonce);
            let written = running.streams.write(text.as_bytes());
            let written = timeout_at(deadline, written).await;
            written
                .unwrap_or(Ok(()))
                .map_err(Error::io("cannot write to the program"))?;
        }
        let mut said = Collector::new(SAID);
        let mut room = vec![0; ROOM];
        let ended = loop {
            let Running {
                streams, keeper, ..
            } = running;
            tokio::select! {
                end = &mut expected.end => break end.ok(),
                _told = keeper.told() => break None,
                (_, length) = streams.read(&mut room) => said.push(room.get(..length).unwrap_or_default()),
                () = tokio::time::sleep_until(deadline) => break None,
            }
        };
        if let Some(end) = ended {
            // Startup output belongs to no command.
            let mut backlog = running.streams.backlog();
            while running
                .streams
                .read_backlog(&mut backlog, &mut room)
                .is_some()
            {}
            return Ok(end);
        }
        let mut backlog = running.streams.backlog();
        while let Some((_, length)) = running.streams.read_backlog(&mut backlog, &mut room) {
            said.push(room.get(..length).unwrap_or_default());
        }
        let said = said.finish().text;
        match running.keeper.exit {
            Some(exit) => Err(Error::Ended {
                id: self.id.clone(),
                why: format!("{} before it was ready; its output: {said:?}", words(exit)),
            }),
            None => Err(Error::NotReady {
                after: self.spec.ready_within,
                said,
            }),
        }
    }

    /// Sends a command to the program, as text or in a file.
    pub(super) async fn send(
        &self,
        running: &Running,
        nonce: &str,
        code: &str,
        file: Option<&TextFile>,
    ) -> Result<(), Error> {
        let refused = |errno: rustix::io::Errno| Error::io("cannot send the command")(errno.into());
        let Some(file) = file else {
            let kind = if code.is_ascii() {
                Kind::Plain
            } else {
                Kind::Text
            };
            let head = message::head(nonce, kind, code.len());
            let datagrams = [head.as_bytes(), code.as_bytes()];
            let sent = self.hub.send(&running.address, &datagrams);
            return sent.map_err(refused);
        };
        if let SessionProgram::Repl(repl) = &self.spec.program {
            let text = program::filled(repl, file.path(), nonce);
            let written = running.streams.write(text.as_bytes()).await;
            written.map_err(Error::io("cannot send the command"))?;
        } else {
            let path = file.path().as_os_str().as_encoded_bytes();
            let head = message::head(nonce, Kind::File, path.len());
            self.hub
                .send(&running.address, &[head.as_bytes(), path])
                .map_err(refused)?;
        }
        Ok(())
    }

    /// Sends the interrupt to the foreground group, or to all processes if there is no terminal.
    pub(super) fn interrupt(&self, running: &Running, key: fdguard_process::pty::Key) {
        use fdguard_process::pty::{Key, press};
        if let Some(master) = running.streams.master() {
            // A terminal without a holder has no group to interrupt.
            let _nobody = press(master, key);
            return;
        }
        let signal = match key {
            Key::Interrupt => 2,
            Key::Quit => 3,
            Key::Suspend => 20,
        };
        // The drivers handle it; another interpreter would die of it.
        let except_main = matches!(self.spec.program, SessionProgram::Repl(_));
        running.keeper.signal_all(signal, except_main);
    }
}

/// Starts the program according to its plan.
async fn start_cold(plan: Plan) -> Result<Tree, Error> {
    let start = move || {
        let options = Options {
            orphan_grace: ORPHAN_GRACE,
            keep_pidfd: false,
            ..Options::default()
        };
        Tree::start_with(&plan, options)
    };
    let tree = tokio::task::spawn_blocking(start).await;
    Ok(tree.map_err(|_ending| Error::Closing)??)
}

impl Running {
    /// Whether a text fits the channel.
    pub(super) fn takes_inline(&self, code: &str) -> bool {
        code.len() <= self.inline && !code.is_empty()
    }

    /// Kills all but the program itself.
    pub(super) fn kill_others(&self) {
        self.keeper.signal_all(9, true);
    }

    /// Ends the whole tree.
    pub(super) fn stop(&self, how: StopPlan) {
        self.keeper.stop(how);
    }
}
