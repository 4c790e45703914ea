//! A command that prints ten megabytes: how fast they are read, and the cost in the host's memory.

use std::sync::Arc;
use std::time::Instant;

use fdguard_host::Error;
use fdguard_host::receipt::SessionEndReason;
use fdguard_host::session::{Exec, Hub, Session, SessionProgram, SessionSpec};

use crate::figures;

const ROUNDS: usize = 10;
const CODE: &str = "head -c 10000000 /dev/zero | tr '\\0' x";

/// Ten times ten megabytes through a terminal. The growth is from before the first to the highest
/// mark of all.
pub(crate) async fn rate(hub: &Arc<Hub>) -> Result<(), Error> {
    let io = || Error::io("/proc/self/status");
    let session = Session::start("bench", SessionSpec::new(SessionProgram::Bash), hub).await?;
    // Reset the peak memory counter.
    std::fs::write("/proc/self/clear_refs", "5").map_err(Error::io("/proc/self/clear_refs"))?;
    let before = figures::memory("VmRSS").map_err(io())?;
    let mut rates = Vec::new();
    for _ in 0..ROUNDS {
        let start = Instant::now();
        let done = session.exec(Exec::new(CODE), None).await?;
        if done.stdout.bytes != 10_000_000 {
            return Err(Error::Bad(format!("{} bytes came", done.stdout.bytes)));
        }
        rates.push(10.0 / start.elapsed().as_secs_f64());
    }
    let growth = figures::memory("VmHWM").map_err(io())? - before;
    figures::row("output_mb_per_s", rates);
    figures::one("output_memory_growth_mib", f64::from(growth) / 1024.0);
    session.close(SessionEndReason::Asked).await;
    Ok(())
}
