//! Prepares a start: all memory is allocated before the fork, so that the child only makes system
//! calls.

pub(crate) mod child;
mod environment;
mod search;

use std::ffi::{CStr, CString, OsStr, OsString, c_char, c_int};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::Path;
use std::ptr;

use environment::Environment;

use crate::limits::RequestedLimits;
use crate::plan::{FIRST_HANDED, Plan, SessionKind};

/// What the plan asks for and cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BadPlan(pub(crate) &'static str);

/// A descriptor on its way to its number in the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slot {
    pub(crate) source: c_int,
    pub(crate) target: c_int,
}

/// A start, ready to be done by a child. The pointers are into strings that it owns.
#[derive(Debug)]
pub(crate) struct PreparedChild {
    /// Where the program may be, in the order in which that is tried.
    candidates: Vec<CString>,
    words: Vec<*const c_char>,
    /// `/bin/sh`, room for a candidate, and the words after the first.
    shell_words: Vec<*const c_char>,
    environment: Environment,
    dir: Option<CString>,
    slots: Vec<Slot>,
    /// The first number that the program does not get.
    beyond: c_int,
    soft_limit: Option<u64>,
    wanted: RequestedLimits,
    group: SessionKind,
    terminal: bool,
    /// Keeps what `words` points to.
    _strings: Vec<CString>,
}

/// What runs a text without an interpreter's name, as `execvp` does it.
const SHELL: &CStr = c"/bin/sh";

impl PreparedChild {
    /// `mark` is what all processes of the tree shall carry in their environment.
    pub(crate) fn new(plan: &Plan, mark: Option<&str>) -> Result<Self, BadPlan> {
        let (Some(program), numbers) = (plan.command.first(), plan.numbers()) else {
            return Err(BadPlan("the command is empty"));
        };
        let path = plan.environment.iter().find(|(name, _)| name == "PATH");
        let path = path.map(|(_, value)| value.as_os_str());
        let strings = strings(&plan.command)?;
        let pointers = || strings.iter().map(|word| word.as_ptr());
        let words = pointers().chain([ptr::null()]).collect();
        let shell_words = [SHELL.as_ptr(), ptr::null()]
            .into_iter()
            .chain(pointers().skip(1))
            .chain([ptr::null()])
            .collect();
        let number = |number: u32| {
            c_int::try_from(number).map_err(|_too_large| BadPlan("too many descriptors"))
        };
        let mut slots = Vec::new();
        for (target, fd) in (0..).zip(&plan.stdio) {
            // What the program inherits from us may be marked to be closed: it goes from its number
            // to its number.
            let source = fd.as_ref().map_or(target, AsRawFd::as_raw_fd);
            slots.push(Slot { source, target });
        }
        for (handed, target) in plan.handed.iter().zip(numbers) {
            let (source, target) = (handed.fd.as_raw_fd(), number(target)?);
            slots.push(Slot { source, target });
        }
        let dir = plan.dir.as_deref().map(Path::as_os_str);
        Ok(Self {
            candidates: strings_of(search::candidates(program, path))?,
            words,
            shell_words,
            environment: Environment::new(plan, mark)?,
            dir: dir.map(string).transpose()?,
            beyond: c_int::try_from(slots.len())
                .map_err(|_too_large| BadPlan("too many descriptors"))?,
            slots,
            soft_limit: plan.soft_limit,
            wanted: RequestedLimits::new(plan.limits),
            group: plan.group,
            terminal: plan.terminal,
            _strings: strings,
        })
    }

    /// Descriptors of the owner that the child needs, smallest first.
    pub(crate) fn sources(&self) -> Vec<c_int> {
        let mut sources: Vec<_> = self.slots.iter().map(|slot| slot.source).collect();
        sources.sort_unstable();
        sources.dedup();
        sources
    }

    /// What it may use.
    pub(crate) fn wanted(&self) -> &RequestedLimits {
        &self.wanted
    }

    /// Whether the program is to be a session's leader.
    pub(crate) fn group(&self) -> SessionKind {
        self.group
    }

    /// Whether one of the places where the program may be holds a file, seen from where it would
    /// start.
    pub(crate) fn is_somewhere(&self) -> bool {
        let bytes = |text: &CStr| OsString::from_vec(text.to_bytes().to_vec());
        let dir = self.dir.as_deref().map(bytes).unwrap_or_default();
        let mut candidates = self.candidates.iter();
        candidates.any(|candidate| Path::new(&dir).join(bytes(candidate)).is_file())
    }
}

fn string(text: &OsStr) -> Result<CString, BadPlan> {
    CString::new(text.as_bytes())
        .map_err(|_zero| BadPlan("an argument or path contains a NUL byte"))
}

fn strings(texts: &[OsString]) -> Result<Vec<CString>, BadPlan> {
    texts.iter().map(|text| string(text)).collect()
}

fn strings_of(texts: Vec<Vec<u8>>) -> Result<Vec<CString>, BadPlan> {
    let string = |text| {
        CString::new(text).map_err(|_zero| BadPlan("an argument or path contains a NUL byte"))
    };
    texts.into_iter().map(string).collect()
}

/// The first number behind the standard streams, for the child's loops.
pub(crate) const FIRST: c_int = FIRST_HANDED as c_int;
