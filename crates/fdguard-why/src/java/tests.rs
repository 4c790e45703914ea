//! A heap that is written by hand, and any bytes.

use fdguard_wire::{JavaEdge, JavaNumber, JavaRoot};
use proptest::prelude::*;

use super::{JavaHeap, JavaRecords};
use crate::memory::Memory;

struct NoMemory;

impl Memory for NoMemory {
    fn read(&self, _address: u64, _into: &mut [u8]) -> bool {
        false
    }
}

fn name(text: &mut Vec<u8>, name: &str) {
    text.extend(u16::try_from(name.len()).unwrap().to_le_bytes());
    text.extend(name.as_bytes());
}

/// A class with its own fields; a star marks a static one.
fn class(text: &mut Vec<u8>, tag: u32, above: u32, signature: &str, fields: &[&str]) {
    text.push(b'C');
    text.extend(tag.to_le_bytes());
    text.extend(above.to_le_bytes());
    text.extend([0, 0]);
    name(text, signature);
    text.extend(u16::try_from(fields.len()).unwrap().to_le_bytes());
    for field in fields {
        text.push(2 | u8::from(field.starts_with('*')));
        name(text, field.trim_start_matches('*'));
    }
}

const fn edge(from: u32, to: u32, kind: u32, index: u32) -> JavaEdge {
    let how = (kind << 27) | index;
    JavaEdge { from, to, how }
}

/// `Main.open` holds an array with two files; a cleaner holds a third, and nothing the fourth.
fn heap() -> JavaHeap {
    let mut text = Vec::new();
    class(&mut text, 1, 0, "Ljava/lang/Object;", &[]);
    class(&mut text, 2, 1, "Ljava/io/FileDescriptor;", &["fd"]);
    class(&mut text, 3, 1, "LMain;", &["*other", "*open"]);
    class(&mut text, 4, 1, "[Ljava/io/FileInputStream;", &[]);
    class(&mut text, 5, 1, "Ljava/io/FileInputStream;", &["fd"]);
    class(&mut text, 6, 1, "Ljava/lang/ref/Reference;", &["referent"]);
    class(
        &mut text,
        7,
        6,
        "Ljdk/internal/ref/PhantomCleanable;",
        &["next", "action"],
    );
    let number = |object, value| JavaNumber {
        object,
        class: 2,
        index: 0,
        value,
    };
    JavaHeap::new(JavaRecords {
        nodes: vec![0, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 0, 4, 5, 5, 7],
        edges: vec![
            edge(3, 12, 8, 1),
            edge(12, 13, 3, 0),
            edge(12, 14, 3, 1),
            edge(13, 8, 2, 0),
            edge(14, 9, 2, 0),
            edge(15, 10, 2, 2),
        ],
        roots: vec![JavaRoot {
            to: 15,
            kind: 21,
            ..JavaRoot::default()
        }],
        numbers: vec![number(8, 4), number(9, 5), number(10, 6), number(11, 7)],
        text,
        classes: 7,
        is_partial: false,
    })
}

fn said(group: &[u32]) -> Vec<String> {
    let whys = heap().answer(&[group.to_vec()], &NoMemory);
    let chains = whys[0].chains.iter();
    chains
        .map(|one| format!("{} [{}]", one.text, one.basis.text()))
        .collect()
}

#[test]
fn a_static_array_is_named_with_its_entries() {
    let chain = "held by 2 FileInputStream ← FileInputStream[] (2 entries) ← Main.open [object]";
    assert_eq!(said(&[4, 5]), [chain]);
}

#[test]
fn a_cleaner_is_no_holder_and_garbage_is_called_garbage() {
    let chain =
        "only garbage carries the number: nothing holds the FileDescriptor any more [unreachable]";
    assert_eq!(said(&[6, 7]), [chain]);
}

#[test]
fn a_number_that_no_object_has_is_not_the_programs() {
    assert!(said(&[9])[0].starts_with("no Java object that fdguard knows as an owner"));
}

proptest! {
    #[test]
    fn any_records_are_answered(
        nodes in prop::collection::vec(0_u32..12, 0..24),
        edges in prop::collection::vec((0_u32..26, 0_u32..26, any::<u32>()), 0..60),
        roots in prop::collection::vec((0_u64..26, 20_u64..28), 0..6),
        numbers in prop::collection::vec((0_u32..26, 0_u32..12, 0_u64..4), 0..12),
        noise in prop::collection::vec(any::<u8>(), 0..200),
        classes in any::<u64>(),
    ) {
        let mut text = Vec::new();
        class(&mut text, 2, 3, "Ljava/io/FileDescriptor;", &["fd", "next"]);
        class(&mut text, 3, 2, "Ljava/util/AbstractMap;", &["*a", "b"]);
        class(&mut text, 4, 4, "[LMain;", &[]);
        text.extend(noise);
        let edges = edges.into_iter();
        let roots = roots.into_iter();
        let numbers = numbers.into_iter();
        let heap = JavaHeap::new(JavaRecords {
            nodes,
            edges: edges.map(|(from, to, how)| JavaEdge { from, to, how }).collect(),
            roots: roots.map(|(to, kind)| JavaRoot { to, kind, ..JavaRoot::default() }).collect(),
            numbers: numbers
                .map(|(object, class, index)| JavaNumber { object, class, index, value: 1 })
                .collect(),
            text,
            classes,
            is_partial: false,
        });
        let whys = heap.answer(&[vec![1]], &NoMemory);
        prop_assert_eq!(whys[0].chains.len(), 1);
    }
}
