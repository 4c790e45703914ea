//! `fdguard history`: when did it begin, and after what?

mod moment;

use std::io::Write;
use std::path::PathBuf;

use fdguard_core::units;
use fdguard_serve::service::ServiceKey;
use fdguard_serve::{ServiceHistory, StoreError, read_history, read_services};
use jiff::{SignedDuration, Timestamp};
use serde::Serialize;

use super::serve::{HISTORY_FILE, state_dir};
use crate::cli::HistoryArgs;
use crate::exit::{self, HintedError};
use crate::output;
use crate::terminal::sanitize_str;

/// Events that the text shows.
const EVENTS: usize = 20;

/// Runs the command.
pub(super) fn run(args: &HistoryArgs) -> anyhow::Result<u8> {
    let path = file(args)?;
    let Some(name) = &args.service else {
        return list(args, &read_services(&path).map_err(explain)?);
    };
    let since = args.since.map(|since| {
        let since = SignedDuration::try_from(since).unwrap_or(SignedDuration::MAX);
        Timestamp::now()
            .checked_sub(since)
            .unwrap_or(Timestamp::MIN)
    });
    let found = read_history(&path, name, since).map_err(explain)?;
    if found.is_empty() {
        let message = format!("no service {name:?} in the history");
        let hint = "run `fdguard history` to list the services";
        return Err(HintedError::look(message, hint).into());
    }
    if let [first, second, ..] = found.as_slice() {
        let message = format!(
            "{name:?} is not one service: {} or {}",
            first.service, second.service
        );
        let hint = format!("give the kind too: fdguard history '{}'", first.service);
        return Err(HintedError::usage(message, hint).into());
    }
    let history = &found[0];
    if !args.at.is_empty() {
        return moment::show(args, &path, &history.service);
    }
    output::emit(args.output.as_deref(), |out| {
        if args.json {
            serde_json::to_writer(&mut *out, history)?;
            return Ok(writeln!(out)?);
        }
        write(out, history)
    })?;
    let has_findings = history.events.iter().any(|event| event.event == "opened");
    let has_grown = history.onset.is_some() || has_findings;
    Ok(if has_grown {
        exit::FINDINGS
    } else {
        exit::CLEAN
    })
}

fn file(args: &HistoryArgs) -> anyhow::Result<PathBuf> {
    let dir = state_dir(args.state.as_deref()).ok_or_else(|| {
        HintedError::usage(
            "no state directory: $HOME is not set",
            "name it with --state DIR",
        )
    })?;
    Ok(dir.join(HISTORY_FILE))
}

fn explain(error: StoreError) -> anyhow::Error {
    let hint = "start `fdguard serve` first, or name its directory with --state DIR";
    HintedError::look(error.to_string(), hint).into()
}

/// The services of a history.
#[derive(Serialize)]
struct ServiceList<'a> {
    schema: &'static str,
    services: &'a [ServiceKey],
}

fn list(args: &HistoryArgs, services: &[ServiceKey]) -> anyhow::Result<u8> {
    output::emit(args.output.as_deref(), |out| {
        if args.json {
            let schema = "fdguard.history.services/1";
            serde_json::to_writer(&mut *out, &ServiceList { schema, services })?;
            return Ok(writeln!(out)?);
        }
        for service in services {
            writeln!(out, "{}", sanitize_str(&service.to_string()))?;
        }
        Ok(())
    })?;
    Ok(exit::CLEAN)
}

fn write(out: &mut dyn Write, history: &ServiceHistory) -> anyhow::Result<()> {
    let name = history.service.to_string();
    let span = history.from.zip(history.to).map(|(from, to)| {
        let length = units::duration(to.duration_since(from).as_secs_f64());
        format!(
            "{} over {length}",
            units::counted(history.samples.len() as u64, "sample")
        )
    });
    let span = span.unwrap_or_else(|| "no samples".to_owned());
    writeln!(out, "{}  {span}", sanitize_str(&name))?;
    match &history.onset {
        Some(onset) => writeln!(out, "{}", onset.text)?,
        None => writeln!(out, "No growth in this time.")?,
    }
    if let Some(rate) = history.onset.as_ref().and_then(|onset| onset.per_hour) {
        writeln!(
            out,
            "Rate in the latest run: {rate:.1} descriptors an hour."
        )?;
    }
    if let Some(last) = history.samples.last() {
        let known = |value: Option<u64>| value.map_or("?".to_owned(), |value| value.to_string());
        writeln!(
            out,
            "Last sample: {} descriptors in {}, limit {}, verdict {}.",
            known(last.open_fds),
            units::counted(last.processes, "process"),
            known(last.limit),
            last.verdict
        )?;
    }
    write_events(out, history)?;
    for loss in &history.losses {
        let why = sanitize_str(&loss.why).into_owned();
        let at = time(loss.at);
        match loss.rows {
            0 => writeln!(out, "gap: at {at} {why}")?,
            rows => {
                let rows = units::counted(rows, "row");
                writeln!(out, "gap: {rows} lost before {at}: {why}")?;
            }
        }
    }
    Ok(())
}

fn write_events(out: &mut dyn Write, history: &ServiceHistory) -> anyhow::Result<()> {
    let events = &history.events;
    let beyond = events.len().saturating_sub(EVENTS);
    if beyond > 0 {
        writeln!(out, "… {beyond} earlier events (--json shows all)")?;
    }
    for event in &events[beyond..] {
        let about = event.finding.as_ref().map(|finding| {
            let class = finding.class.as_deref().unwrap_or("unknown class");
            format!("{} {} ({class}) ", finding.severity, finding.rule)
        });
        let about = about.unwrap_or_default();
        let line = format!(
            "{}  {:<10} {about}{}",
            time(event.at),
            event.event,
            event.text
        );
        writeln!(out, "{}", sanitize_str(line.trim_end()))?;
    }
    Ok(())
}

fn time(at: Timestamp) -> String {
    at.strftime("%Y-%m-%d %H:%M:%SZ").to_string()
}
