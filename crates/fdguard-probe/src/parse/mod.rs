//! Parses bytes from the kernel outside `/proc`, and from `lsof`: pure, on any platform, never
//! panicking.
//!
//! A parser keeps or ignores what it does not know; it never fails because a newer kernel adds
//! fields.

pub mod diag;
pub mod elf;
pub mod lsof;
pub mod runtime_state;
pub mod sockaddr;
