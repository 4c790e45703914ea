//! Traps in files of Docker Compose.

use fdguard_core::lint::Severity;

use super::{Hit, Rule, Unit, daemonises, rule};
use crate::unit::read::UnitNode;
use crate::unit::supervisord::split;
use crate::unit::words::span;

pub(super) const RULES: &[Rule] = &[
    rule("compose-no-init", "init: true", no_init),
    rule(
        "compose-no-file-limit",
        "ulimits: with nofile: soft and hard",
        no_limit,
    )
    .with(Severity::Info),
    rule(
        "compose-restart-blind",
        "a healthcheck:, and restart: on-failure",
        blind,
    ),
    rule(
        "compose-daemonises",
        "the option that keeps the program in the foreground, and `exec` in shells",
        daemonises,
    )
    .with(Severity::Critical),
    rule(
        "compose-stop-too-soon",
        "stop_grace_period: at least 15 s above the grace of `fdguard run --stop-grace`",
        too_soon,
    ),
];

pub(super) fn units(file: &UnitNode) -> Vec<Unit<'_>> {
    let services = file
        .get("services")
        .map(UnitNode::pairs)
        .unwrap_or_default();
    services
        .iter()
        .map(|(_, service)| unit(file, service))
        .collect()
}

fn unit<'a>(file: &'a UnitNode, service: &'a UnitNode) -> Unit<'a> {
    let parts: Vec<&UnitNode> = ["entrypoint", "command"]
        .iter()
        .filter_map(|name| service.get(name))
        .collect();
    let line = parts.first().map_or(service.line, |node| node.line);
    let words = parts.into_iter().flat_map(words).collect();
    Unit {
        file,
        service,
        words: (line, words),
    }
}

/// A list of words, or a line. `$` is doubled in both.
fn words(node: &UnitNode) -> Vec<String> {
    let words = match node.list() {
        Some(list) => list
            .iter()
            .filter_map(|it| it.text().map(str::to_owned))
            .collect(),
        None => split(node.text().unwrap_or_default()).unwrap_or_default(),
    };
    words
        .into_iter()
        .map(|word| word.replace("$$", "$"))
        .collect()
}

fn no_init(unit: &Unit<'_>) -> Vec<Hit> {
    let has = unit.service.get("init").is_some_and(|node| !node.is_no());
    unit.missing(
        !has,
        "nobody reaps orphans in the container: zombies pile up until there are no more processes",
    )
}

fn no_limit(unit: &Unit<'_>) -> Vec<Hit> {
    let limits = unit.service.get("ulimits");
    let has = limits.is_some_and(|node| node.get("nofile").is_some());
    unit.missing(!has, "the limit of descriptors is whatever the daemon of this host has: 1024 here, a million there")
}

fn blind(unit: &Unit<'_>) -> Vec<Hit> {
    let check = unit.service.get("healthcheck");
    let is_checked = check.is_some_and(|node| !node.get("disable").is_some_and(UnitNode::is_yes));
    unit.when("restart", |node| {
        let restart = node.text().filter(|it| matches!(*it, "always" | "unless-stopped"))?;
        let why = format!("restart: {restart} sees only processes that end; one that is full of descriptors answers nobody and lives on");
        (!is_checked).then_some(why)
    })
}

fn too_soon(unit: &Unit<'_>) -> Vec<Hit> {
    let Some(grace) = unit.grace() else {
        return Vec::new();
    };
    let node = unit.service.get("stop_grace_period");
    let given = node.and_then(UnitNode::text).and_then(span);
    let seconds = given.map_or(10.0, |it| it.as_secs_f64());
    let line = node.map_or(unit.service.line, |node| node.line);
    let why = || {
        format!(
            "the container is killed after {seconds} s, before fdguard's own grace of {} s is over",
            grace.as_secs_f64()
        )
    };
    let hit = (seconds <= grace.as_secs_f64()).then(|| (line, why()));
    hit.into_iter().collect()
}
