//! Time limits of a call, and a wait that ends with the first limit or an abort.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::failure::{CallFailure, TimeLimit};
use super::request::Ready;
use super::state::State;
use super::wire::Meter;

/// The deadlines of a wait.
pub(super) struct Limits {
    started: Instant,
    connect: Option<Duration>,
    first_byte: Option<Duration>,
    idle: Option<Duration>,
    total: Option<(Instant, Duration)>,
    meter: Option<Arc<Meter>>,
}

impl Limits {
    pub(super) fn new(request: &Ready, state: &State, meter: Option<&Arc<Meter>>) -> Self {
        let times = request.timeouts;
        Self {
            started: Instant::now(),
            connect: times.connect,
            first_byte: times.first_byte,
            idle: times.idle,
            total: times
                .total
                .and_then(|total| Some((state.begun.checked_add(total)?, total))),
            meter: meter.map(Arc::clone),
        }
    }

    /// The next moment, and which limit it is.
    pub(super) fn next(&self) -> Option<(Instant, TimeLimit, Duration)> {
        let (limit, after) = match &self.meter {
            None => (TimeLimit::Connect, self.connect),
            Some(meter) if meter.counts().0 == 0 => (TimeLimit::FirstByte, self.first_byte),
            Some(_) => (TimeLimit::Idle, self.idle),
        };
        let last = self.meter.as_ref().and_then(|meter| meter.last_byte());
        let since = last.map_or(self.started, |last| last.max(self.started));
        let step = after.and_then(|after| Some((since.checked_add(after)?, limit, after)));
        let total = self.total.map(|(at, after)| (at, TimeLimit::Total, after));
        [step, total]
            .into_iter()
            .flatten()
            .min_by_key(|(at, ..)| *at)
    }
}

/// Waits for the work, for an abort, and for the first limit.
pub(super) async fn watch<T>(
    state: &State,
    limits: &Limits,
    work: impl Future<Output = T>,
) -> Result<T, CallFailure> {
    let mut work = pin!(work);
    loop {
        let next = limits.next();
        let late = async {
            match next {
                Some((at, ..)) => tokio::time::sleep_until(at.into()).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = state.token.cancelled() => {
                let unknown = CallFailure::Io("cancelled".to_owned());
                return Err(state.aborted().unwrap_or(unknown));
            }
            done = &mut work => return Ok(done),
            () = late => {
                // A byte may have arrived since.
                if let Some((at, limit, after)) = limits.next() && at <= Instant::now() {
                    return Err(CallFailure::Timeout { limit, after });
                }
            }
        }
    }
}
