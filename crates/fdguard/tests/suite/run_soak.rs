//! `fdguard run`: killed two hundred times under load.

use std::io::{ErrorKind, Read as _};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};

use rustix::process::Signal;

use super::running::{Running, free_port, is_alive, service, signal};

const KILLS: u32 = 200;

/// Connects without pause; tells of each answer, and counts the refused.
fn load(port: u16, stop: &AtomicBool, served: &Sender<()>) -> u32 {
    let mut refused = 0;
    while !stop.load(Ordering::Relaxed) {
        match TcpStream::connect(("127.0.0.1", port)) {
            Ok(mut stream) => {
                let mut answer = [0; 2];
                if stream.read_exact(&mut answer).is_ok() {
                    // Nobody counts any more at the end.
                    let _nobody = served.send(());
                }
            }
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => refused += 1,
            Err(_) => {}
        }
    }
    refused
}

/// Children of this process that nobody waited for.
fn zombies(parent: u32) -> usize {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let stats = entries.filter_map(|entry| std::fs::read_to_string(entry.path().join("stat")).ok());
    let is_one = |stat: &String| {
        let rest = stat.rsplit(") ").next().unwrap_or_default();
        rest.starts_with(&format!("Z {parent} "))
    };
    stats.filter(is_one).count()
}

#[test]
fn two_hundred_kills_of_a_leaking_service_under_load_refuse_nobody_and_leave_nothing() {
    let port = free_port();
    let listen = format!("tcp:{port}");
    let args = [
        "--crash-loop",
        "off",
        "--backoff",
        "off",
        "--listen",
        &*listen,
    ];
    // A look at classes holds descriptors of its own while a service has many: not in this count.
    let off = ["--budget", "class:tcp:CLOSE_WAIT=off", "--"];
    let command = [&*service(), "serve", "leaky"];
    let mut running = Running::start(args.into_iter().chain(off).chain(command));
    let mut pids: Vec<u32> = vec![running.line("serving ").parse().unwrap()];
    let stop = Arc::new(AtomicBool::new(false));
    let (sender, served) = channel();
    let clients: Vec<_> = (0..2)
        .map(|_| {
            let (stop, sender) = (Arc::clone(&stop), sender.clone());
            std::thread::spawn(move || load(port, &stop, &sender))
        })
        .collect();
    let mut baseline = None;
    for round in 0..KILLS {
        // So many more are leaked before each kill.
        (0..10).for_each(|_| served.recv().unwrap());
        running.event("start", &[]);
        if round == 10 {
            baseline = Some(running.at_rest());
        }
        signal(*pids.last().unwrap(), Signal::KILL);
        pids.push(running.line("serving ").parse().unwrap());
    }
    running.event("start", &[]);
    assert_eq!(Some(running.at_rest()), baseline);
    assert_eq!(zombies(running.pid()), 0);
    stop.store(true, Ordering::Relaxed);
    let refused: u32 = clients.into_iter().map(|one| one.join().unwrap()).sum();
    assert_eq!(refused, 0);
    let (code, last) = running.stop();
    assert_eq!((code, last.number("restarts")), (0, KILLS));
    assert_eq!(last.value("fds_at_start"), last.value("fds_at_end"));
    assert!(pids.iter().all(|pid| !is_alive(*pid)));
}
