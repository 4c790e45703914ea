//! Opens and closes in the ways of Rust at each line of its input, and says when it is done. Every
//! round leaves one file open, by the line marked KEEPS.

use std::fs::File;
use std::net::{TcpListener, TcpStream};

fn keep(kept: &mut Vec<File>) {
    kept.push(File::open("/etc/passwd").unwrap()); // KEEPS
}

fn main() {
    let mut kept = Vec::new();
    println!("READY");
    for _ in std::io::stdin().lines() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        for _ in 0..50 {
            drop(File::open("/etc/passwd").unwrap().try_clone().unwrap());
            drop(std::fs::read_dir("/etc").unwrap().next());
            let client = TcpStream::connect(address).unwrap();
            drop((listener.accept().unwrap(), client));
        }
        keep(&mut kept);
        println!("DONE");
    }
}
