//! What the programs report.

/// Something that a thread did to its table of descriptors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelEvent {
    /// The time by the monotonic clock, in nanoseconds. Events of one table come in order.
    pub at: u64,
    /// The process, by its number in fdguard's pid namespace.
    pub pid: u32,
    /// The thread.
    pub tid: u32,
    /// Identifies the table: threads and processes that share one have the same.
    pub table: u64,
    /// The stack: the number of a [`CapturedStack`] that came before; 0 if none was taken.
    pub stack: u32,
    /// What happened.
    pub what: Occurrence,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Occurrence {
    /// A number is in use now. Calls of `ioctl`, `io_uring_enter` and `bpf` may open and close
    /// anything: what became of the table during such a call is reported with the time of the
    /// comparison. So the same number and file may be reported by two threads, and an event that is
    /// older than what is known about its number has no meaning.
    Opened {
        /// The number.
        fd: u32,
        /// The system call that returned.
        call: u32,
        /// The open file: the same for duplicates and inherited descriptors.
        file: u64,
        /// Arguments of the call that the report needs: for a socket domain, type and protocol,
        /// for a duplicate the original number first.
        arguments: [u64; 3],
    },
    /// A number is free now, or was never in use.
    Closed {
        /// The number.
        fd: u32,
        /// The system call.
        call: u32,
        /// The error that it returned; 0 for none.
        errno: u16,
        /// The open file; 0 if there was none.
        file: u64,
        /// Whether an interpreter closed it that is cleaning up at its exit.
        is_finalized: bool,
    },
    /// All numbers from the first to the last are free.
    ClosedRange {
        /// The first.
        first: u32,
        /// The last, included.
        last: u32,
    },
    /// A call that opens failed for lack of a number (`EMFILE`, `ENFILE`).
    Refused {
        /// The system call.
        call: u32,
        /// The error.
        errno: u16,
    },
    /// A call used a number and failed with `EBADF`.
    BadUse {
        /// The number.
        fd: u32,
        /// The system call.
        call: u32,
    },
    /// A number was closed while another thread was inside a call on it.
    ClosedInUse {
        /// The number.
        fd: u32,
        /// The other thread.
        inside: u32,
        /// Its call.
        call: u32,
    },
    /// The process has a new child.
    Forked {
        /// The child.
        child: u32,
        /// The child's table: the parent's if they share it.
        child_table: u64,
        /// Every number that is open in the child's copy; `None` if they share the table, or if
        /// there was no room for the list.
        open: Option<Vec<u32>>,
    },
    /// A call that starts a child has returned. The thread's last [`Occurrence::Forked`] has the
    /// child's table.
    Started {
        /// The child, by the number that the process knows it by.
        child: u32,
    },
    /// A child that has ended was waited for.
    Reaped {
        /// The child, likewise.
        child: u32,
    },
    /// The thread has a table of its own from now on, which is the event's: a copy of another.
    Unshared {
        /// The table that it used before.
        from: u64,
        /// Every number that is open in the copy; `None` if there was no room for the list.
        open: Option<Vec<u32>>,
    },
    /// The process runs another program; what had close-on-exec is closed.
    Executed {
        /// Every number that is open after it.
        open: Vec<u32>,
    },
    /// A file was mapped as code, or executed.
    Mapped(Box<MappedFile>),
    /// The last thread of the process has ended.
    Exited,
    /// A code object that frames of later stacks refer to.
    PythonCode(Box<CapturedCode>),
    /// A stack that was not seen before.
    Stack(Box<CapturedStack>),
}

/// A file that a process has mapped as code.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MappedFile {
    /// The first address. Of an executed program: where its first segment of code begins.
    pub start: u64,
    /// The address after the last.
    pub end: u64,
    /// Which part of the file begins there; 0 for an executed program.
    pub offset: u64,
    /// Whether it was executed.
    pub is_program: bool,
    /// The inode number.
    pub inode: u64,
    /// Its path on its own file system, which may be mounted elsewhere than at `/`. Long names are
    /// cut.
    pub path: Vec<u8>,
}

/// A call stack as the kernel could copy it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CapturedStack {
    /// Its number, from 1 on; unique for the tracer.
    pub number: u32,
    /// The process whose memory it refers to.
    pub pid: u32,
    /// Return addresses by frame pointers, innermost first: complete for Go, useless elsewhere.
    pub frames: Vec<u64>,
    /// The registers in user space.
    pub registers: Registers,
    /// Memory from the stack pointer upwards, to be unwound; empty if frame pointers are enough.
    pub memory: Vec<u8>,
    /// Python frames, innermost first.
    pub language: Vec<LanguageFrame>,
    /// The goroutine, in a Go program.
    pub goroutine: Option<Goroutine>,
}

/// Registers that an unwinder starts from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Registers {
    /// The instruction.
    pub ip: u64,
    /// The stack pointer.
    pub sp: u64,
    /// The frame pointer.
    pub bp: u64,
}

/// A frame of `CPython`, by its code object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LanguageFrame {
    /// The address of the code object.
    pub code: u64,
    /// Which object it was: covers its file, name and first line. Another object may have the
    /// address by now.
    pub identity: u64,
    /// The instruction, in bytes into the code; negative before the first.
    pub instruction: i32,
}

/// A code object of `CPython` and the objects that it refers to, as they are in memory. Copied when
/// a frame of it was first seen, because it may be gone soon.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CapturedCode {
    /// The process.
    pub pid: u32,
    /// The minor version of its interpreter: `3.minor`.
    pub minor: u16,
    /// The address of the code object.
    pub code: u64,
    /// Which object it was.
    pub identity: u64,
    /// The code object.
    pub object: Vec<u8>,
    /// The string object of its file; only its beginning if the rest was not copied.
    pub file: Vec<u8>,
    /// The string object of its name, likewise.
    pub name: Vec<u8>,
    /// The table of its lines; `None` if it was not copied.
    pub lines: Option<Vec<u8>>,
}

/// The goroutine that made a call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Goroutine {
    /// Its number; 0 if the layout of this Go version is not known.
    pub id: u64,
    /// The address of the `go` statement that created it; 0 if unknown.
    pub created_at: u64,
    /// The stack of that statement, innermost first, if its creation was seen, then those of
    /// earlier creators: a zero is before each.
    pub creator: Vec<u64>,
}
