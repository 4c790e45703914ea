//! A chat daemon serves each connection on a thread and clones its stream into the
//! list of members for broadcasts. Only a member that says goodbye leaves the list: of
//! one that disconnects, the thread ends and the clone stays open.
use std::env;
use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

type Members = Arc<Mutex<Vec<(u64, UnixStream)>>>;

fn var(name: &str, def: f64) -> f64 {
    env::var(name).ok().and_then(|v| v.parse().ok()).unwrap_or(def)
}

fn join(members: &Members, id: u64, stream: &UnixStream) {
    let clone = stream.try_clone().expect("clone");
    members.lock().unwrap().push((id, clone));
}

fn converse(mut stream: UnixStream, id: u64, members: Members) {
    join(&members, id, &stream);
    let mut line = [0; 64];
    while let Ok(n) = stream.read(&mut line) {
        if n == 0 {
            return;
        }
        if line[..n].starts_with(b"bye") {
            members.lock().unwrap().retain(|(member, _)| *member != id);
            return;
        }
    }
}

fn accept(listener: UnixListener, members: Members) {
    for (id, stream) in listener.incoming().enumerate() {
        let (stream, members) = (stream.expect("accept"), members.clone());
        thread::spawn(move || converse(stream, id as u64, members));
    }
}

fn chat(socket: &Path, polite: bool) {
    let mut stream = UnixStream::connect(socket).expect("connect");
    stream.write_all(b"hi").unwrap();
    thread::sleep(Duration::from_millis(5));
    if polite {
        stream.write_all(b"bye").unwrap();
        let _closed = stream.read(&mut [0; 1]);
    }
}

fn transcript(dir: PathBuf) {
    for n in 0.. {
        let file = std::fs::File::create(dir.join(format!("room-{}", n % 3))).unwrap();
        thread::sleep(Duration::from_millis(15));
        drop(file);
    }
}

fn main() {
    println!("READY {}", std::process::id());
    let dir = PathBuf::from(env::var("LB_WORK").expect("LB_WORK"));
    let socket = dir.join("chat.sock");
    let members = Members::default();
    let listener = UnixListener::bind(&socket).expect("bind");
    let list = members.clone();
    thread::spawn(move || accept(listener, list));
    let polite = socket.clone();
    thread::spawn(move || loop {
        chat(&polite, true);
        thread::sleep(Duration::from_millis(20));
    });
    thread::spawn(move || transcript(dir));
    thread::sleep(Duration::from_secs(1));
    println!("PHASE run");
    let (seconds, rate) = (var("LB_SECONDS", 20.0), var("LB_RATE", 4.0));
    let begin = Instant::now();
    let mut n = 0u32;
    while f64::from(n) < rate * seconds {
        chat(&socket, false);
        n += 1;
        let next = begin + Duration::from_secs_f64(f64::from(n) / rate);
        thread::sleep(next.saturating_duration_since(Instant::now()));
    }
    println!("DONE leaked={n}");
    thread::sleep(Duration::from_millis(1500));
    std::process::exit(0);
}
