//! Where a function has its return address, by its own code: for functions without unwind tables,
//! such as those of musl. The instructions from the current one to the `ret` say how far the stack
//! pointer still moves.

use iced_x86::{
    Code, Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind, Register,
};

/// The most instructions that are followed on all ways together.
const MOST: usize = 2048;

/// How to leave a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ReturnPlace {
    /// Bytes from the stack pointer to the return address.
    pub(super) offset: u64,
    /// Bytes from the stack pointer to the caller's frame pointer; `None` if it was not changed.
    pub(super) frame_pointer: Option<u64>,
}

/// What has happened since the current instruction.
#[derive(Clone, Copy, Debug)]
struct Way {
    at: u64,
    /// How far the stack pointer has moved.
    moved: i64,
    /// Where the frame pointer was read from.
    restored: Option<i64>,
}

impl Way {
    /// Moves the stack pointer. Code that is none may move it anywhere: then no place is plausible.
    fn shift(&mut self, by: i64) {
        self.moved = self.moved.saturating_add(by);
    }
}

/// Follows the code, which begins at the address `base`, from `at` on. The distance of the frame
/// pointer from the stack pointer is used where the code uses it. Of several ways the first counts
/// whose place `is_plausible`.
pub(super) fn find(
    (code, base): (&[u8], u64),
    at: u64,
    frame_pointer: i64,
    is_plausible: impl Fn(&ReturnPlace) -> bool,
) -> Option<ReturnPlace> {
    let mut ways = vec![Way {
        at,
        moved: 0,
        restored: None,
    }];
    let mut seen = std::collections::HashSet::new();
    while let Some(mut way) = ways.pop() {
        while seen.len() < MOST && seen.insert(way.at) {
            let Some(instruction) = decode(code, base, way.at) else {
                break;
            };
            match instruction.flow_control() {
                FlowControl::Return => {
                    let place = place(way);
                    if let Some(place) = place.filter(|one| is_plausible(one)) {
                        return Some(place);
                    }
                    break;
                }
                FlowControl::UnconditionalBranch => way.at = instruction.near_branch_target(),
                FlowControl::ConditionalBranch => {
                    ways.push(Way {
                        at: instruction.near_branch_target(),
                        ..way
                    });
                    way.at = instruction.next_ip();
                }
                FlowControl::Next | FlowControl::Call | FlowControl::IndirectCall => {
                    if !advance(&mut way, &instruction, frame_pointer) {
                        break;
                    }
                }
                _ if instruction.code() == Code::Syscall => way.at = instruction.next_ip(),
                _ => break,
            }
        }
    }
    None
}

fn place(way: Way) -> Option<ReturnPlace> {
    Some(ReturnPlace {
        offset: u64::try_from(way.moved).ok()?,
        frame_pointer: match way.restored {
            Some(from) => Some(u64::try_from(from).ok()?),
            None => None,
        },
    })
}

/// Applies an instruction; false if the stack pointer is not known after it.
fn advance(way: &mut Way, instruction: &Instruction, frame_pointer: i64) -> bool {
    way.at = instruction.next_ip();
    if instruction.flow_control() != FlowControl::Next {
        // A function that is called leaves the stack as it was.
        return true;
    }
    let first = instruction.op0_register();
    let is_by_number =
        instruction.op1_kind() != OpKind::Register && instruction.op1_kind() != OpKind::Memory;
    match instruction.mnemonic() {
        Mnemonic::Pop => {
            if first == Register::RBP {
                way.restored = Some(way.moved);
            }
            way.shift(instruction.stack_pointer_increment().into());
            return first != Register::RSP;
        }
        Mnemonic::Leave if way.restored.is_none() => {
            way.restored = Some(frame_pointer);
            way.moved = frame_pointer.saturating_add(8);
        }
        Mnemonic::Add if first == Register::RSP && is_by_number => match signed(instruction) {
            Some(by) => way.shift(by),
            None => return false,
        },
        Mnemonic::Sub if first == Register::RSP && is_by_number => match signed(instruction) {
            Some(by) => way.shift(by.saturating_neg()),
            None => return false,
        },
        Mnemonic::Lea if first == Register::RSP => {
            return load_address(way, instruction, frame_pointer);
        }
        Mnemonic::Mov if first == Register::RSP => {
            let is_frame = instruction.op1_register() == Register::RBP && way.restored.is_none();
            way.moved = frame_pointer;
            return is_frame;
        }
        Mnemonic::Cmp | Mnemonic::Test => {}
        _ if first == Register::RSP && instruction.op0_kind() == OpKind::Register => return false,
        _ => way.shift(instruction.stack_pointer_increment().into()),
    }
    true
}

/// `lea rsp, [rsp+8]` and `lea rsp, [rbp-8]`.
fn load_address(way: &mut Way, instruction: &Instruction, frame_pointer: i64) -> bool {
    if instruction.memory_index() != Register::None {
        return false;
    }
    let by = instruction.memory_displacement64().cast_signed();
    match instruction.memory_base() {
        Register::RSP => way.shift(by),
        Register::RBP if way.restored.is_none() => way.moved = frame_pointer.saturating_add(by),
        _ => return false,
    }
    true
}

fn signed(instruction: &Instruction) -> Option<i64> {
    instruction.try_immediate(1).ok().map(u64::cast_signed)
}

fn decode(code: &[u8], base: u64, at: u64) -> Option<Instruction> {
    let index = usize::try_from(at.checked_sub(base)?).ok()?;
    let bytes = code.get(index..)?;
    let mut decoder = Decoder::with_ip(64, bytes, at, DecoderOptions::NONE);
    let instruction = decoder.can_decode().then(|| decoder.decode())?;
    (!instruction.is_invalid()).then_some(instruction)
}

/// Whether an address follows a call: then it can be a return address. `before` are the bytes
/// before it.
pub(super) fn follows_call(before: &[u8]) -> bool {
    let ends = |length: usize, is_call: &dyn Fn(&[u8]) -> bool| {
        let start = before.len().checked_sub(length);
        start.and_then(|at| before.get(at..)).is_some_and(is_call)
    };
    // call rel32, and call through a register or memory.
    let indirect = |bytes: &[u8]| {
        let bytes = bytes.strip_prefix(&[0x41]).unwrap_or(bytes);
        matches!(bytes, [0xff, modrm, ..] if modrm >> 3 & 7 == 2)
    };
    ends(5, &|bytes| bytes.first() == Some(&0xe8)) || (2..8).any(|length| ends(length, &indirect))
}

#[cfg(test)]
mod tests {
    use super::{ReturnPlace, find, follows_call};

    const BASE: u64 = 0x40_1510;

    fn place(code: &[u8], at: u64, frame_pointer: i64) -> Option<(u64, Option<u64>)> {
        let found = find((code, BASE), BASE + at, frame_pointer, |_| true);
        found.map(|one| (one.offset, one.frame_pointer))
    }

    #[test]
    fn a_wrapper_has_it_at_the_stack_pointer() {
        // syscall; ret
        assert_eq!(place(b"\x0f\x05\xc3", 0, 0), Some((0, None)));
        assert_eq!(place(b"\x0f\x05\xc3", 2, 0), Some((0, None)));
    }

    #[test]
    fn pops_and_additions_are_counted() {
        // add $0x50,%rsp; pop %rbx; pop %rbp; ret
        let code = b"\x48\x83\xc4\x50\x5b\x5d\xc3";
        assert_eq!(place(code, 0, 0), Some((0x60, Some(0x58))));
        // A push for a call, which the caller takes back: push $0; call +0; add $16,%rsp; ret
        let code = b"\x6a\x00\xe8\x00\x00\x00\x00\x48\x83\xc4\x10\xc3";
        assert_eq!(place(code, 0, 0), Some((8, None)));
        assert_eq!(place(code, 7, 0), Some((16, None)));
    }

    #[test]
    fn a_check_that_fails_is_not_followed_first() {
        // jne 7; add $8,%rsp; ret; call +0 (does not return); ud2
        let code = b"\x75\x05\x48\x83\xc4\x08\xc3\xe8\x00\x00\x00\x00\x0f\x0b";
        assert_eq!(place(code, 0, 0), Some((8, None)));
    }

    #[test]
    fn a_frame_pointer_leads_there() {
        // leave; ret, with the frame pointer 0x40 above the stack pointer
        assert_eq!(place(b"\xc9\xc3", 0, 0x40), Some((0x48, Some(0x40))));
        // lea -0x8(%rbp),%rsp; pop %rbx; pop %rbp; ret
        let code = b"\x48\x8d\x65\xf8\x5b\x5d\xc3";
        assert_eq!(place(code, 0, 0x40), Some((0x48, Some(0x40))));
    }

    #[test]
    fn what_is_not_known_is_not_guessed() {
        // mov %rax,%rsp; ret
        assert_eq!(place(b"\x48\x89\xc4\xc3", 0, 0), None);
        // jmp *%rax
        assert_eq!(place(b"\xff\xe0", 0, 0), None);
        // jmp to itself
        assert_eq!(place(b"\xeb\xfe", 0, 0), None);
        assert_eq!(place(b"", 0, 0), None);
        let refused = find((b"\xc3", BASE), BASE, 0, |_: &ReturnPlace| false);
        assert_eq!(refused, None);
    }

    #[test]
    fn a_return_address_follows_a_call() {
        assert!(follows_call(b"\x90\x90\xe8\x01\x02\x03\x04"));
        assert!(follows_call(b"\x90\x90\x90\xff\xd0"));
        assert!(follows_call(b"\x90\x41\xff\xd4"));
        assert!(!follows_call(b"\x90\x90\x90\x90\x90\x90\x90"));
        assert!(!follows_call(b""));
    }
}
