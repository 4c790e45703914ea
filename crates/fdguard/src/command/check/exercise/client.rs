//! Clients that disconnect or give up: built-in exercises for the paths on which servers leak.

use std::io::{self, Read as _, Write as _};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

use rustix::net::sockopt::set_socket_linger;

/// Time limit for connecting and for sending.
const PATIENCE: Duration = Duration::from_secs(5);

/// Connects to the first address that answers; `patience` also limits later writes.
pub(super) fn connect(address: impl ToSocketAddrs, patience: Duration) -> io::Result<TcpStream> {
    let mut last = io::Error::from(io::ErrorKind::NotFound);
    for address in address.to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, patience) {
            Ok(stream) => {
                stream.set_write_timeout(Some(patience))?;
                return Ok(stream);
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Sends and disconnects with a reset, so that the server's next write fails.
pub(super) fn disconnect(address: &str, send: &[u8]) -> io::Result<()> {
    let mut stream = connect(address, PATIENCE)?;
    stream.write_all(send)?;
    // No lingering: the kernel discards unsent data and resets the connection.
    set_socket_linger(&stream, Some(Duration::ZERO))?;
    Ok(())
}

/// Sends a request, waits at most `patience`, and disconnects whether or not an answer arrived.
pub(super) fn give_up(address: &str, path: &str, patience: Duration) -> io::Result<()> {
    let mut stream = connect(address, PATIENCE)?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nUser-Agent: fdguard\r\n\r\n");
    stream.write_all(request.as_bytes())?;
    stream.set_read_timeout(Some(patience.max(Duration::from_millis(1))))?;
    match stream.read(&mut [0; 64]) {
        Ok(_) => Ok(()),
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
            ) =>
        {
            Ok(())
        }
        Err(error) if error.kind() == io::ErrorKind::ConnectionReset => Ok(()),
        Err(error) => Err(error),
    }
}
