//! MCP at `/mcp` of the HTTP server: who may come in, and that an MCP session's end ends everything that it opened.

use std::io::Write as _;
use std::net::TcpStream;
use std::time::Duration;

use serde_json::{Value, json};

use super::http_harness::{Answer, Served, TOKEN, descriptors, read_answer};

const ACCEPT: &str = "accept: application/json, text/event-stream\r\n";

/// An MCP client that writes its own requests.
struct Client<'s> {
    served: &'s Served,
    session: String,
}

impl<'s> Client<'s> {
    fn begin(served: &'s Served) -> Self {
        let answer = served.send_with("POST", "/mcp", &initialize(), ACCEPT);
        assert_eq!(answer.status, 200, "{answer:?}");
        let version = &message(&answer)["result"]["protocolVersion"];
        assert_eq!(version, "2025-11-25", "{answer:?}");
        let lines = answer.head.lines();
        let session = lines
            .filter_map(|line| line.strip_prefix("mcp-session-id: "))
            .next();
        let session = session.unwrap_or_else(|| panic!("no session: {answer:?}"));
        let client = Self {
            served,
            session: session.to_owned(),
        };
        let note = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
        assert_eq!(client.post(&note).status, 202);
        client
    }

    fn headers(&self) -> String {
        format!(
            "{ACCEPT}mcp-session-id: {}\r\nmcp-protocol-version: 2025-11-25\r\n",
            self.session
        )
    }

    fn post(&self, message: &Value) -> Answer {
        let body = message.to_string();
        self.served
            .send_with("POST", "/mcp", &body, &self.headers())
    }

    fn call(&self, tool: &str, arguments: &Value) -> Value {
        message(&self.post(&request(tool, arguments)))["result"].clone()
    }

    /// A call whose answer is not awaited yet.
    fn begin_call(&self, tool: &str, arguments: &Value) -> TcpStream {
        let body = request(tool, arguments).to_string();
        let text = self.served.request("POST", "/mcp", &body, &self.headers());
        let mut stream = self.served.connect();
        stream.write_all(text.as_bytes()).unwrap();
        stream
    }

    fn delete(&self) -> Answer {
        self.served.send_with("DELETE", "/mcp", "", &self.headers())
    }
}

fn initialize() -> String {
    let parameters = json!({
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "a test", "version": "1"},
    });
    json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": parameters}).to_string()
}

fn request(tool: &str, arguments: &Value) -> Value {
    let parameters = json!({"name": tool, "arguments": arguments});
    json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": parameters})
}

/// The last message of a stream.
fn message(answer: &Answer) -> Value {
    let data = answer
        .body
        .lines()
        .filter_map(|line| line.strip_prefix("data:"));
    let messages: Vec<Value> = data
        .filter_map(|it| serde_json::from_str(it).ok())
        .collect();
    messages
        .last()
        .unwrap_or_else(|| panic!("{answer:?}"))
        .clone()
}

fn text(result: &Value) -> &str {
    result["content"][0]["text"].as_str().unwrap()
}

#[test]
fn who_has_no_token_or_comes_from_a_web_page_does_not_get_in() {
    let served = Served::start();
    let ask = |host: &str, more: &str| {
        let head = format!("GET /mcp HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n");
        served.raw(format!("{head}accept: text/event-stream\r\n{more}\r\n").as_bytes())
    };
    let token = format!("authorization: Bearer {TOKEN}\r\n");
    let page = format!("{token}origin: https://evil.example\r\n");
    let host = served.address.to_string();
    for (host, more, status) in [
        (host.as_str(), "", 401),
        (host.as_str(), "authorization: Bearer nonsense\r\n", 401),
        ("evil.example", token.as_str(), 421),
        (host.as_str(), page.as_str(), 403),
        // Let in, and told that it names no MCP session.
        (host.as_str(), token.as_str(), 400),
    ] {
        let answer = ask(host, more);
        let line = format!("HTTP/1.1 {status} ");
        assert!(answer.starts_with(&line), "{host} {more}: {answer}");
    }
    let _let_in = Client::begin(&served);
    assert!(served.host.clients().is_empty(), "nobody used a tool");
    assert!(served.stop().is_empty());
}

#[test]
fn state_is_kept_and_each_client_has_its_own() {
    let served = Served::start();
    let (one, other) = (Client::begin(&served), Client::begin(&served));
    let _set = one.call("bash", &json!({"command": "x=1; cd /usr"}));
    let same = one.call("bash", &json!({"command": "echo $x $PWD"}));
    assert!(
        text(&same).starts_with("1 /usr\n[exit status 0, "),
        "{same}"
    );
    let apart = other.call("bash", &json!({"command": "echo [$x]"}));
    assert!(text(&apart).starts_with("[]\n"), "{apart}");
    let names: Vec<_> = served
        .host
        .clients()
        .into_iter()
        .map(|it| it.name)
        .collect();
    assert_eq!(
        names,
        [Some("a test".to_owned()), Some("a test".to_owned())]
    );
    let receipts = served.stop();
    assert_eq!(receipts.len(), 2);
    assert!(receipts.iter().all(|receipt| receipt.clean), "{receipts:?}");
}

#[test]
fn a_deleted_mcp_session_ends_what_it_opened_at_once() {
    let served = Served::start();
    let before = descriptors();
    let client = Client::begin(&served);
    let _opened = client.call("bash", &json!({"command": "true"}));
    let running = client.begin_call("bash", &json!({"command": "sleep 1000"}));
    served.eventually("the command runs", |host| {
        host.sessions().iter().any(|one| one.busy_ms.is_some())
    });
    let begin = std::time::Instant::now();
    assert_eq!(client.delete().status, 204);
    served.eventually("the client is gone", |host| host.clients().is_empty());
    served.eventually("its session is gone", |host| host.sessions().is_empty());
    assert!(
        begin.elapsed() < Duration::from_secs(5),
        "{:?}",
        begin.elapsed()
    );
    assert_eq!(
        client
            .post(&request("bash", &json!({"command": "true"})))
            .status,
        404
    );
    drop(running);
    served.eventually("its descriptors are given back", |_| {
        descriptors() <= before
    });
    assert!(served.stop().is_empty());
}

#[test]
fn a_forgotten_mcp_session_ends_and_a_busy_one_does_not() {
    let idle = Duration::from_millis(400);
    let served = Served::with(|settings| settings.mcp.idle = idle);
    let hello = served.send_with("POST", "/mcp", &initialize(), ACCEPT);
    let lines = hello.head.lines();
    let stranger = lines
        .filter_map(|line| line.strip_prefix("mcp-session-id: "))
        .next();
    let stranger = Client {
        served: &served,
        session: stranger.unwrap().to_owned(),
    };
    let (forgotten, busy) = (Client::begin(&served), Client::begin(&served));
    let _opened = forgotten.call("bash", &json!({"command": "true"}));
    let answer = busy.begin_call("bash", &json!({"command": "sleep 2; echo done"}));
    served.eventually("the command runs", |host| {
        host.sessions().iter().any(|one| one.busy_ms.is_some())
    });
    served.eventually("the forgotten one is gone", |host| {
        host.clients().len() == 1
    });
    let done = message(&read_answer(answer));
    assert!(text(&done["result"]).starts_with("done\n"), "{done}");
    served.eventually("then the other is gone", |host| host.sessions().is_empty());
    // Two seconds are five times what who only said hello is given.
    let note = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
    assert_eq!(stranger.post(&note).status, 404);
    assert!(served.stop().is_empty());
}

#[test]
fn the_end_of_the_host_ends_a_call_that_runs() {
    let served = Served::start();
    let client = Client::begin(&served);
    let _answer = client.begin_call("bash", &json!({"command": "sleep 1000"}));
    served.eventually("the command runs", |host| {
        host.sessions().iter().any(|one| one.busy_ms.is_some())
    });
    let receipts = served.stop();
    assert_eq!(receipts.len(), 1);
    assert!(receipts[0].clean, "{receipts:?}");
}

#[test]
fn files_are_archived_below_the_roots_alone() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().canonicalize().unwrap();
    let log = root.join("a.log");
    std::fs::write(&log, "one line\n").unwrap();
    let given = root.clone();
    let served =
        Served::with(|settings| settings.roots = fdguard_host::Roots::open(&[given]).unwrap());
    let client = Client::begin(&served);
    let to = root.join("archive");
    let moved = client.call("archive", &json!({"files": [log], "to": to}));
    assert_eq!(moved["structuredContent"]["success"], true, "{moved}");
    assert_eq!(moved["isError"], false, "{moved}");
    assert!(!log.exists());
    let outside = client.call("archive", &json!({"files": ["/etc/passwd"], "to": to}));
    assert_eq!(outside["isError"], true);
    assert!(text(&outside).contains("is not below"), "{outside}");
    assert!(served.stop().is_empty());
}
