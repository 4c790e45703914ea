//! The interface for injecting a tracer or protection into a service.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::time::Instant;

use crate::event::LogEvent;

/// Injects something into programs through their environment, and collects its results. It never
/// blocks the loop for longer than a moment.
pub trait Injector: std::fmt::Debug {
    /// A service is about to start: changes the environment of its program. Returns events to log.
    fn start(
        &mut self,
        service: &str,
        command: &[OsString],
        environment: &mut Vec<(OsString, OsString)>,
    ) -> Vec<LogEvent>;

    /// The site that opened most of what this process of a service holds. If that takes longer than
    /// a moment, returns nothing; the next call returns what was found since.
    fn line(&mut self, service: &str, pid: u32) -> Option<String>;

    /// No process of the service is left. Returns events to log.
    fn ended(&mut self, service: &str) -> Vec<LogEvent>;

    /// When it must be polled at the latest.
    fn deadline(&self) -> Option<Instant>;

    /// Continues. Returns events to log.
    fn poll(&mut self, now: Instant) -> Vec<LogEvent>;

    /// Every service is down. Returns the remaining events.
    fn finish(&mut self) -> Vec<LogEvent>;

    /// The hazards prevented so far, by rule.
    fn prevented(&self) -> BTreeMap<String, u64>;
}
