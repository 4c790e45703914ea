//! Object files with kernel programs, and what they ask of the kernel's types.

use fdguard_kernel::BpfObject;

pub(crate) fn run(bytes: &[u8]) {
    if let Ok(object) = BpfObject::parse(bytes) {
        assert!(object.wanted().len() <= bytes.len());
    }
}
