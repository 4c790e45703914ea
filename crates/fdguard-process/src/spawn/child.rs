//! The child between fork and exec. Nothing here allocates, locks or panics.

#![expect(unsafe_code, reason = "an exec takes lists of pointers")]

use std::ffi::c_int;

use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, chdir, getpid, getrlimit, setpgid, setrlimit, setsid};

use super::{FIRST, PreparedChild, SHELL, Slot};
use crate::keeper::message::Step;
use crate::limits::EnforcedLimits;
use crate::plan::SessionKind;
use crate::sys;

/// The step at which a child failed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SpawnFailure {
    pub(crate) step: Step,
    pub(crate) errno: Errno,
}

impl SpawnFailure {
    /// Wraps the errors of a step.
    pub(crate) fn at(step: Step) -> impl Fn(Errno) -> Self {
        move |errno| Self { step, errno }
    }
}

/// Becomes the program, or writes what failed to `errors` and exits. `owner_group` is the owner's
/// group, `None` if that is outside this pid namespace: then the child is already in it.
pub(crate) fn run(
    prepared: &mut PreparedChild,
    enforced: EnforcedLimits,
    owner_group: Option<rustix::process::Pid>,
    errors: c_int,
) -> ! {
    let mut errors = errors;
    let failed = match attempt(prepared, enforced, owner_group, &mut errors) {
        Ok(errno) => SpawnFailure {
            step: Step::Exec,
            errno,
        },
        Err(failed) => failed,
    };
    let bytes = failed.encode();
    // If this fails there is no other channel; the exit code is the last resort.
    let _unheard = sys::write(errors, &bytes);
    sys::exit(127)
}

impl SpawnFailure {
    pub(crate) const LENGTH: usize = 8;

    fn encode(self) -> [u8; Self::LENGTH] {
        let [a, b, c, d] = (self.step as u32).to_ne_bytes();
        let [e, f, g, h] = self.errno.raw_os_error().to_ne_bytes();
        [a, b, c, d, e, f, g, h]
    }

    /// Decodes what a child wrote.
    pub(crate) fn decode(bytes: [u8; Self::LENGTH]) -> Self {
        let [a, b, c, d, e, f, g, h] = bytes;
        Self {
            step: Step::from_number(u32::from_ne_bytes([a, b, c, d])),
            errno: Errno::from_raw_os_error(i32::from_ne_bytes([e, f, g, h])),
        }
    }
}

fn attempt(
    prepared: &mut PreparedChild,
    enforced: EnforcedLimits,
    owner_group: Option<rustix::process::Pid>,
    errors: &mut c_int,
) -> Result<Errno, SpawnFailure> {
    match prepared.group {
        SessionKind::Session => setsid().map(drop),
        SessionKind::Own => setpgid(None, None),
        SessionKind::Same => owner_group.map_or(Ok(()), |group| setpgid(None, Some(group))),
    }
    .map_err(SpawnFailure::at(Step::Group))?;
    if *errors < prepared.beyond {
        *errors = sys::copy_above(*errors, prepared.beyond)
            .map_err(SpawnFailure::at(Step::Descriptors))?;
    }
    place(&mut prepared.slots, prepared.beyond).map_err(SpawnFailure::at(Step::Descriptors))?;
    if prepared.terminal {
        rustix::process::ioctl_tiocsctty(rustix::stdio::stdin())
            .map_err(SpawnFailure::at(Step::Terminal))?;
    }
    close_others(errors, prepared.beyond).map_err(SpawnFailure::at(Step::CloseRange))?;
    let limited = prepared.wanted.put(None, enforced);
    limited.map_err(SpawnFailure::at(Step::Limit))?;
    if let Some(soft) = prepared.soft_limit {
        limit(soft).map_err(SpawnFailure::at(Step::Limit))?;
    }
    if let Some(dir) = &prepared.dir {
        chdir(dir.as_c_str()).map_err(SpawnFailure::at(Step::Dir))?;
    }
    sys::block_signals(sys::NO_SIGNALS);
    Ok(exec(prepared))
}

/// Leaves nothing open from this number on after the exec. `errors` must stay open until then, so
/// the rest is marked, not closed.
fn close_others(errors: &mut c_int, beyond: c_int) -> Result<(), Errno> {
    let first = beyond.unsigned_abs();
    match sys::close_range(first, u32::MAX, true) {
        // Linux 5.9 and 5.10 cannot mark: `errors` becomes the first, and the rest is closed now.
        Err(Errno::INVAL) => {
            sys::copy_to_marked(*errors, beyond)?;
            *errors = beyond;
            sys::close_range(first + 1, u32::MAX, false)
        }
        result => result,
    }
}

/// Moves every descriptor to its number. Sources at a number that is another's target are moved out
/// of the way first.
fn place(slots: &mut [Slot], beyond: c_int) -> Result<(), Errno> {
    for slot in slots.iter_mut() {
        if slot.source < beyond && slot.source != slot.target {
            slot.source = sys::copy_above(slot.source, beyond)?;
        }
    }
    for slot in slots.iter() {
        if slot.source != slot.target {
            sys::copy_to(slot.source, slot.target)?;
        } else {
            match sys::keep_over_exec(slot.target) {
                // A standard stream that is also closed in fdguard.
                Err(Errno::BADF) if slot.target < FIRST => {}
                result => result?,
            }
        }
    }
    Ok(())
}

fn limit(soft: u64) -> Result<(), Errno> {
    let maximum = getrlimit(Resource::Nofile).maximum;
    let current = Some(maximum.map_or(soft, |hard| soft.min(hard)));
    setrlimit(Resource::Nofile, Rlimit { current, maximum })
}

/// Tries the candidates as `execvp` does, and returns the same error.
fn exec(prepared: &mut PreparedChild) -> Errno {
    let pid = getpid().as_raw_nonzero().get().unsigned_abs();
    let environment = prepared.environment.block(pid);
    let mut result = Errno::NOENT;
    for candidate in &prepared.candidates {
        // SAFETY: `PreparedChild` made both lists from strings that it still owns, each with a null
        // pointer at its end.
        let mut errno = unsafe { sys::exec(candidate, &prepared.words, environment) };
        if errno == Errno::NOEXEC
            && let Some(second) = prepared.shell_words.get_mut(1)
        {
            *second = candidate.as_ptr();
            // SAFETY: as above; the second word is now the candidate.
            errno = unsafe { sys::exec(SHELL, &prepared.shell_words, environment) };
        }
        match errno {
            // A later directory may have an executable one.
            Errno::ACCESS => result = Errno::ACCESS,
            Errno::NOENT | Errno::NOTDIR | Errno::STALE | Errno::NODEV | Errno::TIMEDOUT => {}
            other => return other,
        }
    }
    result
}
