//! Which system calls a seccomp filter permits. The kernel kills a program for a call that its
//! filter does not allow, and the filter does not know the library's calls. So the library
//! evaluates the filter with its own calls before it is installed.

/// An instruction of the kernel's packet filter: `struct sock_filter`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Instruction {
    code: u16,
    jump_true: u8,
    jump_false: u8,
    value: u32,
}

/// The most instructions that the kernel accepts.
pub(crate) const MOST: usize = 4096;

/// `AUDIT_ARCH_X86_64`.
const MACHINE: u32 = 0xc000_003e;
/// Size in bytes of the data that a filter sees.
const SEEN: u32 = 64;
const WORDS: usize = 16;

const ACTION: u32 = 0xffff_0000;
/// The call is made, made and logged, or fails: nothing is killed or notified.
const HARMLESS: [u32; 3] = [0x7fff_0000, 0x7ffc_0000, 0x0005_0000];

/// A call as a filter sees it: its number, and its first three arguments where they never vary.
pub(crate) type Call = (u32, [u64; 3]);

/// Calls made to record: `getpid`, `gettid`, `madvise` (to populate), `rt_sigprocmask`, `readlink`,
/// `clock_gettime`, `fstat`, `sigaltstack`.
pub(crate) const RECORDING: [Call; 8] = [
    (39, [0; 3]),
    (186, [0; 3]),
    (28, [0, 4096, 23]),
    (14, [0x7fff, 0, 0]),
    (89, [0; 3]),
    (228, [1, 0, 0]),
    (5, [0; 3]),
    (131, [0; 3]),
];
/// Calls made in a forked child: `open`, `close`, `mmap`, `munmap`, `ftruncate`, `fallocate`,
/// `prlimit64`, `madvise` (twice).
pub(crate) const BEGINNING: [Call; 9] = [
    (2, [0, 0o2_400_302, 0o600]),
    (3, [0; 3]),
    (9, [0, 4096, 3]),
    (11, [0; 3]),
    (77, [0; 3]),
    (285, [0; 3]),
    (302, [0, 1, 0]),
    (28, [0, 4096, 16]),
    (228, [0, 0, 0]),
];

/// Calls made for protection: `dup3`, `fcntl` (four ways), `close`, `shutdown`, `openat`,
/// `newfstatat`, `prlimit64`, `sched_yield`, `rt_sigaction`, `poll`, `close_range`.
pub(crate) const PROTECTING: [Call; 15] = [
    (292, [0; 3]),
    (72, [0, 1, 0]),
    (72, [0, 3, 0]),
    (72, [0, 0, 512]),
    (72, [0, 1030, 512]),
    (3, [0; 3]),
    (48, [0, 0, 0]),
    (48, [0, 2, 0]),
    (257, [0xffff_ff9c, 0, 0o12_000_000]),
    (262, [0; 3]),
    (302, [0, 7, 0]),
    (24, [0; 3]),
    (13, [13, 0, 0]),
    (7, [0, 16, 0]),
    (436, [3, 4, 0]),
];

/// Whether the filter kills the program for none of these calls.
pub(crate) fn bears(filter: &[Instruction], calls: &[Call]) -> bool {
    calls.iter().all(|call| {
        let action = run(filter, *call).map(|result| result & ACTION);
        action.is_some_and(|action| HARMLESS.contains(&action))
    })
}

struct State {
    a: u32,
    x: u32,
    memory: [u32; WORDS],
}

/// The filter's verdict; `None` if the kernel would not accept the filter.
fn run(filter: &[Instruction], call: Call) -> Option<u32> {
    let mut state = State {
        a: 0,
        x: 0,
        memory: [0; WORDS],
    };
    let mut at = 0_usize;
    loop {
        let one = filter.get(at)?;
        at = at.checked_add(1)?;
        match one.code & 7 {
            0 | 1 => state.load(*one, call)?,
            2 => *state.memory.get_mut(one.value as usize)? = state.a,
            3 => *state.memory.get_mut(one.value as usize)? = state.x,
            4 => state.a = state.computed(*one)?,
            // Jumps only go forward, so every program ends.
            5 => at = at.checked_add(state.jump(*one)? as usize)?,
            6 if one.code == 0x16 => return Some(state.a),
            6 => return Some(one.value),
            _ if one.code == 0x07 => state.x = state.a,
            _ => state.a = state.x,
        }
    }
}

impl State {
    fn load(&mut self, one: Instruction, call: Call) -> Option<()> {
        let value = match one.code & 0xe0 {
            0x00 => one.value,
            0x20 => seen(one.value, call)?,
            0x60 => *self.memory.get(one.value as usize)?,
            0x80 => SEEN,
            _ => return None,
        };
        if one.code & 7 == 0 {
            self.a = value;
        } else {
            self.x = value;
        }
        Some(())
    }

    fn operand(&self, one: Instruction) -> u32 {
        if one.code & 8 == 0 { one.value } else { self.x }
    }

    fn computed(&self, one: Instruction) -> Option<u32> {
        let (a, b) = (self.a, self.operand(one));
        match one.code & 0xf0 {
            0x00 => Some(a.wrapping_add(b)),
            0x10 => Some(a.wrapping_sub(b)),
            0x20 => Some(a.wrapping_mul(b)),
            0x30 => a.checked_div(b),
            0x40 => Some(a | b),
            0x50 => Some(a & b),
            0x60 => Some(a.checked_shl(b).unwrap_or(0)),
            0x70 => Some(a.checked_shr(b).unwrap_or(0)),
            0x80 => Some(a.wrapping_neg()),
            0xa0 => Some(a ^ b),
            _ => None,
        }
    }

    /// How many instructions are skipped.
    fn jump(&self, one: Instruction) -> Option<u32> {
        let (a, b) = (self.a, self.operand(one));
        let is_so = match one.code & 0xf0 {
            0x00 => return Some(one.value),
            0x10 => a == b,
            0x20 => a > b,
            0x30 => a >= b,
            0x40 => a & b != 0,
            _ => return None,
        };
        Some(u32::from(if is_so {
            one.jump_true
        } else {
            one.jump_false
        }))
    }
}

/// A word of the data that the filter sees: number, machine, address of the instruction, six
/// arguments.
fn seen(offset: u32, (number, arguments): Call) -> Option<u32> {
    if !offset.is_multiple_of(4) || offset >= SEEN {
        return None;
    }
    let is_upper = offset % 8 == 4;
    let word = match offset / 8 {
        0 => u64::from(number) | u64::from(MACHINE) << 32,
        1 => 0,
        place => *arguments.get(place as usize - 2).unwrap_or(&0),
    };
    u32::try_from(if is_upper {
        word >> 32
    } else {
        word & 0xffff_ffff
    })
    .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALLOW: u32 = 0x7fff_0000;
    const KILL: u32 = 0x8000_0000;

    fn one(code: u16, jump_true: u8, jump_false: u8, value: u32) -> Instruction {
        Instruction {
            code,
            jump_true,
            jump_false,
            value,
        }
    }

    /// A filter as programs write it: check the machine, then each allowed number.
    fn allowing(numbers: &[u32], otherwise: u32) -> Vec<Instruction> {
        let mut filter = vec![
            one(0x20, 0, 0, 4),
            one(0x15, 1, 0, MACHINE),
            one(0x06, 0, 0, KILL),
            one(0x20, 0, 0, 0),
        ];
        for number in numbers {
            filter.extend([one(0x15, 0, 1, *number), one(0x06, 0, 0, ALLOW)]);
        }
        filter.push(one(0x06, 0, 0, otherwise));
        filter
    }

    #[test]
    fn a_filter_bears_what_it_allows_or_refuses_and_not_what_it_kills_for() {
        let calls: Vec<u32> = RECORDING.iter().map(|call| call.0).collect();
        assert!(bears(&allowing(&calls, KILL), &RECORDING));
        assert!(!bears(&allowing(&calls[1..], KILL), &RECORDING));
        for otherwise in [ALLOW, 0x7ffc_0000, 0x0005_0001] {
            assert!(bears(&allowing(&[], otherwise), &RECORDING));
        }
        // Kill, trap, notify, trace.
        for otherwise in [KILL, 0, 0x0003_0000, 0x7fc0_0000, 0x7ff0_0000] {
            assert!(!bears(&allowing(&[1, 3], otherwise), &RECORDING));
        }
    }

    #[test]
    fn arguments_arithmetic_and_memory_count() {
        // Allowed when the third argument, kept in memory, times two is 46.
        let filter = [
            one(0x20, 0, 0, 32),
            one(0x02, 0, 0, 5),
            one(0x00, 0, 0, 9),
            one(0x61, 0, 0, 5),
            one(0x87, 0, 0, 0),
            one(0x0c, 0, 0, 0),
            one(0x15, 0, 1, 46),
            one(0x06, 0, 0, ALLOW),
            one(0x06, 0, 0, KILL),
        ];
        assert!(bears(&filter, &[(28, [0, 0, 23])]));
        assert!(!bears(&filter, &[(28, [0, 0, 24])]));
    }

    #[test]
    fn what_is_no_filter_is_not_believed() {
        assert!(!bears(&[], &RECORDING));
        assert!(!bears(&[one(0x20, 0, 0, 3)], &RECORDING));
        assert!(!bears(&[one(0x05, 0, 0, u32::MAX)], &RECORDING));
        assert!(!bears(
            &[one(0x34, 0, 0, 0), one(6, 0, 0, ALLOW)],
            &RECORDING
        ));
        assert!(bears(&[], &[]));
    }
}
