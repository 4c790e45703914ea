//! Why the kernel does not run the programs.

/// The reason, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LoadRefusal {
    /// A capability is missing.
    #[error("the kernel tracer needs CAP_BPF and CAP_PERFMON: run it with sudo")]
    NotPermitted,
    /// The kernel has no type information.
    #[error("this kernel has no type information (CONFIG_DEBUG_INFO_BTF)")]
    NoTypes,
    /// It lacks something that the programs need.
    #[error("this kernel lacks {0}")]
    Lacks(&'static str),
    /// It is locked down.
    #[error(
        "the kernel is locked down to confidentiality, which forbids programs that read memory"
    )]
    LockedDown,
    /// The programs that are part of fdguard cannot be read.
    #[error("the kernel programs of this fdguard are damaged: install it again")]
    Damaged,
    /// It refused a program for a reason that is not known here.
    #[error("the kernel refused the program {program}: {reason}")]
    Refused {
        /// The program.
        program: String,
        /// The kernel's words, or the error.
        reason: String,
    },
}
