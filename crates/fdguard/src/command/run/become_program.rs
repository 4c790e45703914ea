//! `run --exec`: raises the limit and executes the program in the same process. Nothing is
//! supervised.

use std::io::ErrorKind;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use fdguard_supervise::config::RunSettings;
use fdguard_supervise::limit;
use rustix::process::{Resource, Rlimit, setrlimit};

use crate::exit::{self, HintedError};

/// Does not return on success.
pub(super) fn run(settings: &RunSettings) -> anyhow::Result<u8> {
    let [service] = &settings.services[..] else {
        return Err(HintedError::usage("--exec requires exactly one program", "").into());
    };
    let [program, words @ ..] = &service.command[..] else {
        return Err(HintedError::usage("--exec requires a program", "").into());
    };
    raise(service.raise_limit);
    let mut command = Command::new(program);
    command
        .args(words)
        .envs(service.environment.iter().cloned());
    if let Some(dir) = &service.dir {
        command.current_dir(dir);
    }
    let error = command.exec();
    let shown = program.to_string_lossy();
    let (message, code) = match error.kind() {
        ErrorKind::NotFound => (format!("{shown}: command not found"), 127),
        _ => (format!("cannot run {shown}: {error}"), 126),
    };
    let hint = String::new();
    Err(HintedError {
        message,
        hint,
        code,
    }
    .into())
}

/// Raises fdguard's own soft limit, which the program inherits. On failure it warns and runs the
/// program anyway.
fn raise(asked: limit::LimitRequest) {
    let decision = limit::decide(asked, limit::read());
    let Some(soft) = decision.soft else { return };
    let raised = Rlimit {
        current: Some(soft),
        maximum: decision.before.hard,
    };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        exit::warn(&anyhow::anyhow!(
            "cannot raise the soft descriptor limit: {error}"
        ));
    }
}
