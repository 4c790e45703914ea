//! Waits until a server is ready.

use std::io::{Read as _, Write as _};
use std::time::{Duration, Instant};

use fdguard_core::units::exact_seconds;
use fdguard_diagnose::check::Survey;
use fdguard_probe::Probe;

use super::client::connect;
use super::server::Server;
use super::{Bench, ended, show};
use crate::cli::ReadyArg;
use crate::exit::HintedError;
use crate::progress::of_time;

/// How long one attempt may take, and the pause before the next.
const TRY: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(50);
/// Without a readiness check: how long to wait for a listening socket.
const LISTENS: Duration = Duration::from_secs(5);

impl Bench<'_> {
    /// Takes looks until the server is ready.
    pub(super) fn wait_until_ready<'p>(
        &self,
        probe: &'p Probe,
        server: &mut Server,
    ) -> anyhow::Result<Survey<'p>> {
        let (plan, most) = (self.plan, self.args.exercise.ready_timeout);
        let patience = match plan.ready {
            Some(_) => most,
            None => LISTENS.min(most),
        };
        let began = Instant::now();
        let deadline = began + patience;
        let mut survey = None;
        loop {
            self.stop.check()?;
            self.progress.show(|| {
                let waited = began.elapsed().as_secs_f64();
                format!(
                    "waiting for the server: {}",
                    of_time(waited, Some(patience))
                )
            });
            match &mut survey {
                None => survey = self.begin_survey(probe, server)?,
                Some(survey) => self.look(survey, server, 0)?,
            }
            let is_ready = match (&plan.ready, &survey) {
                (Some(ReadyArg::Line(_)), _) => server
                    .launched()
                    .is_some_and(|one| one.tee.has_matched(Duration::ZERO)),
                (Some(how), _) => is_ready(how),
                (None, Some(survey)) => matches!(server, Server::Attached(_)) || survey.listens(),
                (None, None) => false,
            };
            let is_late = Instant::now() >= deadline;
            // Without a configured readiness check, a server that does not listen may still work.
            if let Some(survey) = survey.take_if(|_| is_ready || (is_late && plan.ready.is_none()))
            {
                return Ok(survey);
            }
            if is_late {
                return Err(self.never_ready(server, patience));
            }
            self.pause(server)?;
        }
    }

    /// Waits until the server prints the line, ends, or a moment has passed.
    fn pause(&self, server: &mut Server) -> anyhow::Result<()> {
        let Some(launched) = server.launched() else {
            std::thread::sleep(PAUSE);
            return Ok(());
        };
        if launched.has_ended(PAUSE) {
            return Err(ended(launched, "before it was ready"));
        }
        Ok(())
    }

    /// Takes the first look; `None` while the server has not executed its program yet.
    fn begin_survey<'p>(
        &self,
        probe: &'p Probe,
        server: &mut Server,
    ) -> anyhow::Result<Option<Survey<'p>>> {
        match Survey::start(probe, server.pid()) {
            Ok(survey) if survey.is_full() => Ok(Some(survey)),
            Ok(survey) => {
                let why = survey.gaps().first().map(|gap| gap.why.clone());
                let why = why.unwrap_or_else(|| "permission denied".to_owned());
                let message = format!(
                    "process {}: cannot list its descriptors: {why}",
                    server.pid()
                );
                Err(
                    HintedError::look(message, "run fdguard as the server's user, or as root")
                        .into(),
                )
            }
            Err(error) => match server.launched() {
                Some(launched) if launched.has_ended(Duration::ZERO) => {
                    Err(ended(launched, "before it was ready"))
                }
                Some(_) => Ok(None),
                None => Err(error.into()),
            },
        }
    }

    fn never_ready(&self, server: &mut Server, patience: Duration) -> anyhow::Error {
        let last = server
            .launched()
            .map(|one| one.tee.last())
            .unwrap_or_default();
        self.progress.clear();
        show("the server's last output", &last);
        HintedError::look(
            format!(
                "the server was not ready within {}",
                exact_seconds(patience)
            ),
            "set --ready to the right address or line, or raise --ready-timeout",
        )
        .into()
    }
}

/// Checks once. `ReadyArg::Line` is not polled: the output reader reports it.
fn is_ready(how: &ReadyArg) -> bool {
    match how {
        ReadyArg::Tcp { host, port } => connect((host.as_str(), *port), TRY).is_ok(),
        ReadyArg::Http { host, port, path } => {
            answer(host, *port, path).is_some_and(|status| status < 500)
        }
        ReadyArg::Line(_) => false,
    }
}

/// The status of the answer to a request.
fn answer(host: &str, port: u16, path: &str) -> Option<u16> {
    let mut stream = connect((host, port), TRY).ok()?;
    stream.set_read_timeout(Some(TRY)).ok()?;
    let request = format!(
        "GET {path} HTTP/1.1\r\nHost: {host}:{port}\r\nUser-Agent: fdguard\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).ok()?;
    let (mut head, began) = (Vec::new(), Instant::now());
    let mut buffer = [0; 512];
    while !head.contains(&b'\n') && head.len() < 4096 && began.elapsed() < TRY {
        match stream.read(&mut buffer) {
            Ok(count) if count > 0 => head.extend(buffer.get(..count)?),
            _ => break,
        }
    }
    status(&head)
}

/// `HTTP/1.1 200 OK`.
fn status(head: &[u8]) -> Option<u16> {
    let line = head.split(|byte| *byte == b'\n').next()?;
    let line = std::str::from_utf8(line).ok()?;
    let mut words = line.split_whitespace();
    words.next().filter(|word| word.starts_with("HTTP/"))?;
    words.next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::status;

    #[test]
    fn a_status_is_read_and_nonsense_is_none() {
        assert_eq!(status(b"HTTP/1.1 200 OK\r\n"), Some(200));
        assert_eq!(status(b"HTTP/1.0 503"), Some(503));
        assert_eq!(status(b"SSH-2.0-x\r\n"), None);
        assert_eq!(status(b""), None);
    }
}
