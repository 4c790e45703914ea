//! Generated docs and the border check.
fn main() {}
