//! The kernel's description of its types: every type and member that can be asked for.

use fdguard_kernel::btf::{Btf, Kind};

pub(crate) fn run(bytes: &[u8]) {
    let Some(btf) = Btf::parse(bytes) else { return };
    for id in 0..32 {
        let _ = (btf.size(id), btf.member(id, "links"));
    }
    for kind in [Kind::Struct, Kind::Function, Kind::Typedef] {
        assert!(btf.named(kind, "thing").into_iter().all(|id| id > 0));
    }
}
