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

/// The plan asks for something impossible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BadPlan(pub(crate) &'static str);

/// A descriptor on its way to its number in the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slot {
    pub(crate) source: c_int,
    pub(crate) target: c_int,
}

/// A start, ready to be made by a child. The pointers point into strings that it owns.
#[derive(Debug)]
pub(crate) struct PreparedChild {
    /// The candidate paths of the program, in the order in which they are tried.
    candidates: Vec<CString>,
    words: Vec<*const c_char>,
    /// `/bin/sh`, a slot for a candidate, and the words after the first.
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
    /// Owns what `words` points to.
    _strings: Vec<CString>,
}

/// Runs a script without an interpreter line, as `execvp` does.
const SHELL: &CStr = c"/bin/sh";

impl PreparedChild {
    /// `mark` is the mark that all processes of the tree carry in their environment.
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
            // A descriptor that the program inherits from fdguard may be close-on-exec, so it is
            // moved from its number to the same number.
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

    /// Its limits.
    pub(crate) fn wanted(&self) -> &RequestedLimits {
        &self.wanted
    }

    /// Whether the program is to be a session leader.
    pub(crate) fn group(&self) -> SessionKind {
        self.group
    }

    /// Whether a candidate path is an existing file, as seen from the working directory of the
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

/// The first number after the standard streams, for the child's loops.
pub(crate) const FIRST: c_int = FIRST_HANDED as c_int;
