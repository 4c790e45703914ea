//! Why a process cannot be entered.

/// Found before anything happens to the process.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// It has ended.
    #[error("no such process")]
    Gone,
    /// It has ended, and its parent has not reaped it.
    #[error("the process has ended (zombie)")]
    Zombie,
    /// A thread of the kernel.
    #[error("this is a kernel thread")]
    KernelThread,
    /// The number is that of a thread.
    #[error("this is a thread of process {process}")]
    Thread {
        /// Its process.
        process: u32,
    },
    /// The process that asks.
    #[error("fdguard cannot attach to itself")]
    Itself,
    /// Its code is not that of this machine.
    #[error("the program is a {kind} program: only x86-64 is supported")]
    Architecture {
        /// What it is.
        kind: &'static str,
    },
    /// There is no code for this machine.
    #[error("attaching works only on x86-64 Linux")]
    Unsupported,
    /// It has no dynamic loader.
    #[error("the program is statically linked: it cannot load a library")]
    Static,
    /// It uses musl.
    #[error("the program uses musl libc: only glibc 2.34 or later is supported")]
    Musl,
    /// It uses a C library without dlopen.
    #[error("the program uses a glibc older than 2.34")]
    OldGlibc,
    /// It uses another C library, or none.
    #[error("the program does not use glibc")]
    NoGlibc,
    /// A filter for system calls might kill it.
    #[error("thread {thread} has a seccomp filter that may kill the program on a foreign call")]
    Seccomp {
        /// The thread.
        thread: u32,
    },
    /// Its return addresses are guarded.
    #[error("thread {thread} uses a shadow stack")]
    ShadowStack {
        /// The thread.
        thread: u32,
    },
    /// Somebody traces it.
    #[error("process {tracer} ({name}) already traces it")]
    Traced {
        /// The other tracer.
        tracer: u32,
        /// Its name.
        name: String,
    },
    /// It was stopped by a signal.
    #[error("the process is stopped")]
    Stopped,
    /// It belongs to somebody else.
    #[error("the process belongs to another user (uid {uid})")]
    OtherUser {
        /// The owner.
        uid: u32,
    },
    /// It has given up being readable, as setuid programs and ssh-agent do.
    #[error("the process is protected from its own user (not dumpable)")]
    NotDumpable,
    /// A setting of the kernel forbids it.
    #[error("the kernel restricts tracing (kernel.yama.ptrace_scope = {scope})")]
    Yama {
        /// The setting.
        scope: u32,
    },
    /// The kernel does not say why.
    #[error("the kernel denies access to the process's memory")]
    Denied,
    /// The kernel does not name the first instruction.
    #[error("the program's entry point is not known (AT_ENTRY)")]
    NoEntryPoint,
    /// Another fdguard enters it at this moment.
    #[error("another fdguard is attaching to it")]
    Busy,
    /// A thread has not yet returned from the call of an earlier fdguard.
    #[error("a thread is still in a call of an earlier fdguard")]
    Unfinished,
    /// It cannot be examined.
    #[error("the process cannot be examined: {reason}")]
    Unreadable {
        /// Why.
        reason: String,
    },
}

impl Refusal {
    /// Whether only entering the process is refused: it can be looked at from outside.
    #[must_use]
    pub fn is_of_the_library(&self) -> bool {
        !matches!(
            self,
            Self::Gone
                | Self::Zombie
                | Self::KernelThread
                | Self::Thread { .. }
                | Self::Itself
                | Self::Architecture { .. }
                | Self::Unsupported
                | Self::Busy
        )
    }

    /// What works instead; `None` if nothing does.
    #[must_use]
    pub fn remedy(&self) -> Option<&'static str> {
        match self {
            Self::Gone | Self::Zombie | Self::KernelThread | Self::Itself => None,
            Self::Thread { .. } => Some("name the process instead"),
            Self::Unsupported | Self::Architecture { .. } | Self::Static => {
                Some("use fdguard watch or snap, which need no library in the program")
            }
            Self::Musl | Self::OldGlibc | Self::NoGlibc => {
                Some("start it under fdguard trace -- COMMAND, or use fdguard watch")
            }
            Self::Seccomp { .. } | Self::ShadowStack { .. } | Self::NoEntryPoint => {
                Some("start it under fdguard trace -- COMMAND")
            }
            Self::Traced { .. } => Some("end the other tracer first"),
            Self::Stopped => Some("continue it first: kill -CONT PID"),
            Self::OtherUser { .. } | Self::NotDumpable | Self::Denied => {
                Some("run fdguard with sudo")
            }
            Self::Yama { scope: 1 } => {
                Some("run fdguard with sudo, or set kernel.yama.ptrace_scope to 0")
            }
            Self::Yama { scope: 2 } => Some("run fdguard with sudo"),
            Self::Yama { .. } => Some("start it under fdguard trace -- COMMAND"),
            Self::Busy | Self::Unfinished => Some("try again in a moment"),
            Self::Unreadable { .. } => Some("run fdguard with sudo"),
        }
    }
}

/// What is known when the kernel denies access.
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Denial {
    pub(crate) own_uid: u32,
    pub(crate) uid: u32,
    /// The owner of the files in its directory: root for one that is not dumpable.
    pub(crate) file_uid: u32,
    pub(crate) yama_scope: Option<u32>,
}

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
impl Denial {
    pub(crate) fn reason(self) -> Refusal {
        if self.own_uid != 0 && self.uid != self.own_uid {
            return Refusal::OtherUser { uid: self.uid };
        }
        if self.own_uid != 0 && self.file_uid != self.own_uid {
            return Refusal::NotDumpable;
        }
        match self.yama_scope {
            Some(scope) if scope > 0 => Refusal::Yama { scope },
            _ => Refusal::Denied,
        }
    }
}

#[cfg(all(test, target_os = "linux", target_arch = "x86_64"))]
mod tests {
    use super::{Denial, Refusal};

    #[test]
    fn a_denial_has_a_reason() {
        let denial = Denial {
            own_uid: 1000,
            uid: 1000,
            file_uid: 1000,
            yama_scope: None,
        };
        assert_eq!(denial.reason(), Refusal::Denied);
        let yama = Denial {
            yama_scope: Some(1),
            ..denial
        };
        assert_eq!(yama.reason(), Refusal::Yama { scope: 1 });
        let protected = Denial {
            file_uid: 0,
            ..yama
        };
        assert_eq!(protected.reason(), Refusal::NotDumpable);
        let other = Denial { uid: 33, ..yama };
        assert_eq!(other.reason(), Refusal::OtherUser { uid: 33 });
        assert!(other.reason().remedy().unwrap().contains("sudo"));
    }
}
