//! Opens files in Rust's ways; each marked line leaves as many open as its mark says.

use std::fs::File;
use std::net::{TcpListener, UdpSocket};
use std::process::{Child, Command, Stdio};

trait Keep {
    fn keep(&mut self, path: &str);
}

#[derive(Default)]
struct Shelf<T>(Vec<T>);

impl Keep for Shelf<File> {
    #[inline(never)]
    fn keep(&mut self, path: &str) {
        self.0.push(File::open(path).unwrap()); // LEAK 3 trait
    }
}

#[inline(never)]
fn each<F: FnMut(usize)>(count: usize, mut work: F) {
    (0..count).for_each(|number| work(number));
}

#[inline(never)]
fn spawn() -> Child {
    let mut command = Command::new("true");
    command.stdin(Stdio::piped());
    command.spawn().unwrap() // LEAK 2 child
}

#[inline(never)]
fn listen() -> (TcpListener, UdpSocket) {
    let stream = TcpListener::bind("127.0.0.1:0").unwrap(); // LEAK 1 stream
    let datagram = UdpSocket::bind("127.0.0.1:0").unwrap(); // LEAK 1 datagram
    (stream, datagram)
}

fn main() {
    let mut shelf = Shelf::<File>::default();
    let keeper: &mut dyn Keep = &mut shelf;
    for _ in 0..3 {
        keeper.keep("/dev/null");
    }
    let mut files = Vec::new();
    each(4, |_| files.push(File::open("/dev/null").unwrap())); // LEAK 4 closure
    let sockets = listen();
    let mut child = spawn();
    let thread = std::thread::spawn(|| {
        let file = File::open("/dev/null").unwrap(); // LEAK 1 thread
        std::mem::forget(file);
    });
    thread.join().unwrap();
    drop(File::open("/dev/null"));
    println!("kept {}", shelf.0.len() + files.len());
    std::mem::forget((shelf, files, sockets, child.stdin.take()));
    child.wait().unwrap();
    std::mem::forget(child);
}
