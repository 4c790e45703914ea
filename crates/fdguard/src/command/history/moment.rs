//! `fdguard history --at`: what a service held at a kept moment, and what changed between two.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;

use fdguard_core::Text;
use fdguard_core::units::counted;
use fdguard_serve::service::ServiceKey;
use fdguard_serve::{ServiceMoment, read_moment};
use jiff::Timestamp;
use serde::Serialize;

use super::{explain, time};
use crate::cli::HistoryArgs;
use crate::exit::{self, HintedError};
use crate::output;
use crate::terminal::sanitize_str;

/// Two moments.
#[derive(Serialize)]
struct MomentPair<'a> {
    schema: &'static str,
    before: &'a ServiceMoment,
    after: &'a ServiceMoment,
}

/// Shows one moment, or the difference between two.
pub(super) fn show(args: &HistoryArgs, path: &Path, service: &ServiceKey) -> anyhow::Result<u8> {
    let moments: Vec<ServiceMoment> = match args.at.as_slice() {
        [_] | [_, _] => args.at.iter().map(|at| read(path, service, *at)),
        _ => {
            let hint = "give one moment to see it, or two to compare them";
            return Err(HintedError::usage("--at is given more than twice", hint).into());
        }
    }
    .collect::<anyhow::Result<_>>()?;
    output::emit(args.output.as_deref(), |out| {
        match (moments.as_slice(), args.json) {
            ([one], true) => write_json(out, one),
            ([one], false) => write_one(out, one),
            ([before, after, ..], true) => {
                let schema = "fdguard.moment.difference/1";
                write_json(
                    out,
                    &MomentPair {
                        schema,
                        before,
                        after,
                    },
                )
            }
            ([before, after, ..], false) => write_difference(out, before, after),
            ([], _) => Ok(()),
        }
    })?;
    Ok(exit::CLEAN)
}

fn read(path: &Path, service: &ServiceKey, at: Timestamp) -> anyhow::Result<ServiceMoment> {
    let found = read_moment(path, service, at).map_err(explain)?;
    found.ok_or_else(|| {
        let message = format!("nothing is kept of {service} up to {}", time(at));
        let hint = format!("run `fdguard history '{service}'` to see since when it is kept");
        HintedError::look(message, hint).into()
    })
}

fn write_json(out: &mut dyn Write, document: &impl Serialize) -> anyhow::Result<()> {
    serde_json::to_writer(&mut *out, document)?;
    Ok(writeln!(out)?)
}

/// Counts by class and target.
type Tallies = BTreeMap<(String, Option<Text>), u64>;

fn tallies(moment: &ServiceMoment) -> Option<Tallies> {
    let targets = moment.targets.as_ref()?.iter();
    Some(
        targets
            .map(|row| ((row.class.clone(), row.target.clone()), row.count))
            .collect(),
    )
}

fn write_one(out: &mut dyn Write, moment: &ServiceMoment) -> anyhow::Result<()> {
    write_head(out, moment)?;
    let Some(tallies) = tallies(moment) else {
        return write_unknown(out, moment);
    };
    let mut rows: Vec<_> = tallies.iter().collect();
    rows.sort_by(|a, b| b.1.cmp(a.1).then_with(|| a.0.cmp(b.0)));
    for (key, count) in rows {
        writeln!(out, "{count:>8}  {}", name(key))?;
    }
    Ok(())
}

fn write_difference(
    out: &mut dyn Write,
    before: &ServiceMoment,
    after: &ServiceMoment,
) -> anyhow::Result<()> {
    write_head(out, before)?;
    write_head(out, after)?;
    let (Some(old), Some(new)) = (tallies(before), tallies(after)) else {
        let unknown = if before.targets.is_none() {
            before
        } else {
            after
        };
        return write_unknown(out, unknown);
    };
    let count = |side: &Tallies, key| side.get(key).copied().unwrap_or(0);
    let keys = old.keys().chain(new.keys());
    let changes: BTreeMap<_, i128> = keys
        .map(|key| {
            (
                key,
                i128::from(count(&new, key)) - i128::from(count(&old, key)),
            )
        })
        .filter(|(_, change)| *change != 0)
        .collect();
    if changes.is_empty() {
        return Ok(writeln!(out, "No difference.")?);
    }
    let mut rows: Vec<_> = changes.into_iter().collect();
    rows.sort_by_key(|(_, change)| std::cmp::Reverse(change.unsigned_abs()));
    for (key, change) in rows {
        let (x, y) = (count(&old, key), count(&new, key));
        writeln!(out, "{change:>+8}  {}  ({x} -> {y})", name(key))?;
    }
    Ok(())
}

fn write_head(out: &mut dyn Write, moment: &ServiceMoment) -> anyhow::Result<()> {
    let known = |value: Option<u64>| value.map_or("?".to_owned(), |value| value.to_string());
    let sample = &moment.sample;
    writeln!(
        out,
        "{}  {}  {} descriptors in {}, limit {}, verdict {}",
        sanitize_str(&moment.service.to_string()),
        time(sample.at),
        known(sample.open_fds),
        counted(sample.processes, "process"),
        known(sample.limit),
        sample.verdict
    )?;
    Ok(())
}

fn write_unknown(out: &mut dyn Write, moment: &ServiceMoment) -> anyhow::Result<()> {
    let at = time(moment.sample.at);
    let why =
        "targets are kept while a process of the service is watched: it grows or nears a limit";
    Ok(writeln!(out, "gap: no targets are kept of {at}: {why}")?)
}

fn name((class, target): &(String, Option<Text>)) -> String {
    let target = target
        .as_ref()
        .map_or("other targets".into(), Text::to_lossy);
    sanitize_str(&format!("{class}  {target}")).into_owned()
}
