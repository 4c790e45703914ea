//! Victims that hold known descriptors, and the harness that queries them.
//!
//! The victim is the oracle: a small program opens descriptors it knows everything about, prints
//! one line of JSON with what it holds, and blocks on its standard input until that ends. A test
//! starts it with [`Victim`], looks at it with the tool, and compares with
//! [`VictimHolding::disagreements`]. [`FakeProc`] makes process trees that no kernel would show.

#![expect(
    clippy::expect_used,
    reason = "a harness for tests: a broken precondition must stop the test at that line"
)]

mod cgroup;
mod fake_proc;
mod golang;
mod holding;
mod launch;
mod locate;
mod podman;
mod report;
mod requirement;
mod script;
mod stopped_process;
pub mod sys;
mod victim;
mod wait;

pub use cgroup::TestCgroup;
pub use fake_proc::{FakeProc, FakeProcess};
pub use golang::{GoToolchain, USUAL_GO, go_program, go_toolchain, go_toolchains};
pub use holding::VictimHolding;
pub use launch::{NOBODY, run_as, start_clean};
pub use locate::{c_variant, c_victim, compiled, victim_path};
pub use podman::PodmanContainer;
pub use report::{VictimReport, next_line, number, text};
pub use requirement::{TestRuntime, have, is_root, runtimes, skip, software};
pub use script::ScriptedProcess;
pub use stopped_process::StoppedProcess;
pub use victim::{Namespace, Victim, VictimLaunch, listed};
pub use wait::{wait_for, wait_until};
