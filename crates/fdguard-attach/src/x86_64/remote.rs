//! The machine code that runs on the borrowed thread, and the memory that it uses.
//!
//! It restores the thread by itself, whether or not the tracer still lives: the registers are
//! popped from a [`SaveArea`], and `iretq` loads the last five. Nothing here traps.

#![expect(
    unsafe_code,
    reason = "the code is assembled into this program and read from there"
)]

use std::arch::global_asm;

use crate::x86_64::memory::number;
use crate::x86_64::ptrace::{MOST_XSTATE, Registers};

/// The first page of the scratch memory is the code; the stack above it ends in a fault if it
/// overflows, because the code cannot be written.
pub(crate) const CODE_SIZE: usize = 4096;
const STACK_SIZE: usize = 320 * 1024;
const DATA_AT: usize = CODE_SIZE + STACK_SIZE;
const TEXT_SIZE: usize = 512;
const NAMES_AT: usize = 0x100;
const ERROR_AT: usize = NAMES_AT + 3 * TEXT_SIZE;
const XSTATE_AT: usize = 4096;
/// Memory that is not written costs nothing.
const ARGUMENT_AT: usize = DATA_AT + XSTATE_AT + MOST_XSTATE;
/// How long the code waits for the tracer when it is done, in cycles: about 20 ms.
const PATIENCE: u64 = 60_000_000;
/// All signals except faults: those of the code must reach the tracer, and a blocked one resets
/// the program's handler. ILL, TRAP, BUS, FPE, SEGV, SYS.
const BLOCKED: u64 = !(1 << 3 | 1 << 4 | 1 << 6 | 1 << 7 | 1 << 10 | 1 << 30);
/// Where memory is mapped if nothing is there: what a killed tracer left is recognized even if it
/// had written nothing yet, and it does not merge with memory of the program.
pub(crate) const USUAL_ADDRESS: u64 = 0x6664_6775_0000;
/// Marks the data, so that what a killed tracer left is recognized.
pub(crate) const MAGIC: u64 = u64::from_le_bytes(*b"fdguard1");

// Places in the data, in bytes.
const DONE: usize = 0x00;
const OUTCOME: usize = 0x08;
const DLOPEN: usize = 0x10;
const DLSYM: usize = 0x18;
const DLERROR: usize = 0x20;
const ERRNO: usize = 0x28;
const RETURNED: usize = 0x30;
const ENTRY: usize = 0x38;
const SAVED_ERRNO: usize = 0x40;
const OLD_MASK: usize = 0x48;
const FULL_MASK: usize = 0x50;
const WAIT_CYCLES: usize = 0x58;
const DESCRIPTOR: usize = 0x60;
const LIBRARY: usize = 0x68;
const LIBRARY_SIZE: usize = 0x70;
const ARGUMENT: usize = 0x78;
const ARGUMENT_SIZE: usize = 0x80;
const DIGITS: usize = 0x88;
const SAVE: usize = 0x90;
const LEFT: usize = 0x98;
const MXCSR: usize = 0xa0;
const MAGIC_AT: usize = 0xa8;
const SIZE: usize = 0xb0;
const HANDLE: usize = 0xb8;
const PAUSE: usize = 0xc0;
const ARMED: usize = 0xd0;
const ACCESS: usize = 0xd8;
const FD_NAME: usize = NAMES_AT;
const PATH: usize = NAMES_AT + TEXT_SIZE;
const ENTRY_NAME: usize = NAMES_AT + 2 * TEXT_SIZE;

// How far the code came.
const STARTED: u64 = 1;
const NO_MEMFD: u64 = 2;
const NOT_WRITTEN: u64 = 3;
const NOT_LOADED: u64 = 4;
const NO_SYMBOL: u64 = 5;
const CALLED: u64 = 6;

global_asm!(
    ".pushsection .rodata.fdguard_remote, \"a\"",
    // One system call, then back to what the thread did. Its size is 27 bytes.
    "fdguard_remote_syscall:",
    "syscall",
    "pop rax", "pop rcx", "pop rdx", "pop rbx", "pop rbp", "pop rsi", "pop rdi",
    "pop r8", "pop r9", "pop r10", "pop r11", "pop r12", "pop r13", "pop r14", "pop r15",
    "iretq",
    "fdguard_remote_syscall_end:",
    // The call of the library's function. rbx: the data. rsp: the end of the own stack.
    "fdguard_remote_call:",
    "cld",
    "fninit",
    "ldmxcsr [rbx + {MXCSR}]",
    "mov qword ptr [rbx + {OUTCOME}], {STARTED}",
    "mov eax, 14", // rt_sigprocmask(SIG_SETMASK, all, old)
    "mov edi, 2",
    "lea rsi, [rbx + {FULL_MASK}]",
    "lea rdx, [rbx + {OLD_MASK}]",
    "mov r10d, 8",
    "syscall",
    "call [rbx + {ERRNO}]",
    "mov ecx, [rax]",
    "mov [rbx + {SAVED_ERRNO}], ecx",
    "mov rax, [rbx + {ENTRY}]",
    "test rax, rax",
    "jnz 6f",
    "mov eax, 319", // memfd_create(name, MFD_CLOEXEC | MFD_EXEC); older kernels have no MFD_EXEC
    "lea rdi, [rbx + {FD_NAME}]",
    "mov esi, 0x11",
    "syscall",
    "cmp rax, -22",
    "jne 1f",
    "mov eax, 319",
    "lea rdi, [rbx + {FD_NAME}]",
    "mov esi, 1",
    "syscall",
    "1:",
    "mov [rbx + {DESCRIPTOR}], rax",
    "mov qword ptr [rbx + {OUTCOME}], {NO_MEMFD}",
    "test rax, rax",
    "js 8f",
    "mov qword ptr [rbx + {OUTCOME}], {NOT_WRITTEN}",
    "mov r12, [rbx + {LIBRARY}]",
    "mov r13, [rbx + {LIBRARY_SIZE}]",
    "2:",
    "test r13, r13",
    "jz 3f",
    "mov eax, 1", // write
    "mov rdi, [rbx + {DESCRIPTOR}]",
    "mov rsi, r12",
    "mov rdx, r13",
    "syscall",
    "test rax, rax",
    "jle 7f",
    "add r12, rax",
    "sub r13, rax",
    "jmp 2b",
    "3:", // the number of the descriptor, after the path's directory
    "mov rdi, [rbx + {DIGITS}]",
    "mov rax, [rbx + {DESCRIPTOR}]",
    "mov ecx, 10",
    "xor r8d, r8d",
    "4:",
    "xor edx, edx",
    "div rcx",
    "add edx, 48",
    "push rdx",
    "inc r8d",
    "test rax, rax",
    "jnz 4b",
    "5:",
    "pop rdx",
    "mov [rdi], dl",
    "inc rdi",
    "dec r8d",
    "jnz 5b",
    "mov byte ptr [rdi], 0",
    "mov qword ptr [rbx + {OUTCOME}], {NOT_LOADED}",
    "lea rdi, [rbx + {PATH}]",
    "mov esi, 0x1002", // RTLD_NOW | RTLD_NODELETE
    "call [rbx + {DLOPEN}]",
    "mov [rbx + {HANDLE}], rax",
    "test rax, rax",
    "jnz 9f",
    "mov eax, 21", // access(path, R_OK): is it the file or the way to it?
    "lea rdi, [rbx + {PATH}]",
    "mov esi, 4",
    "syscall",
    "mov [rbx + {ACCESS}], rax",
    "call [rbx + {DLERROR}]",
    "test rax, rax",
    "jz 7f",
    "lea rdi, [rbx + {ERROR_AT}]",
    "mov ecx, {TEXT_SIZE} - 1",
    "10:",
    "mov dl, [rax]",
    "mov [rdi], dl",
    "test dl, dl",
    "jz 7f",
    "inc rax",
    "inc rdi",
    "dec ecx",
    "jnz 10b",
    "jmp 7f",
    "9:",
    "mov qword ptr [rbx + {OUTCOME}], {NO_SYMBOL}",
    "mov rdi, rax",
    "lea rsi, [rbx + {ENTRY_NAME}]",
    "call [rbx + {DLSYM}]",
    "mov [rbx + {ENTRY}], rax",
    "7:",
    "mov eax, 3", // close
    "mov rdi, [rbx + {DESCRIPTOR}]",
    "syscall",
    "mov rax, [rbx + {ENTRY}]",
    "test rax, rax",
    "jz 8f",
    "6:",
    "mov rdi, [rbx + {ARGUMENT}]",
    "mov rsi, [rbx + {ARGUMENT_SIZE}]",
    "call rax",
    "movsxd rax, eax",
    "mov [rbx + {RETURNED}], rax",
    "mov qword ptr [rbx + {OUTCOME}], {CALLED}",
    "8:",
    "call [rbx + {ERRNO}]",
    "mov ecx, [rbx + {SAVED_ERRNO}]",
    "mov [rax], ecx",
    "rdtsc",
    "shl rdx, 32",
    "lea r12, [rdx + rax]",
    "mov qword ptr [rbx + {DONE}], 1",
    "11:", // the tracer restores the thread, unless it is gone
    "mov qword ptr [rbx + {PAUSE}], 0",
    "mov qword ptr [rbx + {PAUSE} + 8], 100000",
    "mov eax, 270", // pselect6, which leaves the kernel's restart block alone, for 0.1 ms
    "xor edi, edi",
    "xor esi, esi",
    "xor edx, edx",
    "xor r10d, r10d",
    "lea r8, [rbx + {PAUSE}]",
    "xor r9d, r9d",
    "syscall",
    "rdtsc",
    "shl rdx, 32",
    "add rax, rdx",
    "sub rax, r12",
    "cmp rax, [rbx + {WAIT_CYCLES}]",
    "jb 11b",
    "mov eax, 14",
    "mov edi, 2",
    "lea rsi, [rbx + {OLD_MASK}]",
    "xor edx, edx",
    "mov r10d, 8",
    "syscall",
    "mov eax, -1",
    "mov edx, -1",
    "xrstor64 [rbx + {XSTATE_AT}]",
    "mov rsp, [rbx + {SAVE}]",
    "mov qword ptr [rbx + {LEFT}], 1",
    "pop rax", "pop rcx", "pop rdx", "pop rbx", "pop rbp", "pop rsi", "pop rdi",
    "pop r8", "pop r9", "pop r10", "pop r11", "pop r12", "pop r13", "pop r14", "pop r15",
    "iretq",
    "fdguard_remote_call_end:",
    ".popsection",
    DONE = const DONE,
    OUTCOME = const OUTCOME,
    DLOPEN = const DLOPEN,
    DLSYM = const DLSYM,
    DLERROR = const DLERROR,
    ERRNO = const ERRNO,
    RETURNED = const RETURNED,
    ENTRY = const ENTRY,
    SAVED_ERRNO = const SAVED_ERRNO,
    OLD_MASK = const OLD_MASK,
    FULL_MASK = const FULL_MASK,
    WAIT_CYCLES = const WAIT_CYCLES,
    DESCRIPTOR = const DESCRIPTOR,
    LIBRARY = const LIBRARY,
    LIBRARY_SIZE = const LIBRARY_SIZE,
    ARGUMENT = const ARGUMENT,
    ARGUMENT_SIZE = const ARGUMENT_SIZE,
    DIGITS = const DIGITS,
    SAVE = const SAVE,
    LEFT = const LEFT,
    MXCSR = const MXCSR,
    HANDLE = const HANDLE,
    PAUSE = const PAUSE,
    FD_NAME = const FD_NAME,
    PATH = const PATH,
    ACCESS = const ACCESS,
    ENTRY_NAME = const ENTRY_NAME,
    ERROR_AT = const ERROR_AT,
    TEXT_SIZE = const TEXT_SIZE,
    XSTATE_AT = const XSTATE_AT,
    STARTED = const STARTED,
    NO_MEMFD = const NO_MEMFD,
    NOT_WRITTEN = const NOT_WRITTEN,
    NOT_LOADED = const NOT_LOADED,
    NO_SYMBOL = const NO_SYMBOL,
    CALLED = const CALLED,
);

unsafe extern "C" {
    static fdguard_remote_syscall: u8;
    static fdguard_remote_syscall_end: u8;
    static fdguard_remote_call: u8;
    static fdguard_remote_call_end: u8;
}

/// The code of one system call.
pub(crate) fn syscall_code() -> &'static [u8] {
    slice(
        &raw const fdguard_remote_syscall,
        &raw const fdguard_remote_syscall_end,
    )
}

/// The code of the call.
pub(crate) fn call_code() -> &'static [u8] {
    slice(
        &raw const fdguard_remote_call,
        &raw const fdguard_remote_call_end,
    )
}

fn slice(start: *const u8, end: *const u8) -> &'static [u8] {
    let size = end as usize - start as usize;
    // SAFETY: both labels are in the assembly above, in this order, in read-only data.
    unsafe { std::slice::from_raw_parts(start, size) }
}

/// The registers of the thread in the order in which the code pops them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SaveArea {
    pub(crate) address: u64,
}

impl SaveArea {
    pub(crate) const SIZE: usize = 20 * 8;
    /// Below the stack pointer a function without calls may keep data.
    const RED_ZONE: u64 = 128;

    /// Below the stack of a thread with these registers.
    pub(crate) fn below(registers: &Registers) -> Self {
        let below = registers
            .rsp
            .wrapping_sub(Self::RED_ZONE + Self::SIZE as u64);
        Self {
            address: below & !15,
        }
    }

    pub(crate) fn content(registers: &Registers) -> Vec<u8> {
        let r = registers;
        let words = [
            r.rax, r.rcx, r.rdx, r.rbx, r.rbp, r.rsi, r.rdi, r.r8, r.r9, r.r10, r.r11, r.r12,
            r.r13, r.r14, r.r15, r.rip, r.cs, r.eflags, r.rsp, r.ss,
        ];
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    /// The registers that make a system call with the code at `code`.
    pub(crate) fn syscall(
        self,
        registers: &Registers,
        code: u64,
        number: u64,
        arguments: [u64; 6],
    ) -> Registers {
        let [rdi, rsi, rdx, r10, r8, r9] = arguments;
        Registers {
            rip: code,
            rsp: self.address,
            rax: number,
            orig_rax: u64::MAX,
            eflags: 0x202,
            rdi,
            rsi,
            rdx,
            r10,
            r8,
            r9,
            ..*registers
        }
    }
}

/// What the call needs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CallPlan<'a> {
    pub(crate) dlopen: u64,
    pub(crate) dlsym: u64,
    pub(crate) dlerror: u64,
    pub(crate) errno: u64,
    /// The function's address, if the library is loaded.
    pub(crate) entry: Option<u64>,
    /// The name of the memfd.
    pub(crate) name: &'a [u8],
    /// The directory of descriptors, as the loader has not seen it yet.
    pub(crate) directory: &'a [u8],
    pub(crate) entry_name: &'a [u8],
    pub(crate) library: &'a [u8],
    pub(crate) argument: &'a [u8],
}

/// The memory that is mapped in the target for a call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scratch {
    pub(crate) address: u64,
    pub(crate) size: usize,
}

impl Scratch {
    /// How much the call needs.
    pub(crate) fn size(plan: &CallPlan<'_>) -> usize {
        let library = if plan.entry.is_some() {
            0
        } else {
            plan.library.len()
        };
        ARGUMENT_AT + pages(plan.argument.len()) + pages(library)
    }

    pub(crate) fn data(self) -> u64 {
        self.address + DATA_AT as u64
    }

    pub(crate) fn contains_code(self, address: u64) -> bool {
        (self.address..self.address + CODE_SIZE as u64).contains(&address)
    }

    /// The code and its data, each with its place.
    pub(crate) fn code(self, plan: &CallPlan<'_>) -> [(u64, Vec<u8>); 2] {
        let nobody = SaveArea { address: 0 };
        let head = self.head(plan, nobody, &[]);
        [(self.address, call_code().to_vec()), (self.data(), head)]
    }

    /// What is copied while no thread is stopped, each with its place.
    pub(crate) fn bulk<'a>(self, plan: &CallPlan<'a>) -> [(u64, &'a [u8]); 2] {
        let library = if plan.entry.is_some() {
            &[]
        } else {
            plan.library
        };
        [
            (self.argument(), plan.argument),
            (self.library(plan), library),
        ]
    }

    fn argument(self) -> u64 {
        self.address + ARGUMENT_AT as u64
    }

    fn library(self, plan: &CallPlan<'_>) -> u64 {
        self.argument() + pages(plan.argument.len()) as u64
    }

    /// The data for a thread with this extended state.
    pub(crate) fn head(self, plan: &CallPlan<'_>, save: SaveArea, xstate: &[u8]) -> Vec<u8> {
        let data = self.data();
        let mut head = vec![0; XSTATE_AT];
        let words = [
            (DLOPEN, plan.dlopen),
            (DLSYM, plan.dlsym),
            (DLERROR, plan.dlerror),
            (ERRNO, plan.errno),
            (ENTRY, plan.entry.unwrap_or(0)),
            (FULL_MASK, BLOCKED),
            (WAIT_CYCLES, PATIENCE),
            (LIBRARY, self.library(plan)),
            (LIBRARY_SIZE, plan.library.len() as u64),
            (ARGUMENT, self.argument()),
            (ARGUMENT_SIZE, plan.argument.len() as u64),
            (DIGITS, data + (PATH + plan.directory.len()) as u64),
            (SAVE, save.address),
            (MXCSR, 0x1f80),
            (MAGIC_AT, MAGIC),
            (SIZE, self.size as u64),
        ];
        for (at, word) in words {
            put(&mut head, at, &word.to_le_bytes());
        }
        put_text(&mut head, FD_NAME, plan.name);
        put_text(&mut head, PATH, plan.directory);
        put_text(&mut head, ENTRY_NAME, plan.entry_name);
        head.extend_from_slice(xstate);
        head
    }

    /// Where to note that a thread is about to start.
    pub(crate) fn armed(self) -> u64 {
        self.data() + ARMED as u64
    }

    /// Where to note that no thread is inside any more.
    pub(crate) fn left(self) -> u64 {
        self.data() + LEFT as u64
    }

    /// The registers that start the call.
    pub(crate) fn start(self, registers: &Registers) -> Registers {
        Registers {
            rip: self.address,
            rsp: self.data() - 64,
            rbx: self.data(),
            rbp: 0,
            rax: 0,
            orig_rax: u64::MAX,
            eflags: 0x202,
            ..*registers
        }
    }
}

/// The code's report, as it is in the data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Report {
    pub(crate) done: bool,
    /// Whether a thread was about to start.
    pub(crate) armed: bool,
    /// Whether the thread was restored.
    pub(crate) left: bool,
    pub(crate) outcome: Outcome,
    pub(crate) old_mask: u64,
    /// The size of the scratch memory, if this is one.
    pub(crate) scratch_size: Option<u64>,
}

/// How the call went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Returned(i32),
    /// The file for the library could not be created.
    NoMemfd(i32),
    NotWritten,
    /// The process cannot open its own file; what the loader says.
    NotReached(String),
    /// What the loader says.
    NotLoaded(String),
    NoSymbol,
    NotStarted,
    Unfinished,
}

impl Report {
    /// The size of the part of the data that a report is read from.
    pub(crate) const SIZE: usize = ERROR_AT + TEXT_SIZE;

    pub(crate) fn read(data: &[u8]) -> Self {
        let word = |at| number(data, at, 8);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_possible_wrap,
            reason = "the code has extended an int"
        )]
        let int = |at| word(at) as i64 as i32;
        let outcome = match word(OUTCOME) {
            NO_MEMFD => Outcome::NoMemfd(-int(DESCRIPTOR)),
            NOT_WRITTEN => Outcome::NotWritten,
            NOT_LOADED if word(ACCESS) != 0 => Outcome::NotReached(text(data)),
            NOT_LOADED => Outcome::NotLoaded(text(data)),
            NO_SYMBOL => Outcome::NoSymbol,
            CALLED => Outcome::Returned(int(RETURNED)),
            0 => Outcome::NotStarted,
            _ => Outcome::Unfinished,
        };
        Self {
            done: word(DONE) == 1,
            armed: word(ARMED) == 1,
            left: word(LEFT) == 1,
            outcome,
            old_mask: word(OLD_MASK),
            scratch_size: (word(MAGIC_AT) == MAGIC).then(|| word(SIZE)),
        }
    }
}

/// Where the data of a scratch memory is that begins at this address.
pub(crate) fn data_of(address: u64) -> u64 {
    address + DATA_AT as u64
}

fn text(data: &[u8]) -> String {
    let text = data.get(ERROR_AT..).unwrap_or_default();
    let text = text.split(|byte| *byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(text).into_owned()
}

fn put(head: &mut [u8], at: usize, bytes: &[u8]) {
    if let Some(place) = head.get_mut(at..at + bytes.len()) {
        place.copy_from_slice(bytes);
    }
}

/// A text that ends with a null byte; what does not fit is cut.
fn put_text(head: &mut [u8], at: usize, text: &[u8]) {
    let text = text.get(..text.len().min(TEXT_SIZE - 16)).unwrap_or(text);
    put(head, at, text);
}

fn pages(size: usize) -> usize {
    size.next_multiple_of(4096)
}

#[cfg(test)]
mod tests {
    use super::{CODE_SIZE, call_code, syscall_code};

    #[test]
    fn the_code_has_its_size() {
        assert_eq!(syscall_code().len(), 27);
        assert_eq!(syscall_code().get(..2), Some(&[0x0f, 0x05][..]));
        assert!(call_code().len() < CODE_SIZE);
    }
}
