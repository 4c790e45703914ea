//! Opens twelve pairs of sockets and uses their ends from two functions. Prints `READY`, and goes
//! on using them until its input ends.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

#[inline(never)]
fn send_all(ends: &mut [(UnixStream, UnixStream)]) {
    for (near, _) in ends {
        near.write_all(b"x").unwrap(); // LAST WRITE
    }
}

#[inline(never)]
fn take_all(ends: &mut [(UnixStream, UnixStream)]) {
    for (_, far) in ends {
        far.read_exact(&mut [0]).unwrap(); // LAST READ
    }
}

fn main() {
    let mut ends: Vec<_> = (0..12).map(|_| UnixStream::pair().unwrap()).collect();
    let (end, is_over) = channel::<()>();
    let input = std::thread::spawn(|| {
        std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
        drop(end);
    });
    send_all(&mut ends);
    take_all(&mut ends);
    println!("READY");
    while is_over.recv_timeout(Duration::from_millis(20)) == Err(RecvTimeoutError::Timeout) {
        send_all(&mut ends);
        take_all(&mut ends);
    }
    input.join().unwrap();
}
