//! Collapsing targets: a collapsed one is final, and never longer.

use fdguard_core::collapse::collapse;

pub(crate) fn run(bytes: &[u8]) {
    let once = collapse(bytes).into_owned();
    assert_eq!(collapse(&once).into_owned(), once);
    assert!(once.len() <= bytes.len());
}
