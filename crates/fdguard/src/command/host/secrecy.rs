//! Hides from sessions what they must not read: the environment the host was started with, and its
//! memory.
//!
//! Sessions run as the user of the host. That user may read `/proc/PID/environ`, memory and
//! descriptors of its processes, unless they are marked as not dumpable. Keepers are forks of the
//! host and inherit the mark; programs that are executed do not.

use std::os::fd::IntoRawFd as _;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::Command;

use anyhow::Context as _;
use fdguard_host::environment::{TOKEN, TOKEN_FD};
use rustix::process::{DumpableBehavior, set_dumpable_behavior};

/// Re-executes this program without the token in its environment, because the kernel shows the
/// initial environment. The token is passed through a pipe.
pub(super) fn leave_environment() -> anyhow::Result<()> {
    let Some(token) = std::env::var_os(TOKEN) else {
        return Ok(());
    };
    let mut command = Command::new(std::env::current_exe().context("host")?);
    let mut words = std::env::args_os();
    if let Some(name) = words.next() {
        command.arg0(name);
    }
    command.args(words).env_remove(TOKEN).env_remove(TOKEN_FD);
    // An empty token counts as none. A pipe has room for more than the longest token, and a longer
    // one is rejected later.
    if !token.is_empty() {
        let (reader, writer) =
            rustix::pipe::pipe().context("cannot pass the token through a pipe")?;
        let bytes = token.as_encoded_bytes();
        let bytes = bytes.get(..LONGEST).unwrap_or(bytes);
        rustix::io::write(&writer, bytes).context("cannot pass the token through a pipe")?;
        drop(writer);
        // It must stay open across the exec.
        command.env(TOKEN_FD, reader.into_raw_fd().to_string());
    }
    let error = command.exec();
    Err(anyhow::Error::new(error)
        .context("cannot re-execute the host to remove the token from its environment"))
}

/// One byte more than a token may have, so that a truncated one is still rejected.
const LONGEST: usize = 1025;

/// From here on only root can read memory and descriptors of this process and its keepers.
pub(super) fn hide_memory() -> anyhow::Result<()> {
    set_dumpable_behavior(DumpableBehavior::NotDumpable)
        .context("cannot protect the host's memory from other processes")
}

/// The running executable, for keepers of warm sessions. Uses this process's own link, so that a
/// later file of the same name does not matter; an interpreter that may not read the link uses the
/// name.
pub(super) fn keeper_program(is_hidden: bool) -> PathBuf {
    let link = format!("/proc/{}/exe", std::process::id()).into();
    if !is_hidden || rustix::process::geteuid().is_root() {
        return link;
    }
    std::env::current_exe().unwrap_or(link)
}
