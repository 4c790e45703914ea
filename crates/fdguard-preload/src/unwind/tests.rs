//! The stack of a test, followed from inside the test.

use std::hint::black_box;

use super::{Extent, Native, extent};

/// What was followed up to `until`, and from there on.
#[inline(never)]
fn inner(until: Extent) -> (bool, Vec<usize>, bool, Vec<usize>) {
    let mut native = Native::new();
    native.begin_here();
    let is_there = native.follow(until);
    let first = native.trace.addresses().to_vec();
    assert!(!native.trace.is_whole || !is_there);
    native.follow(Extent::NOWHERE);
    let all = native.trace.addresses().to_vec();
    (is_there, first, native.trace.is_whole, all)
}

#[inline(never)]
fn middle(until: Extent) -> (bool, Vec<usize>, bool, Vec<usize>) {
    black_box(inner(until))
}

#[inline(never)]
fn outer(until: Extent) -> (bool, Vec<usize>, bool, Vec<usize>) {
    black_box(middle(until))
}

type Function = fn(Extent) -> (bool, Vec<usize>, bool, Vec<usize>);

fn around(function: Function) -> Extent {
    extent(function as usize).unwrap()
}

#[test]
fn a_stack_is_followed_up_to_a_function_and_goes_on_from_there() {
    let (is_there, first, is_whole, all) = black_box(outer(around(outer)));
    assert!(is_there && is_whole);
    assert_eq!(first.len(), 2, "{first:x?}");
    assert!(around(inner).contains(first[0]) && around(middle).contains(first[1]));
    assert_eq!(all[..2], first);
    assert!(
        around(outer).contains(all[2]),
        "none is left out, and none is twice"
    );
    assert!(all.len() > 3);
}

#[test]
fn without_the_function_a_stack_is_followed_to_its_end() {
    let (is_there, first, _, _) = outer(Extent::NOWHERE);
    assert!(!is_there);
    assert!(around(outer).contains(first[2]) && first.len() > 3);
}

#[test]
fn what_is_no_function_has_no_extent() {
    assert_eq!(extent(0), None);
    let local = 0_u8;
    assert_eq!(extent(&raw const local as usize), None);
}
