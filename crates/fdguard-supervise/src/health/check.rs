//! A running series of probes.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use fdguard_core::units;
use rustix::pipe::PipeFlags;

use super::accept::{AcceptProgress, Listener};
use super::command::{self, Command, CommandContext};
use super::dial::{Dial, Step};
use super::get::{Get, PreparedRequest};
use super::queue;
use super::series::{CheckSeries, HealthChange, HealthState, Timing};
use super::spec::{BodyPattern, CheckSpec, Kind};
use crate::child::Bounded;
use crate::poll::{Interest, Readiness};

/// State of the service that a check needs.
#[derive(Clone, Copy, Debug, Default)]
pub struct CheckInputs<'a> {
    /// The service has sent `READY=1` since its start.
    pub notified: bool,
    /// Its listening sockets.
    pub listeners: &'a [Listener],
}

/// The end of a pipe to which the service must write a newline.
#[derive(Debug)]
pub struct HeartbeatPipe {
    /// The number at which it expects it.
    pub number: u32,
    /// The program's end. Close fdguard's copy after the start, otherwise the end of file is never
    /// seen.
    pub fd: OwnedFd,
}

/// A check of one service. It does nothing before [`start`](Self::start) and after
/// [`end`](Self::end).
#[derive(Debug)]
pub struct HealthCheck {
    probe: Probe,
    timing: Timing,
    series: Option<CheckSeries>,
    flight: Option<Flight>,
    blind: Option<String>,
}

/// What is probed, with everything that could be resolved before the loop.
#[derive(Debug)]
enum Probe {
    Tcp(Arc<[SocketAddr]>),
    Http(Arc<PreparedRequest>),
    Exec(Command),
    Accept(AcceptProgress),
    Once(Once),
}

/// Conditions that happen once after a start.
#[derive(Debug)]
enum Once {
    Notify,
    Newline {
        number: u32,
        pipe: Option<OwnedFd>,
    },
    Line {
        pattern: BodyPattern,
        seen: bool,
    },
    Up {
        time: Duration,
        from: Option<Instant>,
    },
}

/// A probe in flight.
#[derive(Debug)]
struct Flight {
    way: Way,
    deadline: Instant,
    within: Duration,
    /// Its result was reported; processes that it started may still exist.
    is_over: bool,
}

#[derive(Debug)]
enum Way {
    Tcp(Dial),
    Http(Get),
    Exec(Box<Bounded>),
}

impl HealthCheck {
    /// Prepares it. Names are resolved here, once (see
    /// [`Endpoint::addresses`](super::Endpoint::addresses)): this may wait for a name server.
    pub fn new(spec: &CheckSpec, scene: &Arc<CommandContext>) -> Result<Self, String> {
        let probe = match &spec.kind {
            Kind::Tcp(target) => Probe::Tcp(target.addresses()?.into()),
            Kind::Http(page) => Probe::Http(Arc::new(PreparedRequest::new(page)?)),
            Kind::Exec(line) => Probe::Exec(Command::new(line, scene)?),
            Kind::Accept => Probe::Accept(AcceptProgress::default()),
            Kind::Notify => Probe::Once(Once::Notify),
            Kind::Newline(number) => Probe::Once(Once::Newline {
                number: *number,
                pipe: None,
            }),
            Kind::Line(pattern) => Probe::Once(Once::Line {
                pattern: pattern.clone(),
                seen: false,
            }),
            Kind::Up(time) => Probe::Once(Once::Up {
                time: *time,
                from: None,
            }),
        };
        Ok(Self {
            probe,
            timing: spec.timing,
            series: None,
            flight: None,
            blind: None,
        })
    }

    /// The service is about to start: resets everything. Returns the pipe to pass to it, if any.
    pub fn start(&mut self, now: Instant) -> io::Result<Option<HeartbeatPipe>> {
        self.flight = None;
        self.series = Some(CheckSeries::start(self.timing, now));
        match &mut self.probe {
            Probe::Accept(progress) => *progress = AcceptProgress::default(),
            Probe::Once(Once::Line { seen, .. }) => *seen = false,
            Probe::Once(Once::Up { from, .. }) => *from = Some(now),
            Probe::Once(Once::Newline { number, pipe }) => {
                *pipe = None;
                let (ours, theirs) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
                rustix::io::ioctl_fionbio(&ours, true)?;
                *pipe = Some(ours);
                return Ok(Some(HeartbeatPipe {
                    number: *number,
                    fd: theirs,
                }));
            }
            _ => {}
        }
        Ok(None)
    }

    /// The service has stopped or is stopping: no more probes are made, and a probe in flight is
    /// dropped.
    pub fn end(&mut self) {
        self.flight = None;
        self.series = None;
        if let Probe::Once(Once::Newline { pipe, .. }) = &mut self.probe {
            *pipe = None;
        }
    }

    /// The state since the start.
    #[must_use]
    pub fn state(&self) -> HealthState {
        self.series
            .as_ref()
            .map_or(HealthState::Unknown, CheckSeries::state)
    }

    /// Why the last probe could not run, if it could not: fdguard lacks a resource. It counts
    /// neither as a success nor as a failure.
    #[must_use]
    pub fn blind(&self) -> Option<&str> {
        self.blind.as_deref()
    }

    /// Takes a line of the service's output.
    pub fn hear(&mut self, line: &[u8]) {
        if let Probe::Once(Once::Line { pattern, seen }) = &mut self.probe
            && self.series.is_some()
            && !*seen
        {
            *seen = pattern.0.is_match(line);
        }
    }

    /// Registers its descriptors and deadline.
    pub fn wants<'f>(&'f self, wants: &mut Interest<'f>) {
        let Some(series) = &self.series else { return };
        if let Probe::Once(once) = &self.probe {
            return if series.state() == HealthState::Unknown {
                once.wants(wants)
            };
        }
        match &self.flight {
            None => wants.until(series.due()),
            Some(flight) => flight.wants(wants),
        }
    }

    /// Continues without blocking; returns a change of state.
    pub fn poll(
        &mut self,
        now: Instant,
        ready: &Readiness,
        feeds: &CheckInputs<'_>,
    ) -> Option<HealthChange> {
        let series = self.series.as_mut()?;
        if let Probe::Once(once) = &mut self.probe {
            let is_new = series.state() == HealthState::Unknown && once.poll(now, ready, feeds);
            return if is_new { series.reached() } else { None };
        }
        if self.flight.is_none() {
            if now < series.due() {
                return None;
            }
            let deadline = series.probing(now);
            match self.probe.start(feeds, now, deadline) {
                Step::Waiting => return None,
                Step::Done(None) => {
                    self.blind = None;
                    return series.heard(now, Ok(()));
                }
                Step::Done(Some(flight)) => self.flight = Some(flight),
                Step::Failed(why) => {
                    self.blind = None;
                    return series.heard(now, Err(why));
                }
                Step::Blind(why) => return self.could_not_look(now, why),
            }
        }
        self.fly(now, ready)
    }

    fn fly(&mut self, now: Instant, ready: &Readiness) -> Option<HealthChange> {
        let flight = self.flight.as_mut()?;
        let step = flight.poll(now, ready);
        if flight.is_gone() {
            self.flight = None;
        }
        let answer = match step {
            Step::Waiting => return None,
            Step::Done(()) => Ok(()),
            Step::Failed(why) => Err(why),
            Step::Blind(why) => return self.could_not_look(now, why),
        };
        self.blind = None;
        self.series.as_mut()?.heard(now, answer)
    }

    fn could_not_look(&mut self, now: Instant, why: String) -> Option<HealthChange> {
        self.flight = None;
        self.blind = Some(why);
        self.series.as_mut()?.passed_over(now);
        None
    }
}

impl Probe {
    /// Starts a probe; one that needs no connection returns its result at once.
    fn start(
        &mut self,
        feeds: &CheckInputs<'_>,
        now: Instant,
        deadline: Instant,
    ) -> Step<Option<Flight>> {
        let within = deadline.saturating_duration_since(now);
        let way = match self {
            Self::Tcp(addresses) => Way::Tcp(Dial::new(Arc::clone(addresses))),
            Self::Http(asked) => Way::Http(Get::new(asked)),
            Self::Exec(command) => match command.start(now, within) {
                Ok(running) => Way::Exec(Box::new(running)),
                Err(why) => return Step::Blind(why.to_string()),
            },
            Self::Accept(_) if feeds.listeners.is_empty() => {
                return Step::Blind("the service has no known listening socket".to_owned());
            }
            Self::Accept(progress) => {
                let seen = queue::read_queues(feeds.listeners);
                return match seen.map(|seen| progress.seen(seen)) {
                    Ok(Ok(())) => Step::Done(None),
                    Ok(Err(why)) => Step::Failed(why),
                    Err(why) => Step::Blind(why.to_string()),
                };
            }
            Self::Once(_) => return Step::Waiting,
        };
        Step::Done(Some(Flight {
            way,
            deadline,
            within,
            is_over: false,
        }))
    }
}

impl Flight {
    fn wants<'f>(&'f self, wants: &mut Interest<'f>) {
        match &self.way {
            Way::Tcp(dial) => dial.wants(wants),
            Way::Http(get) => get.wants(wants),
            // It has its own deadline.
            Way::Exec(running) => return running.wants(wants),
        }
        wants.until(self.deadline);
    }

    /// Returns its result, once.
    fn poll(&mut self, now: Instant, ready: &Readiness) -> Step<()> {
        let (step, doing) = match &mut self.way {
            Way::Tcp(dial) => {
                let step = dial.poll(ready).and_then(|_connection| Step::Done(()));
                (step, dial.doing())
            }
            Way::Http(get) => (get.poll(ready), get.doing()),
            Way::Exec(running) => (command::poll(running, now, ready), ""),
        };
        let is_late = now >= self.deadline && !matches!(self.way, Way::Exec(_));
        let step = match step {
            Step::Waiting if is_late => Step::Failed(format!(
                "{doing} within {}",
                units::exact_duration(self.within)
            )),
            step => step,
        };
        self.is_over |= !matches!(step, Step::Waiting);
        step
    }

    /// A probe with child processes is kept until they are gone: dropping it would block, and no
    /// second one may start meanwhile.
    fn is_gone(&self) -> bool {
        let is_empty = match &self.way {
            Way::Exec(running) => running.is_gone(),
            Way::Tcp(_) | Way::Http(_) => true,
        };
        self.is_over && is_empty
    }
}

impl Once {
    fn wants<'f>(&'f self, wants: &mut Interest<'f>) {
        match self {
            Self::Newline {
                pipe: Some(pipe), ..
            } => wants.read(pipe.as_fd()),
            Self::Up {
                time,
                from: Some(from),
            } => wants.until(*from + *time),
            _ => {}
        }
    }

    /// Whether it has happened.
    fn poll(&mut self, now: Instant, ready: &Readiness, feeds: &CheckInputs<'_>) -> bool {
        match self {
            Self::Notify => feeds.notified,
            Self::Line { seen, .. } => *seen,
            Self::Up { time, from } => from.is_some_and(|from| now >= from + *time),
            Self::Newline { pipe, .. } => newline(pipe, ready),
        }
    }
}

/// Reads the pipe: `true` after a newline. Anything before it is ignored, as s6 does. The pipe is
/// closed after it, and when the service closed it without one.
fn newline(pipe: &mut Option<OwnedFd>, ready: &Readiness) -> bool {
    let Some(open) = pipe.as_ref().filter(|pipe| ready.has(pipe)) else {
        return false;
    };
    let mut buffer = [0; 256];
    match rustix::io::read(open, &mut buffer) {
        Ok(0) => *pipe = None,
        Ok(count) if buffer[..count].contains(&b'\n') => {
            *pipe = None;
            return true;
        }
        _ => {}
    }
    false
}
