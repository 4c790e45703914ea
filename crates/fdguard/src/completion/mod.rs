//! Completion in the shell: options and values, and the running processes by number and by name.
//!
//! The scripts for bash, zsh and fish ask this program for the candidates of the last word
//! ([`WORD`]). Other shells get clap's scripts, which know options only.

use std::ffi::{OsStr, OsString};

use clap::CommandFactory as _;
use clap_complete::Shell;
use clap_complete::engine::{CompletionCandidate, complete};
use fdguard_core::Pid;
use fdguard_probe::Probe;

use crate::cli::Cli;
use crate::output;

/// Internal: the first argument of a request for candidates. The words of the command line follow,
/// up to the cursor.
pub(crate) const WORD: &str = "__complete";

/// Prints the script for a shell.
pub(crate) fn print_script(shell: Shell) -> anyhow::Result<()> {
    output::emit(None, |mut out| {
        let script = match shell {
            Shell::Bash => include_str!("fdguard.bash"),
            Shell::Zsh => include_str!("fdguard.zsh"),
            Shell::Fish => include_str!("fdguard.fish"),
            _ => {
                clap_complete::generate(shell, &mut Cli::command(), "fdguard", &mut out);
                return Ok(());
            }
        };
        Ok(out.write_all(script.as_bytes())?)
    })
}

/// Prints the candidates for the last word, one per line: the value, a tab, what it is. Behind `--`
/// is somebody else's command line, which the shell completes.
pub(crate) fn print_candidates(words: &[OsString]) -> anyhow::Result<()> {
    let Some((current, before)) = words.split_last() else {
        return Ok(());
    };
    let dir = std::env::current_dir().ok();
    let found = if before.iter().any(|word| word == "--") {
        Vec::new()
    } else {
        let words = words.to_vec();
        // The engine fails if there is nothing to complete.
        complete(&mut Cli::command(), words, before.len(), dir.as_deref()).unwrap_or_default()
    };
    let found = without_options(found, current);
    output::emit(None, |out| {
        for candidate in &found {
            let value = candidate.get_value().to_string_lossy();
            let help = candidate.get_help().map(ToString::to_string);
            let help = help.unwrap_or_default();
            writeln!(out, "{value}\t{}", help.lines().next().unwrap_or_default())?;
        }
        Ok(())
    })
}

/// Options are offered once the word begins with a dash, or if nothing else fits.
fn without_options(
    mut found: Vec<CompletionCandidate>,
    current: &OsStr,
) -> Vec<CompletionCandidate> {
    let is_option =
        |one: &CompletionCandidate| one.get_value().as_encoded_bytes().starts_with(b"-");
    if current.is_empty() && found.iter().any(|one| !is_option(one)) {
        found.retain(|one| !is_option(one));
    }
    found
}

/// A running process.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Candidate {
    pid: Pid,
    name: String,
}

/// The running processes, ascending, without kernel threads and this one.
fn processes() -> Vec<Candidate> {
    let Ok(probe) = Probe::new() else {
        return Vec::new();
    };
    let mut found = probe.process_names().unwrap_or_default();
    found.retain(|(pid, _)| *pid != std::process::id());
    let found = found.into_iter().map(|(pid, name)| Candidate {
        pid,
        // A name may contain anything: it must stay on its line.
        name: name.to_lossy().replace(char::is_control, " "),
    });
    found.collect()
}

/// Completes a process id: by the beginning of its number; or, if a single process has a name that
/// begins so, by that.
pub(crate) fn process_numbers(current: &OsStr) -> Vec<CompletionCandidate> {
    numbers(&processes(), &current.to_string_lossy())
        .into_iter()
        .map(|one| CompletionCandidate::new(one.pid.to_string()).help(Some(one.name.into())))
        .collect()
}

fn numbers(processes: &[Candidate], current: &str) -> Vec<Candidate> {
    let by_number = processes
        .iter()
        .filter(|one| one.pid.to_string().starts_with(current));
    let by_number: Vec<Candidate> = by_number.cloned().collect();
    if !by_number.is_empty() {
        return by_number;
    }
    let mut by_name = processes.iter().filter(|one| one.name.starts_with(current));
    match (by_name.next(), by_name.next()) {
        (Some(one), None) => vec![one.clone()],
        _ => Vec::new(),
    }
}

/// Completes the name of a process, each once, with the number of processes that have it.
pub(crate) fn process_names(current: &OsStr) -> Vec<CompletionCandidate> {
    let counted = names(&processes(), &current.to_string_lossy());
    let counted = counted.into_iter().map(|(name, count)| {
        let help = fdguard_core::units::counted(count, "process");
        CompletionCandidate::new(name).help(Some(help.into()))
    });
    counted.collect()
}

fn names(processes: &[Candidate], current: &str) -> Vec<(String, u64)> {
    let mut counted = std::collections::BTreeMap::new();
    for one in processes.iter().filter(|one| one.name.starts_with(current)) {
        *counted.entry(one.name.clone()).or_insert(0) += 1;
    }
    counted.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::{Candidate, names, numbers};

    fn processes() -> Vec<Candidate> {
        let all = [
            (1, "init"),
            (41, "nginx"),
            (410, "python3"),
            (411, "python3"),
            (77, "redis"),
        ];
        let all = all.map(|(pid, name)| Candidate {
            pid,
            name: name.to_owned(),
        });
        all.to_vec()
    }

    fn found(current: &str) -> Vec<u32> {
        numbers(&processes(), current)
            .iter()
            .map(|one| one.pid)
            .collect()
    }

    #[test]
    fn a_process_is_found_by_the_beginning_of_its_number() {
        assert_eq!(found(""), [1, 41, 410, 411, 77]);
        assert_eq!(found("4"), [41, 410, 411]);
        assert_eq!(found("411"), [411]);
    }

    #[test]
    fn a_name_leads_to_a_number_only_if_one_process_has_it() {
        assert_eq!(found("red"), [77]);
        assert_eq!(found("py"), [] as [u32; 0]);
        assert_eq!(found("x"), [] as [u32; 0]);
    }

    #[test]
    fn each_name_is_listed_once() {
        let all = names(&processes(), "");
        let listed: Vec<&str> = all.iter().map(|(name, _)| &**name).collect();
        assert_eq!(listed, ["init", "nginx", "python3", "redis"]);
        assert_eq!(names(&processes(), "p"), [("python3".to_owned(), 2)]);
    }
}
