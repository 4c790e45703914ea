//! One run of a service with the injected library: when to look, what was reported, and its events.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use fdguard_core::hazard::{Hazard, Party};
use fdguard_supervise::event::LogEvent;
use fdguard_trace::UntracedProgram;

use super::prevention::{News, ReportedHazards};
use super::worker::{Counts, Reply, Worker, WorkerFindings, WorkerGone};
use crate::report::trace::name;

/// How often to check whether something was prevented; a check is nearly free.
const OFTEN: Duration = Duration::from_millis(500);
/// Tables are read at least this often: those of ended children take memory.
const SELDOM: Duration = Duration::from_secs(5);
/// The interval while a reply is awaited.
const SOON: Duration = Duration::from_millis(100);
/// The longest that the loop waits for a line.
const MOMENT: Duration = Duration::from_secs(1);

/// One run of a service.
#[derive(Debug)]
pub(super) struct ServiceWatch {
    pub(super) service: String,
    pub(super) worker: Worker,
    pub(super) told: ReportedHazards,
    /// Unprotected programs that were already reported.
    pub(super) unprotected: BTreeSet<String>,
    pub(super) counts: Counts,
    /// Received and not reported yet.
    pub(super) found: Vec<WorkerFindings>,
    /// There will be no more replies.
    pub(super) is_over: bool,
    pub(super) next: Instant,
    is_protected: bool,
    /// With a person watching, report everything at once.
    is_eager: bool,
    is_looking: bool,
    looked: Instant,
    /// How much was prevented at the last look.
    seen: u64,
    /// The process whose line was requested, and the reply.
    line: Option<(u32, Option<Option<String>>)>,
}

impl ServiceWatch {
    pub(super) fn new(service: &str, worker: Worker, is_protected: bool, is_eager: bool) -> Self {
        let now = Instant::now();
        Self {
            service: service.to_owned(),
            worker,
            told: ReportedHazards::default(),
            unprotected: BTreeSet::new(),
            counts: Counts::new(),
            found: Vec::new(),
            is_over: false,
            next: now + OFTEN,
            is_protected,
            is_eager,
            is_looking: false,
            looked: now,
            seen: 0,
            line: None,
        }
    }

    /// Takes replies until then, or until the last one.
    pub(super) fn hear(&mut self, until: Instant) {
        while !self.is_over {
            match self.worker.reply(until) {
                Ok(Some(reply)) => self.heard(reply),
                Ok(None) => return,
                Err(WorkerGone) => self.is_over = true,
            }
        }
    }

    fn heard(&mut self, reply: Reply) {
        match reply {
            Reply::Found(found) => {
                self.is_looking = false;
                self.is_over = found.is_last;
                self.found.push(found);
            }
            Reply::Line(pid, line) => {
                // Another process's line may have been requested since.
                if let Some((asked, answer)) = &mut self.line
                    && *asked == pid
                {
                    *answer = Some(line);
                }
            }
        }
    }

    /// The line of a process. The first request waits for it; a repeated one only checks for the
    /// reply.
    pub(super) fn line(&mut self, pid: u32) -> Option<String> {
        let mut until = Instant::now();
        if self.line.as_ref().is_none_or(|(asked, _)| *asked != pid) {
            self.line = Some((pid, None));
            self.worker.ask_line(pid);
            until += MOMENT;
        }
        let is_open = |watched: &Self| matches!(watched.line, Some((_, None)));
        while is_open(self) && !self.is_over {
            match self.worker.reply(until) {
                Ok(Some(reply)) => self.heard(reply),
                Ok(None) => return None,
                Err(WorkerGone) => self.is_over = true,
            }
        }
        // The next request starts a new look.
        self.line.take().and_then(|(_, line)| line.flatten())
    }

    /// Requests a look if there is a reason, and sets the time of the next poll.
    pub(super) fn go_on(&mut self, now: Instant) {
        let prevented = self.worker.prevented();
        let every = if self.is_eager { OFTEN } else { SELDOM };
        let is_due = now.saturating_duration_since(self.looked) >= every;
        if !self.is_looking && (is_due || prevented != self.seen) {
            (self.looked, self.seen, self.is_looking) = (now, prevented, true);
            self.worker.wake();
        }
        self.next = now
            + match self.is_looking {
                true => SOON,
                false if self.is_protected => OFTEN,
                false => SELDOM,
            };
    }
}

/// `event=prevented`.
pub(super) fn prevented_event(service: &str, news: &News<'_>) -> LogEvent {
    let hazard = news.hazard;
    // Misuse that came too late for protection is an event, too.
    let name = if hazard.prevented {
        "prevented"
    } else {
        "misuse"
    };
    LogEvent::for_service(name, service)
        .with("rule", hazard.rule.as_str())
        .with("fd", hazard.fd)
        .with("pid", hazard.pid)
        .with("count", news.count)
        .with("text", told(hazard))
}

/// A child without the library.
pub(super) fn unprotected_event(service: &str, pid: u32, became: &UntracedProgram) -> LogEvent {
    let text = format!("running without protection: {}", became.blind.why());
    LogEvent::for_service("unprotected", service)
        .with("pid", pid)
        .with("program", became.comm.as_str())
        .with("text", text)
}

/// What happened and where, in one line.
fn told(hazard: &Hazard) -> String {
    let place = |what: &str, party: &Option<Party>| {
        let culprit = party.as_ref()?.culprit.as_ref()?;
        Some(format!("{what} {}", name::culprit(culprit)))
    };
    let places = [
        place("opened by", &hazard.opener),
        place("closed by", &hazard.closer),
        place("used by", &hazard.user),
    ];
    let places: Vec<String> = places.into_iter().flatten().collect();
    if places.is_empty() {
        return hazard.message.clone();
    }
    format!("{} ({})", hazard.message, places.join(", "))
}
