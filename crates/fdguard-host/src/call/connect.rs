//! From a host name to a connection: resolve, connect, TLS. Every step can be cancelled without
//! leaving anything behind.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fdguard_core::units::whole_milliseconds;
use rustls::pki_types::ServerName;
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::{Semaphore, oneshot};
use tokio_rustls::TlsConnector;

use super::caller::Lookup;
use super::exchange::Conn;
use super::failure::CallFailure;
use super::request::Origin;
use super::state::{CallPhase, Seat, State};
use super::wire::{Meter, Stream, Wire};

/// What a connection needs.
pub(super) struct Connector {
    pub(super) lookup: Lookup,
    /// Lookups cannot be cancelled, so their number is limited.
    pub(super) lookups: Arc<Semaphore>,
    /// The TLS client, or why it is unavailable.
    pub(super) tls: Result<TlsConnector, String>,
}

impl Connector {
    /// A new connection. Until `by` every address of the name gets its share of the time.
    pub(super) async fn open(
        &self,
        origin: &Origin,
        state: &Arc<State>,
        by: Option<Instant>,
    ) -> Result<Conn, CallFailure> {
        let addresses = self.addresses(origin, state).await?;
        let meter = Arc::new(Meter::new());
        let (tcp, seat) = connect_any(&addresses, state, &meter, by).await?;
        let stream = if origin.is_tls {
            state.enter(CallPhase::Tls);
            self.handshake(origin, tcp).await?
        } else {
            Stream::Plain(tcp)
        };
        Conn::new(Wire::new(stream, Arc::clone(&meter)), meter, seat).await
    }

    async fn addresses(
        &self,
        origin: &Origin,
        state: &State,
    ) -> Result<Vec<SocketAddr>, CallFailure> {
        if let Ok(address) = origin.host.parse::<IpAddr>() {
            return Ok(vec![SocketAddr::new(address, origin.port)]);
        }
        state.enter(CallPhase::Resolve);
        let fail = |why: String| CallFailure::Resolve {
            host: origin.host.clone(),
            why,
        };
        let permit = Arc::clone(&self.lookups).acquire_owned().await;
        let permit = permit.map_err(|error| fail(error.to_string()))?;
        let (tell, told) = oneshot::channel();
        let (lookup, host, port) = (Arc::clone(&self.lookup), origin.host.clone(), origin.port);
        // A thread of its own: one of the runtime's would keep the runtime from ending while a name
        // server is silent.
        let work = move || {
            let answer = lookup(&host, port);
            drop(permit);
            // The receiver is gone if the call was aborted.
            drop(tell.send(answer));
        };
        let thread = std::thread::Builder::new()
            .name("fdguard-lookup".to_owned())
            .stack_size(512 * 1024);
        thread
            .spawn(work)
            .map_err(|error| fail(error.to_string()))?;
        let answer = told
            .await
            .map_err(|_gone| fail("lookup failed".to_owned()))?;
        let addresses = answer.map_err(|error| fail(error.to_string()))?;
        if addresses.is_empty() {
            return Err(fail("the name has no address".to_owned()));
        }
        Ok(addresses)
    }

    async fn handshake(&self, origin: &Origin, tcp: TcpStream) -> Result<Stream, CallFailure> {
        let fail = |why: String| CallFailure::Tls {
            host: origin.host.clone(),
            why,
        };
        let tls = self.tls.as_ref().map_err(|why| fail(why.clone()))?;
        let name =
            ServerName::try_from(origin.host.clone()).map_err(|error| fail(error.to_string()))?;
        let stream = tls
            .connect(name, tcp)
            .await
            .map_err(|error| fail(error.to_string()))?;
        Ok(Stream::Tls(Box::new(stream)))
    }
}

/// The addresses one after the other, in the order of the resolver.
async fn connect_any(
    addresses: &[SocketAddr],
    state: &Arc<State>,
    meter: &Arc<Meter>,
    by: Option<Instant>,
) -> Result<(TcpStream, Seat), CallFailure> {
    let mut last = CallFailure::Io("no address".to_owned());
    for (index, address) in addresses.iter().enumerate() {
        let fail = |why: String| CallFailure::Connect {
            to: address.to_string(),
            why,
        };
        let attempt = connect(*address, state, meter);
        let left = addresses.len() - index;
        let result = match by {
            Some(by) if left > 1 => {
                let share = by.saturating_duration_since(Instant::now())
                    / u32::try_from(left).unwrap_or(u32::MAX);
                match tokio::time::timeout(share, attempt).await {
                    Ok(result) => result,
                    Err(_late) => Ok(Err(fail(late(share)))),
                }
            }
            _ => attempt.await,
        };
        match result? {
            Ok(found) => return Ok(found),
            Err(failure) => last = failure,
        }
    }
    Err(last)
}

fn late(share: Duration) -> String {
    format!("no response within {}", whole_milliseconds(share))
}

/// The outer error ends the call; the inner one leads to the next address.
async fn connect(
    address: SocketAddr,
    state: &Arc<State>,
    meter: &Arc<Meter>,
) -> Result<Result<(TcpStream, Seat), CallFailure>, CallFailure> {
    let io = |error: std::io::Error| CallFailure::Io(format!("cannot create socket: {error}"));
    let socket = if address.is_ipv4() {
        TcpSocket::new_v4()
    } else {
        TcpSocket::new_v6()
    };
    let socket = socket.map_err(io)?;
    socket.set_nodelay(true).map_err(io)?;
    // Before the connect, so that an abort reaches a connection that gets no response.
    let spare = socket.as_fd().try_clone_to_owned().map_err(io)?;
    let seat = state.seat(spare, Arc::clone(meter), CallPhase::Connect)?;
    match socket.connect(address).await {
        Ok(stream) => Ok(Ok((stream, seat))),
        Err(error) => Ok(Err(CallFailure::Connect {
            to: address.to_string(),
            why: error.to_string(),
        })),
    }
}
