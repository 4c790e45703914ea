//! A running series of probes.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::pipe::PipeFlags;

use super::accept::{Listener, Progress};
use super::command::{Running, Scene};
use super::dial::{Dial, Step};
use super::get::{Asked, Get};
use super::queue;
use super::series::{Change, Series, State, Timing};
use super::spec::{Kind, Pattern, Spec};
use crate::turn::{Ready, Wants};
use crate::unit;

/// What others know of the service and a check needs.
#[derive(Clone, Copy, Debug, Default)]
pub struct Feeds<'a> {
    /// It said `READY=1` since it was started.
    pub notified: bool,
    /// Its listening sockets.
    pub listeners: &'a [Listener],
}

/// The end of a pipe that the service is to write a newline to.
#[derive(Debug)]
pub struct Pipe {
    /// The number under which it expects it.
    pub number: u32,
    /// What it gets. Ours is to be closed after the start, else its end is never seen.
    pub fd: OwnedFd,
}

/// A check of one service. It does nothing before [`begin`](Self::begin) and after [`end`](Self::end).
#[derive(Debug)]
pub struct Check {
    probe: Probe,
    scene: Arc<Scene>,
    timing: Timing,
    series: Option<Series>,
    flight: Option<Flight>,
    blind: Option<String>,
}

/// What is looked at, with all that could be found out before the loop.
#[derive(Debug)]
enum Probe {
    Tcp(Arc<[SocketAddr]>),
    Http(Arc<Asked>),
    Exec(String),
    Accept(Progress),
    Once(Once),
}

/// What happens once after a start.
#[derive(Debug)]
enum Once {
    Notify,
    Newline {
        number: u32,
        pipe: Option<OwnedFd>,
    },
    Line {
        pattern: Pattern,
        seen: bool,
    },
    Up {
        time: Duration,
        from: Option<Instant>,
    },
}

/// A probe on its way.
#[derive(Debug)]
struct Flight {
    way: Way,
    deadline: Instant,
    /// Its answer was given already; only what it started is still there.
    is_over: bool,
}

#[derive(Debug)]
enum Way {
    Tcp(Dial),
    Http(Get),
    Exec(Box<Running>),
}

impl Check {
    /// Prepares it. Names are resolved here, once (see [`Target::addresses`](super::Target::addresses)): this may wait for a name server.
    pub fn new(spec: &Spec, scene: &Arc<Scene>) -> Result<Self, String> {
        let probe = match &spec.kind {
            Kind::Tcp(target) => Probe::Tcp(target.addresses()?.into()),
            Kind::Http(page) => Probe::Http(Arc::new(Asked::new(page)?)),
            Kind::Exec(command) => Probe::Exec(command.clone()),
            Kind::Accept => Probe::Accept(Progress::default()),
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
            scene: Arc::clone(scene),
            timing: spec.timing,
            series: None,
            flight: None,
            blind: None,
        })
    }

    /// The service is about to be started: all that was known is forgotten. Gives the pipe that it must get, if any.
    pub fn begin(&mut self, now: Instant) -> io::Result<Option<Pipe>> {
        self.flight = None;
        self.series = Some(Series::begin(self.timing, now));
        match &mut self.probe {
            Probe::Accept(progress) => *progress = Progress::default(),
            Probe::Once(Once::Line { seen, .. }) => *seen = false,
            Probe::Once(Once::Up { from, .. }) => *from = Some(now),
            Probe::Once(Once::Newline { number, pipe }) => {
                *pipe = None;
                let (ours, theirs) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
                rustix::io::ioctl_fionbio(&ours, true)?;
                *pipe = Some(ours);
                return Ok(Some(Pipe {
                    number: *number,
                    fd: theirs,
                }));
            }
            _ => {}
        }
        Ok(None)
    }

    /// The service is gone or going: nothing is asked any more, and a probe on its way is dropped.
    pub fn end(&mut self) {
        self.flight = None;
        self.series = None;
        if let Probe::Once(Once::Newline { pipe, .. }) = &mut self.probe {
            *pipe = None;
        }
    }

    /// What is known since the start.
    #[must_use]
    pub fn state(&self) -> State {
        self.series.as_ref().map_or(State::Unknown, Series::state)
    }

    /// Why the last probe could not look at all, when it could not: something is missing on our side. It counts neither as a
    /// success nor as a failure.
    #[must_use]
    pub fn blind(&self) -> Option<&str> {
        self.blind.as_deref()
    }

    /// A line of the service's output.
    pub fn hear(&mut self, line: &[u8]) {
        if let Probe::Once(Once::Line { pattern, seen }) = &mut self.probe
            && self.series.is_some()
            && !*seen
        {
            *seen = pattern.0.is_match(line);
        }
    }

    /// What it waits for.
    pub fn wants<'f>(&'f self, wants: &mut Wants<'f>) {
        let Some(series) = &self.series else { return };
        if let Probe::Once(once) = &self.probe {
            return if series.state() == State::Unknown {
                once.wants(wants)
            };
        }
        match &self.flight {
            None => wants.until(series.due()),
            Some(flight) => flight.wants(wants),
        }
    }

    /// Goes on, without waiting; tells when what is known changed.
    pub fn turn(&mut self, now: Instant, ready: &Ready, feeds: &Feeds<'_>) -> Option<Change> {
        let series = self.series.as_mut()?;
        if let Probe::Once(once) = &mut self.probe {
            let is_new = series.state() == State::Unknown && once.turn(now, ready, feeds);
            return if is_new { series.reached() } else { None };
        }
        if self.flight.is_none() {
            if now < series.due() {
                return None;
            }
            let deadline = series.probing(now);
            match self.probe.start(&self.scene, feeds, deadline) {
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

    fn fly(&mut self, now: Instant, ready: &Ready) -> Option<Change> {
        let flight = self.flight.as_mut()?;
        let was_over = flight.is_over;
        let answer = match flight.way.turn(ready) {
            Step::Waiting if now < flight.deadline || was_over => return None,
            Step::Waiting => Err(self.give_up()),
            Step::Done(()) => {
                self.flight = None;
                Ok(())
            }
            Step::Failed(why) => {
                self.flight = None;
                Err(why)
            }
            Step::Blind(why) => return self.could_not_look(now, why),
        };
        self.blind = None;
        if was_over {
            return None;
        }
        self.series.as_mut()?.heard(now, answer)
    }

    fn could_not_look(&mut self, now: Instant, why: String) -> Option<Change> {
        self.flight = None;
        self.blind = Some(why);
        self.series.as_mut()?.passed_over(now);
        None
    }

    /// The deadline has come. What has children of its own stays until they are gone; the rest is gone when it is dropped.
    fn give_up(&mut self) -> String {
        let time = unit::shown(self.timing.timeout);
        let Some(flight) = &mut self.flight else {
            return String::new();
        };
        let doing = match &mut flight.way {
            Way::Tcp(dial) => dial.doing().to_owned(),
            Way::Http(get) => get.doing().to_owned(),
            Way::Exec(running) => {
                running.end();
                flight.is_over = true;
                let said = running.said();
                return match said {
                    Some(said) => format!("did not end within {time}: {said}"),
                    None => format!("did not end within {time}"),
                };
            }
        };
        self.flight = None;
        format!("{doing} within {time}")
    }
}

impl Probe {
    /// Begins a probe; one that needs no way gives its answer at once.
    fn start(
        &mut self,
        scene: &Scene,
        feeds: &Feeds<'_>,
        deadline: Instant,
    ) -> Step<Option<Flight>> {
        let way = match self {
            Self::Tcp(addresses) => Way::Tcp(Dial::new(Arc::clone(addresses))),
            Self::Http(asked) => Way::Http(Get::new(asked)),
            Self::Exec(command) => match Running::start(command, scene) {
                Ok(running) => Way::Exec(Box::new(running)),
                Err(why) => return Step::Blind(why),
            },
            Self::Accept(_) if feeds.listeners.is_empty() => {
                return Step::Blind("no listening socket of the service is known".to_owned());
            }
            Self::Accept(progress) => {
                let seen = queue::look(feeds.listeners);
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
            is_over: false,
        }))
    }
}

impl Flight {
    fn wants<'f>(&'f self, wants: &mut Wants<'f>) {
        if !self.is_over {
            wants.until(self.deadline);
        }
        match &self.way {
            Way::Tcp(dial) => dial.wants(wants),
            Way::Http(get) => get.wants(wants),
            Way::Exec(running) => running.wants(wants),
        }
    }
}

impl Way {
    fn turn(&mut self, ready: &Ready) -> Step<()> {
        match self {
            Self::Tcp(dial) => dial.turn(ready).and_then(|_connection| Step::Done(())),
            Self::Http(get) => get.turn(ready),
            Self::Exec(running) => running.turn(ready),
        }
    }
}

impl Once {
    fn wants<'f>(&'f self, wants: &mut Wants<'f>) {
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
    fn turn(&mut self, now: Instant, ready: &Ready, feeds: &Feeds<'_>) -> bool {
        match self {
            Self::Notify => feeds.notified,
            Self::Line { seen, .. } => *seen,
            Self::Up { time, from } => from.is_some_and(|from| now >= from + *time),
            Self::Newline { pipe, .. } => newline(pipe, ready),
        }
    }
}

/// Reads the pipe: `true` after a newline. Whatever stands before it is passed over, as s6 does. The pipe is closed after it, and
/// when the service closed it without one.
fn newline(pipe: &mut Option<OwnedFd>, ready: &Ready) -> bool {
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
