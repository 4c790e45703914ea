//! Drain: lets a service finish its work before it is stopped.
//!
//! With `--listen` the listener belongs to fdguard: when the program stops accepting, new
//! connections wait in its backlog for the next process, so that none is refused. A [`DrainSpec`]
//! defines how to request the drain: a signal, a request or a command. The drain ends when the
//! connections are gone, when the hook reports it, when the program exits, or when the time is up.

mod hook;
mod spec;

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use crate::child::{Bounded, Helper, HelperEnd};
use crate::lifecycle::DrainResult;
use crate::poll::{Interest, Readiness};
use hook::{Answer, Hook};

pub use spec::{BadDrain, DrainSpec, DrainTarget};

/// Connections are counted this often.
const COUNT_EVERY: Duration = Duration::from_millis(500);

/// A drain in progress.
#[derive(Debug)]
pub struct Drain {
    doing: Doing,
    deadline: Instant,
    next: Instant,
    /// Whether it serves connections: for a program that never had one, zero connections do not
    /// prove that its work is done.
    serves: bool,
}

#[derive(Debug)]
enum Doing {
    /// The program was notified; its connections are counted.
    Waiting,
    Asking(Hook),
    Running(Bounded),
}

/// What a drain needs besides its specification.
#[derive(Debug)]
pub struct DrainContext<'a> {
    /// The program.
    pub pid: u32,
    /// How long it may take.
    pub within: Duration,
    /// Whether the supervisor holds listeners for it.
    pub listens: bool,
    /// `/dev/null` for a command: see [`null`].
    pub null: &'a OwnedFd,
}

/// `/dev/null`, kept open for when no file can be opened.
pub fn null() -> std::io::Result<OwnedFd> {
    crate::child::null()
}

impl Drain {
    /// Starts the drain. The caller, which owns the tree, sends the signal: [`DrainSpec::signal`].
    pub fn start(
        spec: &DrainSpec,
        given: &DrainContext<'_>,
        now: Instant,
    ) -> Result<Self, DrainResult> {
        let failed = |error: std::io::Error| DrainResult::HookFailed(error.to_string());
        let doing = match spec {
            DrainSpec::None => return Err(DrainResult::None),
            DrainSpec::Signal(_) => Doing::Waiting,
            DrainSpec::Http(target) => Doing::Asking(Hook::start(target).map_err(failed)?),
            DrainSpec::Exec(line) => {
                let mut helper = Helper::shell(line);
                let pid = given.pid.to_string().into();
                helper.environment.push(("FDGUARD_PID".into(), pid));
                let running = Bounded::start(helper, given.null, now, given.within);
                Doing::Running(running.map_err(|error| DrainResult::HookFailed(error.to_string()))?)
            }
        };
        Ok(Self {
            doing,
            deadline: now + given.within,
            next: now,
            serves: given.listens,
        })
    }

    /// Registers its descriptors and deadline.
    pub fn wants<'f>(&'f self, wants: &mut Interest<'f>) {
        match &self.doing {
            Doing::Waiting => wants.until(self.next.min(self.deadline)),
            Doing::Asking(hook) => {
                hook.wants(wants);
                wants.until(self.deadline);
            }
            Doing::Running(bounded) => bounded.wants(wants),
        }
    }

    /// Returns its end, once. `connections` counts those of the service, if they are visible; it is
    /// called at most twice a second.
    pub fn poll(
        &mut self,
        now: Instant,
        ready: &Readiness,
        connections: impl FnOnce() -> Option<u64>,
    ) -> Option<DrainResult> {
        match &mut self.doing {
            // It has the same deadline, and knows whether it finished before.
            Doing::Running(bounded) => match bounded.poll(now, ready)? {
                HelperEnd::Code(0) => Some(DrainResult::HookDone),
                HelperEnd::TimeUp => Some(DrainResult::TimeUp),
                ended => {
                    let how = bounded.account(ended);
                    Some(DrainResult::HookFailed(format!("it {how}")))
                }
            },
            _ if now >= self.deadline => Some(DrainResult::TimeUp),
            Doing::Waiting => self.count(now, connections),
            Doing::Asking(hook) => match hook.poll() {
                None => None,
                Some(Answer::Done) => Some(DrainResult::HookDone),
                Some(Answer::Accepted) => {
                    self.doing = Doing::Waiting;
                    None
                }
                Some(Answer::Failed(why)) => Some(DrainResult::HookFailed(why)),
            },
        }
    }

    fn count(
        &mut self,
        now: Instant,
        connections: impl FnOnce() -> Option<u64>,
    ) -> Option<DrainResult> {
        if now < self.next {
            return None;
        }
        self.next = now + COUNT_EVERY;
        let count = connections()?;
        self.serves |= count > 0;
        (count == 0 && self.serves).then_some(DrainResult::ConnectionsGone)
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::{TcpListener, TcpStream};
    use std::time::{Duration, Instant};

    use super::{Drain, DrainContext, DrainSpec, null};
    use crate::lifecycle::DrainResult;
    use crate::poll::{Interest, Readiness};

    const LONG: Duration = Duration::from_secs(60);

    fn begin(
        spec: &str,
        listens: bool,
        within: Duration,
        now: Instant,
    ) -> Result<Drain, DrainResult> {
        let null = null().unwrap();
        let given = DrainContext {
            pid: 4711,
            within,
            listens,
            null: &null,
        };
        Drain::start(&spec.parse().unwrap(), &given, now)
    }

    /// Runs it to its end; the connections are counted down.
    fn run(spec: &str, within: Duration) -> DrainResult {
        let mut drain = match begin(spec, false, within, Instant::now()) {
            Ok(drain) => drain,
            Err(drained) => return drained,
        };
        let mut left = 3;
        loop {
            let mut wants = Interest::default();
            drain.wants(&mut wants);
            let ready = wants.wait().unwrap();
            let count = || {
                left -= 1;
                Some(left)
            };
            if let Some(drained) = drain.poll(Instant::now(), &ready, count) {
                return drained;
            }
        }
    }

    #[test]
    fn after_a_signal_the_connections_are_waited_for() {
        assert_eq!(run("HUP", LONG), DrainResult::ConnectionsGone);
        assert_eq!(run("none", LONG), DrainResult::None);
    }

    #[test]
    fn who_never_had_a_connection_is_given_its_time() {
        let start = Instant::now();
        let mut drain = begin("TERM", false, LONG, start).unwrap();
        let mut turn = |seconds| {
            let now = start + Duration::from_secs(seconds);
            drain.poll(now, &Readiness::default(), || Some(0))
        };
        assert_eq!(
            [turn(0), turn(30), turn(60)],
            [None, None, Some(DrainResult::TimeUp)]
        );
        let mut listening = begin("TERM", true, LONG, start).unwrap();
        let gone = listening.poll(start, &Readiness::default(), || Some(0));
        assert_eq!(gone, Some(DrainResult::ConnectionsGone));
    }

    #[test]
    fn what_cannot_be_counted_is_not_gone() {
        let start = Instant::now();
        let mut drain = begin("TERM", true, LONG, start).unwrap();
        assert_eq!(drain.poll(start, &Readiness::default(), || None), None);
    }

    #[test]
    fn a_command_says_by_its_end_that_all_is_done() {
        assert_eq!(
            run("exec:test \"$FDGUARD_PID\" = 4711", LONG),
            DrainResult::HookDone
        );
        let failed = run("exec:echo the pool is stuck >&2; exit 4", LONG);
        assert_eq!(
            failed,
            DrainResult::HookFailed("it exited with status 4: the pool is stuck".into())
        );
        assert_eq!(
            run("exec:sleep 600", Duration::from_millis(100)),
            DrainResult::TimeUp
        );
    }

    /// A server with one response; returns the request it got.
    fn server(answer: &'static str) -> (String, std::thread::JoinHandle<String>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let serve = move || {
            let (mut stream, _) = listener.accept().unwrap();
            let asked = asked(&mut stream);
            // In two pieces: one read is not a whole response.
            let (first, second) = answer.split_at(answer.len() / 2);
            stream.write_all(first.as_bytes()).unwrap();
            stream.flush().unwrap();
            stream.write_all(second.as_bytes()).unwrap();
            asked
        };
        (
            format!("http://{address}/drain?now=1"),
            std::thread::spawn(serve),
        )
    }

    fn asked(stream: &mut TcpStream) -> String {
        let mut text = Vec::new();
        while !text.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).unwrap();
            text.push(byte[0]);
        }
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn a_request_is_a_post_and_its_answer_counts() {
        let (url, served) = server("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
        assert_eq!(run(&url, LONG), DrainResult::HookDone);
        let asked = served.join().unwrap();
        assert!(
            asked.starts_with("POST /drain?now=1 HTTP/1.1\r\nHost: 127.0.0.1:"),
            "{asked}"
        );
        assert!(asked.contains("\r\nContent-Length: 0\r\n"), "{asked}");
        let (url, served) = server("HTTP/1.1 202 Accepted\r\n\r\n");
        assert_eq!(
            run(&url, LONG),
            DrainResult::ConnectionsGone,
            "it only began"
        );
        served.join().unwrap();
        let (url, served) = server("HTTP/1.1 503 Busy\r\n\r\n");
        assert_eq!(
            run(&url, LONG),
            DrainResult::HookFailed("it returned HTTP status 503".into())
        );
        served.join().unwrap();
        let (url, served) = server("SSH-2.0-OpenSSH\r\n");
        assert!(
            matches!(run(&url, LONG), DrainResult::HookFailed(why) if why.contains("is not HTTP"))
        );
        served.join().unwrap();
    }

    #[test]
    fn nobody_there_is_told_at_once_and_silence_is_bounded() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let silent = format!("http://{}/", listener.local_addr().unwrap());
        assert_eq!(
            run(&silent, Duration::from_millis(200)),
            DrainResult::TimeUp
        );
        drop(listener);
        assert!(matches!(run(&silent, LONG), DrainResult::HookFailed(_)));
        assert!("http://example.org/".parse::<DrainSpec>().is_err());
    }
}
