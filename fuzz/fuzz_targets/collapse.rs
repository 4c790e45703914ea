#![no_main]
//! Collapsing targets: a collapsed one is final, and never longer.

use fdguard_core::collapse::collapse;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let once = collapse(bytes).into_owned();
    assert_eq!(collapse(&once).into_owned(), once);
    assert!(once.len() <= bytes.len());
});
