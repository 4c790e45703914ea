//! Entries for the fuzz targets to the readers of programs.

use std::io::Write as _;
use std::os::fd::AsRawFd as _;
use std::path::Path;

use framehop::x86_64::{CacheX86_64, UnwindRegsX86_64, UnwinderX86_64};
use framehop::{FrameAddress, Unwinder as _};

use super::return_place;
use super::unwind_file::UnwindFile;

/// Reads any file as a program: its unwind tables, its interpreter, its language.
pub fn fuzz_program(bytes: &[u8]) {
    super::python::fuzz_image(bytes);
    let memory = rustix::fs::memfd_create("program", rustix::fs::MemfdFlags::CLOEXEC);
    let Ok(mut file) = memory.map(std::fs::File::from) else {
        return;
    };
    if file.write_all(bytes).is_err() {
        return;
    }
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    let Some(program) = UnwindFile::read(Path::new(&path)) else {
        return;
    };
    for address in [0, program.base(), u64::MAX] {
        let _is_covered = program.covers(address);
        let _bias = (program.bias(address, 0), program.program_bias(address));
    }
    let _is_go = program.is_go();
    unwind(&program, bytes);
    if let Some((code, base)) = program.code() {
        assert!(code.len() <= bytes.len());
        let _place = return_place::find((code, base), base, 0, |_| false);
    }
}

/// Unwinds by its tables, over a stack of the same bytes.
fn unwind(program: &UnwindFile, bytes: &[u8]) {
    let base = program.base();
    let end = base.saturating_add(1 << 20);
    let mut unwinder = UnwinderX86_64::new();
    let sections = program.sections();
    unwinder.add_module(framehop::Module::new(
        "program".into(),
        base..end,
        base,
        sections,
    ));
    let mut read = |address: u64| {
        let at = usize::try_from(address).map_err(|_far| ())?;
        let word = bytes.get(at..).and_then(<[u8]>::first_chunk);
        word.map(|word| u64::from_le_bytes(*word)).ok_or(())
    };
    let mut cache = CacheX86_64::new();
    for address in (base..end).step_by(4099) {
        let mut registers = UnwindRegsX86_64::new(address, 64, 128);
        let address = FrameAddress::from_instruction_pointer(address);
        let _frame = unwinder.unwind_frame(address, &mut registers, &mut cache, &mut read);
    }
}

/// Follows any machine code: the first bytes are the distance of the frame pointer.
pub fn fuzz_machine_code(bytes: &[u8]) {
    let Some((distance, code)) = bytes.split_first_chunk() else {
        return;
    };
    let distance = i64::from_le_bytes(*distance);
    for base in [0, 0x40_1000, u64::MAX - 16] {
        let _place = return_place::find((code, base), base, distance, |_| false);
    }
    let _is_return = return_place::follows_call(code);
}
