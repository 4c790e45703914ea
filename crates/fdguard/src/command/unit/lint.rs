//! `fdguard unit --lint`: finds traps in a unit.

use std::io::{Read as _, Write};
use std::path::Path;

use fdguard_core::Text;
use fdguard_core::lint::Severity;
use serde::Serialize;

use crate::cli::UnitArgs;
use crate::exit::{self, HintedError};
use crate::input::{self, InputError};
use crate::output;
use crate::report::style;
use crate::unit::lint::{UnitFinding, lint};
use crate::unit::{UnitTarget, read};

#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    file: Text,
    target: &'static str,
    findings: &'a [UnitFinding],
}

pub(super) fn run(args: &UnitArgs, file: &Path) -> anyhow::Result<u8> {
    let shown = file.display().to_string();
    let text = contents(file)?;
    let target = args.target.or_else(|| read::guess(&shown, &text));
    let target = target.ok_or_else(|| {
        let why = format!("{shown}: cannot determine the supervisor");
        HintedError::look(why, "name it: fdguard unit systemd --lint FILE")
    })?;
    let unit = read::read(target, &text).map_err(|error| {
        let line = error
            .line
            .map(|line| format!(":{line}"))
            .unwrap_or_default();
        let why = format!("{shown}{line}: {}", error.why);
        HintedError::look(why, format!("check that this is a {} file", target.name()))
    })?;
    let findings = lint(target, &unit);
    write(args, file, target, &findings)?;
    let level = Severity::from(args.fail_on);
    let is_failing = findings.iter().any(|it| it.severity >= level);
    Ok(if is_failing {
        exit::FINDINGS
    } else {
        exit::CLEAN
    })
}

fn contents(file: &Path) -> anyhow::Result<String> {
    let bytes = if file.as_os_str() == "-" {
        let mut bytes = Vec::new();
        let stdin = std::io::stdin().lock();
        stdin.take(input::WRITTEN + 1).read_to_end(&mut bytes)?;
        let is_bounded = bytes.len() as u64 <= input::WRITTEN;
        let too_large = || input::refused(file, InputError::TooLarge(input::WRITTEN));
        is_bounded.then_some(bytes).ok_or_else(too_large)?
    } else {
        input::read(file, input::WRITTEN)?
    };
    // A binary property list has a text signature before its binary data.
    if bytes.starts_with(b"bplist") {
        return Ok("bplist".to_owned());
    }
    String::from_utf8(bytes).map_err(|_bytes| {
        let why = format!("{}: not a text file", file.display());
        HintedError::look(why, "pass the unit file itself").into()
    })
}

fn write(
    args: &UnitArgs,
    file: &Path,
    target: UnitTarget,
    findings: &[UnitFinding],
) -> anyhow::Result<()> {
    let place = args.output.as_deref();
    if !args.json {
        return output::emit_styled(place, |out| lines(out, file, target, findings));
    }
    let document = Document {
        schema: "fdguard.lint/1",
        file: Text::from(file.as_os_str().as_encoded_bytes()),
        target: target.name(),
        findings,
    };
    output::emit(place, |out| {
        serde_json::to_writer(&mut *out, &document)?;
        Ok(writeln!(out)?)
    })
}

fn lines(
    out: &mut dyn Write,
    file: &Path,
    target: UnitTarget,
    findings: &[UnitFinding],
) -> anyhow::Result<()> {
    for finding in findings {
        let UnitFinding {
            rule,
            severity,
            line,
            reason,
            instead,
        } = finding;
        let reason = crate::terminal::sanitize_str(reason);
        let (color, level) = style::severity(*severity);
        let level = style::paint(color, level);
        writeln!(out, "{}:{line}: {level}: {reason} [{rule}]", file.display())?;
        writeln!(out, "  instead: {instead}")?;
    }
    if findings.is_empty() {
        let rules = crate::unit::lint::rules(target).len();
        writeln!(
            out,
            "{}: no problems found ({rules} {} rules checked)",
            file.display(),
            target.name()
        )?;
    }
    Ok(())
}
