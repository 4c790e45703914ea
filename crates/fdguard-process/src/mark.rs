//! The tree that a process was started in: `FDGUARD_TREE` in its environment, inherited by
//! everything below unless it is wiped.
//!
//! The value lists the enclosing trees of a process, the innermost last: `OWNER.START-COUNT`,
//! separated by commas.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use fdguard_proc::process::pids;
use fdguard_proc::{ProcKey, environ};

/// The variable.
pub const VARIABLE: &str = "FDGUARD_TREE";

/// A longer list of trees is not passed on.
const LONGEST: usize = 1024;
/// During an exec the environment is empty for a moment, so it is read up to this many times.
const TRIES: u32 = 5;

/// The prefix of the marks of an owner's trees.
pub(crate) fn owner(owner: ProcKey) -> String {
    format!("{}.{}-", owner.pid, owner.start_ticks)
}

/// The mark of one more tree of this process; `None` if `/proc` cannot be read.
pub(crate) fn next() -> Option<String> {
    static OWNER: OnceLock<Option<String>> = OnceLock::new();
    static COUNT: AtomicU32 = AtomicU32::new(1);
    let own = OWNER.get_or_init(|| ProcKey::current().ok().map(owner));
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    // The last character ensures that no count is a prefix of another.
    own.as_ref().map(|own| format!("{own}{count};"))
}

/// The variable's value for a tree inside those in `around`.
pub(crate) fn value(around: Option<&OsStr>, mark: &str) -> OsString {
    let around = around.filter(|around| !around.is_empty() && around.len() <= LONGEST);
    let around = around.map(|around| [around.as_bytes(), b","].concat());
    let mut value = around.unwrap_or_default();
    value.extend_from_slice(mark.as_bytes());
    OsString::from_vec(value)
}

/// Every process with a mark that has this prefix, except this one.
pub(crate) fn find(beginning: &str) -> Vec<ProcKey> {
    let own = std::process::id();
    pids()
        .filter(|pid| *pid != own && carries(*pid, beginning))
        .filter_map(|pid| {
            // The pid may have been reused since: read the identity first, then check the mark
            // again.
            let identity = ProcKey::read(pid).ok()?;
            carries(pid, beginning).then_some(identity)
        })
        .collect()
}

/// Whether a process has such a mark. One that has ended has no environment.
fn carries(pid: u32, beginning: &str) -> bool {
    for _ in 0..TRIES {
        let Ok(environment) = fs::read(format!("/proc/{pid}/environ")) else {
            return false;
        };
        if !environment.is_empty() {
            return is_marked(&environment, beginning);
        }
        // Kernel threads and ended processes have no executable either.
        if fs::read_link(format!("/proc/{pid}/exe")).is_err() {
            return false;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    false
}

fn is_marked(environment: &[u8], beginning: &str) -> bool {
    environ::values(environment, VARIABLE).any(|value| {
        let mut marks = value.split(|byte| *byte == b',');
        marks.any(|mark| mark.starts_with(beginning.as_bytes()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_is_found_by_its_mark_and_by_its_owner() {
        let environment = b"A=b\0FDGUARD_TREE=1.2-3;,40.50-6;\0C=d\0";
        for beginning in ["1.2-", "1.2-3;", "40.50-", "40.50-6;"] {
            assert!(is_marked(environment, beginning), "{beginning}");
        }
        for beginning in ["0.50-", "1.2-4;", "40.50-60;", "40.5-"] {
            assert!(!is_marked(environment, beginning), "{beginning}");
        }
        assert!(!is_marked(b"XFDGUARD_TREE=1.2-3;\0", "1.2-"));
        assert!(!is_marked(b"", "1.2-"));
    }

    #[test]
    fn trees_inside_of_trees_carry_both_marks() {
        let value_of = |around: &str| value(Some(OsStr::new(around)), "3.4-5;");
        assert_eq!(value(None, "3.4-5;"), "3.4-5;");
        assert_eq!(value_of("1.2-1;"), "1.2-1;,3.4-5;");
        assert_eq!(value_of(""), "3.4-5;");
        assert_eq!(value_of(&"x".repeat(LONGEST + 1)), "3.4-5;");
    }

    #[test]
    fn no_two_trees_have_one_mark() {
        let (first, second) = (next().unwrap(), next().unwrap());
        assert_ne!(first, second);
        assert!(!second.starts_with(&first));
    }
}
