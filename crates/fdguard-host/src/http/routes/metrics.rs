//! The metrics page: the names that others have given to the same things, and our own. Labels are reasons and classes, never names.

use fdguard_core::exposition::{Sample, Text, Type};
use rustix::process::{Resource, getrlimit};

use crate::http::api::Api;

/// What the page shows; what is not known is left out.
#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) open_fds: Option<u64>,
    pub(super) max_fds: Option<u64>,
    pub(super) resident: Option<u64>,
    pub(super) sessions: usize,
    pub(super) busy: usize,
    pub(super) requests: Vec<(&'static str, u64)>,
    pub(super) connections: u64,
    pub(super) refused: u64,
    pub(super) too_slow: u64,
    pub(super) abandoned: u64,
}

impl State {
    /// As it is now.
    pub(super) fn read(api: &Api) -> Self {
        let sessions = api.host.sessions();
        Self {
            open_fds: open_descriptors(),
            max_fds: getrlimit(Resource::Nofile).current,
            resident: resident(),
            sessions: sessions.len(),
            busy: sessions.iter().filter(|one| one.busy_ms.is_some()).count(),
            requests: api.counts.by_class(),
            connections: api.counts.connections.get(),
            refused: api.counts.refused.get(),
            too_slow: api.counts.too_slow.get(),
            abandoned: api.counts.abandoned.get(),
        }
    }
}

/// The whole page.
pub(super) fn write(state: &State) -> String {
    let mut text = Text::default();
    let gauges = [
        ("process_open_fds", "Number of open file descriptors.", state.open_fds),
        ("process_max_fds", "Maximum number of open file descriptors.", state.max_fds),
        ("process_resident_memory_bytes", "Resident memory size in bytes.", state.resident),
        ("fdguard_host_sessions", "Sessions that are open.", whole(state.sessions)),
        ("fdguard_host_sessions_busy", "Sessions in which a command runs.", whole(state.busy)),
    ];
    for (name, help, value) in gauges {
        let sample = value.map(|value| Sample::new(&[], number(value)));
        text.family(name, Type::Gauge, help, sample);
    }
    let requests = state.requests.iter();
    text.family(
        "fdguard_host_http_requests_total",
        Type::Counter,
        "Requests that were answered, by class of status.",
        requests.map(|(class, count)| Sample::new(&[("code", class)], number(*count))),
    );
    let counters = [
        ("fdguard_host_http_connections_total", "Connections that were taken.", state.connections),
        ("fdguard_host_http_connections_refused_total", "Connections beyond the cap.", state.refused),
        ("fdguard_host_http_slow_heads_total", "Connections that took too long for a head.", state.too_slow),
        ("fdguard_host_abandoned_commands_total", "Commands that were interrupted because their caller went away.", state.abandoned),
    ];
    for (name, help, value) in counters {
        text.family(name, Type::Counter, help, [Sample::new(&[], number(value))]);
    }
    text.finish()
}

fn whole(count: usize) -> Option<u64> {
    u64::try_from(count).ok()
}

#[expect(clippy::cast_precision_loss, reason = "the format knows only such numbers")]
fn number(value: u64) -> f64 {
    value as f64
}

/// The one that lists them is not counted.
fn open_descriptors() -> Option<u64> {
    let listed = std::fs::read_dir("/proc/self/fd").ok()?.count();
    whole(listed.saturating_sub(1))
}

fn resident() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = text.split_ascii_whitespace().nth(1)?.parse().ok()?;
    let size = u64::try_from(rustix::param::page_size()).ok()?;
    pages.checked_mul(size)
}

#[cfg(test)]
mod tests {
    use super::{State, write};

    #[test]
    fn what_is_not_known_is_left_out_and_names_are_those_of_others() {
        let state = State {
            max_fds: Some(4096),
            requests: vec![("2xx", 7)],
            ..State::default()
        };
        let text = write(&state);
        assert!(!text.contains("process_open_fds"), "{text}");
        assert!(text.contains("\nprocess_max_fds 4096\n"), "{text}");
        assert!(text.contains("fdguard_host_http_requests_total{code=\"2xx\"} 7\n"), "{text}");
        assert!(text.contains("\nfdguard_host_sessions 0\n"), "{text}");
    }
}
