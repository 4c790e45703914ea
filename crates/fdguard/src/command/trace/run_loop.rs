//! Samples the running program until it ends, its time is up, or the user stops fdguard.

use std::io::Write as _;
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fdguard_core::diagnosis::WatchEnd;
use fdguard_core::recording::RecordingEntry;
use fdguard_core::rule::RuleSettings;
use fdguard_core::units::exact_seconds;
use fdguard_core::watch::Watch;
use fdguard_diagnose::Error;
use fdguard_diagnose::trace::{FdNames, LaunchedTrace};
use fdguard_diagnose::watching::{LiveWatch, OnSignal, WatchPlan, WatchProgress};
use fdguard_probe::Probe;
use fdguard_process::signals::Signals;
use fdguard_trace::{
    AttachedTrace, HeapWatch, ProcessWhy, StateParts, TraceSession, TraceState, TracedCommand,
    monotonic,
};
use jiff::Timestamp;
use rustix::process::Signal;

use super::signals::{Request, SignalRequests, WaitOutcome};

/// How long a program may take to end on Ctrl-C. After that the watch resumes: the program handles
/// Ctrl-C without ending.
const GRACE: Duration = Duration::from_secs(2);
/// How long the program has after the Ctrl-C that makes fdguard leave.
const PARTING: Duration = Duration::from_millis(500);
/// How long to wait before another look at a program that is just starting.
const BECOMING: Duration = Duration::from_millis(5);
/// How often to see whether a program waits to be asked who holds its descriptors.
const SERVE_EVERY: Duration = Duration::from_millis(20);
/// If the program has not ended after this long, print that fdguard is waiting.
const SLOW: Duration = Duration::from_secs(10);

/// What was seen while the program ran.
pub(in crate::command) struct WatchOutcome<'p> {
    /// When the program was started.
    pub(in crate::command) began: Timestamp,
    pub(in crate::command) live: Option<LiveWatch<'p>>,
    /// The descriptors' names at the looks.
    pub(in crate::command) names: FdNames,
    /// Whether fdguard ended the program.
    pub(in crate::command) was_ended: bool,
    /// How it ended; `None` if fdguard left before.
    pub(in crate::command) status: Option<ExitStatus>,
    /// Which objects hold the descriptors, if that is asked.
    pub(in crate::command) why: Option<HeapWatch>,
}

impl<'p> WatchOutcome<'p> {
    pub(super) fn begin() -> Self {
        Self {
            began: Timestamp::now(),
            live: None,
            names: FdNames::default(),
            was_ended: false,
            status: None,
            why: None,
        }
    }

    /// Which objects hold the descriptors.
    pub(in crate::command) fn whys(&self) -> Vec<ProcessWhy> {
        self.why
            .as_ref()
            .map(HeapWatch::answers)
            .unwrap_or_default()
    }

    /// Lets the observer see a running program; returns the user's request to end.
    fn observe(
        &mut self,
        live: LiveWatch<'p>,
        program: TracedPrograms<'_>,
        observer: &mut dyn TraceObserver,
    ) -> anyhow::Result<Option<Request>> {
        let mut running = RunningTrace {
            live,
            program,
            names: FdNames::default(),
            request: None,
            why: self.why.take(),
        };
        observer.observe(&mut running)?;
        self.why = running.why;
        self.names = running.names;
        self.live = Some(running.live);
        Ok(running.request)
    }

    /// The watch itself; `None` if the program ended before the first look.
    pub(in crate::command) fn watch(&self) -> Option<&Watch> {
        self.live.as_ref().map(LiveWatch::watch)
    }
}

/// How a program is watched.
#[derive(Clone, Copy, Debug)]
pub(in crate::command) struct WatchPace {
    /// The interval between looks.
    pub(in crate::command) every: Duration,
    /// The total length.
    pub(in crate::command) length: Option<Duration>,
    /// Whether the objects that hold descriptors are asked for.
    pub(in crate::command) is_why: bool,
}

/// A program under watch.
pub(super) struct RunningTrace<'a, 'p> {
    live: LiveWatch<'p>,
    program: TracedPrograms<'a>,
    names: FdNames,
    /// A request to end.
    request: Option<Request>,
    why: Option<HeapWatch>,
}

/// What is traced.
pub(super) enum TracedPrograms<'a> {
    /// A program that fdguard started, which shares the terminal's signals.
    Launched(&'a mut TracedCommand, &'a mut SignalRequests),
    /// Programs that were already running: a signal to fdguard ends the trace.
    Attached(&'a mut AttachedTrace),
}

impl TracedPrograms<'_> {
    fn session(&mut self) -> &mut TraceSession {
        match self {
            Self::Launched(traced, _) => &mut traced.session,
            Self::Attached(attached) => &mut attached.session,
        }
    }

    /// Whether the watch saw their end.
    fn are_gone(&self, watch: &Watch) -> bool {
        let is_gone = |pid: u32| {
            let mut subjects = watch.subjects();
            subjects.any(|one| one.process.pid == pid && one.gone.is_some())
        };
        match self {
            Self::Launched(traced, _) => is_gone(traced.pid()),
            Self::Attached(attached) => attached.pids().iter().all(|pid| is_gone(*pid)),
        }
    }
}

/// Receives what happens in a run.
pub(super) trait TraceObserver {
    /// Lets the program run until its watch is over.
    fn observe(&mut self, running: &mut RunningTrace<'_, '_>) -> anyhow::Result<()>;
}

impl<T: TraceObserver> TraceObserver for &mut T {
    fn observe(&mut self, running: &mut RunningTrace<'_, '_>) -> anyhow::Result<()> {
        (**self).observe(running)
    }
}

/// Watches the program until its end, or until a request to leave.
pub(super) fn watch<'p>(
    WatchPace {
        every,
        length,
        is_why,
    }: WatchPace,
    probe: &'p Probe,
    traced: &mut TracedCommand,
    requests: &mut SignalRequests,
    observer: &mut dyn TraceObserver,
) -> anyhow::Result<WatchOutcome<'p>> {
    let plan = WatchPlan {
        pids: vec![traced.pid()],
        name: None,
        groups: Vec::new(),
        tree: true,
        every,
        jitter: Duration::ZERO,
        length,
        on_signal: OnSignal::Tell(requests.signals()),
    };
    let mut watched = WatchOutcome::begin();
    watched.why = is_why.then(HeapWatch::default);
    let mut request = None;
    // `None` if it ended before the first look: its tables are all there is.
    if let Some(live) = start_watch(probe, &plan, traced)? {
        let program = TracedPrograms::Launched(&mut *traced, &mut *requests);
        request = watched.observe(live, program, observer)?;
    }
    let ended = watched.live.as_ref().and_then(|live| live.watch().ended());
    watched.was_ended = ended == Some(WatchEnd::TimeUp);
    let is_asked = watched.was_ended || request == Some(Request::End);
    if let Some(why) = &mut watched.why {
        traced.session.poll()?;
        why.finish(&mut traced.session);
    }
    if is_asked {
        traced.session.end_begins();
        traced.signal(Signal::TERM)?;
    }
    watched.status = match request {
        Some(Request::Leave) => part(traced, requests)?,
        _ => wait(traced, requests, is_asked)?,
    };
    requests.obey();
    Ok(watched)
}

/// Watches programs that fdguard attached to until they end, the time is up, or the user stops it.
pub(super) fn watch_attached<'p>(
    WatchPace {
        every,
        length,
        is_why,
    }: WatchPace,
    probe: &'p Probe,
    (attached, signals): (&mut AttachedTrace, Arc<Signals>),
    observer: &mut dyn TraceObserver,
) -> anyhow::Result<WatchOutcome<'p>> {
    let plan = WatchPlan {
        pids: attached.pids().to_vec(),
        name: None,
        groups: Vec::new(),
        tree: true,
        every,
        jitter: Duration::ZERO,
        length,
        on_signal: OnSignal::Tell(signals),
    };
    let mut watched = WatchOutcome::begin();
    watched.why = is_why.then(HeapWatch::default);
    let living = |plan: WatchPlan| match LiveWatch::start(probe, plan.clone()) {
        // One of several may have ended meanwhile.
        Err(Error::Probe(_)) if plan.pids.len() > 1 => {
            let pids = plan.pids.iter().copied();
            let pids = pids
                .filter(|pid| fdguard_proc::process::name(*pid).is_some())
                .collect();
            LiveWatch::start(probe, WatchPlan { pids, ..plan })
        }
        result => result,
    };
    match living(plan) {
        Ok(live) => {
            let program = TracedPrograms::Attached(&mut *attached);
            watched.observe(live, program, observer)?;
            if let Some(why) = &mut watched.why {
                attached.session.poll()?;
                why.finish(&mut attached.session);
            }
        }
        // Its tables are all there is.
        Err(Error::Probe(_)) if attached.has_ended() => {}
        Err(error) => return Err(error.into()),
    }
    Ok(watched)
}

/// Takes the first look; `None` if the program ended before.
fn start_watch<'p>(
    probe: &'p Probe,
    plan: &WatchPlan,
    traced: &mut TracedCommand,
) -> anyhow::Result<Option<LiveWatch<'p>>> {
    loop {
        match LiveWatch::start(probe, plan.clone()) {
            Ok(live) => return Ok(Some(live)),
            Err(Error::Probe(_)) if traced.has_ended()? => return Ok(None),
            // It cannot be read for a moment while it executes another program.
            Err(Error::Probe(_)) => std::thread::sleep(BECOMING),
            Err(error) => return Err(error.into()),
        }
    }
}

impl<'p> RunningTrace<'_, 'p> {
    /// Waits for the next look, at most until `deadline`.
    pub(super) fn step(
        &mut self,
        deadline: Instant,
    ) -> anyhow::Result<(WatchProgress, Vec<RecordingEntry>)> {
        let progress = self.advance(deadline)?;
        if progress == WatchProgress::Waiting {
            return Ok((progress, Vec::new()));
        }
        let is_gone = self.program.are_gone(self.live.watch());
        if !is_gone {
            self.names.note_sample(self.live.watch(), monotonic());
            let session = self.program.session();
            session.poll()?;
            if let Some(why) = &mut self.why {
                why.look(session);
            }
            let subjects = self.live.watch().subjects();
            let living = subjects.filter(|one| one.gone.is_none());
            session.examine(living.map(|one| one.process.pid));
        }
        // What the program does after it was asked to end does not count.
        let request = self.next_request();
        self.request = request.or(self.request);
        if is_gone {
            self.live.stop(WatchEnd::ProcessEnded)?;
        } else if let Some(request) = request {
            self.obey(request)?;
        } else if progress == WatchProgress::Signalled && self.is_attached() {
            self.stop()?;
        }
        let is_over = self.live.watch().ended().is_some();
        let progress = if is_over {
            WatchProgress::Ended
        } else {
            progress
        };
        Ok((progress, self.live.take_entries()))
    }

    /// Waits for the next look. Meanwhile programs that wait to be asked are.
    fn advance(&mut self, deadline: Instant) -> anyhow::Result<WatchProgress> {
        let Some(why) = &mut self.why else {
            return Ok(self.live.advance(deadline)?);
        };
        loop {
            let until = deadline.min(Instant::now() + SERVE_EVERY);
            let progress = self.live.advance(until)?;
            why.serve(self.program.session())?;
            if progress != WatchProgress::Waiting || Instant::now() >= deadline {
                return Ok(progress);
            }
        }
    }

    fn next_request(&mut self) -> Option<Request> {
        match &mut self.program {
            TracedPrograms::Launched(_, requests) => requests.next_request(),
            TracedPrograms::Attached(_) => None,
        }
    }

    fn obey(&mut self, request: Request) -> anyhow::Result<()> {
        let TracedPrograms::Launched(traced, requests) = &mut self.program else {
            return Ok(());
        };
        traced.session.end_begins();
        if request != Request::Interrupt {
            return Ok(self.live.stop(WatchEnd::Interrupted)?);
        }
        // The terminal has already signalled the program.
        match requests.wait(traced, Instant::now() + GRACE)? {
            WaitOutcome::Ended(_) => self.live.stop(WatchEnd::Interrupted)?,
            WaitOutcome::Requested(_) => {
                self.request = Some(Request::Leave);
                self.live.stop(WatchEnd::Interrupted)?;
            }
            WaitOutcome::Time => traced.session.end_is_off(),
        }
        Ok(())
    }

    /// Whether the program was already running.
    pub(super) fn is_attached(&self) -> bool {
        matches!(self.program, TracedPrograms::Attached(_))
    }

    /// The user does not want to see more.
    pub(super) fn stop(&mut self) -> anyhow::Result<()> {
        Ok(self.live.stop(WatchEnd::Interrupted)?)
    }

    /// What was seen so far.
    pub(super) fn live(&self) -> &LiveWatch<'p> {
        &self.live
    }

    /// What the tracer has found so far, as far as it is wanted.
    pub(super) fn state(&mut self, wanted: StateParts) -> TraceState {
        self.program.session().state(wanted)
    }

    /// The same, joined with what was seen from outside.
    pub(super) fn joined<'s>(
        &'s self,
        state: &'s TraceState,
        settings: &'s RuleSettings,
    ) -> LaunchedTrace<'s> {
        LaunchedTrace {
            state,
            watch: Some(self.live.watch()),
            names: &self.names,
            settings,
        }
    }
}

/// Waits for the program to end, however long that takes, unless asked to leave.
fn wait(
    traced: &mut TracedCommand,
    requests: &mut SignalRequests,
    was_asked: bool,
) -> anyhow::Result<Option<ExitStatus>> {
    let slow = Instant::now() + SLOW;
    let mut is_quiet = !was_asked;
    loop {
        let until = if is_quiet {
            Instant::now() + super::PATIENCE
        } else {
            slow
        };
        match requests.wait(traced, until)? {
            WaitOutcome::Ended(status) => return Ok(Some(status)),
            WaitOutcome::Requested(Request::Leave) => return part(traced, requests),
            WaitOutcome::Requested(Request::End) => {
                traced.session.end_begins();
                traced.signal(Signal::TERM)?;
            }
            WaitOutcome::Requested(Request::Interrupt) => {}
            WaitOutcome::Time if is_quiet => {}
            WaitOutcome::Time => {
                is_quiet = true;
                let late = exact_seconds(SLOW);
                notify(&format!(
                    "process {} is still running {late} after SIGTERM; press Ctrl-C twice to stop waiting and print the report",
                    traced.pid()
                ));
            }
        }
    }
}

/// Gives the program a last moment: it may need two signals to end.
fn part(
    traced: &mut TracedCommand,
    requests: &mut SignalRequests,
) -> anyhow::Result<Option<ExitStatus>> {
    if let WaitOutcome::Ended(status) = requests.wait(traced, Instant::now() + PARTING)? {
        return Ok(Some(status));
    }
    notify(&format!(
        "process {} is still running and was left alone; this is the report so far",
        traced.pid()
    ));
    Ok(None)
}

pub(in crate::command) fn notify(text: &str) {
    // If stderr is gone there is nowhere to report it.
    drop(writeln!(anstream::stderr(), "fdguard: {text}"));
}
