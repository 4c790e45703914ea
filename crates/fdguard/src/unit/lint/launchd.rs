//! Traps in property lists of launchd.

use std::time::Duration;

use fdguard_core::lint::Severity;
use fdguard_core::units::exact_seconds;

use super::{Check, Hit, RuleTable, Unit, daemonises, trap};
use crate::unit::read::UnitNode;
use crate::unit::words::{self, is_bootstrap};

pub(in crate::unit) const RULES: RuleTable<Check> = &[
    (
        trap(
            "launchd-keepalive-crashed",
            Severity::Critical,
            "KeepAlive with Crashed=false, which restarts after a clean exit and not after a crash",
            "set KeepAlive with SuccessfulExit=false",
        ),
        crashed,
    ),
    (
        trap(
            "launchd-keepalive-success",
            Severity::Warning,
            "KeepAlive with SuccessfulExit=true, which restarts after success and not after a failure",
            "set KeepAlive with SuccessfulExit=false",
        ),
        success,
    ),
    (
        trap(
            "launchd-keepalive-always",
            Severity::Warning,
            "KeepAlive=true, which restarts the job even when it exits on purpose",
            "set KeepAlive with SuccessfulExit=false, and run the program in the foreground",
        ),
        always,
    ),
    daemonises("launchd-daemonises"),
    (
        trap(
            "launchd-relative-program",
            Severity::Warning,
            "a program without an absolute path",
            "use the absolute path of the program",
        ),
        relative,
    ),
    (
        trap(
            "launchd-no-file-limit",
            Severity::Warning,
            "no NumberOfFiles limit: the soft limit is 256 descriptors",
            "set NumberOfFiles in SoftResourceLimits and HardResourceLimits",
        ),
        no_limit,
    ),
    (
        trap(
            "launchd-abandon-group",
            Severity::Warning,
            "AbandonProcessGroup=true, which leaves child processes running after a stop",
            "set AbandonProcessGroup=false, or remove it",
        ),
        abandon,
    ),
    (
        trap(
            "launchd-stop-too-soon",
            Severity::Warning,
            "a stop timeout that is shorter than the grace period of `fdguard run`",
            "set ExitTimeOut at least 15 s above `fdguard run --stop-grace`",
        ),
        too_soon,
    ),
    (
        trap(
            "launchd-no-throttle",
            Severity::Warning,
            "ThrottleInterval=0: restarts without a delay",
            "set ThrottleInterval to 10, or remove it",
        ),
        no_throttle,
    ),
];

pub(in crate::unit) fn units(file: &UnitNode) -> Vec<Unit<'_>> {
    let list = file.get("ProgramArguments");
    let program = file.get("Program");
    let line = list.or(program).map_or(file.line, |node| node.line);
    let text = |node: &UnitNode| node.text().map(str::to_owned);
    let mut words: Vec<String> = list
        .and_then(UnitNode::list)
        .map(|list| list.iter().filter_map(text).collect())
        .unwrap_or_default();
    // This is the program that runs; the first word is then only its name.
    if let Some(program) = program.and_then(text) {
        match words.first_mut() {
            Some(first) => *first = program,
            None => words.push(program),
        }
    }
    let words = (line, words);
    vec![Unit {
        file,
        service: file,
        words,
    }]
}

/// A hit at a key in the dictionary of reasons.
fn reason(unit: &Unit<'_>, key: &str, wrong: fn(&UnitNode) -> bool, why: &str) -> Vec<Hit> {
    let node = unit.service.get("KeepAlive").and_then(|node| node.get(key));
    let hit = node
        .filter(|node| wrong(node))
        .map(|node| (node.line, why.to_owned()));
    hit.into_iter().collect()
}

fn crashed(unit: &Unit<'_>) -> Vec<Hit> {
    let why = "Crashed=false restarts the job only if it did not crash: it comes back after every clean exit and stays down after a crash";
    reason(unit, "Crashed", UnitNode::is_no, why)
}

fn success(unit: &Unit<'_>) -> Vec<Hit> {
    let why = "SuccessfulExit=true restarts the job only after a successful exit: it stays down after a failure";
    reason(unit, "SuccessfulExit", UnitNode::is_yes, why)
}

fn always(unit: &Unit<'_>) -> Vec<Hit> {
    let words = &unit.words.1;
    let ends = is_bootstrap(words) || words::daemonises(words).is_some();
    unit.when("KeepAlive", |node| {
        let why = match (node.is_yes(), ends, unit.is_fdguard()) {
            (true, true, _) => "KeepAlive=true also restarts after exit status 0, and this command seems to start a daemon and exit: a restart loop every ten seconds",
            (true, false, true) => "KeepAlive=true also restarts fdguard when a restart cannot help (configuration, port in use) and when it has finished",
            _ => return None,
        };
        Some(why.to_owned())
    })
}

fn relative(unit: &Unit<'_>) -> Vec<Hit> {
    let (line, words) = &unit.words;
    let wrong = words.first().filter(|program| !program.starts_with('/'));
    let hit = wrong.map(|program| {
        (
            *line,
            format!("{program} is not an absolute path: launchd searches only its own short PATH"),
        )
    });
    hit.into_iter().collect()
}

fn no_limit(unit: &Unit<'_>) -> Vec<Hit> {
    let limits = unit.service.get("SoftResourceLimits");
    let files = limits.and_then(|node| node.get("NumberOfFiles"));
    let why = "without NumberOfFiles the soft descriptor limit is 256";
    let line = limits.map_or(unit.service.line, |node| node.line);
    let hit = files.is_none().then(|| (line, why.to_owned()));
    hit.into_iter().collect()
}

fn abandon(unit: &Unit<'_>) -> Vec<Hit> {
    unit.when("AbandonProcessGroup", |node| {
        let why = "processes started by the job survive it and hold the port at the next start";
        node.is_yes().then(|| why.to_owned())
    })
}

fn too_soon(unit: &Unit<'_>) -> Vec<Hit> {
    let Some(grace) = unit.grace() else {
        return Vec::new();
    };
    let node = unit.service.get("ExitTimeOut");
    let given = node
        .and_then(UnitNode::text)
        .and_then(|text| text.parse::<u64>().ok());
    // 0 means no limit.
    let seconds = given.unwrap_or(20);
    let wrong = seconds != 0 && seconds <= grace.as_secs();
    let line = node.map_or(unit.service.line, |node| node.line);
    let why = || {
        format!(
            "launchd kills fdguard after {}, before its grace period of {} ends",
            exact_seconds(Duration::from_secs(seconds)),
            exact_seconds(grace)
        )
    };
    let hit = wrong.then(|| (line, why()));
    hit.into_iter().collect()
}

fn no_throttle(unit: &Unit<'_>) -> Vec<Hit> {
    unit.when("ThrottleInterval", |node| {
        let zero = node.text().and_then(|text| text.trim().parse::<u64>().ok()) == Some(0);
        zero.then(|| "a job that fails at once is restarted without a delay".to_owned())
    })
}
