//! Entries for the fuzz target to the decoders of records.

use crate::decode::Decoder;
use crate::python;
use crate::stack::CopiedStacks;

/// Decodes any records, each with its length before it: a stack has no more bytes than its record.
pub fn decode_records(mut bytes: &[u8]) {
    let (mut decoder, mut stacks) = (Decoder::default(), CopiedStacks::default());
    while let Some((length, rest)) = bytes.split_first_chunk() {
        let length = usize::from(u16::from_le_bytes(*length));
        let (record, rest) = rest.split_at(length.min(rest.len()));
        let _event = decoder.decode(record);
        if let Some(stack) = stacks.decode(record) {
            assert!(stack.memory.len() <= record.len());
            let _template = stacks.take(stack.number);
        }
        if let Some(code) = python::decode(record) {
            assert!(code.lines.is_none_or(|lines| lines.len() <= record.len()));
        }
        bytes = rest;
    }
}
