//! Sessions of bash: from start to close one after the other, and commands in one of them.

use std::sync::Arc;
use std::time::Instant;

use fdguard_host::Error;
use fdguard_host::receipt::SessionEndReason;
use fdguard_host::session::{Exec, Hub, Session, SessionProgram, SessionSpec};

use crate::figures;

const LIVES: u32 = 1000;
const COMMANDS: usize = 2000;

/// A thousand sessions; what is open before the first and after the last must be the same.
pub(crate) async fn lives(hub: &Arc<Hub>) -> Result<(), Error> {
    let count = || figures::descriptors().map_err(Error::io("/proc/self/fd"));
    let (mut ready, mut close, mut held) = (Vec::new(), Vec::new(), 0);
    let before = count()?;
    let begin = Instant::now();
    for _ in 0..LIVES {
        let start = Instant::now();
        let session = Session::start("bench", SessionSpec::new(SessionProgram::Bash), hub).await?;
        ready.push(start.elapsed());
        if ready.len().is_multiple_of(100) {
            held = held.max(count()? - before);
        }
        let start = Instant::now();
        let receipt = session.close(SessionEndReason::Asked).await;
        close.push(start.elapsed());
        if !receipt.clean {
            return Err(Error::Bad(format!("a close is not proven: {receipt:?}")));
        }
    }
    let per_second = f64::from(LIVES) / begin.elapsed().as_secs_f64();
    figures::times("bash_ready_ms", &ready);
    figures::times("bash_close_ms", &close);
    figures::one("bash_sessions_per_s", per_second);
    figures::one("descriptors_per_session", f64::from(held));
    figures::one("descriptors_left", f64::from(count()? - before));
    Ok(())
}

/// Short commands in one session.
pub(crate) async fn commands(hub: &Arc<Hub>) -> Result<(), Error> {
    let session = Session::start("bench", SessionSpec::new(SessionProgram::Bash), hub).await?;
    let mut trips = Vec::new();
    for _ in 0..COMMANDS {
        let start = Instant::now();
        let done = session.exec(Exec::new("echo 1"), None).await?;
        trips.push(start.elapsed());
        if done.stdout.text.trim_end() != "1" {
            return Err(Error::Bad(format!("another answer: {done:?}")));
        }
    }
    figures::times("bash_exec_ms", &trips);
    session.close(SessionEndReason::Asked).await;
    Ok(())
}
