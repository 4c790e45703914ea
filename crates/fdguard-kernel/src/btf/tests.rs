//! Hand-made descriptions, the running kernel's, and arbitrary bytes.

use proptest::prelude::*;

use super::{Btf, BtfMember, BtfShape, Kind};

/// A description under construction.
#[derive(Default)]
struct Builder {
    types: Vec<u8>,
    strings: Vec<u8>,
}

impl Builder {
    fn new() -> Self {
        Self {
            types: Vec::new(),
            strings: vec![0],
        }
    }

    fn name(&mut self, name: &str) -> u32 {
        if name.is_empty() {
            return 0;
        }
        let at = u32::try_from(self.strings.len()).unwrap();
        self.strings.extend(name.as_bytes());
        self.strings.push(0);
        at
    }

    fn add(&mut self, name: &str, info: u32, word: u32, tail: &[u32]) {
        let name = self.name(name);
        for word in [name, info, word].iter().chain(tail) {
            self.types.extend(word.to_ne_bytes());
        }
    }

    fn structure(&mut self, name: &str, kind: u32, size: u32, members: &[(&str, u32, u32)]) {
        let mut tail = Vec::new();
        for (name, of, bits) in members {
            tail.extend([self.name(name), *of, *bits]);
        }
        let count = u32::try_from(members.len()).unwrap();
        self.add(name, kind << 24 | count, size, &tail);
    }

    fn finish(self) -> Vec<u8> {
        let length = |part: &[u8]| u32::try_from(part.len()).unwrap();
        let mut bytes = 0xeb9f_u16.to_ne_bytes().to_vec();
        bytes.extend([1, 0]);
        let types = length(&self.types);
        for word in [24, 0, types, types, length(&self.strings)] {
            bytes.extend(word.to_ne_bytes());
        }
        [bytes, self.types, self.strings].concat()
    }
}

/// An integer (1), a pointer (2), a union of two names (3), an array (4), a structure with all of
/// them (5), a function (6), and a structure with the same name as the first (7).
fn small() -> Vec<u8> {
    let mut builder = Builder::new();
    builder.add("unsigned int", 1 << 24, 4, &[32]);
    builder.add("", 2 << 24, 1, &[]);
    builder.structure("", 5, 4, &[("links", 1, 0), ("__links", 1, 0)]);
    builder.add("", 3 << 24, 0, &[1, 1, 6]);
    let members = [("first", 2, 0), ("", 3, 64), ("list", 4, 96)];
    builder.structure("thing", 4, 40, &members);
    builder.add("walk", 12 << 24, 0, &[]);
    builder.structure("thing", 4, 4, &[("other", 1, 0)]);
    builder.finish()
}

#[test]
fn members_are_found_also_inside_of_what_has_no_name() {
    let bytes = small();
    let btf = Btf::parse(&bytes).unwrap();
    let member = |offset, size, of| Some(BtfMember { offset, size, of });
    assert_eq!(btf.member(5, "first"), member(0, 8, 2));
    assert_eq!(btf.member(5, "__links"), member(8, 4, 1));
    assert_eq!(btf.member(5, "list"), member(12, 24, 4));
    assert_eq!(btf.member_at(5, 2), Some(("list", 12, 4)));
    assert_eq!(btf.shape(4), Some((4, BtfShape::Array(1))));
    assert_eq!(btf.member(5, "lin"), None);
    assert_eq!(btf.member(1, "first"), None);
    assert_eq!(btf.size(5), Some(40));
    assert_eq!((btf.size(0), btf.size(8)), (None, None));
}

#[test]
fn all_types_of_one_name_are_found_and_only_of_that_kind() {
    let bytes = small();
    let indexed = [(Kind::Struct, "thing"), (Kind::Function, "thing")];
    for wanted in [&[][..], &indexed] {
        let btf = Btf::parse_for(&bytes, wanted).unwrap();
        assert_eq!(btf.named(Kind::Struct, "thing"), [5, 7]);
        assert_eq!(btf.named(Kind::Function, "walk"), [6]);
        assert!(btf.named(Kind::Function, "thing").is_empty());
        assert!(btf.named(Kind::Struct, "thin").is_empty());
    }
}

#[test]
fn a_bit_field_is_no_member_that_can_be_read() {
    let mut builder = Builder::new();
    builder.add("int", 1 << 24, 4, &[32]);
    let members = [("bit", 1, 1 << 24), ("whole", 1, 32)];
    builder.structure("packed", 4 | 1 << 7, 8, &members);
    let bytes = builder.finish();
    let btf = Btf::parse(&bytes).unwrap();
    assert_eq!(btf.member(2, "bit"), None);
    let whole = BtfMember {
        offset: 4,
        size: 4,
        of: 1,
    };
    assert_eq!(btf.member(2, "whole"), Some(whole));
}

#[test]
fn a_type_that_is_made_of_itself_has_no_size() {
    let mut builder = Builder::new();
    builder.add("loop", 8 << 24, 1, &[]);
    builder.structure("", 4, 0, &[("", 2, 0)]);
    let bytes = builder.finish();
    let btf = Btf::parse(&bytes).unwrap();
    assert_eq!(btf.size(1), None);
    assert_eq!(btf.member(2, "anything"), None);
}

#[test]
fn a_maze_of_structures_is_left_again() {
    let mut builder = Builder::new();
    builder.structure("", 4, 0, &[("", 1, 0); 1000]);
    let bytes = builder.finish();
    assert_eq!(Btf::parse(&bytes).unwrap().member(1, "anything"), None);
}

#[test]
fn what_is_cut_off_or_unknown_is_no_description() {
    let bytes = small();
    for length in 0..bytes.len() {
        assert!(Btf::parse(&bytes[..length]).is_none(), "{length}");
    }
    let mut builder = Builder::new();
    builder.add("new", 31 << 24, 0, &[]);
    assert!(Btf::parse(&builder.finish()).is_none());
}

#[test]
fn the_running_kernel_describes_its_files() {
    let Ok(bytes) = std::fs::read("/sys/kernel/btf/vmlinux") else {
        testkit::skip("the kernel does not describe its types");
        return;
    };
    let btf = Btf::parse(&bytes).unwrap();
    let file = btf.named(Kind::Struct, "file")[0];
    let flags = btf.member(file, "f_flags").unwrap();
    assert_eq!(flags.size, 4);
    assert!(flags.offset < btf.size(file).unwrap());
}

/// Calls every query.
fn ask(bytes: &[u8]) {
    let Some(btf) = Btf::parse(bytes) else { return };
    for id in 0..20 {
        let _ = (btf.size(id), btf.member(id, "links"));
        let _ = (btf.shape(id), btf.member_at(id, 1), btf.name(id));
    }
    drop(btf.named(Kind::Struct, "thing"));
}

proptest! {
    #[test]
    fn any_bytes_are_survived(bytes: Vec<u8>) {
        ask(&bytes);
    }

    #[test]
    fn any_damage_is_survived(changes in prop::collection::vec((0usize..300, any::<u8>()), 1..8)) {
        let mut bytes = small();
        for (at, value) in changes {
            let at = at % bytes.len();
            bytes[at] = value;
        }
        ask(&bytes);
    }
}
