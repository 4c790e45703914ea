//! Which source traces a program: what it is decides, what fdguard may do, and what the user asks.

use fdguard_kernel::{LoadRefusal, TracerScope};

use crate::kernel::KernelSource;
use crate::launch::Options;
use crate::program::{BlindReason, GO, TracedProgram};

/// A way to trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SourceKind {
    /// The library, in a program that fdguard starts.
    Launch,
    /// The library, put into a running program.
    Attach,
    /// Programs in the kernel.
    Kernel,
}

/// Why a program is traced by the kernel, or is not although that would be better.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SourceReason {
    /// The user asked for it.
    Requested,
    /// The library cannot see into it, for this reason.
    Needed(&'static str),
    /// The same, but the kernel refuses.
    Refused(&'static str, LoadRefusal),
}

/// The kernel, if it traces a program that fdguard starts, and why or why not.
pub(crate) fn for_launch(
    program: &TracedProgram,
    options: &Options,
) -> Result<(Option<KernelSource>, Option<SourceReason>), LoadRefusal> {
    match options.source {
        Some(SourceKind::Kernel) => {
            let source = KernelSource::load(TracerScope::Followed)?;
            return Ok((Some(source), Some(SourceReason::Requested)));
        }
        // Protection is a part of the library.
        Some(_) => return Ok((None, None)),
        None if options.protect.is_some() => return Ok((None, None)),
        None => {}
    }
    let Some(why) = needs_kernel(program) else {
        return Ok((None, None));
    };
    Ok(match KernelSource::load(TracerScope::Followed) {
        Ok(source) => (Some(source), Some(SourceReason::Needed(why))),
        Err(refusal) => (None, Some(SourceReason::Refused(why, refusal))),
    })
}

/// Why the library would not see into a program, if the kernel would.
fn needs_kernel(program: &TracedProgram) -> Option<&'static str> {
    match program.blind {
        Some(BlindReason::OtherMachine) => None,
        Some(blind) => Some(blind.why()),
        None => program.is_go.then_some(GO),
    }
}
