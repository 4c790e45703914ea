//! Situation 8: more clients are not a leak; disconnected clients are a leak if the server keeps
//! their connections.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

use super::situation::{Answer, Session, lines_of, pause_until, python, source, words};

/// A client that has received its first event.
fn client(port: u16) -> BufReader<TcpStream> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    let mut reader = BufReader::new(stream);
    next_event(&mut reader);
    reader
}

fn next_event(client: &mut BufReader<TcpStream>) {
    let mut line = String::new();
    while !line.starts_with("data: ") {
        line.clear();
        assert!(client.read_line(&mut line).unwrap() > 0, "the stream ended");
    }
}

/// Fifty clients, one every tenth of a second; `each` handles a new client as the situation
/// requires.
fn run(verb: &str, kind: &str, each: impl Fn(&mut Vec<BufReader<TcpStream>>)) -> Option<Answer> {
    let python = python()?;
    let mut session = Session::start(verb, &words([&python, &source("stream.py"), &kind]));
    let port = session.port();
    let begin = Instant::now();
    let mut clients = Vec::new();
    for number in 1..=50 {
        clients.push(client(port));
        each(&mut clients);
        pause_until(begin + Duration::from_millis(100) * number);
    }
    session.terminate();
    let answer = session.end();
    drop(clients);
    Some(answer)
}

#[test]
fn situation_8_a_server_that_gains_live_clients_is_not_leaking() {
    for verb in ["trace", "check"] {
        // All of them read: the streams are alive until the server ends.
        let Some(answer) = run(verb, "close", |clients| {
            clients.iter_mut().for_each(next_event)
        }) else {
            return;
        };
        assert_ne!(answer.verdict(), "leaking", "{}", answer.brief());
        let findings = answer.findings();
        let critical = findings.iter().any(|one| one["severity"] == "critical");
        assert!(!critical, "{}", answer.brief());
        // It fails exactly if it found something, which may be growth at most.
        let has_failed = !findings.is_empty();
        assert_eq!(answer.code, i32::from(has_failed), "{}", answer.brief());
        if has_failed {
            assert_eq!(answer.verdict(), "growing", "{}", answer.brief());
        }
    }
}

#[test]
fn situation_8_connections_that_outlive_their_clients_are_leaking() {
    for verb in ["trace", "check"] {
        let gone = |clients: &mut Vec<BufReader<TcpStream>>| {
            let last = clients.last().unwrap();
            last.get_ref().shutdown(Shutdown::Write).unwrap();
        };
        let Some(answer) = run(verb, "forget", gone) else {
            return;
        };
        answer.assert_blamed("stream.py", &lines_of("stream.py", "ACCEPT"));
        assert_eq!(answer.verdict(), "leaking", "{}", answer.brief());
        assert_eq!(answer.code, 1, "{}", answer.brief());
    }
}

#[test]
fn situation_8_clients_that_come_and_go_are_quiet() {
    let gone = |clients: &mut Vec<BufReader<TcpStream>>| {
        // Five at a time.
        if clients.len() > 5 {
            drop(clients.remove(0));
        }
    };
    let Some(answer) = run("check", "close", gone) else {
        return;
    };
    answer.assert_quiet();
}
