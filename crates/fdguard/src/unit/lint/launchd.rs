//! Traps in property lists of launchd.

use fdguard_core::lint::Severity;

use super::{Hit, Rule, Unit, daemonises, rule};
use crate::unit::read::UnitNode;
use crate::unit::words::{self, is_bootstrap};

pub(super) const RULES: &[Rule] = &[
    rule(
        "launchd-keepalive-crashed",
        "KeepAlive with SuccessfulExit=false",
        crashed,
    )
    .with(Severity::Critical),
    rule(
        "launchd-keepalive-success",
        "KeepAlive with SuccessfulExit=false",
        success,
    ),
    rule(
        "launchd-keepalive-always",
        "KeepAlive with SuccessfulExit=false, around a program that stays in the foreground",
        always,
    ),
    rule(
        "launchd-daemonises",
        "the option that keeps the program in the foreground, and `exec` in shells",
        daemonises,
    )
    .with(Severity::Critical),
    rule(
        "launchd-relative-program",
        "the absolute path of the program",
        relative,
    ),
    rule(
        "launchd-no-file-limit",
        "SoftResourceLimits and HardResourceLimits with NumberOfFiles",
        no_limit,
    ),
    rule(
        "launchd-abandon-group",
        "AbandonProcessGroup=false, or nothing",
        abandon,
    ),
    rule(
        "launchd-stop-too-soon",
        "ExitTimeOut at least 15 s above the grace of `fdguard run --stop-grace`",
        too_soon,
    ),
    rule(
        "launchd-no-throttle",
        "ThrottleInterval of 10, or nothing",
        no_throttle,
    ),
];

pub(super) fn units(file: &UnitNode) -> Vec<Unit<'_>> {
    let list = file.get("ProgramArguments");
    let program = file.get("Program");
    let line = list.or(program).map_or(file.line, |node| node.line);
    let text = |node: &UnitNode| node.text().map(str::to_owned);
    let mut words: Vec<String> = list
        .and_then(UnitNode::list)
        .map(|list| list.iter().filter_map(text).collect())
        .unwrap_or_default();
    // The program that is run is this one; the first word is then only its name.
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

/// A hit at a key inside of the dictionary of reasons.
fn reason(unit: &Unit<'_>, key: &str, wrong: fn(&UnitNode) -> bool, why: &str) -> Vec<Hit> {
    let node = unit.service.get("KeepAlive").and_then(|node| node.get(key));
    let hit = node
        .filter(|node| wrong(node))
        .map(|node| (node.line, why.to_owned()));
    hit.into_iter().collect()
}

fn crashed(unit: &Unit<'_>) -> Vec<Hit> {
    let why = "Crashed=false means: start again when it did not crash. It comes back after every clean end, and stays down after a crash";
    reason(unit, "Crashed", UnitNode::is_no, why)
}

fn success(unit: &Unit<'_>) -> Vec<Hit> {
    let why =
        "SuccessfulExit=true means: start again when it ended well. It stays down after a failure";
    reason(unit, "SuccessfulExit", UnitNode::is_yes, why)
}

fn always(unit: &Unit<'_>) -> Vec<Hit> {
    let words = &unit.words.1;
    let ends = is_bootstrap(words) || words::daemonises(words).is_some();
    unit.when("KeepAlive", |node| {
        let why = match (node.is_yes(), ends, unit.is_fdguard()) {
            (true, true, _) => "a bare true starts it again when it ends with 0, and this command seems to start something and end: a loop every ten seconds",
            (true, false, true) => "a bare true starts fdguard again when a restart cannot help (configuration, a port that a stranger holds) and when it was done",
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
            format!("{program} is no absolute path: launchd searches a short path of its own"),
        )
    });
    hit.into_iter().collect()
}

fn no_limit(unit: &Unit<'_>) -> Vec<Hit> {
    let limits = unit.service.get("SoftResourceLimits");
    let files = limits.and_then(|node| node.get("NumberOfFiles"));
    let why = "without NumberOfFiles the soft limit of descriptors is 256";
    let line = limits.map_or(unit.service.line, |node| node.line);
    let hit = files.is_none().then(|| (line, why.to_owned()));
    hit.into_iter().collect()
}

fn abandon(unit: &Unit<'_>) -> Vec<Hit> {
    unit.when("AbandonProcessGroup", |node| {
        let why = "what the job started lives on after it, and holds the port at the next start";
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
            "launchd kills fdguard after {seconds} s, before its own grace of {} s is over",
            grace.as_secs()
        )
    };
    let hit = wrong.then(|| (line, why()));
    hit.into_iter().collect()
}

fn no_throttle(unit: &Unit<'_>) -> Vec<Hit> {
    unit.when("ThrottleInterval", |node| {
        let zero = node.text().and_then(|text| text.trim().parse::<u64>().ok()) == Some(0);
        zero.then(|| "a job that fails at once is started again without a pause".to_owned())
    })
}
