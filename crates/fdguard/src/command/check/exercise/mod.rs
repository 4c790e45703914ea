//! Exercises a server: repeats the same work and finds what each cycle leaves open.

mod client;
mod cycle;
mod plan;
mod ready;
mod server;
mod tee;

use std::io::Write as _;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::{Duration, Instant};

use fdguard_core::Pid;
use fdguard_core::children::finding::ChildPile;
use fdguard_core::diagnosis::WatchEnd;
use fdguard_core::proof::Remains;
use fdguard_core::rule::RuleSettings;
use fdguard_diagnose::check::{
    ExerciseResult, ExercisedServer, Proof, Survey, judge_cycles, piles_per_cycle,
};
use fdguard_probe::Probe;
use fdguard_process::signals::{ENDING, Signals};
use fdguard_trace::{HeapWatch, ProcessWhy, monotonic};
use jiff::Timestamp;

use self::plan::Drill;
pub(super) use self::plan::Plan;
use self::server::{LaunchedServer, RunningServer, Server};
use crate::cli::CheckArgs;
use crate::exit::HintedError;
use crate::progress::{ProgressLine, of_time};
use crate::terminal::sanitize_bytes;

/// If the requested cycles do not decide, run up to this many times as many.
const MOST: u32 = 4;
/// While the server releases what it used: the interval between looks, the maximum number of looks,
/// and how many equal looks in a row count as settled.
const SETTLE_EVERY: Duration = Duration::from_millis(50);
const SETTLE_LOOKS: u32 = 40;
const SETTLED: u32 = 4;
/// How long a server may take to be noticed as dead after a failed exercise.
const DYING: Duration = Duration::from_millis(300);

/// A received signal.
#[derive(Debug)]
pub(super) struct Stop {
    signals: Signals,
    last: AtomicI32,
}

impl Stop {
    /// Starts to catch signals.
    fn listen() -> anyhow::Result<Self> {
        Ok(Self {
            signals: Signals::listen(ENDING)?,
            last: AtomicI32::new(0),
        })
    }

    /// Fails once a signal has arrived.
    fn check(&self) -> anyhow::Result<()> {
        if let Some(received) = self.signals.next() {
            self.last.store(received.signal, Ordering::Relaxed);
        }
        match self.last.load(Ordering::Relaxed) {
            0 => Ok(()),
            signal => Err(HintedError::signalled(signal).into()),
        }
    }
}

/// Runs the exercises and judges what they left.
pub(super) fn run(
    args: &CheckArgs,
    plan: &Plan,
    settings: &RuleSettings,
    server: Option<Pid>,
) -> anyhow::Result<(Proof, Vec<ProcessWhy>)> {
    let began = Timestamp::now();
    let probe = Probe::new()?;
    let stop = Stop::listen()?;
    let progress = ProgressLine::on_stderr();
    let mut server = start((args, plan), server, &probe, &stop, &progress)?;
    let mut bench = Bench {
        args,
        plan,
        stop: &stop,
        progress: &progress,
        begins: Vec::new(),
    };
    let mut survey = bench.wait_until_ready(&probe, &mut server)?;
    let (mut remains, mut exercises, mut before) = (Vec::new(), Vec::new(), None);
    let mut piles = Vec::new();
    let mut heap = args.why.then(HeapWatch::default);
    for drill in &plan.drills {
        bench.warm_up(&mut server, drill)?;
        bench.look(&mut survey, &mut server, 0)?;
        survey.forget_cycles();
        if before.is_none() {
            // Plain numbers take two walks: before the cycles, and after them.
            walk(heap.as_mut(), &mut server)?;
        }
        before.get_or_insert(survey.count());
        let (left, undecided) = bench.measure(&mut survey, &mut server, drill)?;
        remains.extend(left.into_iter().map(|one| Remains {
            exercise: drill.name.clone(),
            ..one
        }));
        piles.extend(bench.child_piles(&mut server, drill));
        exercises.push(bench.result(drill, undecided));
    }
    walk(heap.as_mut(), &mut server)?;
    let state = server.state()?;
    let exercised = ExercisedServer {
        began,
        before,
        ended: match stop.check() {
            Ok(()) => WatchEnd::TimeUp,
            Err(_) => WatchEnd::Interrupted,
        },
        state: state.as_ref(),
        unattached: server.refused(),
        budgets: &plan.budgets,
        remains,
        piles,
        exercises,
    };
    let mut evidence = exercised.evidence(&survey)?;
    server.leave();
    progress.show(|| "stopping the server".to_owned());
    if let Some(launched) = server.launched() {
        launched.end()?;
        evidence.processes = launched.left(&args.leave, &plan.allow_process);
    }
    evidence.diagnosis.ended_at = Timestamp::now();
    let proof = Proof::new(evidence, &plan.allow, settings);
    Ok((proof, heap.map(|heap| heap.answers()).unwrap_or_default()))
}

/// Asks which objects hold what the server has open, if that was requested.
fn walk(heap: Option<&mut HeapWatch>, server: &mut Server) -> anyhow::Result<()> {
    if let Some((heap, session)) = heap.zip(server.session()) {
        session.poll()?;
        heap.finish(session);
    }
    Ok(())
}

/// The named server, or a new one.
fn start(
    (args, plan): (&CheckArgs, &Plan),
    running: Option<Pid>,
    probe: &Probe,
    stop: &Stop,
    progress: &ProgressLine,
) -> anyhow::Result<Server> {
    if let Some(pid) = running {
        let wanted = (args.exercise.no_inspector, args.why);
        let running = RunningServer::attach(probe, pid, wanted, &stop.signals)?;
        // If it was stopped meanwhile, the server is left at once.
        stop.check()?;
        return Ok(Server::Attached(Box::new(running)));
    }
    let launched = LaunchedServer::start(plan, args.why, progress)?;
    Ok(Server::Launched(Box::new(launched)))
}

/// A running exercise.
struct Bench<'a> {
    args: &'a CheckArgs,
    plan: &'a Plan,
    stop: &'a Stop,
    progress: &'a ProgressLine,
    /// When each measured cycle began, by the tracer's clock.
    begins: Vec<u64>,
}

impl Bench<'_> {
    /// Runs the work before counting: what a server sets up for its first requests is not a leak.
    fn warm_up(&mut self, server: &mut Server, drill: &Drill) -> anyhow::Result<()> {
        for number in 1..=drill.warmup {
            let of = drill.warmup;
            self.progress
                .show(|| format!("{}: warm-up {number} of {of}", drill.title()));
            self.cycle(server, drill, 0)?;
        }
        Ok(())
    }

    /// Runs one cycle, which must succeed.
    fn cycle(&self, server: &mut Server, drill: &Drill, number: u32) -> anyhow::Result<()> {
        let within = self.args.exercise.cycle_timeout;
        let (work, count) = (&drill.work, drill.concurrency);
        let done = cycle::work(work, count, number, within, self.stop)?;
        // When a server dies its exercise fails, too, and may notice first.
        let patience = done.as_ref().map_or(DYING, |()| Duration::ZERO);
        if let Some(launched) = server.launched()
            && launched.has_ended(patience)
        {
            let when = match number {
                0 => "during warm-up".to_owned(),
                number => format!("in cycle {number} of the exercise"),
            };
            return Err(ended(launched, &when));
        }
        let who = match &drill.name {
            Some(name) => format!("the exercise {name:?}"),
            None => "the exercise".to_owned(),
        };
        self.must_succeed(&who, number, done)
    }

    fn must_succeed(
        &self,
        who: &str,
        number: u32,
        done: Result<(), cycle::Failure>,
    ) -> anyhow::Result<()> {
        let Err(failure) = done else {
            return Ok(());
        };
        self.progress.clear();
        show(&format!("output of {who}"), &failure.output);
        let when = match number {
            0 => "during warm-up".to_owned(),
            number => format!("in cycle {number}"),
        };
        let message = format!("{who} failed {when}: {}", failure.how);
        let hint = "fix the exercise, or append || true if it may fail: a failing exercise proves nothing about leaks";
        Err(HintedError::look(message, hint).into())
    }

    fn look(&self, survey: &mut Survey<'_>, server: &mut Server, cycle: u32) -> anyhow::Result<()> {
        match (survey.record(cycle), server.launched()) {
            (Ok(()), _) => Ok(()),
            (Err(_), Some(launched)) => Err(ended(launched, "during the exercise")),
            (Err(error), None) => Err(error.into()),
        }
    }

    /// Runs cycles until every origin is decided, at most four times as many as requested.
    fn measure(
        &mut self,
        survey: &mut Survey<'_>,
        server: &mut Server,
        drill: &Drill,
    ) -> anyhow::Result<(Vec<Remains>, bool)> {
        let asked = drill.cycles;
        let mut until = asked;
        let mut done = 0;
        self.begins.clear();
        let share = u32::try_from(self.plan.drills.len()).unwrap_or(1).max(1);
        let (began, length) = (Instant::now(), self.args.soak.map(|time| time / share));
        let soak = length.map(|length| began + length);
        let before = survey.count();
        let is_soaking = || soak.is_some_and(|end| Instant::now() < end);
        loop {
            while done < until || is_soaking() {
                done += 1;
                self.progress.show(|| {
                    let elapsed = of_time(began.elapsed().as_secs_f64(), length);
                    far(drill, (done, until), &elapsed, (before, survey.count()))
                });
                self.begins.push(monotonic());
                self.cycle(server, drill, done)?;
                self.look(survey, server, done)?;
            }
            self.progress
                .show(|| format!("{}: waiting for the server to settle", drill.title()));
            self.wait_until_idle(survey, server, done)?;
            let state = server.state()?;
            let (remains, is_undecided) = judge_cycles(survey, state.as_ref(), &self.begins);
            if !is_undecided || until >= asked.saturating_mul(MOST) {
                return Ok((remains, is_undecided));
            }
            until = until.saturating_mul(2);
        }
    }

    /// What was run of an exercise.
    fn result(&self, drill: &Drill, undecided: bool) -> ExerciseResult {
        ExerciseResult {
            name: drill.name.clone(),
            cycles: u32::try_from(self.begins.len()).unwrap_or(u32::MAX),
            asked: drill.cycles,
            warmup: drill.warmup,
            concurrency: drill.concurrency,
            undecided,
        }
    }

    /// The lines that leave a child in each cycle.
    fn child_piles(&self, server: &mut Server, drill: &Drill) -> Vec<ChildPile> {
        let Some(session) = server.session() else {
            return Vec::new();
        };
        let lines = session.child_lines();
        piles_per_cycle(lines, &self.begins, u64::from(drill.concurrency))
    }

    /// Lets the server release what it used: runs the user's command, then waits until nothing
    /// changes.
    fn wait_until_idle(
        &self,
        survey: &mut Survey<'_>,
        server: &mut Server,
        cycle: u32,
    ) -> anyhow::Result<()> {
        if let Some(command) = &self.plan.settle {
            let within = self.args.exercise.cycle_timeout;
            let done = cycle::run(command, 1, cycle, within, self.stop)?;
            self.must_succeed("the --settle command", cycle, done)?;
        }
        let (mut alike, mut before) = (0, survey.count());
        for _ in 0..SETTLE_LOOKS {
            if alike >= SETTLED {
                break;
            }
            self.stop.check()?;
            if let Some(launched) = server.launched()
                && launched.has_ended(SETTLE_EVERY)
            {
                return Err(ended(launched, "after the exercise"));
            } else if server.launched().is_none() {
                std::thread::sleep(SETTLE_EVERY);
            }
            self.look(survey, server, cycle)?;
            alike = if survey.count() == before {
                alike + 1
            } else {
                0
            };
            before = survey.count();
        }
        Ok(())
    }
}

/// `exercise: cycle 12 of 30, 8 s, 21 descriptors (+3)`.
fn far(drill: &Drill, cycle: (u32, u32), elapsed: &str, held: (u64, u64)) -> String {
    let (done, until) = cycle;
    let of = match done <= until {
        true => format!(" of {until}"),
        // A soak runs for its full time.
        false => String::new(),
    };
    let (before, now) = held;
    let grown = now.cast_signed() - before.cast_signed();
    format!(
        "{}: cycle {done}{of}, {elapsed}, {now} descriptors ({grown:+})",
        drill.title()
    )
}

/// The output of a server that ended too soon.
fn ended(launched: &mut LaunchedServer, when: &str) -> anyhow::Error {
    let status = launched.end();
    show("the server's last output", &launched.tee.last());
    let how = status.map_or_else(|error| error.to_string(), |status| status.to_string());
    HintedError::look(
        format!("the server ended {when}: {how}"),
        "start the server alone to see why",
    )
    .into()
}

/// Prints foreign output on stderr.
fn show(what: &str, output: &[u8]) {
    let mut stderr = anstream::stderr().lock();
    // If stderr is gone there is nowhere to report it.
    if output.is_empty() {
        drop(writeln!(stderr, "{what}: none"));
        return;
    }
    drop(writeln!(stderr, "{what}:"));
    let text = output.strip_suffix(b"\n").unwrap_or(output);
    for line in text.split(|byte| *byte == b'\n') {
        drop(writeln!(stderr, "  | {}", sanitize_bytes(line)));
    }
}
