//! One conversation with Node's inspector: find its WebSocket, evaluate a text, leave.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use serde_json::{Value, json};

use super::websocket::{
    HttpAnswer, ServerFrame, UnreadableAnswer, close_frame, get, text_frame, upgrade,
};

/// How long fdguard waits for an answer.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long the connection is kept for a Node that is to end it.
const KEPT: Duration = Duration::from_secs(60);

/// Who ends the conversation. Node crashes (18 to 22) if its inspector is closed in the moment in
/// which a client leaves, so the client leaves first or last, but never meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Leaver {
    /// The inspector stays open.
    Client,
    /// The evaluated text closes the inspector.
    Node,
}

/// Evaluates a text in the main thread of a process and returns its string. The address must be the
/// process's own, as it sees it.
pub(super) fn evaluate(
    pid: u32,
    address: SocketAddr,
    text: String,
    leaver: Leaver,
) -> io::Result<String> {
    // A thread of its own, because it may have to enter the network namespace of the process, and
    // may have to keep the connection for longer than fdguard waits.
    let (sender, receiver) = mpsc::channel();
    let work = move || {
        let answer = enter_network(pid)
            .and_then(|()| Inspector::connect(address))
            .map(|mut inspector| (inspector.evaluate(&text), inspector));
        match answer {
            Ok((answer, inspector)) => {
                drop(sender.send(answer));
                inspector.leave(leaver);
            }
            Err(error) => drop(sender.send(Err(error))),
        }
    };
    std::thread::Builder::new()
        .name("inspector".to_owned())
        .spawn(work)?;
    receiver
        .recv_timeout(PATIENCE)
        .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

/// Whether the process's loopback can be reached at all.
pub(super) fn check_network(pid: u32) -> io::Result<()> {
    std::thread::scope(|scope| {
        let work = scope.spawn(|| enter_network(pid));
        work.join()
            .unwrap_or_else(|_| Err(io::Error::other("the thread failed")))
    })
}

/// Moves the calling thread to where the process's loopback is.
fn enter_network(pid: u32) -> io::Result<()> {
    let theirs = File::open(format!("/proc/{pid}/ns/net"))?;
    let ours = File::open("/proc/thread-self/ns/net")?;
    if theirs.metadata()?.ino() != ours.metadata()?.ino() {
        move_into_link_name_space(theirs.as_fd(), Some(LinkNameSpaceType::Network))?;
    }
    Ok(())
}

/// A connection to an inspector.
struct Inspector {
    stream: TcpStream,
    /// What was received and not yet read.
    received: Vec<u8>,
    until: Instant,
}

impl Inspector {
    /// Connects, and makes it a WebSocket.
    fn connect(address: SocketAddr) -> io::Result<Self> {
        let host = address.to_string();
        let list = Self::open(address)?.ask(&get("/json/list", &host))?;
        let list: Value = serde_json::from_slice(&list).map_err(io::Error::other)?;
        let url = list.pointer("/0/webSocketDebuggerUrl");
        let url = url.and_then(Value::as_str).unwrap_or_default();
        // `ws://127.0.0.1:9229/0f2c936f-b1cd-4ac9-aab3-f63b0f33d55e`
        let id = url.rsplit('/').next().unwrap_or_default();
        let is_id = |letter: char| letter.is_ascii_hexdigit() || letter == '-';
        if id.is_empty() || !id.chars().all(is_id) {
            return Err(io::Error::other("it is not an inspector that is free"));
        }
        let mut inspector = Self::open(address)?;
        inspector.ask(&upgrade(&format!("/{id}"), &host))?;
        Ok(inspector)
    }

    fn open(address: SocketAddr) -> io::Result<Self> {
        let until = Instant::now() + KEPT;
        let stream = TcpStream::connect_timeout(&address, PATIENCE)?;
        stream.set_nodelay(true)?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(Self {
            stream,
            received: Vec::new(),
            until,
        })
    }

    /// Sends a request and returns the body of the answer.
    fn ask(&mut self, request: &str) -> io::Result<Vec<u8>> {
        self.stream.write_all(request.as_bytes())?;
        let (status, body) = self.receive(|bytes| {
            let answer = HttpAnswer::parse(bytes)?;
            Ok(answer.map(|one| ((one.status, one.body.to_vec()), one.length)))
        })?;
        match status {
            101 | 200 => Ok(body),
            _ => Err(io::Error::other(format!("it answered {status}"))),
        }
    }

    fn evaluate(&mut self, text: &str) -> io::Result<String> {
        let request = json!({
            "id": 1,
            "method": "Runtime.evaluate",
            "params": {
                "expression": text,
                "includeCommandLineAPI": true,
                "returnByValue": true,
                "silent": true,
            },
        });
        self.stream.write_all(&text_frame(&request.to_string()))?;
        let answer = loop {
            let Some(message) = self.next_message()? else {
                return Err(io::ErrorKind::UnexpectedEof.into());
            };
            if message.get("id") == Some(&json!(1)) {
                break message;
            }
        };
        let value = answer.pointer("/result/result/value");
        let value = value.and_then(Value::as_str);
        value.map(str::to_owned).ok_or_else(|| {
            let reason = answer.pointer("/result/exceptionDetails/exception/description");
            let reason = reason.and_then(Value::as_str).unwrap_or("no result");
            io::Error::other(reason.lines().next().unwrap_or_default().to_owned())
        })
    }

    /// The next message; `None` if Node ends the conversation.
    fn next_message(&mut self) -> io::Result<Option<Value>> {
        let (text, is_close) = self.receive(|bytes| {
            let frame = ServerFrame::parse(bytes)?;
            let text = |one: &ServerFrame<'_>| one.text.map(<[u8]>::to_vec);
            Ok(frame.map(|one| ((text(&one), one.is_close), one.length)))
        })?;
        let message = serde_json::from_slice(&text.unwrap_or_default());
        Ok((!is_close).then(|| message.unwrap_or_default()))
    }

    /// Ends the conversation. Node's main thread waits for the answer to its farewell.
    fn leave(mut self, leaver: Leaver) {
        if leaver == Leaver::Node {
            while let Ok(Some(_)) = self.next_message() {}
        }
        drop(self.stream.write_all(&close_frame()));
    }

    /// Reads until the parser has what it needs, or the time is over.
    fn receive<T>(
        &mut self,
        parse: impl Fn(&[u8]) -> Result<Option<(T, usize)>, UnreadableAnswer>,
    ) -> io::Result<T> {
        loop {
            let parsed = parse(&self.received);
            let parsed = parsed.map_err(io::Error::other)?;
            if let Some((found, length)) = parsed {
                self.received.drain(..length);
                return Ok(found);
            }
            let left = self.until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            self.stream.set_read_timeout(Some(left))?;
            let mut room = [0; 4096];
            match self.stream.read(&mut room) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(length) => self.received.extend(room.iter().take(length)),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Err(io::ErrorKind::TimedOut.into());
                }
                Err(error) => return Err(error),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;

    use super::{Leaver, evaluate};

    /// A server that gives each connection one of these answers.
    fn serve(answers: Vec<Vec<u8>>) -> std::net::SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            for answer in answers {
                let (mut stream, _) = listener.accept().unwrap();
                let mut room = [0; 4096];
                let _ = stream.read(&mut room).unwrap();
                stream.write_all(&answer).unwrap();
                drop(stream.read(&mut room));
            }
        });
        address
    }

    fn list(body: &str) -> Vec<u8> {
        let length = body.len();
        format!("HTTP/1.0 200 OK\r\nContent-Length: {length}\r\n\r\n{body}").into_bytes()
    }

    #[test]
    fn a_text_is_evaluated_and_events_are_skipped() {
        let mut socket = b"HTTP/1.1 101 Switching Protocols\r\n\r\n".to_vec();
        for message in [
            r#"{"method":"Runtime.executionContextCreated"}"#,
            r#"{"id":1,"result":{"result":{"type":"string","value":"yes"}}}"#,
        ] {
            socket.extend([0x81, u8::try_from(message.len()).unwrap()]);
            socket.extend(message.as_bytes());
        }
        let url = r#"[{"webSocketDebuggerUrl":"ws://127.0.0.1:1/0f-2c"}]"#;
        let address = serve(vec![list(url), socket]);
        let answer = evaluate(std::process::id(), address, "1".to_owned(), Leaver::Client);
        assert_eq!(answer.unwrap(), "yes");
    }

    #[test]
    fn what_is_not_an_inspector_is_an_error() {
        let here = std::process::id();
        for answer in [
            list("[]"),
            list("hello"),
            list(r#"[{"webSocketDebuggerUrl":"ws://x/a b"}]"#),
            b"HTTP/1.1 404 Not Found\r\n\r\n".to_vec(),
            b"SSH-2.0-OpenSSH\r\n\r\n".to_vec(),
        ] {
            let address = serve(vec![answer]);
            evaluate(here, address, "1".to_owned(), Leaver::Node).unwrap_err();
        }
    }
}
