//! Which source traces: what the user asks for, and what is said about it.

use fdguard_trace::{LoadRefusal, SourceKind, SourceReason, TracedCommand};

use super::run_loop::notify;
use crate::cli::SourceArg;
use crate::exit::HintedError;

/// The source for a program that fdguard starts.
pub(super) fn for_launch(asked: Option<SourceArg>) -> anyhow::Result<Option<SourceKind>> {
    match asked {
        None => Ok(None),
        Some(SourceArg::Launch) => Ok(Some(SourceKind::Launch)),
        Some(SourceArg::Ebpf) => Ok(Some(SourceKind::Kernel)),
        Some(SourceArg::Attach) => {
            let hint = "use --source launch or --source ebpf, or name a running process";
            Err(HintedError::usage("--source attach is for running programs", hint).into())
        }
    }
}

/// The source for programs that run already.
pub(super) fn for_attach(asked: Option<SourceArg>) -> anyhow::Result<Option<SourceKind>> {
    match asked {
        None => Ok(None),
        Some(SourceArg::Attach) => Ok(Some(SourceKind::Attach)),
        Some(SourceArg::Ebpf) => Ok(Some(SourceKind::Kernel)),
        Some(SourceArg::Launch) => {
            let hint =
                "use --source attach or --source ebpf, or start it: fdguard trace -- COMMAND";
            let message = "--source launch is for programs that fdguard starts";
            Err(HintedError::usage(message, hint).into())
        }
    }
}

/// Says that the kernel traces a program that fdguard started, or why nothing does.
pub(in crate::command) fn announce(traced: &TracedCommand) {
    match traced.reason() {
        None => {}
        Some(SourceReason::Requested) => notify("tracing by the kernel (eBPF), as requested"),
        Some(SourceReason::Needed(why)) => {
            notify(&format!("tracing by the kernel (eBPF): {why}"));
        }
        Some(SourceReason::Refused(why, refusal)) => notify(&format!(
            "no lines: {why}, and {refusal}{}",
            remedy(refusal).map_or_else(String::new, |way| format!("; {way}"))
        )),
    }
}

/// What to do about a kernel that refuses, if its words do not say it.
pub(super) fn remedy(refusal: &LoadRefusal) -> Option<&'static str> {
    match refusal {
        LoadRefusal::NotPermitted => None,
        _ => Some("run fdguard watch PID for class, target and rate (without the line)"),
    }
}

/// The error for a kernel that refuses what the user asked for.
pub(super) fn refused(refusal: &LoadRefusal) -> anyhow::Error {
    let hint = match refusal {
        LoadRefusal::NotPermitted => {
            "run it with sudo, or grant them: setcap cap_bpf,cap_perfmon+ep FDGUARD"
        }
        _ => "leave out --source, or run fdguard watch PID for class, target and rate",
    };
    HintedError::look(format!("cannot trace by the kernel: {refusal}"), hint).into()
}
