//! `fdguard drill`: tests whether a service survives common failures.

use std::net::TcpListener;
use std::time::{Duration, Instant};

use fdguard_core::units::{duration_from_seconds, milliseconds};
use fdguard_proc::process;
use jiff::Timestamp;
use rustix::process::{Pid, Resource, Rlimit, Signal, kill_process, prlimit};
use serde::Serialize;

use crate::cli::DrillArgs;
use crate::exit::{self, HintedError};
use crate::output;

mod subject;

use subject::{Member, Subject, below, left};

/// How long a start, an end or a budget may take.
const PATIENCE: Duration = Duration::from_secs(60);
/// The interval between looks at a starting service.
const SETTLE_LOOK: Duration = Duration::from_millis(50);
/// This many equal looks in a row count as settled.
const STANDS_STILL: u32 = 10;
/// A service that never settles is taken as it is.
const SETTLES_WITHIN: Duration = Duration::from_secs(10);

/// What the drill found.
#[derive(Debug, Serialize)]
struct Report {
    schema: &'static str,
    started_at: Timestamp,
    command: Vec<String>,
    passed: bool,
    cases: Vec<Case>,
}

/// One test of the service.
#[derive(Debug, Serialize)]
struct Case {
    name: &'static str,
    passed: bool,
    /// How long it took, if meaningful.
    milliseconds: Option<f64>,
    detail: String,
}

/// The outcome of a case: its duration and what was observed, or what is wrong.
type Outcome = Result<(Option<Duration>, String), String>;
type Drill = fn(&DrillArgs) -> Outcome;

const CASES: [(&str, Drill); 5] = [
    ("kill", killed),
    ("supervisor-killed", orphaned),
    ("table-full", starved),
    ("port-held", port_held),
    ("setsid-child", escaped),
];

/// Runs the command.
pub(super) fn run(args: &DrillArgs) -> anyhow::Result<u8> {
    let started_at = Timestamp::now();
    let mut cases = vec![case("start", begun(args))];
    if !cases[0].passed {
        let message = format!("cannot start the service: {}", cases[0].detail);
        return Err(
            HintedError::look(message, "run `fdguard run -- CMD` to see its output").into(),
        );
    }
    cases.extend(CASES.iter().map(|(name, drill)| case(name, drill(args))));
    let words = args.command.iter().map(|word| word.to_string_lossy());
    let report = Report {
        schema: "fdguard.drill/1",
        started_at,
        command: words.map(Into::into).collect(),
        passed: cases.iter().all(|case| case.passed),
        cases,
    };
    let file = args.output.as_deref();
    if args.json {
        output::emit(file, |out| {
            serde_json::to_writer(&mut *out, &report)?;
            Ok(out.write_all(b"\n")?)
        })?;
    } else {
        output::emit(file, |out| Ok(out.write_all(report.lines().as_bytes())?))?;
    }
    Ok(if report.passed {
        exit::CLEAN
    } else {
        exit::FINDINGS
    })
}

fn case(name: &'static str, outcome: Outcome) -> Case {
    let passed = outcome.is_ok();
    let (took, detail) = outcome.unwrap_or_else(|why| (None, why));
    Case {
        name,
        passed,
        milliseconds: took.map(|took| (took.as_secs_f64() * 1e5).round() / 100.0),
        detail,
    }
}

impl Report {
    fn lines(&self) -> String {
        let line = |case: &Case| {
            let word = if case.passed { "pass" } else { "FAIL" };
            let took = case
                .milliseconds
                .and_then(|took| duration_from_seconds(took / 1e3))
                .map_or_else(String::new, milliseconds);
            let detail = crate::terminal::sanitize_str(&case.detail).into_owned();
            format!("{word}  {:<18} {took:>12}  {detail}\n", case.name)
        };
        self.cases.iter().map(line).collect()
    }
}

fn up(args: &DrillArgs, flags: &[&str], wrapper: &[&str]) -> Result<(Subject, u32), String> {
    let subject = Subject::start(args, flags, wrapper).map_err(|error| error.to_string())?;
    let pid = subject.up(args, PATIENCE)?;
    Ok((subject, pid))
}

/// Stops it with SIGTERM; fails if any of these members remains.
fn stop(mut subject: Subject, members: &[Member]) -> Result<Duration, String> {
    let began = Instant::now();
    subject.signal(Signal::TERM);
    let status = subject.ended(PATIENCE);
    let status = status.ok_or("the supervisor did not stop on SIGTERM")?;
    if !status.success() {
        return Err(format!("the supervisor ended with {status}"));
    }
    let took = began.elapsed();
    nothing_left(members)?;
    Ok(took)
}

fn nothing_left(members: &[Member]) -> Result<(), String> {
    let left = left(members);
    let named: Vec<String> = left
        .iter()
        .map(|one| format!("{}({})", one.name, one.key.pid))
        .collect();
    match named.is_empty() {
        true => Ok(()),
        false => Err(format!("processes left behind: {}", named.join(" "))),
    }
}

/// Starts and ends it.
fn begun(args: &DrillArgs) -> Outcome {
    let began = Instant::now();
    let (subject, _) = up(args, &[], &[])?;
    let took = began.elapsed();
    let members = below(subject.pid());
    stop(subject, &members)?;
    Ok((Some(took), "started and stopped cleanly".to_owned()))
}

/// kill -9 of the service.
fn killed(args: &DrillArgs) -> Outcome {
    let (subject, pid) = up(args, &[], &[])?;
    let began = Instant::now();
    kill(pid)?;
    let next = subject.up(args, args.within)?;
    let took = began.elapsed();
    stop(subject, &[])?;
    Ok((Some(took), format!("restarted as process {next}")))
}

/// kill -9 of the supervisor.
fn orphaned(args: &DrillArgs) -> Outcome {
    let (mut subject, _) = up(args, &[], &[])?;
    let members = below(subject.pid());
    let began = Instant::now();
    subject.signal(Signal::KILL);
    subject
        .ended(PATIENCE)
        .ok_or("the supervisor could not be killed")?;
    let until = began + PATIENCE;
    while !left(&members).is_empty() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(2));
    }
    let took = began.elapsed();
    nothing_left(&members)?;
    Ok((Some(took), format!("all {} processes ended", members.len())))
}

/// Lowers the service's limit to its current count.
fn starved(args: &DrillArgs) -> Outcome {
    let (subject, pid) = up(args, &["--warmup", "0s"], &[])?;
    let soft = settled(pid).map_err(|error| error.to_string())?;
    let began = Instant::now();
    let raw = i32::try_from(pid).ok().and_then(Pid::from_raw);
    let limits = prlimit(
        raw,
        Resource::Nofile,
        Rlimit {
            current: Some(soft),
            maximum: None,
        },
    );
    let limits = limits.or_else(|_| {
        // The hard limit stays: raising it again may not be permitted.
        let hard = rustix::process::getrlimit(Resource::Nofile).maximum;
        let lower = Rlimit {
            current: Some(soft),
            maximum: hard,
        };
        prlimit(raw, Resource::Nofile, lower)
    });
    limits.map_err(|error| format!("cannot lower its descriptor limit: {error}"))?;
    let acted = subject
        .event(&["restart"], PATIENCE)
        .ok_or("no budget triggered a restart")?;
    let reason = acted["reason"].as_str().unwrap_or_default().to_owned();
    let took = began.elapsed();
    if !reason.ends_with("_budget") {
        return Err(format!("restarted for another reason: {reason}"));
    }
    stop(subject, &[])?;
    Ok((
        Some(took),
        format!("restarted with {soft} of {soft} descriptors in use ({reason})"),
    ))
}

/// Its descriptor count once that is stable while it waits for something: a program opens and
/// closes many while it loads, however slowly.
fn settled(pid: u32) -> std::io::Result<u64> {
    let count = || Ok::<_, std::io::Error>(std::fs::read_dir(format!("/proc/{pid}/fd"))?.count());
    let end = Instant::now() + SETTLES_WITHIN;
    let (mut last, mut same) = (count()?, 0);
    while same < STANDS_STILL && Instant::now() < end {
        std::thread::sleep(SETTLE_LOOK);
        let now = count()?;
        let is_still = now == last && process::is_asleep(pid);
        same = if is_still { same + 1 } else { 0 };
        last = now;
    }
    Ok(u64::try_from(last).unwrap_or(u64::MAX))
}

/// Another process holds the port of the service.
fn port_held(args: &DrillArgs) -> Outcome {
    let holder = TcpListener::bind("127.0.0.1:0").map_err(|error| error.to_string())?;
    let port = holder
        .local_addr()
        .map_err(|error| error.to_string())?
        .port();
    let listen = format!("tcp:{port}");
    let began = Instant::now();
    let started = Subject::start(args, &["--listen", &listen], &[]);
    let mut subject = started.map_err(|error| error.to_string())?;
    let told = subject.event(&["port_conflict", "start"], PATIENCE);
    let told = told.ok_or("the conflict was not reported")?;
    if told["event"] != "port_conflict" {
        return Err("the service was started although the port is in use".to_owned());
    }
    if told["pid"] != std::process::id() {
        return Err("the process holding the port was not named".to_owned());
    }
    let status = subject.ended(PATIENCE).ok_or("fdguard run kept running")?;
    match status.code() {
        Some(2) => Ok((
            Some(began.elapsed()),
            "start refused, holder named".to_owned(),
        )),
        _ => Err(format!(
            "fdguard run ended with {status} instead of exit status 2"
        )),
    }
}

/// The service leaves a process in another session.
fn escaped(args: &DrillArgs) -> Outcome {
    let script = "setsid sleep 100000 & setsid sh -c 'sleep 100001 & sleep 100002' & exec \"$@\"";
    let (subject, _) = up(args, &[], &["sh", "-c", script, "sh"])?;
    let members = below(subject.pid());
    let took = stop(subject, &members)?;
    Ok((Some(took), format!("all {} processes ended", members.len())))
}

fn kill(pid: u32) -> Result<(), String> {
    let raw = i32::try_from(pid).ok().and_then(Pid::from_raw);
    let raw = raw.ok_or("no such process")?;
    kill_process(raw, Signal::KILL).map_err(|error| format!("kill -9: {error}"))
}
