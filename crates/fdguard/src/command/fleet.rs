//! `fdguard fleet`: the services of all hosts.

use std::io::Write;
use std::path::Path;

use fdguard_core::Gap;
use fdguard_core::lint::Severity;
use fdguard_core::units;
use fdguard_serve::fleet::{
    Fleet, FleetCheck, FleetCheckOptions, FleetError, FleetOptions, FleetOrder, FleetRow,
};
use serde::Serialize;

use super::header_file::read_beside_token;
use crate::cli::{FleetArgs, FleetSort, FleetWhat};
use crate::exit::{self, HintedError};
use crate::output;
use crate::terminal::sanitize_str;

/// Runs the command.
pub(super) fn run(args: &FleetArgs) -> anyhow::Result<u8> {
    let is_service = args.what == FleetWhat::Service;
    if is_service != args.service.is_some() {
        let message = match is_service {
            true => "fleet service needs the name of a service",
            false => "a name goes with fleet service only",
        };
        let hint = "write fdguard fleet --from URL service NAME";
        return Err(HintedError::usage(message, hint).into());
    }
    let fleet = Fleet::new(options(args)?).map_err(explain)?;
    match (&args.what, &args.service) {
        (FleetWhat::Check, _) => check(args, &fleet),
        (FleetWhat::Service, Some(name)) => service(args, &fleet, name),
        _ => top(args, &fleet),
    }
}

fn options(args: &FleetArgs) -> anyhow::Result<FleetOptions> {
    let token = token(args.token_file.as_deref(), "--token-file")?;
    let file = args.header_file.as_deref();
    Ok(FleetOptions {
        from: args.from.clone(),
        headers: read_beside_token(file, "--header-file", token.is_some())?,
        token,
        host_label: args.host_label.clone(),
        within: args.timeout,
    })
}

/// The bearer token in the file that this option names.
pub(super) fn token(file: Option<&Path>, option: &str) -> anyhow::Result<Option<String>> {
    let Some(path) = file else { return Ok(None) };
    let text = std::fs::read_to_string(path).map_err(|error| {
        let message = format!("{option} {}: {error}", path.display());
        HintedError::usage(message, "name a readable file with the token")
    })?;
    Ok(Some(text.trim().to_owned()))
}

fn explain(error: FleetError) -> anyhow::Error {
    let hint = match &error {
        FleetError::NoHosts { .. } => {
            "let it scrape /metrics of fdguard serve, or start that with --remote-write"
        }
        FleetError::Unreachable { .. } => "check the address, or raise --timeout",
        FleetError::Refused { .. } => "check --token-file, --header-file and the server's own log",
        FleetError::Nonsense { .. } => "give the base address, without /api/v1",
    };
    HintedError::look(sanitize_str(&error.to_string()).into_owned(), hint).into()
}

fn top(args: &FleetArgs, fleet: &Fleet) -> anyhow::Result<u8> {
    let order = match args.sort {
        FleetSort::TimeLeft => FleetOrder::TimeLeft,
        FleetSort::Growth => FleetOrder::Growth,
        FleetSort::Usage => FleetOrder::Usage,
        FleetSort::Verdict => FleetOrder::Verdict,
        FleetSort::Count => FleetOrder::Count,
    };
    let top = fleet.top(order, args.limit).map_err(explain)?;
    emit(args, &top, |out| {
        write_rows(out, &top.rows)?;
        let verb = if top.hosts == 1 { "reports" } else { "report" };
        writeln!(out, "{} {verb}", units::counted(top.hosts, "host"))?;
        write_gaps(out, &top.gaps)
    })?;
    Ok(exit::CLEAN)
}

fn service(args: &FleetArgs, fleet: &Fleet, name: &str) -> anyhow::Result<u8> {
    let service = fleet.service(name).map_err(explain)?;
    if service.rows.is_empty() {
        let message = format!("no host reports a service {name:?}");
        let hint = "run fdguard fleet --from URL top to see names; they are exact";
        return Err(HintedError::look(message, hint).into());
    }
    emit(args, &service, |out| {
        write_rows(out, &service.rows)?;
        writeln!(out, "{}", sanitize_str(&service.conclusion.text))?;
        write_gaps(out, &service.gaps)
    })?;
    let is_growing = service.rows.iter().any(FleetRow::is_growing);
    Ok(if is_growing {
        exit::FINDINGS
    } else {
        exit::CLEAN
    })
}

fn check(args: &FleetArgs, fleet: &Fleet) -> anyhow::Result<u8> {
    let options = FleetCheckOptions {
        fail_on: match args.fail_on.as_str() {
            "critical" => Severity::Critical,
            _ => Severity::Warning,
        },
        max_usage: args.max_usage,
        min_time_left: args.min_time_left,
    };
    let check = fleet.check(&options).map_err(explain)?;
    emit(args, &check, |out| write_check(out, &check))?;
    Ok(
        match (
            check.problems.is_empty(),
            check.gaps.is_empty() || args.allow_missing,
        ) {
            (false, _) => exit::FINDINGS,
            (true, true) => exit::CLEAN,
            (true, false) => exit::COULD_NOT_LOOK,
        },
    )
}

fn write_check(out: &mut dyn Write, check: &FleetCheck) -> anyhow::Result<()> {
    for problem in &check.problems {
        let name = format!("{}  {} {}", problem.host, problem.kind, problem.service);
        writeln!(
            out,
            "{}  {}",
            sanitize_str(&name),
            sanitize_str(&problem.what)
        )?;
    }
    let problems = units::counted(check.problems.len() as u64, "problem");
    let hosts = units::counted(check.hosts, "host");
    writeln!(out, "{problems} on {hosts}")?;
    write_gaps(out, &check.gaps)
}

fn emit(
    args: &FleetArgs,
    document: &impl Serialize,
    write: impl FnOnce(&mut dyn Write) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    output::emit(args.output.as_deref(), |out| {
        if args.json {
            serde_json::to_writer(&mut *out, document)?;
            return Ok(writeln!(out)?);
        }
        write(out)
    })
}

fn write_gaps(out: &mut dyn Write, gaps: &[Gap]) -> anyhow::Result<()> {
    for gap in gaps {
        let text = format!("gap: {}: {}; {}", gap.what, gap.why, gap.remedy);
        writeln!(out, "{}", sanitize_str(&text))?;
    }
    Ok(())
}

/// Columns as wide as their longest value; numbers to the right.
fn write_rows(out: &mut dyn Write, rows: &[FleetRow]) -> anyhow::Result<()> {
    let head = [
        "HOST", "SERVICE", "FDS", "LIMIT", "USED", "GROWTH", "VERDICT", "LEFT",
    ];
    let mut table: Vec<Vec<String>> = vec![head.map(str::to_owned).to_vec()];
    table.extend(rows.iter().map(cells));
    let width = |column: usize| {
        let cells = table.iter().map(|row| row[column].chars().count());
        cells.max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    for row in &table {
        let mut line = String::new();
        for (column, cell) in row.iter().enumerate() {
            let width = widths[column];
            let is_number = matches!(column, 2..=5 | 7);
            match is_number {
                true => line.push_str(&format!("{cell:>width$}  ")),
                false => line.push_str(&format!("{cell:<width$}  ")),
            }
        }
        writeln!(out, "{}", line.trim_end())?;
    }
    Ok(())
}

fn cells(row: &FleetRow) -> Vec<String> {
    let count = |value: Option<u64>| value.map_or("?".to_owned(), |value| value.to_string());
    let used = row
        .usage_ratio
        .map(|ratio| format!("{:.1}%", 100.0 * ratio));
    let growth = row
        .growth_per_second
        .map(|rate| format!("{:.1}/min", 60.0 * rate));
    let left = row.seconds_to_limit.map(units::duration);
    let name = format!("{} {}", row.kind, row.service);
    vec![
        sanitize_str(&row.host).into_owned(),
        sanitize_str(&name).into_owned(),
        count(row.open_fds),
        count(row.limit),
        used.unwrap_or_else(|| "?".to_owned()),
        growth.unwrap_or_else(|| "?".to_owned()),
        row.verdict.to_owned(),
        left.unwrap_or_else(|| "-".to_owned()),
    ]
}
