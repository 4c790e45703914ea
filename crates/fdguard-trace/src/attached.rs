//! A trace of processes that were already running.

use std::path::Path;
use std::sync::{Arc, Weak};
use std::time::Duration;

use fdguard_attach::Target;
use fdguard_kernel::{LoadRefusal, TracerScope};

use crate::Error;
use crate::go::is_go;
use crate::inject::{AttachFailure, InjectSource, comm};
use crate::kernel::KernelSource;
use crate::launch::Options;
use crate::observed_trace::is_alive;
use crate::program::GO;
use crate::session::TraceSession;
use crate::source_kind::SourceKind;

/// A trace of attached processes. Dropping it detaches from them, and they go on.
#[derive(Debug)]
pub struct AttachedTrace {
    /// What they record.
    pub session: TraceSession,
    source: AttachedSource,
    pids: Vec<u32>,
    refused: Vec<AttachRefusal>,
}

/// Where the records come from.
#[derive(Debug)]
enum AttachedSource {
    Library(Arc<InjectSource>),
    Kernel(Arc<KernelSource>),
}

/// Prepares the end of a trace from another thread, while one reads.
#[derive(Clone, Debug)]
pub struct TraceEnder(Weak<KernelSource>);

impl TraceEnder {
    /// From now on nothing more is read: who is reading returns soon, and the trace can be ended.
    pub fn end_soon(&self) {
        if let Some(source) = self.0.upgrade() {
            source.end_soon();
        }
    }
}

/// A process that could not be attached to, and goes on undisturbed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttachRefusal {
    /// The process.
    pub pid: u32,
    /// Its command name; empty if it is gone.
    pub comm: String,
    /// The reason, and what works instead.
    pub failure: AttachFailure,
}

/// What happens to a process, for whoever waits.
#[derive(Clone, Copy, Debug)]
pub enum AttachStep<'a> {
    /// It is about to be stopped for a moment.
    Begin {
        /// The process.
        pid: u32,
        /// Its command name.
        comm: &'a str,
    },
    /// It records.
    Done {
        /// The process.
        pid: u32,
        /// Its command name.
        comm: &'a str,
        /// How long one of its threads did not do its work.
        stop: Duration,
    },
    /// It is a Node program, and is about to open its inspector for a moment and to print a few
    /// lines about that to its stderr.
    OpenInspector {
        /// The process.
        pid: u32,
        /// Its command name.
        comm: &'a str,
        /// The port on the loopback.
        port: u16,
    },
    /// Its JavaScript lines are recorded, or why they are not.
    Lines {
        /// The process.
        pid: u32,
        /// Its command name.
        comm: &'a str,
        /// The reason, if there are none.
        failure: Option<&'a str>,
        /// How long one of its threads was stopped once more for that.
        stop: Duration,
    },
    /// It was left alone.
    Refused(&'a AttachRefusal),
    /// The kernel reports what all of them do from now on.
    ByKernel {
        /// The process that the library cannot see into; `None` if the user chose the kernel.
        because: Option<&'a AttachRefusal>,
    },
    /// The kernel would be needed, and refuses.
    NoKernel(&'a LoadRefusal),
}

/// A process that can be entered, or why not.
type Examined = (u32, String, Result<Target, AttachFailure>);

impl AttachedTrace {
    /// Attaches to each process that allows it, and reports each step. One that refuses does not
    /// stop the others; [`AttachedTrace::pids`] may be empty. If the library cannot enter one of
    /// them and the kernel can trace it, the kernel traces all: then what they do to each other is
    /// seen by one source. Once `is_stopped` says so, the rest is left alone.
    pub fn attach(
        pids: &[u32],
        options: &Options,
        is_stopped: &dyn Fn() -> bool,
        on_step: &mut dyn FnMut(AttachStep<'_>),
    ) -> Result<Self, Error> {
        if options.source == Some(SourceKind::Kernel) {
            let source = KernelSource::load(TracerScope::Followed)?;
            return Self::follow(pids, options, (source, None), on_step);
        }
        let examine = |pid: u32| (pid, comm(pid), InjectSource::examine(pid));
        let examined: Vec<Examined> = pids.iter().copied().map(examine).collect();
        let may_choose = options.source.is_none() && options.protect.is_none();
        let mut refusals = examined.iter().filter_map(|(pid, comm, result)| {
            let failure = match result {
                Err(failure) => failure.by_kernel.then(|| failure.clone())?,
                // The library would see its C code only.
                Ok(_) => {
                    let exe = format!("/proc/{pid}/exe");
                    is_go(Path::new(&exe)).then(|| AttachFailure::other(GO))?
                }
            };
            let (pid, comm) = (*pid, comm.clone());
            Some(AttachRefusal { pid, comm, failure })
        });
        let first = refusals.next().filter(|_| may_choose);
        if let Some(first) = first {
            match KernelSource::load(TracerScope::Followed) {
                Ok(source) => {
                    return Self::follow(pids, options, (source, Some(&first)), on_step);
                }
                Err(refusal) => on_step(AttachStep::NoKernel(&refusal)),
            }
        }
        Self::enter(examined, options, is_stopped, on_step)
    }

    /// Traces every process of the host by the kernel. A busy host always has more to read: the end
    /// has to be prepared.
    pub fn host(options: &Options) -> Result<(Self, TraceEnder), Error> {
        let source = Arc::new(KernelSource::load(TracerScope::Host)?);
        let ender = TraceEnder(Arc::downgrade(&source));
        let trace = Self {
            session: TraceSession::start_shared(Arc::<KernelSource>::clone(&source), options)?,
            source: AttachedSource::Kernel(source),
            pids: Vec::new(),
            refused: Vec::new(),
        };
        Ok((trace, ender))
    }

    /// Lets the kernel report about these processes.
    fn follow(
        pids: &[u32],
        options: &Options,
        (source, because): (KernelSource, Option<&AttachRefusal>),
        on_step: &mut dyn FnMut(AttachStep<'_>),
    ) -> Result<Self, Error> {
        let source = Arc::new(source);
        let mut session = TraceSession::start_shared(Arc::<KernelSource>::clone(&source), options)?;
        let (mut followed, mut refused) = (Vec::new(), Vec::new());
        for pid in pids.iter().copied() {
            match source.follow(pid) {
                Ok(()) => {
                    session.add_root(pid);
                    followed.push(pid);
                }
                Err(error) => {
                    let refusal = AttachRefusal {
                        pid,
                        comm: comm(pid),
                        failure: AttachFailure::other(error.to_string()),
                    };
                    on_step(AttachStep::Refused(&refusal));
                    refused.push(refusal);
                }
            }
        }
        if !followed.is_empty() {
            on_step(AttachStep::ByKernel { because });
        }
        Ok(Self {
            session,
            source: AttachedSource::Kernel(source),
            pids: followed,
            refused,
        })
    }

    /// Puts the library into each process that allows it.
    fn enter(
        examined: Vec<Examined>,
        options: &Options,
        is_stopped: &dyn Fn() -> bool,
        on_step: &mut dyn FnMut(AttachStep<'_>),
    ) -> Result<Self, Error> {
        let source = Arc::new(InjectSource::default());
        // The first records are read while the others are attached to.
        let mut session = TraceSession::start_shared(Arc::<InjectSource>::clone(&source), options)?;
        let (mut attached, mut refused) = (Vec::new(), Vec::new());
        for (pid, comm, target) in examined.into_iter().take_while(|_| !is_stopped()) {
            let entered = target.and_then(|target| {
                // Only one that will be touched is announced.
                on_step(AttachStep::Begin { pid, comm: &comm });
                source.attach(pid, target, options)
            });
            match entered {
                Ok(stop) => {
                    session.add_root(pid);
                    attached.push(pid);
                    let comm = &comm;
                    on_step(AttachStep::Done { pid, comm, stop });
                    let lines = source.add_lines(pid, options.no_inspector, |port| {
                        on_step(AttachStep::OpenInspector { pid, comm, port });
                    });
                    if let Some((lines, stop)) = lines {
                        let failure = lines.as_ref().err().map(String::as_str);
                        on_step(AttachStep::Lines {
                            pid,
                            comm,
                            failure,
                            stop,
                        });
                    }
                }
                Err(failure) => {
                    let refusal = AttachRefusal { pid, comm, failure };
                    on_step(AttachStep::Refused(&refusal));
                    refused.push(refusal);
                }
            }
        }
        Ok(Self {
            session,
            source: AttachedSource::Library(source),
            pids: attached,
            refused,
        })
    }

    /// The attached processes, in the given order.
    #[must_use]
    pub fn pids(&self) -> &[u32] {
        &self.pids
    }

    /// The processes that refused.
    #[must_use]
    pub fn refused(&self) -> &[AttachRefusal] {
        &self.refused
    }

    /// Whether all attached processes have ended.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        !self.pids.iter().any(|pid| is_alive(*pid))
    }

    /// Ends the recording. What was recorded can still be read. Returns the processes that still
    /// have the library, which does nothing any more.
    pub fn detach(&self) -> Vec<AttachRefusal> {
        let failures = match &self.source {
            AttachedSource::Library(source) => source.detach(),
            AttachedSource::Kernel(source) => {
                source.stop();
                Vec::new()
            }
        };
        let failures = failures.into_iter();
        let refusal = |(pid, failure)| AttachRefusal {
            pid,
            comm: comm(pid),
            failure,
        };
        failures.map(refusal).collect()
    }
}
