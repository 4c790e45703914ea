//! Clients that disconnect at any point, send nonsense, or come in hundreds: the host is
//! unaffected.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use serde_json::json;

use super::hosted::{Hosted, LONG, eventually, read_answer};

fn tcp(hosted: &Hosted) -> TcpStream {
    let stream = TcpStream::connect(hosted.at.strip_prefix("http://").unwrap()).unwrap();
    stream.set_read_timeout(Some(LONG)).unwrap();
    stream
}

fn assert_idle(hosted: &Hosted) {
    eventually("nobody is left", LONG, || {
        let (_, health) = hosted.ask("GET", "/v1/health", "");
        (&health["sessions"]["open"], &health["clients"]) == (&json!(0), &json!(0))
    });
}

#[test]
fn callers_that_go_away_after_any_number_of_bytes_leave_nothing() {
    let hosted = Hosted::start(&[
        "--listen",
        "127.0.0.1:0",
        "--idle",
        "1s",
        "--reap-every",
        "200ms",
    ]);
    let before = hosted.baseline();
    let open = hosted.request(
        "POST",
        "/v1/sessions",
        r#"{"program":"bash","channel":"pipes"}"#,
    );
    // Most of the head in strides, the body and its end byte by byte.
    let head = open.find("\r\n\r\n").unwrap();
    let points = (0..head).step_by(23).chain(head..=open.len());
    for length in points {
        let mut stream = tcp(&hosted);
        stream.write_all(&open.as_bytes()[..length]).unwrap();
        // A reset instead of an end, half of the time.
        if length % 2 == 0 {
            rustix::net::sockopt::set_socket_linger(&stream, Some(Duration::ZERO)).unwrap();
        }
    }
    let session = hosted.open(&json!({"program": "bash"}));
    let exec = format!("/v1/sessions/{}/exec", session["id"].as_str().unwrap());
    let live = hosted.request("POST", &exec, r#"{"code":"yes"}"#).replace(
        "\r\nconnection",
        "\r\naccept: text/event-stream\r\nconnection",
    );
    for read in [0, 1, 20, 400, 100_000] {
        let mut stream = tcp(&hosted);
        stream.write_all(live.as_bytes()).unwrap();
        let mut some = vec![0; read];
        // A command that arrives while the previous one is being interrupted is refused: then there
        // is less to read.
        let _less = stream.read_exact(&mut some);
    }
    let (status, done) = hosted.exec(session["id"].as_str().unwrap(), "true", LONG);
    assert!([200, 409].contains(&status), "{done}");
    hosted.close(session["id"].as_str().unwrap());
    assert_idle(&hosted);
    eventually("no process is left", LONG, || hosted.others().is_empty());
    hosted.assert_back_at(&before);
}

#[test]
fn three_hundred_silent_connections_and_as_many_wrong_tokens_hold_up_nobody_and_are_forgotten() {
    let hosted = Hosted::start(&["--listen", "127.0.0.1:0", "--max-connections", "256"]);
    let before = hosted.baseline();
    let mut crowd: Vec<TcpStream> = (0..300).map(|_| tcp(&hosted)).collect();
    // A client with the token is still served.
    let (status, _) = hosted.ask("GET", "/v1/sessions", "");
    assert_eq!(status, 200);
    for stream in &mut crowd {
        let _refused = stream.write_all(b"GET /v1/hea");
    }
    drop(crowd);
    eventually("there is room again", LONG, || {
        hosted
            .try_ask("GET", "/v1/health", "")
            .is_ok_and(|(status, _)| status == 200)
    });
    for number in 0..300 {
        let mut stream = tcp(&hosted);
        let request = format!(
            "POST /v1/sessions HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {number:064x}\r\ncontent-type: application/json\r\ncontent-length: 18\r\nconnection: close\r\n\r\n{{\"program\":\"bash\"}}"
        );
        stream.write_all(request.as_bytes()).unwrap();
        assert_eq!(read_answer(stream).unwrap().0, 401);
    }
    assert_eq!(
        hosted.ask("GET", "/v1/sessions", "").1["sessions"],
        json!([])
    );
    hosted.assert_back_at(&before);
}

#[test]
fn bodies_that_are_huge_deep_or_no_text_are_refused_in_bounded_memory() {
    let hosted = Hosted::start(&["--listen", "127.0.0.1:0"]);
    let before = hosted.baseline();
    let deep = "[".repeat(1 << 20);
    let wide = format!(
        r#"{{"program":"bash","environment":{{{}"x":"y"}}}}"#,
        r#""a":"b","#.repeat(200_000)
    );
    let long = format!(r#"{{"program":"bash","folder":"{}"}}"#, "x".repeat(4 << 20));
    let zero = r#"{"program":"bash","folder":"/tmp\u0000/x"}"#.to_owned();
    let command = r#"{"program":{"repl":{"command":[],"template":""}}}"#.to_owned();
    let zeros = r#"{"program":{"repl":{"command":["\u0000"],"template":"{nonce}"}}}"#.to_owned();
    let limits = r#"{"program":"bash","limits":{"memory_bytes":0,"processes":0,"descriptors":0,"cpu_seconds":0}}"#.to_owned();
    let narrow = r#"{"program":"bash","channel":{"pty":{"columns":0,"rows":65535}},"limits":{"descriptors":18446744073709551615,"memory_bytes":18446744073709551615}}"#.to_owned();
    for (body, expected) in [
        (deep, 400),
        (wide, 201),
        (long, 422),
        (zero, 422),
        (command, 422),
        (zeros, 422),
        (limits, 422),
        // Limits above what is possible are none.
        (narrow, 201),
    ] {
        let (status, answer) = hosted.ask("POST", "/v1/sessions", &body);
        let shown = &body[..body.len().min(90)];
        assert_eq!(status, expected, "{shown}: {answer}");
        if status == 201 {
            assert_eq!(hosted.close(answer["id"].as_str().unwrap())["survivors"], 0);
        }
    }
    let session = hosted.open(&json!({"program": "bash"}));
    let id = session["id"].as_str().unwrap();
    // A command of megabytes, one with every character, an empty one.
    let megabytes = format!("# {}\necho $((1 + 1))", "x".repeat(3 << 20));
    let strange: String = (1_u8..128).map(char::from).collect();
    let strange = format!(
        ": '{}\u{202e}\u{1f600}'\necho $((1 + 1))",
        strange.replace('\'', "")
    );
    for (code, said) in [(megabytes, "2"), (strange, "2"), (String::new(), "")] {
        let (status, done) = hosted.exec(id, &code, LONG);
        assert_eq!(status, 200, "{done}");
        assert_eq!(
            done["stdout"]["text"].as_str().unwrap().trim(),
            said,
            "{done}"
        );
    }
    assert_eq!(hosted.close(id)["survivors"], 0);
    hosted.assert_back_at(&before);
}

/// A streaming request whose client never reads.
fn unread(hosted: &Hosted, id: &str) -> TcpStream {
    let exec = format!("/v1/sessions/{id}/exec");
    let body = r#"{"code":"trap '' INT TERM HUP; yes"}"#;
    let live = hosted.request("POST", &exec, body);
    let live = live.replace(
        "\r\nconnection",
        "\r\naccept: text/event-stream\r\nconnection",
    );
    let mut stream = tcp(hosted);
    stream.write_all(live.as_bytes()).unwrap();
    let mut first = [0; 12];
    stream.read_exact(&mut first).unwrap();
    assert_eq!(&first, b"HTTP/1.1 200");
    stream
}

#[test]
fn a_caller_that_does_not_read_keeps_nobody_from_closing_its_session() {
    let hosted = Hosted::start(&["--listen", "127.0.0.1:0"]);
    let before = hosted.baseline();
    let session = hosted.open(&json!({"program": "bash"}));
    let id = session["id"].as_str().unwrap();
    let held = unread(&hosted, id);
    let since = Instant::now();
    let receipt = hosted.close(id);
    eprintln!("closed after {:?}", since.elapsed());
    assert!(since.elapsed() < LONG / 5, "{:?}", since.elapsed());
    assert_eq!(
        (&receipt["survivors"], &receipt["clean"]),
        (&json!(0), &json!(true)),
        "{receipt}"
    );
    drop(held);
    hosted.assert_back_at(&before);
}

#[test]
fn the_end_of_a_host_waits_for_no_hostile_caller_or_session() {
    let mut hosted = Hosted::start(&["--listen", "127.0.0.1:0"]);
    let mut held = Vec::new();
    for number in 0..6 {
        let session = hosted.open(&json!({"program": "bash"}));
        let id = session["id"].as_str().unwrap();
        if number % 2 == 0 {
            let (status, done) = hosted.exec(id, "(setsid sleep 1000 &); kill -STOP $PPID", LONG);
            assert_eq!(status, 200, "{done}");
        }
        held.push(unread(&hosted, id));
    }
    // Half a head, and a head without its body.
    for bytes in [
        "GET /v1/hea",
        "POST /v1/clients HTTP/1.1\r\nhost: localhost\r\ncontent-length: 9\r\n\r\n",
    ] {
        let mut stream = tcp(&hosted);
        stream.write_all(bytes.as_bytes()).unwrap();
        held.push(stream);
    }
    let since = Instant::now();
    hosted.signal(rustix::process::Signal::TERM);
    assert_eq!(hosted.end(), Some(0), "{:?}", hosted.events());
    eprintln!("ended after {:?}", since.elapsed());
    assert!(since.elapsed() < LONG / 2, "{:?}", since.elapsed());
    let events = hosted.events();
    let closed: Vec<_> = events
        .iter()
        .filter(|event| event["event"] == "session_close")
        .collect();
    assert_eq!(closed.len(), 6, "{events:?}");
    for event in closed {
        assert_eq!(
            (&event["survivors"], &event["clean"]),
            (&json!(0), &json!(true)),
            "{event}"
        );
    }
    assert_eq!(hosted.others(), [0; 0]);
}
