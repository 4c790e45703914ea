//! A relay on tokio keeps the write half of each connection in a map, so that peers
//! can be reached. A peer that says goodbye is removed; one that just disconnects is
//! not, and its socket stays in CLOSE_WAIT because the map still owns half of it.
use std::collections::HashMap;
use std::env;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::OwnedWriteHalf;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::sleep;

type Peers = Arc<Mutex<HashMap<SocketAddr, OwnedWriteHalf>>>;

fn var(name: &str, def: f64) -> f64 {
    env::var(name).ok().and_then(|v| v.parse().ok()).unwrap_or(def)
}

async fn serve(listener: TcpListener, peers: Peers) -> io::Result<()> {
    loop {
        let (stream, address) = listener.accept().await?;
        tokio::spawn(session(stream, address, peers.clone()));
    }
}

async fn session(stream: TcpStream, address: SocketAddr, peers: Peers) {
    let (mut reader, writer) = stream.into_split();
    peers.lock().unwrap().insert(address, writer);
    let mut message = [0; 64];
    loop {
        match reader.read(&mut message).await {
            Ok(n) if message[..n].starts_with(b"bye") => {
                peers.lock().unwrap().remove(&address);
                return;
            }
            Ok(n) if n > 0 => continue,
            _ => return,
        }
    }
}

async fn visit(address: SocketAddr, polite: bool) -> io::Result<()> {
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(b"hello").await?;
    sleep(Duration::from_millis(5)).await;
    if polite {
        stream.write_all(b"bye").await?;
        // Wait for the other end to close, so that the port is free on this side.
        stream.read(&mut [0; 1]).await?;
    }
    Ok(())
}

async fn polite_visits(address: SocketAddr) {
    loop {
        visit(address, true).await.unwrap();
        sleep(Duration::from_millis(20)).await;
    }
}

fn files(dir: PathBuf) {
    for n in 0.. {
        let file = std::fs::File::create(dir.join(format!("page-{}", n % 5))).unwrap();
        std::thread::sleep(Duration::from_millis(15));
        drop(file);
    }
}

async fn run() -> io::Result<()> {
    println!("READY {}", std::process::id());
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    let address = listener.local_addr()?;
    let peers = Peers::default();
    tokio::spawn(serve(listener, peers.clone()));
    tokio::spawn(polite_visits(address));
    let dir = PathBuf::from(env::var("LB_WORK").expect("LB_WORK"));
    std::thread::spawn(move || files(dir));
    sleep(Duration::from_secs(1)).await;
    println!("PHASE run");
    let (seconds, rate) = (var("LB_SECONDS", 20.0), var("LB_RATE", 5.0));
    let begin = Instant::now();
    let mut n = 0u32;
    while f64::from(n) < rate * seconds {
        visit(address, false).await?;
        n += 1;
        let next = begin + Duration::from_secs_f64(f64::from(n) / rate);
        sleep(next.saturating_duration_since(Instant::now())).await;
    }
    println!("DONE leaked={n}");
    sleep(Duration::from_millis(1500)).await;
    std::process::exit(0);
}

fn main() -> io::Result<()> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(run())
}
