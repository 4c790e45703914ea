//! Traps in services of systemd.

use fdguard_core::lint::Severity;
use fdguard_core::units::exact_seconds;

use super::{Check, Hit, RuleTable, Unit, daemonises, trap};
use crate::unit::read::UnitNode;
use crate::unit::systemd::split;
use crate::unit::words::span;

pub(in crate::unit) const RULES: RuleTable<Check> = &[
    (
        trap(
            "systemd-forking",
            Severity::Warning,
            "Type=forking, which makes systemd guess the main process",
            "use Type=notify with `fdguard run`, or Type=exec with a program that stays in the foreground",
        ),
        forking,
    ),
    (
        trap(
            "systemd-pidfile",
            Severity::Warning,
            "a PIDFile=, which can name a process that has ended",
            "remove PIDFile=: systemd tracks the process it started",
        ),
        pidfile,
    ),
    daemonises("systemd-daemonises"),
    (
        trap(
            "systemd-relative-program",
            Severity::Critical,
            "a program in ExecStart= without an absolute path",
            "use the absolute path of the program",
        ),
        relative,
    ),
    (
        trap(
            "systemd-no-file-limit",
            Severity::Info,
            "no LimitNOFILE=: the soft limit is 1024 descriptors",
            "set LimitNOFILE=4096:524288",
        ),
        no_limit,
    ),
    (
        trap(
            "systemd-kill-mode",
            Severity::Warning,
            "KillMode=process or none, which leaves processes running after a stop",
            "set KillMode=mixed, or remove KillMode=",
        ),
        kill_mode,
    ),
    (
        trap(
            "systemd-endless-restart",
            Severity::Warning,
            "restarts without a start limit",
            "set StartLimitIntervalSec=300 and StartLimitBurst=5",
        ),
        endless,
    ),
    (
        trap(
            "systemd-restart-at-once",
            Severity::Warning,
            "restarts without a delay (RestartSec=0)",
            "set RestartSec=2",
        ),
        at_once,
    ),
    (
        trap(
            "systemd-restart-of-no-use",
            Severity::Warning,
            "restarts of `fdguard run` after exit codes that a restart cannot fix",
            "set RestartPreventExitStatus=78 64 2",
        ),
        of_no_use,
    ),
    (
        trap(
            "systemd-stop-too-soon",
            Severity::Warning,
            "a stop timeout that is shorter than the grace period of `fdguard run`",
            "set TimeoutStopSec= at least 15 s above `fdguard run --stop-grace`",
        ),
        too_soon,
    ),
    (
        trap(
            "systemd-no-delegate",
            Severity::Info,
            "`fdguard run` without Delegate=: it cannot create a cgroup for the service",
            "set Delegate=yes",
        ),
        no_delegate,
    ),
    (
        trap(
            "systemd-not-notified",
            Severity::Warning,
            "`fdguard run` without Type=notify: systemd receives no readiness and no watchdog messages",
            "set Type=notify with NotifyAccess=main",
        ),
        not_notified,
    ),
];

/// The service of the file; none for a timer or a drop-in without a `[Service]` section.
pub(in crate::unit) fn units(file: &UnitNode) -> Vec<Unit<'_>> {
    let Some(service) = file.get("Service") else {
        return Vec::new();
    };
    let start = service
        .get("ExecStart")
        .filter(|node| node.text() != Some(""));
    let words = start.map(|node| (node.line, words(node.text().unwrap_or_default())));
    let words = words.unwrap_or_default();
    vec![Unit {
        file,
        service,
        words,
    }]
}

/// The words, without the prefixes allowed before the program.
fn words(line: &str) -> Vec<String> {
    let mut words = split(line).unwrap_or_default();
    if let Some(first) = words.first_mut() {
        *first = first
            .trim_start_matches(['@', '-', ':', '+', '!', '|'])
            .to_owned();
    }
    words
}

fn forking(unit: &Unit<'_>) -> Vec<Hit> {
    unit.when("Type", |node| {
        let why = "systemd has to guess the main process, and a restart can collide with the previous instance";
        (node.text() == Some("forking")).then(|| why.to_owned())
    })
}

fn pidfile(unit: &Unit<'_>) -> Vec<Hit> {
    unit.when("PIDFile", |_| {
        Some("a PID file can outlive its process, and the kernel reuses the pid".to_owned())
    })
}

fn relative(unit: &Unit<'_>) -> Vec<Hit> {
    let (line, words) = &unit.words;
    let program = words.first().map(String::as_str).unwrap_or_default();
    let wrong = program.contains('/') && !program.starts_with(['/', '%', '$']);
    let hit = wrong.then(|| {
        (
            *line,
            format!("{program} is not an absolute path: the unit does not load"),
        )
    });
    hit.into_iter().collect()
}

fn no_limit(unit: &Unit<'_>) -> Vec<Hit> {
    // A oneshot unit ends before it can exhaust a limit.
    let is_short = unit.setting("Type") == Some("oneshot");
    let has_limit = unit.service.get("LimitNOFILE").is_some();
    let is_missing = !has_limit && !is_short && !unit.words.1.is_empty();
    unit.missing(
        is_missing,
        "without LimitNOFILE= the soft descriptor limit is 1024",
    )
}

fn kill_mode(unit: &Unit<'_>) -> Vec<Hit> {
    unit.when("KillMode", |node| {
        let mode = node
            .text()
            .filter(|mode| matches!(*mode, "process" | "none"))?;
        Some(format!(
            "KillMode={mode} leaves processes behind that hold the port at the next start"
        ))
    })
}

fn restarts(unit: &Unit<'_>) -> bool {
    unit.setting("Restart")
        .is_some_and(|it| !it.is_empty() && it != "no")
}

fn endless(unit: &Unit<'_>) -> Vec<Hit> {
    if !restarts(unit) {
        return Vec::new();
    }
    // The old name was in [Service].
    let places = [unit.file.get("Unit"), Some(unit.service)];
    let names = ["StartLimitIntervalSec", "StartLimitInterval"];
    let all = places
        .into_iter()
        .flatten()
        .flat_map(|section| names.map(|name| section.get(name)));
    let is_zero = |node: &&UnitNode| node.text().and_then(span).is_some_and(|it| it.is_zero());
    let why = "no start limit: a service that cannot start is restarted forever";
    all.flatten()
        .filter(is_zero)
        .map(|node| (node.line, why.to_owned()))
        .collect()
}

fn at_once(unit: &Unit<'_>) -> Vec<Hit> {
    let zero = |node: &UnitNode| node.text().and_then(span).is_some_and(|it| it.is_zero());
    let why =
        "restarts without a delay: five starts are used up at once, and the service stays down";
    unit.when("RestartSec", |node| {
        (restarts(unit) && zero(node)).then(|| why.to_owned())
    })
}

fn of_no_use(unit: &Unit<'_>) -> Vec<Hit> {
    let prevented = unit.setting("RestartPreventExitStatus").unwrap_or_default();
    let has = prevented
        .split_whitespace()
        .any(|it| it == "78" || it == "CONFIG");
    unit.when("Restart", |_| {
        let why = "fdguard exits with 78, 64 or 2 when a restart cannot help (configuration, usage, port in use), and systemd restarts it anyway";
        (restarts(unit) && unit.is_fdguard() && !has).then(|| why.to_owned())
    })
}

fn too_soon(unit: &Unit<'_>) -> Vec<Hit> {
    let Some(grace) = unit.grace() else {
        return Vec::new();
    };
    let check = |node: &UnitNode| {
        let given = span(node.text()?)?;
        let too_soon = given <= grace && !given.is_zero();
        too_soon.then(|| {
            format!(
                "systemd kills fdguard after {}, before its grace period of {} ends",
                exact_seconds(given),
                exact_seconds(grace)
            )
        })
    };
    let mut hits = unit.when("TimeoutStopSec", check);
    if unit.service.get("TimeoutStopSec").is_none() {
        hits.extend(unit.when("TimeoutSec", check));
    }
    hits
}

fn no_delegate(unit: &Unit<'_>) -> Vec<Hit> {
    let delegates = unit
        .service
        .get("Delegate")
        .is_some_and(|node| !node.is_no());
    unit.missing(
        unit.is_fdguard() && !delegates,
        "without Delegate= fdguard cannot create a cgroup for the program",
    )
}

fn not_notified(unit: &Unit<'_>) -> Vec<Hit> {
    let kind = unit.setting("Type").unwrap_or("simple");
    let is_told = matches!(kind, "notify" | "notify-reload");
    let why = format!(
        "Type={kind}: systemd considers the service ready at once and receives no status or watchdog messages"
    );
    if !unit.is_fdguard() || is_told || kind == "forking" {
        return Vec::new();
    }
    let line = unit
        .service
        .get("Type")
        .map_or(unit.service.line, |node| node.line);
    vec![(line, why)]
}
