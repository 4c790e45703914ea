//! Counts the connections that a drain waits for.

use fdguard_core::{Detail, Pid};
use fdguard_probe::{Depth, Options};

use super::Meter;

impl Meter<'_> {
    /// How many connections the service's listeners have accepted and not closed: those of the
    /// processes whose local port one of them listens on, or is among `ports`. Absent if that is
    /// not visible. It lists everything, so it is only for the duration of a drain.
    #[must_use]
    pub fn connections(&self, pids: &[Pid], ports: &[u16]) -> Option<u64> {
        let options = Options {
            peers: false,
            threads: 1,
            depth: Depth::Full,
        };
        let mut listening: Vec<String> = ports.iter().map(ToString::to_string).collect();
        let mut connected = Vec::new();
        for pid in pids {
            let Ok(snapshot) = self.probe.snapshot(*pid, options) else {
                continue;
            };
            let fds = snapshot.fds.as_ref()?;
            for fd in fds {
                let Detail::Inet(socket) = &fd.detail else {
                    continue;
                };
                let port = socket
                    .local
                    .as_deref()
                    .and_then(|local| local.rsplit(':').next());
                let Some(port) = port else { continue };
                match socket.state.as_deref() {
                    Some("LISTEN") => listening.push(port.to_owned()),
                    Some(_) if socket.remote.is_some() => connected.push(port.to_owned()),
                    _ => {}
                }
            }
        }
        Some(
            connected
                .iter()
                .filter(|port| listening.contains(port))
                .count() as u64,
        )
    }
}
