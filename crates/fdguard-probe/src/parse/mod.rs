//! Parses bytes from the kernel (and from `lsof`): pure, on any platform, never panicking.
//!
//! A parser keeps or ignores what it does not know; it never fails because a newer kernel adds
//! fields.

pub mod ascii;
pub mod btf;
pub mod cgroup;
pub mod diag;
pub mod elf;
pub mod fdinfo;
pub mod limits;
pub mod link;
pub mod locks;
pub mod lsof;
pub mod maps;
pub mod mountinfo;
pub mod net;
pub mod sockaddr;
pub mod stat;
pub mod status;
