//! The program's environment as the block for an exec, with the variables of passed descriptors.

use std::ffi::{CString, OsStr, c_char};
use std::os::unix::ffi::OsStrExt as _;
use std::ptr;

use super::BadPlan;
use crate::mark;
use crate::plan::Plan;

/// The variables that describe passed descriptors. They are valid for one process, so another
/// process's are never passed on.
const OURS: [&str; 4] = [
    "LISTEN_PID",
    "LISTEN_FDS",
    "LISTEN_FDNAMES",
    "LISTEN_PIDFDID",
];
const PID: &[u8] = b"LISTEN_PID=";
/// The digits of the largest 32-bit number.
const DIGITS: usize = 10;

/// An environment. The pointers point into strings that it owns.
#[derive(Debug)]
pub(super) struct Environment {
    /// Owns what `pointers` points to.
    _strings: Vec<CString>,
    /// `LISTEN_PID=` with room for the pid, which only the child knows.
    pid: Option<Vec<u8>>,
    pointers: Vec<*const c_char>,
}

impl Environment {
    /// The plan's environment, with the mark of the tree if it has one.
    pub(super) fn new(plan: &Plan, mark: Option<&str>) -> Result<Self, BadPlan> {
        let mut strings = Vec::with_capacity(plan.environment.len() + 3);
        let mut around = None;
        for (name, value) in &plan.environment {
            if mark.is_some() && name == mark::VARIABLE {
                around = Some(value.as_os_str());
            } else if !OURS.iter().any(|ours| name == OsStr::new(ours)) {
                strings.push(variable(name.as_bytes(), value.as_bytes())?);
            }
        }
        if let Some(mark) = mark {
            let value = mark::value(around, mark);
            strings.push(variable(mark::VARIABLE.as_bytes(), value.as_bytes())?);
        }
        let names: Vec<_> = plan
            .handed
            .iter()
            .filter_map(|handed| handed.name.as_deref())
            .collect();
        let pid = (!names.is_empty()).then(|| [PID, &[0; DIGITS + 1]].concat());
        if pid.is_some() {
            let bad = |c: char| c == ':' || c.is_control();
            if names.iter().any(|name| name.contains(bad)) {
                return Err(BadPlan(
                    "a descriptor name contains a colon or a control character",
                ));
            }
            strings.push(variable(b"LISTEN_FDS", names.len().to_string().as_bytes())?);
            strings.push(variable(b"LISTEN_FDNAMES", names.join(":").as_bytes())?);
        }
        // The first entry is for the variable with the pid; it is skipped if there is none.
        let pointers = [ptr::null()]
            .into_iter()
            .chain(strings.iter().map(|string| string.as_ptr()))
            .chain([ptr::null()])
            .collect();
        Ok(Self {
            _strings: strings,
            pid,
            pointers,
        })
    }

    /// The block for the process with this pid. Neither allocates nor panics: a child calls it.
    pub(super) fn block(&mut self, pid: u32) -> &[*const c_char] {
        if let Some(variable) = &mut self.pid
            && let Some(digits) = variable.get_mut(PID.len()..)
            && let Some(first) = self.pointers.first_mut()
        {
            write_number(digits, pid);
            *first = variable.as_ptr().cast();
            return &self.pointers;
        }
        self.pointers.get(1..).unwrap_or_default()
    }

    #[cfg(test)]
    fn texts(&self) -> Vec<&str> {
        self._strings
            .iter()
            .map(|string| string.to_str().unwrap())
            .collect()
    }
}

/// Writes a number at the start of a zeroed buffer, without leading zeroes: some readers take those
/// for octal.
fn write_number(room: &mut [u8], number: u32) {
    let mut power = 1_000_000_000_u32;
    while power > 1 && number / power == 0 {
        power /= 10;
    }
    for byte in room.iter_mut().take(DIGITS) {
        if power == 0 {
            break;
        }
        let digit = u8::try_from(number / power % 10).unwrap_or(0);
        *byte = b'0' + digit;
        power /= 10;
    }
}

fn variable(name: &[u8], value: &[u8]) -> Result<CString, BadPlan> {
    CString::new([name, b"=", value].concat())
        .map_err(|_zero| BadPlan("an environment variable contains a NUL byte"))
}

#[cfg(test)]
mod tests {
    use std::os::fd::OwnedFd;
    use std::sync::Arc;

    use super::*;
    use crate::plan::{InheritedFd, SessionKind};

    fn plan(names: &[&str]) -> Plan {
        let null = Arc::new(OwnedFd::from(std::fs::File::open("/dev/null").unwrap()));
        let variable = |name: &str, value: &str| (name.into(), value.into());
        let handed = |name: &&str| InheritedFd {
            fd: Arc::clone(&null),
            name: Some((*name).to_owned()),
        };
        Plan {
            command: Vec::new(),
            environment: vec![
                variable("A", "1"),
                variable("LISTEN_PID", "1"),
                variable("LISTEN_FDS", "7"),
            ],
            dir: None,
            stdio: [None, None, None],
            handed: names.iter().map(handed).collect(),
            soft_limit: None,
            group: SessionKind::Same,
            cgroup: false,
            terminal: false,
            limits: crate::plan::TreeLimits::default(),
        }
    }

    #[test]
    fn a_strangers_variables_of_handed_descriptors_are_not_passed_on() {
        let mut environment = Environment::new(&plan(&[]), None).unwrap();
        assert_eq!(environment.texts(), ["A=1"]);
        assert_eq!(environment.block(1).len(), 2);
    }

    #[test]
    fn a_tree_has_its_mark_behind_those_around_it() {
        let mut plan = plan(&[]);
        let around = (mark::VARIABLE.into(), "1.2-3;".into());
        plan.environment.insert(0, around);
        let environment = Environment::new(&plan, Some("4.5-6;")).unwrap();
        assert_eq!(environment.texts(), ["A=1", "FDGUARD_TREE=1.2-3;,4.5-6;"]);
    }

    #[test]
    fn named_descriptors_are_counted_and_named() {
        let mut environment = Environment::new(&plan(&["http", "control"]), None).unwrap();
        assert_eq!(
            environment.texts(),
            ["A=1", "LISTEN_FDS=2", "LISTEN_FDNAMES=http:control"]
        );
        assert_eq!(environment.block(4711).len(), 5);
        let pid = environment.pid.as_deref().unwrap();
        assert!(pid.starts_with(b"LISTEN_PID=4711\0"), "{pid:?}");
    }

    #[test]
    fn numbers_have_no_leading_zeroes() {
        for number in [0, 7, 10, 99_999, 1_000_000_000, u32::MAX] {
            let mut room = [0; DIGITS + 1];
            write_number(&mut room, number);
            let text = room.split(|byte| *byte == 0).next().unwrap();
            assert_eq!(text, number.to_string().as_bytes());
        }
    }

    #[test]
    fn a_name_with_a_colon_is_refused() {
        assert!(Environment::new(&plan(&["a:b"]), None).is_err());
    }
}
