//! Notifications to fdguard's own parent: ready, status, watchdog, stopping, and requests for more
//! time.

use std::time::{Duration, Instant};

use fdguard_proc::clock::monotonic;
use fdguard_process::notify::{Heartbeat, NotifyClient, NotifyMessage};

use super::Supervisor;
use crate::event::{EventSink, LogEvent};
use crate::lifecycle::State;
use crate::poll::Interest;

/// While a step takes long, the parent is asked for this much more time,
const MORE: Duration = Duration::from_secs(20);
/// this often.
const ASK: Duration = Duration::from_secs(5);

/// The connection to the parent.
#[derive(Debug, Default)]
pub(super) struct ParentNotify {
    client: Option<NotifyClient>,
    heartbeat: Option<Heartbeat>,
    first_gap: Option<String>,
    is_ready: bool,
    status: String,
    /// When more time is requested again.
    ask: Option<Instant>,
}

impl ParentNotify {
    /// Reads the environment. With `--once` the parent gets no notifications.
    pub(super) fn new(once: bool, now: Instant) -> Self {
        if once {
            return Self::default();
        }
        let mut above = Self::default();
        match NotifyClient::from_environment() {
            Ok(client) => above.client = client,
            Err(gap) => above.first_gap = Some(format!("{}: {}", gap.what, gap.why)),
        }
        match Heartbeat::from_environment(now) {
            Ok(heartbeat) => above.heartbeat = heartbeat,
            Err(gap) => above.first_gap = Some(format!("{}: {}", gap.what, gap.why)),
        }
        above
    }

    /// What was wrong with the environment.
    pub(super) fn first_gap(&mut self) -> Option<String> {
        self.first_gap.take()
    }

    pub(super) fn wants(&self, wants: &mut Interest<'_>) {
        let Some(client) = &self.client else { return };
        let due = [
            client.due(),
            self.ask,
            self.heartbeat.map(|beat| beat.due()),
        ];
        due.into_iter().flatten().for_each(|at| wants.until(at));
    }

    fn tell(&mut self, message: &NotifyMessage, sink: &mut EventSink) {
        let Some(client) = &mut self.client else {
            return;
        };
        if let Some(gap) = client.tell(message, Instant::now()) {
            let text = format!("{}: {}", gap.what, gap.why);
            sink.emit(&LogEvent::new("notify_failed").with("text", text));
        }
    }

    pub(super) fn stopping(&mut self, sink: &mut EventSink) {
        let message = NotifyMessage {
            stopping: true,
            status: Some("stopping".to_owned()),
            ..NotifyMessage::default()
        };
        self.tell(&message, sink);
        self.ask = Some(Instant::now());
    }

    pub(super) fn reloading(&mut self, sink: &mut EventSink) {
        let message = NotifyMessage {
            reloading: true,
            monotonic: Some(monotonic()),
            ..NotifyMessage::default()
        };
        self.tell(&message, sink);
        self.is_ready = false;
    }
}

impl Supervisor<'_> {
    /// Sends pending notifications to the parent.
    pub(super) fn above_turn(&mut self) {
        if self.above.client.is_none() {
            return;
        }
        let now = Instant::now();
        if let Some(gap) = self
            .above
            .client
            .as_mut()
            .and_then(|client| client.poll(now))
        {
            let text = format!("{}: {}", gap.what, gap.why);
            self.sink
                .emit(&LogEvent::new("notify_failed").with("text", text));
        }
        if self.stopping.is_none() {
            self.tell_standing();
        }
        self.ask_for_time(now);
        let is_due = self.above.heartbeat.is_some_and(|beat| beat.due() <= now);
        if is_due && let Some(beat) = &mut self.above.heartbeat {
            beat.beat(now);
            // A parent that receives no watchdog message restarts fdguard, so send one only while
            // all services are healthy.
            if self.services.iter().all(|one| one.lifecycle().holds()) {
                self.above.tell(&Heartbeat::message(), &mut self.sink);
            }
        }
    }

    fn tell_standing(&mut self) {
        let is_up = |state: State| matches!(state, State::Ready | State::Draining | State::Stopped);
        let up = self
            .services
            .iter()
            .filter(|one| is_up(one.lifecycle().state()))
            .count();
        let status = match &self.services[..] {
            [one] => format!(
                "{}: {}{}",
                one.name(),
                one.lifecycle().state().name(),
                said(one.status())
            ),
            several => {
                let down = several.iter().filter(|one| !is_up(one.lifecycle().state()));
                let down: Vec<String> = down
                    .map(|one| format!(", {}: {}", one.name(), one.lifecycle().state().name()))
                    .collect();
                format!("{up} of {} ready{}", several.len(), down.concat())
            }
        };
        let is_ready = up == self.services.len() && !self.above.is_ready;
        if !is_ready && status == self.above.status {
            return;
        }
        let message = NotifyMessage {
            ready: is_ready,
            status: Some(status.clone()),
            ..NotifyMessage::default()
        };
        self.above.tell(&message, &mut self.sink);
        self.above.is_ready |= is_ready;
        self.above.status = status;
    }

    /// Asks the parent for more time while a step with its own deadline runs.
    fn ask_for_time(&mut self, now: Instant) {
        let takes_time = |state: State| {
            matches!(
                state,
                State::Starting | State::Draining | State::Stopping | State::BackingOff
            )
        };
        let is_busy = self
            .services
            .iter()
            .any(|one| takes_time(one.lifecycle().state()));
        let is_wanted = is_busy && (self.stopping.is_some() || !self.above.is_ready);
        if !is_wanted {
            self.above.ask = None;
            return;
        }
        if self.above.ask.is_none_or(|at| at <= now) {
            let message = NotifyMessage {
                extend_timeout: Some(MORE),
                ..NotifyMessage::default()
            };
            self.above.tell(&message, &mut self.sink);
            self.above.ask = Some(now + ASK);
        }
    }
}

fn said(status: Option<&str>) -> String {
    status.map_or_else(String::new, |status| format!(" ({status})"))
}
