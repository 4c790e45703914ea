//! `fdguard run`: sockets that outlive restarts, and ports that are in use.

use std::io::{ErrorKind, Read as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};

use rustix::process::Signal;

use super::run;
use super::running::{Running, free_port, service, signal};

/// Connects in a loop until `stop` is set; sends a message for each served connection and returns
/// the number of refused ones.
fn load(port: u16, stop: &AtomicBool, served: &Sender<()>) -> u32 {
    let mut refused = 0;
    while !stop.load(Ordering::Relaxed) {
        match TcpStream::connect(("127.0.0.1", port)) {
            Ok(mut stream) => {
                let mut answer = [0; 2];
                // A connection that was being served when the service was killed is cut off; that
                // is not a refusal.
                if stream.read_exact(&mut answer).is_ok() && &answer == b"ok" {
                    served.send(()).unwrap();
                }
            }
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => refused += 1,
            Err(_) => {}
        }
    }
    refused
}

#[test]
fn no_connection_is_refused_over_three_kills_under_load() {
    let port = free_port();
    let listen = format!("tcp:{port}");
    let args = ["--crash-loop", "off", "--listen", &*listen, "--"];
    let mut running = Running::start(args.iter().copied().chain([&*service(), "serve"]));
    let mut pid: u32 = running.line("serving ").parse().unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = Arc::clone(&stop);
    let (sender, served) = channel();
    let client = std::thread::spawn(move || load(port, &stopped, &sender));
    let hundred = || (0..100).for_each(|_| served.recv().unwrap());
    for _ in 0..3 {
        hundred();
        signal(pid, Signal::KILL);
        pid = running.line("serving ").parse().unwrap();
    }
    hundred();
    stop.store(true, Ordering::Relaxed);
    assert_eq!(client.join().unwrap(), 0, "refused");
    assert_eq!(running.stop().0, 0);
}

#[test]
fn sockets_of_our_own_parent_are_passed_on() {
    // A supervisor around a supervisor: the outer one binds, the inner one hands on.
    let port = free_port();
    let listen = format!("web=tcp:{port}");
    let program = env!("CARGO_BIN_EXE_fdguard");
    let script = "echo names $LISTEN_FDNAMES $LISTEN_FDS; exec \"$0\" serve";
    let service = service();
    let inner = [
        program, "run", "--nest", "--", "sh", "-c", script, &*service,
    ];
    let outer = ["--listen", &*listen, "--"];
    let mut running = Running::start(outer.into_iter().chain(inner));
    assert_eq!(running.line("names "), "web 1");
    running.line("serving ");
    let mut answer = [0; 2];
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"ok");
    assert_eq!(running.stop().0, 0);
}

#[test]
fn r24_a_port_of_a_stranger_is_refused_with_its_holder() {
    let ours = TcpListener::bind("127.0.0.1:0").unwrap();
    let listen = format!("tcp:{}", ours.local_addr().unwrap().port());
    let said = run(["run", "--listen", &listen, "--", "true"]);
    assert_eq!(said.code, 2, "{}", said.stderr);
    let named = format!("(pid {}", std::process::id());
    assert!(said.stderr.contains(&named), "{}", said.stderr);
    assert!(
        said.stderr.contains("event=port_conflict"),
        "{}",
        said.stderr
    );
    assert!(!said.stderr.contains("event=start "), "{}", said.stderr);
    // The socket still belongs to this test.
    assert!(TcpStream::connect(ours.local_addr().unwrap()).is_ok());
}

#[test]
fn r24_somebody_who_answers_where_readiness_is_asked_is_told_of() {
    let ours = TcpListener::bind("127.0.0.1:0").unwrap();
    let ready = format!("tcp:127.0.0.1:{}", ours.local_addr().unwrap().port());
    let mut running = Running::start(["--ready", &*ready, "--", &*service(), "stamp"]);
    let told = running.event("port_conflict", &[]);
    assert_eq!(told.number("pid"), std::process::id());
    assert_eq!(running.stop().0, 0);
}

#[test]
fn a_port_that_becomes_free_is_waited_for() {
    let ours = TcpListener::bind("127.0.0.1:0").unwrap();
    let listen = format!("tcp:{}", ours.local_addr().unwrap().port());
    let args = ["--listen", &*listen, "--on-conflict", "wait:10m", "--"];
    let mut running = Running::start(args.iter().copied().chain([&*service(), "serve"]));
    running.event("port_conflict", &[]);
    drop(ours);
    running.event("start", &[]);
    assert_eq!(running.stop().0, 0);
}

#[test]
fn a_socket_file_is_bound_and_taken_away_again() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("socket");
    let listen = format!("unix:{}", path.display());
    let mut running = Running::start(["--listen", &*listen, "--", &*service(), "serve"]);
    running.line("serving ");
    let mut answer = [0; 2];
    let mut stream = std::os::unix::net::UnixStream::connect(&path).unwrap();
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(running.stop().0, 0);
    assert!(!path.exists());
}
