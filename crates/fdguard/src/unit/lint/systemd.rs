//! Traps in services of systemd.

use fdguard_core::lint::Severity;

use super::{Hit, Rule, Unit, daemonises, rule};
use crate::unit::read::UnitNode;
use crate::unit::systemd::split;
use crate::unit::words::span;

pub(super) const RULES: &[Rule] = &[
    rule(
        "systemd-forking",
        "Type=notify around `fdguard run`, or Type=exec, and a program that stays in the foreground",
        forking,
    ),
    rule(
        "systemd-pidfile",
        "no PIDFile=: systemd knows the process that it started",
        pidfile,
    ),
    rule(
        "systemd-daemonises",
        "the option that keeps the program in the foreground, and `exec` in shells",
        daemonises,
    )
    .with(Severity::Critical),
    rule(
        "systemd-relative-program",
        "the absolute path of the program",
        relative,
    )
    .with(Severity::Critical),
    rule("systemd-no-file-limit", "LimitNOFILE=4096:524288", no_limit).with(Severity::Info),
    rule(
        "systemd-kill-mode",
        "KillMode=mixed, or no KillMode= at all",
        kill_mode,
    ),
    rule(
        "systemd-endless-restart",
        "StartLimitIntervalSec=300 and StartLimitBurst=5",
        endless,
    ),
    rule("systemd-restart-at-once", "RestartSec=2", at_once),
    rule(
        "systemd-restart-of-no-use",
        "RestartPreventExitStatus=78 64 2",
        of_no_use,
    ),
    rule(
        "systemd-stop-too-soon",
        "TimeoutStopSec= at least 15 s above the grace of `fdguard run --stop-grace`",
        too_soon,
    ),
    rule("systemd-no-delegate", "Delegate=yes", no_delegate).with(Severity::Info),
    rule(
        "systemd-not-notified",
        "Type=notify with NotifyAccess=main",
        not_notified,
    ),
];

/// Sections that are no service (a timer, a drop-in without one) have nothing to say.
pub(super) fn units(file: &UnitNode) -> Vec<Unit<'_>> {
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

/// The words, without the marks that may stand before the program.
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
        let why = "systemd must guess which process is the service, and a second start finds the first one in its way";
        (node.text() == Some("forking")).then(|| why.to_owned())
    })
}

fn pidfile(unit: &Unit<'_>) -> Vec<Hit> {
    unit.when("PIDFile", |_| {
        Some("a file outlives its process, and its number becomes another's".to_owned())
    })
}

fn relative(unit: &Unit<'_>) -> Vec<Hit> {
    let (line, words) = &unit.words;
    let program = words.first().map(String::as_str).unwrap_or_default();
    let wrong = program.contains('/') && !program.starts_with(['/', '%', '$']);
    let hit = wrong.then(|| {
        (
            *line,
            format!("{program} is no absolute path: the unit does not load"),
        )
    });
    hit.into_iter().collect()
}

fn no_limit(unit: &Unit<'_>) -> Vec<Hit> {
    // A oneshot unit ends before it can use up any limit.
    let is_short = unit.setting("Type") == Some("oneshot");
    let has_limit = unit.service.get("LimitNOFILE").is_some();
    let is_missing = !has_limit && !is_short && !unit.words.1.is_empty();
    unit.missing(
        is_missing,
        "without LimitNOFILE= the soft limit of descriptors is 1024",
    )
}

fn kill_mode(unit: &Unit<'_>) -> Vec<Hit> {
    unit.when("KillMode", |node| {
        let mode = node
            .text()
            .filter(|mode| matches!(*mode, "process" | "none"))?;
        Some(format!(
            "KillMode={mode} leaves processes behind, which hold the port at the next start"
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
    let why = "no limit of starts: a service that cannot start is started for ever";
    all.flatten()
        .filter(is_zero)
        .map(|node| (node.line, why.to_owned()))
        .collect()
}

fn at_once(unit: &Unit<'_>) -> Vec<Hit> {
    let zero = |node: &UnitNode| node.text().and_then(span).is_some_and(|it| it.is_zero());
    let why = "started again without a pause: five starts are used up in a moment, and then it stays down";
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
        let why = "fdguard ends with 78, 64 or 2 when a restart cannot help (configuration, usage, a port that a stranger holds), and is started again";
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
                "systemd kills fdguard after {} s, before its own grace of {} s is over",
                given.as_secs_f64(),
                grace.as_secs_f64()
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
        "without Delegate= fdguard may make no cgroup of its own for the program",
    )
}

fn not_notified(unit: &Unit<'_>) -> Vec<Hit> {
    let kind = unit.setting("Type").unwrap_or("simple");
    let is_told = matches!(kind, "notify" | "notify-reload");
    let why = format!(
        "Type={kind}: systemd takes it for ready at once and hears neither status nor signs of life"
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
