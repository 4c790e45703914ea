//! An MCP client for tests: it writes its own lines and reads every incoming line.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

use serde_json::{Value, json};
pub(crate) use testkit::wait_until as eventually;

use super::fdguard;

/// `fdguard host --mcp` and its two pipes. Drop kills it.
pub(crate) struct Peer {
    child: Child,
    input: Option<ChildStdin>,
    output: Option<BufReader<ChildStdout>>,
    next: u64,
}

impl Peer {
    /// Without a handshake.
    pub(crate) fn start() -> Self {
        let mut child = fdguard()
            .args(["host", "--mcp", "--no-warm"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        Self {
            input: child.stdin.take(),
            output: child.stdout.take().map(BufReader::new),
            child,
            next: 1,
        }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) {
        let input = self.input.as_mut().unwrap();
        input.write_all(bytes).unwrap();
        input.flush().unwrap();
    }

    pub(crate) fn say(&mut self, message: &Value) {
        self.write(format!("{message}\n").as_bytes());
    }

    /// The next line, which must be a message of the protocol.
    pub(crate) fn hear(&mut self) -> Value {
        let mut line = String::new();
        self.output.as_mut().unwrap().read_line(&mut line).unwrap();
        let message: Value =
            serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?}"));
        // A batch is answered by a list.
        assert!(message.is_array() || message["jsonrpc"] == "2.0", "{line}");
        message
    }

    /// The answer to this id; skips everything before it.
    pub(crate) fn answer(&mut self, id: u64) -> Value {
        loop {
            let message = self.hear();
            if message["id"] == id {
                return message;
            }
        }
    }

    /// Sends a request without waiting, and returns the id.
    pub(crate) fn ask(&mut self, method: &str, parameters: &Value) -> u64 {
        let id = self.next;
        self.next += 1;
        let request = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": parameters});
        self.say(&request);
        id
    }

    pub(crate) fn shake_hands(&mut self) {
        let parameters = json!({
            "protocolVersion": "2025-06-18",
            "capabilities": {},
            "clientInfo": {"name": "a test", "version": "1"},
        });
        let id = self.ask("initialize", &parameters);
        let answer = self.answer(id);
        assert_eq!(
            answer["result"]["serverInfo"]["name"], "fdguard",
            "{answer}"
        );
        self.say(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
    }

    pub(crate) fn begin_call(&mut self, tool: &str, arguments: &Value) -> u64 {
        self.ask("tools/call", &json!({"name": tool, "arguments": arguments}))
    }

    pub(crate) fn call(&mut self, tool: &str, arguments: &Value) -> Value {
        let id = self.begin_call(tool, arguments);
        let answer = self.answer(id);
        assert!(answer["result"].is_object(), "{answer}");
        answer["result"].clone()
    }

    /// Closes the input.
    pub(crate) fn close_input(&mut self) {
        drop(self.input.take());
    }

    /// Closes the pipes as the kernel does for a killed client.
    pub(crate) fn vanish(&mut self) {
        drop(self.input.take());
        drop(self.output.take());
    }

    /// Waits for its end: the status, the rest of its output, and its events.
    pub(crate) fn ended(&mut self) -> (Option<i32>, String, String) {
        let (mut rest, mut events) = (String::new(), String::new());
        if let Some(mut output) = self.output.take() {
            output.read_to_string(&mut rest).unwrap();
        }
        let stderr = self.child.stderr.as_mut().unwrap();
        stderr.read_to_string(&mut events).unwrap();
        (self.child.wait().unwrap().code(), rest, events)
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // It has ended already, mostly.
        let _ended = self.child.kill();
        let _reaped = self.child.wait();
    }
}

/// The text of a result.
pub(crate) fn text(result: &Value) -> &str {
    result["content"][0]["text"].as_str().unwrap()
}
