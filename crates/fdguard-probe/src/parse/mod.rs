//! Bytes of the kernel (and of `lsof`) to values: pure, on any platform, never panicking.
//!
//! What a parser does not know it keeps or ignores; it never fails because a newer kernel says
//! more.

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
