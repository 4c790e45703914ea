//! `fdguard unit`: writes or lints the unit for a supervisor.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde::Serialize;

use crate::cli::UnitArgs;
use crate::exit::{self, HintedError};
use crate::output;
use crate::unit::{self, UnitSpec, UnitTarget};

mod lint;

pub(super) fn run(args: &UnitArgs) -> anyhow::Result<u8> {
    if let Some(file) = &args.lint {
        return lint::run(args, file);
    }
    let hint = "run, for example, fdguard unit systemd -- python3 server.py";
    let missing = |what: &str| HintedError::usage(format!("{what} is missing"), hint);
    let target = args.target.ok_or_else(|| missing("target"))?;
    let spec = spec(args, target)?;
    let text = spec.write(target).map_err(|unit::UnitError(why)| {
        HintedError::usage(why, "put the command in a script and use the script here")
    })?;
    output::emit(args.output.as_deref(), |out| {
        if !args.json {
            return Ok(out.write_all(text.as_bytes())?);
        }
        let document = Document {
            schema: "fdguard.unit/1",
            target: target.name(),
            name: &spec.name,
            text: &text,
        };
        serde_json::to_writer(&mut *out, &document)?;
        Ok(writeln!(out)?)
    })?;
    Ok(exit::CLEAN)
}

#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    target: &'static str,
    name: &'a str,
    text: &'a str,
}

fn spec(args: &UnitArgs, target: UnitTarget) -> anyhow::Result<UnitSpec> {
    let command: Result<Vec<String>, HintedError> =
        args.command.iter().map(|it| text(it)).collect();
    let mut command = command?;
    let program = command.first().cloned().unwrap_or_default();
    let inside = target == UnitTarget::Compose;
    if !inside && let Some(first) = command.first_mut() {
        // A supervisor has another working directory and another search path.
        *first = text(found(Path::new(&program))?.as_os_str())?;
    }
    let fdguard = match (&args.fdguard, inside) {
        (Some(path), _) => path.clone(),
        (None, true) => PathBuf::from("fdguard"),
        (None, false) => std::env::current_exe().context("cannot locate the fdguard executable")?,
    };
    let dir = args.dir.as_ref();
    let dir = dir.map(|it| {
        if inside {
            Ok(it.clone())
        } else {
            std::path::absolute(it)
        }
    });
    let dir = dir
        .transpose()?
        .map(|it| text(it.as_os_str()))
        .transpose()?;
    Ok(UnitSpec {
        name: name(args, &program)?,
        command,
        fdguard: text(fdguard.as_os_str())?,
        listen: args.listen.clone(),
        metrics: args.metrics.map(|it| it.to_string()),
        grace: args.grace,
        restart: args.restart.name(),
        files: args.files,
        user: args.user,
        dir,
        home: std::env::var("HOME").ok().filter(|it| it.starts_with('/')),
        image: args.image.clone(),
    })
}

fn text(word: &OsStr) -> Result<String, HintedError> {
    word.to_str().map(str::to_owned).ok_or_else(|| {
        let why = format!(
            "{}: not valid UTF-8, which unit files require",
            word.display()
        );
        HintedError::usage(why, "put the command in a script and use the script here")
    })
}

fn name(args: &UnitArgs, program: &str) -> Result<String, HintedError> {
    let own = Path::new(program).file_stem().and_then(OsStr::to_str);
    let name = args.name.as_deref().or(own).unwrap_or_default();
    if unit::is_name(name) {
        return Ok(name.to_owned());
    }
    let why = format!("{name:?} is not a service name");
    Err(HintedError::usage(
        why,
        "set --name to letters, digits and . _ - @",
    ))
}

/// The program as an absolute path, found as a shell would. Links are not followed: a program may
/// depend on its own name.
fn found(program: &Path) -> Result<PathBuf, HintedError> {
    if program.components().count() > 1 || program.is_absolute() {
        return std::path::absolute(program).map_err(|error| {
            let why = format!("{}: {error}", program.display());
            HintedError::usage(why, "use the absolute path of the program")
        });
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut all = std::env::split_paths(&path).map(|dir| dir.join(program));
    all.find(|file| file.is_absolute() && file.is_file())
        .ok_or_else(|| {
            let why = format!("{}: program not found in PATH", program.display());
            HintedError::usage(why, "use the absolute path of the program")
        })
}
