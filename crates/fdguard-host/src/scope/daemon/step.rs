//! One step of a scan with a time limit. Like `timeout`, it returns 124 if it took too long.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use fdguard_core::units::whole_milliseconds;
use schemars::JsonSchema;
use serde::Serialize;

/// It took longer than it may.
pub const TOO_LONG: u8 = 124;

/// Result of a step.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct DaemonStep {
    /// Name of the step.
    pub step: &'static str,
    /// 0 done, 1 failed, 124 timed out.
    pub code: u8,
    /// Duration in milliseconds.
    pub ms: f64,
    /// Error message; `null` if it succeeded.
    pub error: Option<String>,
}

/// Runs a step to its end or its time limit. A limit of zero is a mistake, not "no limit".
pub async fn limited<T>(
    step: &'static str,
    limit: Duration,
    work: impl Future<Output = Result<T, String>>,
) -> (DaemonStep, Option<T>) {
    let begin = Instant::now();
    let result = if limit.is_zero() {
        Ok(Err("the time limit is 0".to_owned()))
    } else {
        tokio::time::timeout(limit, work).await
    };
    let (code, error, value) = match result {
        Ok(Ok(value)) => (0, None, Some(value)),
        Ok(Err(error)) => (1, Some(error), None),
        Err(_elapsed) => {
            let error = format!("took longer than {}", whole_milliseconds(limit));
            (TOO_LONG, Some(error), None)
        }
    };
    let ms = begin.elapsed().as_secs_f64() * 1000.0;
    let step = DaemonStep {
        step,
        code,
        ms,
        error,
    };
    (step, value)
}

/// A blocking step. A hanging step is not started again in parallel: threads would pile up.
#[derive(Clone, Debug, Default)]
pub(super) struct Blocking {
    runs: Arc<AtomicBool>,
}

impl Blocking {
    pub(super) async fn run<T: Send + 'static>(
        &self,
        step: &'static str,
        limit: Duration,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> (DaemonStep, Option<T>) {
        if self.runs.swap(true, Ordering::AcqRel) {
            let step = DaemonStep {
                step,
                code: TOO_LONG,
                ms: 0.0,
                error: Some("the previous run has not finished".to_owned()),
            };
            return (step, None);
        }
        let runs = Arc::clone(&self.runs);
        let handle = tokio::task::spawn_blocking(move || {
            // Also on a panic.
            let _free = Free(runs);
            work()
        });
        let done = async { handle.await.map_err(|error| error.to_string()) };
        limited(step, limit, done).await
    }
}

struct Free(Arc<AtomicBool>);

impl Drop for Free {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block_on<T>(work: impl Future<Output = T>) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = { runtime }.enable_time().build().unwrap();
        runtime.block_on(work)
    }

    #[test]
    fn r52_fast_passes_slow_gives_124_and_no_time_is_refused() {
        block_on(async {
            let limit = Duration::from_secs(30);
            let (step, value) = limited("a", limit, async { Ok::<_, String>(7) }).await;
            assert_eq!((step.code, value), (0, Some(7)));
            let slow = std::future::pending::<Result<(), String>>();
            let (step, value) = limited("b", Duration::from_millis(5), slow).await;
            assert_eq!((step.code, value), (124, None));
            let (step, value) = limited("c", Duration::ZERO, async { Ok::<_, String>(7) }).await;
            assert_eq!((step.code, value), (1, None));
            let (step, _) = limited("d", limit, async { Err::<(), _>("no".to_owned()) }).await;
            assert_eq!((step.code, step.error.as_deref()), (1, Some("no")));
        });
    }

    #[test]
    fn a_step_that_hangs_is_not_begun_beside_itself() {
        block_on(async {
            let blocking = Blocking::default();
            let (go, wait) = std::sync::mpsc::channel::<()>();
            let short = Duration::from_millis(5);
            let (step, _) = blocking.run("a", short, move || wait.recv().is_ok()).await;
            assert_eq!(step.code, 124);
            let (step, value) = blocking.run("a", short, || ()).await;
            assert_eq!((step.code, value), (124, None));
            go.send(()).unwrap();
            while blocking.runs.load(Ordering::Acquire) {
                tokio::task::yield_now().await;
            }
            let (step, _) = blocking.run("a", Duration::from_secs(30), || ()).await;
            assert_eq!(step.code, 0);
        });
    }
}
