//! Traps in files of Docker Compose.

use std::time::Duration;

use fdguard_core::lint::Severity;
use fdguard_core::units::exact_seconds;

use super::{Check, Hit, RuleTable, Unit, daemonises, trap};
use crate::unit::read::UnitNode;
use crate::unit::supervisord::split;
use crate::unit::words::span;

pub(in crate::unit) const RULES: RuleTable<Check> = &[
    (
        trap(
            "compose-no-init",
            Severity::Warning,
            "no init process: nothing reaps orphaned processes in the container",
            "set init: true",
        ),
        no_init,
    ),
    (
        trap(
            "compose-no-file-limit",
            Severity::Info,
            "no nofile limit: the limit depends on the Docker daemon of the host",
            "set ulimits: nofile: with soft and hard",
        ),
        no_limit,
    ),
    (
        trap(
            "compose-restart-blind",
            Severity::Warning,
            "restart: without a healthcheck:, which misses processes that hang",
            "add a healthcheck:, and set restart: on-failure",
        ),
        blind,
    ),
    daemonises("compose-daemonises"),
    (
        trap(
            "compose-stop-too-soon",
            Severity::Warning,
            "a stop timeout that is shorter than the grace period of `fdguard run`",
            "set stop_grace_period: at least 15 s above `fdguard run --stop-grace`",
        ),
        too_soon,
    ),
];

pub(in crate::unit) fn units(file: &UnitNode) -> Vec<Unit<'_>> {
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
        "nothing reaps orphans in the container: zombies accumulate until no process can be started",
    )
}

fn no_limit(unit: &Unit<'_>) -> Vec<Hit> {
    let limits = unit.service.get("ulimits");
    let has = limits.is_some_and(|node| node.get("nofile").is_some());
    unit.missing(!has, "the descriptor limit is that of the host's Docker daemon: 1024 on one host, a million on another")
}

fn blind(unit: &Unit<'_>) -> Vec<Hit> {
    let check = unit.service.get("healthcheck");
    let is_checked = check.is_some_and(|node| !node.get("disable").is_some_and(UnitNode::is_yes));
    unit.when("restart", |node| {
        let restart = node.text().filter(|it| matches!(*it, "always" | "unless-stopped"))?;
        let why = format!("restart: {restart} acts only when the process exits; one that ran out of descriptors stops answering but keeps running");
        (!is_checked).then_some(why)
    })
}

fn too_soon(unit: &Unit<'_>) -> Vec<Hit> {
    let Some(grace) = unit.grace() else {
        return Vec::new();
    };
    let node = unit.service.get("stop_grace_period");
    let given = node.and_then(UnitNode::text).and_then(span);
    let given = given.unwrap_or(Duration::from_secs(10));
    let line = node.map_or(unit.service.line, |node| node.line);
    let why = || {
        format!(
            "the container is killed after {}, before fdguard's grace period of {} ends",
            exact_seconds(given),
            exact_seconds(grace)
        )
    };
    let hit = (given <= grace).then(|| (line, why()));
    hit.into_iter().collect()
}
