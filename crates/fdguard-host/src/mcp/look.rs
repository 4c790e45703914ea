//! Examines processes by running the `fdguard` command, so that the host is seen from outside,
//! without the observer.

use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

use fdguard_process::plan::Plan;
use rustix::fs::{Mode, OFlags, open};
use rustix::pipe::{PipeFlags, pipe_with};
use serde_json::Value;
use tokio::io::AsyncReadExt as _;
use tokio::net::unix::pipe::Receiver;

use crate::Error;
use crate::scope::Program;

/// The largest document. A process with a hundred thousand descriptors has one of 40 MiB.
pub(super) const LARGEST: u64 = 64 << 20;
/// Maximum length of its error output.
const COMPLAINT: u64 = 4096;

/// Runs the command with these arguments and returns its document. Dropping it kills the command.
pub(super) async fn run_look(program: &Path, words: &[String]) -> Result<Value, Error> {
    let io = Error::io("cannot start fdguard");
    let (plan, ours) = plan(program, words).map_err(io)?;
    let [out, err] = ours
        .map(|fd| Receiver::from_owned_fd(fd).map_err(Error::io("cannot use the pipe to fdguard")));
    let (out, err) = (out?, err?);
    let running = Program::start(plan).await?;
    let (document, complaint) = tokio::join!(read(out, LARGEST), read(err, COMPLAINT));
    let _ended = running.over().await;
    let document = document?;
    // A finding has a nonzero status and a document: the document decides.
    serde_json::from_slice(&document).map_err(|_none| {
        let complaint = complaint.unwrap_or_default();
        let complaint = String::from_utf8_lossy(&complaint);
        let line = complaint.trim();
        Error::Bad(match line {
            "" => "fdguard returned no document".to_owned(),
            line => line.strip_prefix("fdguard: ").unwrap_or(line).to_owned(),
        })
    })
}

/// The start plan, and the read ends of its two outputs.
fn plan(program: &Path, words: &[String]) -> std::io::Result<(Plan, [OwnedFd; 2])> {
    let command = std::iter::once(program.as_os_str().to_owned());
    let command = command.chain(words.iter().map(OsString::from)).collect();
    let mut plan = Plan::new(command, std::env::vars_os().collect());
    let outputs = capture(&mut plan)?;
    Ok((plan, outputs))
}

/// Lets a program read nothing, and returns the read ends of its two outputs.
pub(super) fn capture(plan: &mut Plan) -> std::io::Result<[OwnedFd; 2]> {
    let input = open(
        c"/dev/null",
        OFlags::RDONLY | OFlags::CLOEXEC,
        Mode::empty(),
    )?;
    let (out, their_out) = pipe_with(PipeFlags::CLOEXEC)?;
    let (err, their_err) = pipe_with(PipeFlags::CLOEXEC)?;
    plan.stdio = [input, their_out, their_err].map(|fd| Some(Arc::new(fd)));
    Ok([out, err])
}

/// Reads all of it up to a limit; the rest is read and dropped, so that the writer can finish.
pub(super) async fn read(pipe: Receiver, most: u64) -> Result<Vec<u8>, Error> {
    let mut kept = Vec::new();
    let mut pipe = pipe.take(most);
    let read = pipe.read_to_end(&mut kept).await;
    read.map_err(Error::io("cannot read the output of fdguard"))?;
    let mut rest = pipe.into_inner();
    let dropped = tokio::io::copy(&mut rest, &mut tokio::io::sink()).await;
    dropped.map_err(Error::io("cannot read the output of fdguard"))?;
    Ok(kept)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::run_look;

    fn words(script: &str) -> [String; 2] {
        ["-c".to_owned(), script.to_owned()]
    }

    #[tokio::test]
    async fn a_document_counts_whatever_the_status_and_a_complaint_is_one_line() {
        let sh = Path::new("/bin/sh");
        let seen = run_look(sh, &words("echo '{\"a\":1}'; exit 1")).await;
        assert_eq!(seen.unwrap()["a"], 1);
        let error = run_look(sh, &words("echo fdguard: no process 7 >&2; exit 3")).await;
        assert_eq!(error.unwrap_err().to_string(), "no process 7");
        let error = run_look(sh, &words("exit 3")).await;
        assert_eq!(
            error.unwrap_err().to_string(),
            "fdguard returned no document"
        );
        let missing = run_look(Path::new("/nonexistent"), &[]).await;
        assert_eq!(missing.unwrap_err().code(), "start-failed");
    }
}
