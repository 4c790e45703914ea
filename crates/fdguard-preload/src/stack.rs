//! The id of the stack that leads to a hook: native frames, then frames of languages.

use fdguard_wire::{FrameRecord, TableMapping};

use crate::creator::Creator;
use crate::language::{InJava, InPython, Languages};
use crate::start::GROUND;
use crate::unwind::{Native, Trace};
use crate::{modules, room};

/// The id of the stack that led here; 0 if there is too little stack to unwind.
#[inline]
pub(crate) fn here(mapping: &TableMapping) -> u32 {
    if !room::is_enough() {
        mapping.cut_stack();
        return 0;
    }
    taken(mapping)
}

/// The stack that led here, as a creator; `None` if no Python runs.
pub(crate) fn creator(mapping: &TableMapping) -> Option<Creator> {
    if !room::is_enough() {
        return None;
    }
    creator_here(mapping)
}

#[inline(never)]
fn creator_here(mapping: &TableMapping) -> Option<Creator> {
    let mut native = Native::new();
    native.begin_here();
    let mut python = InPython::look(&mut native)?;
    let depth = python.depth_as_creator()?;
    let languages = Languages {
        python: Some(&python),
        java: None,
    };
    let stack = intern(mapping, &native.trace, languages);
    (stack != 0).then_some(Creator { stack, depth })
}

/// Not inlined: this function takes all the stack space that unwinding needs.
#[inline(never)]
fn taken(mapping: &TableMapping) -> u32 {
    let mut native = Native::new();
    native.begin_here();
    number(mapping, &mut native)
}

#[inline(never)]
fn number(mapping: &TableMapping, native: &mut Native) -> u32 {
    let python = InPython::look(native);
    if native.trace.generated.is_some() {
        return with_java(mapping, &mut native.trace, python.as_ref());
    }
    let python = python.as_ref();
    intern(mapping, &native.trace, Languages { python, java: None })
}

/// Space for Java frames is needed only if there is code generated at run time.
#[inline(never)]
fn with_java(mapping: &TableMapping, trace: &mut Trace, python: Option<&InPython>) -> u32 {
    let java = InJava::here(trace);
    let java = java.as_ref();
    intern(mapping, trace, Languages { python, java })
}

#[inline]
fn intern(mapping: &TableMapping, trace: &Trace, languages: Languages<'_>) -> u32 {
    let hash = trace.hash() ^ languages.hash();
    mapping.stack(&GROUND, hash ^ hash >> 31, |frames| {
        if !trace.is_whole {
            mapping.cut_stack();
        }
        for address in trace.addresses() {
            let module = modules::number(mapping, &GROUND, *address);
            frames.push(match module {
                Some((module, bias)) => FrameRecord::Native {
                    module,
                    offset: address.wrapping_sub(bias) as u64,
                },
                None => FrameRecord::Address(*address as u64),
            });
        }
        languages.push(mapping, |frame| frames.push(frame));
    })
}
