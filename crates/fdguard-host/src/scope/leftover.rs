//! Finds processes of a scope that have no keeper. Every process that a scope starts has a variable
//! in its environment, and so have its descendants, unless they clear it.

use std::fs;
use std::time::Duration;

use fdguard_proc::process::name as name_of;
use fdguard_proc::{ProcessId, environ};
use fdguard_process::run_id::RunId;

use super::clean_up::{EnvironmentScan, ScopeLeftover};

/// The variable. It differs from that of `fdguard run`, which names the owner of the whole host.
pub const VARIABLE: &str = "FDGUARD_SCOPE";

/// While a process becomes another program its environment is empty for a moment: so often it is
/// read again.
const TRIES: u32 = 5;

/// The variable's value for a scope: this host, and the scope's id.
pub(super) fn mark(scope: &str) -> Option<String> {
    RunId::own(scope).map(|id| id.to_string())
}

/// The processes that were found, with the identity of each.
#[derive(Debug, Default)]
pub(super) struct FoundLeftovers {
    pub(super) look: EnvironmentScan,
    pub(super) identities: Vec<ProcessId>,
}

/// Scans all processes. It blocks for a few milliseconds.
pub(super) fn find_leftovers(mark: &str) -> std::io::Result<FoundLeftovers> {
    let mut found = FoundLeftovers::default();
    let own = std::process::id();
    for entry in fs::read_dir("/proc")?.flatten() {
        let name = entry.file_name();
        let pid = name.to_str().and_then(|name| name.parse::<u32>().ok());
        let Some(pid) = pid.filter(|pid| *pid != own) else {
            continue;
        };
        found.look.seen += 1;
        match carries(pid, mark) {
            Ok(true) => {}
            Ok(false) => continue,
            Err(error) => {
                let is_denied = error.kind() == std::io::ErrorKind::PermissionDenied;
                found.look.unreadable += u32::from(is_denied);
                continue;
            }
        }
        // The number may mean another process since: the identity first, then the mark once more.
        let identity = ProcessId::read(pid);
        if let (Ok(identity), Ok(true)) = (identity, carries(pid, mark)) {
            let comm = name_of(pid).unwrap_or_default();
            found.look.leftovers.push(ScopeLeftover { pid, comm });
            found.identities.push(identity);
        }
    }
    Ok(found)
}

/// Whether a process has the mark in its environment. An ended process has no environment.
pub(super) fn carries(pid: u32, mark: &str) -> std::io::Result<bool> {
    for _ in 0..TRIES {
        let environment = fs::read(format!("/proc/{pid}/environ"))?;
        if !environment.is_empty() {
            return Ok(is_marked(&environment, mark));
        }
        // Kernel threads and ended processes have no program either.
        if fs::read_link(format!("/proc/{pid}/exe")).is_err() {
            return Ok(false);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(false)
}

fn is_marked(environment: &[u8], mark: &str) -> bool {
    environ::values(environment, VARIABLE).any(|value| value == mark.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_whole_value_of_the_variable_counts() {
        let mark = "1.2:a";
        assert!(is_marked(b"A=b\0FDGUARD_SCOPE=1.2:a\0", mark));
        assert!(!is_marked(b"FDGUARD_SCOPE=1.2:ab\0", mark));
        assert!(!is_marked(b"XFDGUARD_SCOPE=1.2:a\0", mark));
        assert!(!is_marked(b"A=FDGUARD_SCOPE=1.2:a\0", mark));
        assert!(!is_marked(b"", mark));
    }
}
