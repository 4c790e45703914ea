//! MCP at `/mcp` of the HTTP server: access control, and that the end of an MCP session ends
//! everything that it opened.

use std::io::Write as _;
use std::net::TcpStream;
use std::time::Duration;

use serde_json::{Value, json};

use super::http_harness::{Answer, ServedHost, TOKEN, descriptors, read_answer};

const ACCEPT: &str = "accept: application/json, text/event-stream\r\n";

/// An MCP client that writes its own requests.
struct Client<'s> {
    served: &'s ServedHost,
    session: String,
}

impl<'s> Client<'s> {
    fn begin(served: &'s ServedHost) -> Self {
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

    /// Starts a call without awaiting its answer.
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
    let served = ServedHost::start();
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
        // Accepted, then rejected because it names no MCP session.
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
    let served = ServedHost::start();
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
    let served = ServedHost::start();
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
    let served = ServedHost::with(|settings| settings.mcp.idle = idle);
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
    // Two seconds are five times the time limit of a client that only said hello.
    let note = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
    assert_eq!(stranger.post(&note).status, 404);
    assert!(served.stop().is_empty());
}

#[test]
fn the_end_of_the_host_ends_a_call_that_runs() {
    let served = ServedHost::start();
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
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().canonicalize().unwrap();
    let log = root.join("a.log");
    std::fs::write(&log, "one line\n").unwrap();
    let given = root.clone();
    let served =
        ServedHost::with(|settings| settings.roots = fdguard_host::Roots::open(&[given]).unwrap());
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

#[test]
fn what_is_no_message_is_answered_as_one() {
    let served = ServedHost::start();
    let client = Client::begin(&served);
    let send = |body: &str| {
        let answer = served.send_with("POST", "/mcp", body, &client.headers());
        let said = answer.json();
        (
            answer.status,
            said["error"]["code"].clone(),
            said["id"].clone(),
        )
    };
    let null = Value::Null;
    assert_eq!(send("{\"jsonrpc\": "), (400, json!(-32700), null.clone()));
    assert_eq!(send("7"), (400, json!(-32600), null.clone()));
    let old = r#"{"jsonrpc": "1.0", "id": 9, "method": "ping"}"#;
    assert_eq!(send(old), (400, json!(-32600), json!(9)));
    let no_id = r#"{"jsonrpc": "2.0", "id": null, "method": "ping"}"#;
    assert_eq!(send(no_id), (400, json!(-32600), null.clone()));
    // Of a version without batches.
    let batch = r#"[{"jsonrpc": "2.0", "id": 1, "method": "ping"}]"#;
    assert_eq!(send(batch), (400, json!(-32600), null));
    assert!(served.stop().is_empty());
}

#[test]
fn wrong_parameters_cursors_and_methods_that_are_not_there_are_errors_with_their_id() {
    let served = ServedHost::start();
    let client = Client::begin(&served);
    let ask = |method: &str, parameters: Value| {
        let request = json!({"jsonrpc": "2.0", "id": "x", "method": method, "params": parameters});
        let answer = message(&client.post(&request));
        assert_eq!(answer["id"], "x", "{answer}");
        let error = &answer["error"];
        (
            error["code"].as_i64(),
            error["message"].as_str().unwrap_or_default().to_owned(),
        )
    };
    let (code, why) = ask("tools/call", json!({}));
    assert_eq!(code, Some(-32602), "{why}");
    assert!(why.contains("missing field `name`"), "{why}");
    assert_eq!(ask("tools/call", json!({"name": 7})).0, Some(-32602));
    assert_eq!(
        ask("tools/call", json!({"name": "nonsense"})).0,
        Some(-32602)
    );
    assert_eq!(ask("tools/list", json!({"cursor": "2"})).0, Some(-32602));
    for method in [
        "prompts/list",
        "prompts/get",
        "resources/list",
        "resources/templates/list",
        "resources/read",
        "completion/complete",
        "logging/setLevel",
        "nonsense",
    ] {
        let parameters = json!({
            "name": "a", "uri": "file:///a", "level": "info",
            "ref": {"type": "ref/prompt", "name": "a"}, "argument": {"name": "a", "value": "b"},
        });
        assert_eq!(ask(method, parameters).0, Some(-32601), "{method}");
        assert_eq!(ask(method, json!({})).0, Some(-32601), "{method}");
    }
    assert!(served.stop().is_empty());
}

#[test]
fn a_session_that_is_not_there_cannot_be_deleted() {
    let served = ServedHost::start();
    let client = Client::begin(&served);
    assert_eq!(client.delete().status, 204);
    assert_eq!(client.delete().status, 404);
    let unknown = "mcp-session-id: nonsense\r\n";
    assert_eq!(served.send_with("DELETE", "/mcp", "", unknown).status, 404);
    assert!(served.stop().is_empty());
}

#[test]
fn a_page_of_the_servers_own_address_may_ask() {
    let served = ServedHost::start();
    let port = served.address.port();
    for (origin, status) in [
        (format!("http://127.0.0.1:{port}"), 200),
        (format!("http://localhost:{port}"), 200),
        ("http://localhost".to_owned(), 403),
        (format!("http://evil.example:{port}"), 403),
    ] {
        let headers = format!("{ACCEPT}origin: {origin}\r\n");
        let answer = served.send_with("POST", "/mcp", &initialize(), &headers);
        assert_eq!(answer.status, status, "{origin}: {answer:?}");
    }
    served.stop();
}

#[test]
fn a_batch_of_2025_03_26_is_answered_as_a_list() {
    let served = ServedHost::start();
    let hello = initialize().replace("2025-11-25", "2025-03-26");
    let answer = served.send_with("POST", "/mcp", &hello, ACCEPT);
    assert_eq!(message(&answer)["result"]["protocolVersion"], "2025-03-26");
    let mut lines = answer.head.lines();
    let session = lines.find_map(|line| line.strip_prefix("mcp-session-id: "));
    let headers = format!("{ACCEPT}mcp-session-id: {}\r\n", session.unwrap());
    let send = |batch: Value| served.send_with("POST", "/mcp", &batch.to_string(), &headers);
    let note = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
    assert_eq!(send(json!([note])).status, 202);
    let ping = |id: Value| json!({"jsonrpc": "2.0", "id": id, "method": "ping"});
    let first = json!({"jsonrpc": "2.0", "id": 3, "method": "initialize",
                       "params": {"protocolVersion": "2025-03-26"}});
    let call = request("bash", &json!({"command": "echo hello"}));
    let answer = send(json!([
        ping(json!(1)),
        note,
        ping(json!("b")),
        first,
        call,
        7
    ]));
    assert_eq!(answer.status, 200, "{answer:?}");
    assert!(answer.head.contains("application/json"), "{answer:?}");
    let list = answer.json();
    let ids: Vec<&Value> = list
        .as_array()
        .unwrap()
        .iter()
        .map(|one| &one["id"])
        .collect();
    assert_eq!(
        ids,
        [&json!(1), &json!("b"), &json!(3), &json!(2), &Value::Null],
        "{list}"
    );
    assert_eq!(list[0]["result"], json!({}), "{list}");
    assert_eq!(list[2]["error"]["code"], -32600, "{list}");
    assert!(text(&list[3]["result"]).starts_with("hello\n"), "{list}");
    assert_eq!(send(json!([])).status, 400);
    let unknown = format!("{ACCEPT}mcp-session-id: nonsense\r\n");
    let batch = json!([ping(json!(1))]).to_string();
    assert_eq!(
        served.send_with("POST", "/mcp", &batch, &unknown).status,
        404
    );
    served.stop();
}
