//! The library that fdguard injects into a traced program.
//!
//! It interposes the C library's functions that open and close descriptors, passes each call
//! through unchanged, and records in a shared mapping (`fdguard-wire`) which code opened what. It
//! is a guest: it allocates nothing, takes no lock, never panics, keeps `errno` and holds no
//! descriptor. If anything is not as expected, it stops recording and lets the program run. Only if
//! it is asked to protect the program (`protect`) does it change what a call does, and hold
//! descriptors.
//!
//! In the workspace this is an ordinary library, so that it is checked and tested like any other
//! and interposes nothing. The build script of `fdguard-trace` builds it once more with
//! `--cfg fdguard_injected`, as the shared object with the exported names and without the standard
//! library.

#![cfg_attr(not(test), no_std)]
#![cfg_attr(
    not(fdguard_injected),
    expect(
        dead_code,
        reason = "the entry points are used by name, from outside, when injected"
    )
)]

#[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
compile_error!("the injected library knows Linux on x86_64 only");

mod agent_message;
mod attach;
mod backing;
mod call;
mod children;
mod close_sweep;
mod creator;
mod errno;
mod exit_report;
mod filter;
mod hand_over;
mod hook;
mod inflight;
mod java;
mod language;
mod list;
mod loader;
mod lock;
mod memory;
mod modules;
#[cfg(fdguard_injected)]
mod no_std_support;
mod node;
mod owner;
mod protect;
mod python;
mod real;
mod record;
mod room;
mod stack;
mod start;
mod symbols;
mod sys;
mod thread;
mod unwind;
mod walkers;
mod why;
