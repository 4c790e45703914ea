//! Starts the program.

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt as _;
use std::process::{ChildStderr, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::Arc;

use crate::Error;
use crate::kernel::KernelSource;
use crate::mixed::MixedSource;
use crate::own_child::OwnChild;
use crate::preload::PreloadSource;
use crate::program::TracedProgram;
use crate::protection::Protection;
use crate::session::TraceSession;
use crate::source_kind::{self, SourceKind, SourceReason};

/// How to trace.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Leave the inspector of running Node programs alone, which have no JavaScript lines then.
    pub no_inspector: bool,
    /// Keep the tables of processes that ended with descriptors of their own still open.
    pub keep_ended: bool,
    /// Give the program its own process group, no input, and pipes for its output: see
    /// [`TracedCommand::take_output`].
    pub as_server: bool,
    /// Prevent stale descriptors from reaching other files.
    pub protect: Option<Protection>,
    /// Record which line used each descriptor last, in programs whose language does not say who
    /// holds it.
    pub users: bool,
    /// Have Python programs wait at their fourth descriptor and at their end, until they are asked
    /// who holds them: see [`TraceSession::waiting`](crate::TraceSession). Whoever sets this must
    /// answer them.
    pub pauses: bool,
    /// Trace this way; `None` for the one that suits the program.
    pub source: Option<SourceKind>,
}

/// A program that was launched under the tracer.
#[derive(Debug)]
pub struct TracedCommand {
    child: OwnChild,
    /// What it records.
    pub session: TraceSession,
    reason: Option<SourceReason>,
}

impl TracedCommand {
    /// Starts the program, the first word of `command`. It shares fdguard's input, output and
    /// terminal.
    pub fn launch(command: &[OsString], options: &Options) -> Result<Self, Error> {
        let name = command.first().ok_or_else(|| Error::NotFound {
            program: String::new(),
        })?;
        let program = TracedProgram::find(name)?;
        let (kernel, reason) = source_kind::for_launch(&program, options)?;
        let launched = match kernel {
            Some(source) => Self::launch_in_kernel(command, &program, options, source)?,
            None => Self::launch_with_library(command, options)?,
        };
        Ok(Self { reason, ..launched })
    }

    /// Starts it as it would start without fdguard; the kernel reports what it does.
    fn launch_in_kernel(
        command: &[OsString],
        program: &TracedProgram,
        options: &Options,
        source: KernelSource,
    ) -> Result<Self, Error> {
        source.expect_program(&program.path);
        let source = Arc::new(source);
        let mut session = TraceSession::start_shared(Arc::<KernelSource>::clone(&source), options)?;
        let failed = |source| Error::Dir { source };
        let window = source.launch_window().map_err(failed)?;
        let child = spawn(command, &mut prepare(command, options))?;
        drop(window);
        session.add_root(child.id());
        Ok(Self {
            child,
            session,
            reason: None,
        })
    }

    fn launch_with_library(command: &[OsString], options: &Options) -> Result<Self, Error> {
        let source = PreloadSource::prepare(command, options.protect.clone())?
            .recording_users(options.users)
            .pausing(options.pauses);
        let mut start = prepare(command, options);
        let before: Vec<(OsString, OsString)> = std::env::vars_os().collect();
        let mut after = before.clone();
        source.environment(&mut after);
        start.envs(after.into_iter().filter(|one| !before.contains(one)));
        // Where the user chose the library, it alone is used.
        let mut session = match options.source {
            Some(_) => TraceSession::start(source, options)?,
            None => TraceSession::start(MixedSource::new(source), options)?,
        };
        let child = spawn(command, &mut start)?;
        session.add_root(child.id());
        Ok(Self {
            child,
            session,
            reason: None,
        })
    }

    /// Why the kernel traces it, or why it does not although the library sees nothing.
    #[must_use]
    pub fn reason(&self) -> Option<&SourceReason> {
        self.reason.as_ref()
    }

    /// The process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Its standard output and standard error, if it was started as a server; returned once.
    pub fn take_output(&mut self) -> Option<(ChildStdout, ChildStderr)> {
        self.child.take_output()
    }

    /// Whether it has ended.
    pub fn has_ended(&mut self) -> io::Result<bool> {
        Ok(self.child.try_wait()?.is_some())
    }

    /// Waits for its end.
    pub fn wait(&mut self) -> io::Result<ExitStatus> {
        self.child.wait()
    }

    /// How it ended, if it has.
    pub fn ended(&mut self) -> io::Result<Option<ExitStatus>> {
        self.child.try_wait()
    }

    /// A descriptor that becomes readable when it ends; `None` on kernels and in sandboxes that
    /// forbid it.
    #[must_use]
    pub fn handle(&self) -> Option<OwnedFd> {
        self.child.handle()
    }

    /// Passes a signal on to it, unless it has ended.
    pub fn signal(&mut self, signal: rustix::process::Signal) -> io::Result<()> {
        self.child.signal(signal)
    }
}

fn prepare(command: &[OsString], options: &Options) -> Command {
    let (name, arguments) = command.split_first().unzip();
    let mut start = Command::new(name.unwrap_or(&OsString::new()));
    start.args(arguments.unwrap_or_default());
    if options.as_server {
        start.process_group(0).stdin(Stdio::null());
        start.stdout(Stdio::piped()).stderr(Stdio::piped());
    }
    start
}

fn spawn(command: &[OsString], start: &mut Command) -> Result<OwnChild, Error> {
    start.spawn().map(OwnChild::new).map_err(|source| {
        let name = command.first().cloned().unwrap_or_default();
        let program = name.display().to_string();
        match source.kind() {
            io::ErrorKind::NotFound => Error::NotFound { program },
            _ => Error::NotRunnable { program, source },
        }
    })
}
