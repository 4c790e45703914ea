//! Sessions of Python, started anew and from the warm interpreter.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use fdguard_host::Error;
use fdguard_host::receipt::SessionEndReason;
use fdguard_host::session::{Exec, Hub, PYTHON_DRIVER, Session, SessionProgram, SessionSpec};
use fdguard_host::warm::{WarmPool, find};

use crate::figures;

const COLD: usize = 15;
const WARM: usize = 200;
const COMMANDS: usize = 50;

/// Each with an interpreter of its own.
pub(crate) async fn cold(hub: &Arc<Hub>) -> Result<(), Error> {
    lives("python_cold", COLD, hub, None).await
}

/// Each forked from the warm one.
pub(crate) async fn warm(hub: &Arc<Hub>, keeper: &Path) -> Result<(), Error> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let python = find("python3", &path).ok_or_else(|| Error::Bad("no python3".to_owned()))?;
    let start = Instant::now();
    let pool = Arc::new(WarmPool::start(&python, keeper, PYTHON_DRIVER).await?);
    figures::times("python_pool_ms", &[start.elapsed()]);
    lives("python_warm", WARM, hub, Some(&pool)).await?;
    if let Some(trouble) = pool.trouble() {
        return Err(Error::Bad(format!("not warm: {trouble}")));
    }
    pool.close().await;
    Ok(())
}

async fn lives(
    name: &str,
    count: usize,
    hub: &Arc<Hub>,
    pool: Option<&Arc<WarmPool>>,
) -> Result<(), Error> {
    let (mut ready, mut trips, mut close) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..count {
        let spec = SessionSpec::new(SessionProgram::Python);
        let start = Instant::now();
        let session = Session::start_warm("bench", spec, hub, pool.cloned()).await?;
        ready.push(start.elapsed());
        let is_forked = pool.is_some();
        if was_started(&session)? == is_forked {
            return Err(Error::Bad(format!("{name}: it came the other way")));
        }
        for _ in 0..if round < 10 { COMMANDS } else { 1 } {
            let start = Instant::now();
            session.exec(Exec::new("print(1)"), None).await?;
            trips.push(start.elapsed());
        }
        let start = Instant::now();
        session.close(SessionEndReason::Asked).await;
        close.push(start.elapsed());
    }
    figures::times(&format!("{name}_ms"), &ready);
    figures::times(&format!("{name}_exec_ms"), &trips);
    figures::times(&format!("{name}_close_ms"), &close);
    Ok(())
}

/// A cold one has its driver in its command line; a warm one has that of the interpreter that it
/// was forked from.
fn was_started(session: &Session) -> Result<bool, Error> {
    let pid = session.pid().unwrap_or_default();
    let words = std::fs::read(format!("/proc/{pid}/cmdline")).map_err(Error::io("its words"))?;
    Ok(String::from_utf8_lossy(&words).contains("_fdguard_drive(3, b'"))
}
