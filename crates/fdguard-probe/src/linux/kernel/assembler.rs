//! A minimal BPF assembler: only the instructions that one iterator needs.

/// A register. `R0` is a call's result, `R1` to `R5` its arguments, `R6` to `R9` are preserved
/// across calls, `R10` is the end of the stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Reg {
    R0,
    R1,
    R2,
    R3,
    R6 = 6,
    R7,
    R8,
    R9,
    R10,
}

/// Kernel functions that a program may call, by number.
#[derive(Clone, Copy, Debug)]
pub(super) enum Helper {
    ProbeReadKernel = 113,
    SeqWrite = 127,
    DPath = 147,
    CurrentTask = 158,
}

/// The condition of a jump.
#[derive(Clone, Copy, Debug)]
pub(super) enum If {
    Equal = 0x10,
    Above = 0x20,
    NotBelow = 0x30,
    NotEqual = 0x50,
    Negative = 0xc0,
}

/// An operation on a register and a number or another register, 64 bits wide.
#[derive(Clone, Copy, Debug)]
pub(super) enum Do {
    Add = 0x00,
    Or = 0x40,
    And = 0x50,
    Left = 0x60,
    Right = 0x70,
    Move = 0xb0,
}

/// A jump target, always further down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Label(usize);

/// A program under construction.
#[derive(Debug, Default)]
pub(super) struct Assembler {
    code: Vec<[u8; 8]>,
    labels: usize,
    /// Jumps whose distance is not known yet.
    open: Vec<(Label, usize)>,
}

const ALU64: u8 = 0x07;
const JMP: u8 = 0x05;
const BY_REGISTER: u8 = 0x08;

impl Assembler {
    /// A label that jumps can refer to before it is placed.
    pub(super) fn label(&mut self) -> Label {
        self.labels += 1;
        Label(self.labels)
    }

    /// Places the label here.
    pub(super) fn place(&mut self, label: Label) {
        let here = self.code.len();
        for (wanted, at) in &self.open {
            if *wanted == label {
                let distance = i16::try_from(here - at - 1).unwrap_or(i16::MAX);
                self.code[*at][2..4].copy_from_slice(&distance.to_ne_bytes());
            }
        }
        self.open.retain(|(wanted, _)| *wanted != label);
    }

    /// `to = *(from + offset)`, of 1, 2, 4 or 8 bytes.
    pub(super) fn load(&mut self, size: u32, to: Reg, from: Reg, offset: i16) {
        self.emit(0x61 | width(size), (to, from), offset, 0);
    }

    /// `*(to + offset) = from`.
    pub(super) fn store(&mut self, size: u32, to: Reg, offset: i16, from: Reg) {
        self.emit(0x63 | width(size), (to, from), offset, 0);
    }

    /// `*(to + offset) = number`, eight bytes.
    pub(super) fn store_number(&mut self, to: Reg, offset: i16, number: i32) {
        self.emit(0x62 | width(8), (to, Reg::R0), offset, number);
    }

    /// `register = register ∘ number`.
    pub(super) fn number(&mut self, what: Do, register: Reg, number: i32) {
        self.emit(ALU64 | what as u8, (register, Reg::R0), 0, number);
    }

    /// `to = to ∘ from`.
    pub(super) fn register(&mut self, what: Do, to: Reg, from: Reg) {
        self.emit(ALU64 | BY_REGISTER | what as u8, (to, from), 0, 0);
    }

    /// Jumps if the comparison of the register with the number holds (`Negative`: with 0, signed).
    pub(super) fn jump(&mut self, when: If, register: Reg, number: i32, to: Label) {
        self.open.push((to, self.code.len()));
        self.emit(JMP | when as u8, (register, Reg::R0), 0, number);
    }

    /// Jumps if the comparison of the registers holds.
    pub(super) fn jump_by(&mut self, when: If, registers: (Reg, Reg), to: Label) {
        self.open.push((to, self.code.len()));
        self.emit(JMP | BY_REGISTER | when as u8, registers, 0, 0);
    }

    /// Jumps.
    pub(super) fn go(&mut self, to: Label) {
        self.open.push((to, self.code.len()));
        self.emit(JMP, (Reg::R0, Reg::R0), 0, 0);
    }

    /// Calls a kernel function.
    pub(super) fn call(&mut self, helper: Helper) {
        self.emit(JMP | 0x80, (Reg::R0, Reg::R0), 0, helper as i32);
    }

    /// Ends the program with 0.
    pub(super) fn leave(&mut self) {
        self.number(Do::Move, Reg::R0, 0);
        self.emit(JMP | 0x90, (Reg::R0, Reg::R0), 0, 0);
    }

    /// The program's bytes; `None` if a jump has no target.
    pub(super) fn finish(self) -> Option<Vec<u8>> {
        self.open.is_empty().then(|| self.code.concat())
    }

    fn emit(&mut self, code: u8, (to, from): (Reg, Reg), offset: i16, number: i32) {
        let (to, from) = (to as u8, from as u8);
        // The two halves of this byte depend on the machine's byte order.
        let registers = if cfg!(target_endian = "little") {
            from << 4 | to
        } else {
            to << 4 | from
        };
        let mut bytes = [code, registers, 0, 0, 0, 0, 0, 0];
        bytes[2..4].copy_from_slice(&offset.to_ne_bytes());
        bytes[4..].copy_from_slice(&number.to_ne_bytes());
        self.code.push(bytes);
    }
}

/// The encoding of an operand size.
fn width(size: u32) -> u8 {
    match size {
        1 => 0x10,
        2 => 0x08,
        4 => 0x00,
        _ => 0x18,
    }
}

#[cfg(test)]
mod tests {
    use super::{Assembler, Do, Helper, If, Reg};

    #[test]
    #[cfg(target_endian = "little")]
    fn instructions_are_as_the_kernel_documents_them() {
        let mut assembler = Assembler::default();
        let end = assembler.label();
        assembler.load(8, Reg::R7, Reg::R6, 24);
        assembler.jump(If::Equal, Reg::R7, 0, end);
        assembler.store(4, Reg::R10, -8, Reg::R7);
        assembler.register(Do::Add, Reg::R3, Reg::R9);
        assembler.call(Helper::SeqWrite);
        assembler.place(end);
        assembler.leave();
        let code = assembler.finish().unwrap();
        let expected: [[u8; 8]; 7] = [
            [0x79, 0x67, 24, 0, 0, 0, 0, 0],
            [0x15, 0x07, 3, 0, 0, 0, 0, 0],
            [0x63, 0x7a, 0xf8, 0xff, 0, 0, 0, 0],
            [0x0f, 0x93, 0, 0, 0, 0, 0, 0],
            [0x85, 0, 0, 0, 127, 0, 0, 0],
            [0xb7, 0, 0, 0, 0, 0, 0, 0],
            [0x95, 0, 0, 0, 0, 0, 0, 0],
        ];
        assert_eq!(code, expected.concat());
    }

    #[test]
    fn a_jump_to_nowhere_is_no_program() {
        let mut assembler = Assembler::default();
        let nowhere = assembler.label();
        assembler.jump(If::Equal, Reg::R1, 0, nowhere);
        assert_eq!(assembler.finish(), None);
    }
}
