//! How soon the owner of a call that waits for an answer learns of its abort.

use std::time::{Duration, Instant};

use fdguard_host::call::{CallPhase, CallRequest, Caller, Options};
use tokio::net::TcpListener;

use crate::{Fails, figures};

const ROUNDS: usize = 200;

/// Calls to a server that takes requests and never answers.
pub(crate) async fn wakes() -> Fails {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}/", listener.local_addr()?);
    let caller = Caller::new(Options::default())?;
    let mut times = Vec::new();
    for _ in 0..ROUNDS {
        let mut call = caller.start(CallRequest::get(&url))?;
        let handle = call.handle();
        let owner = tokio::spawn(async move {
            let failed = call.response().await.is_err();
            (failed, Instant::now())
        });
        let (_silent, _) = listener.accept().await?;
        while handle.info().phase != CallPhase::Wait {
            tokio::time::sleep(Duration::from_micros(100)).await;
        }
        let start = Instant::now();
        handle.abort();
        let (failed, woken) = owner.await?;
        if !failed {
            return Err("an aborted call was answered".into());
        }
        times.push(woken - start);
    }
    figures::times("abort_wake_ms", &times);
    Ok(())
}
