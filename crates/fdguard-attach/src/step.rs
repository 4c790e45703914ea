//! The steps of a call, for tests that end the tracer at each of them.

/// A step that was just done.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Step {
    /// The thread is seized, and runs.
    Seized,
    /// It is stopped.
    Stopped,
    /// Its stack was found to be safe.
    Judged,
    /// Its registers are on its stack.
    Saved,
    /// The code of a system call is in the program.
    Planted,
    /// The thread will make a system call.
    Armed,
    /// Memory is mapped.
    Mapped,
    /// Code and data are in it.
    Written,
    /// The code can run.
    Protected,
    /// Argument and library are in the memory, while the threads run.
    Copied,
    /// The thread's own state is in it.
    Filled,
    /// The thread will make the call.
    Entered,
    /// It does.
    Running,
    /// The function has returned.
    Done,
    /// The thread is stopped again.
    Caught,
    /// Its extended state and its signals are restored.
    ExtendedState,
    /// The memory is unmapped.
    Unmapped,
    /// Its registers are restored.
    Registers,
    /// The program's code is restored.
    Code,
    /// The thread is free.
    Detached,
}
