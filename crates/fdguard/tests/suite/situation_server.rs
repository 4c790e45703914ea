//! Situations 3, 5, 6 and 10: servers that people start, use, look at and stop.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::time::Duration;

use rustix::process::Signal;
use testkit::{have, skip, software};

use super::running::{free_port, signal};
use super::situation::{Session, get, idle, line_of, python, requests, source, text_of, words};

/// Forty requests in four seconds, a pause, Ctrl-C.
fn click_around(session: &mut Session) {
    let port = session.port();
    let last = requests(port, 40, Duration::from_millis(100));
    assert!(last.ends_with("HELD 40"), "{last}");
    idle(Duration::from_secs(4));
    session.interrupt();
}

#[test]
fn situation_3_an_express_server_that_idles_before_ctrl_c_is_leaking() {
    let Some(modules) = software("node/node_modules") else {
        return;
    };
    if !have("node") {
        return skip("needs node");
    }
    let words = words([&"node", &source("express.js")]);
    for verb in ["trace", "check"] {
        let prepare = |command: &mut Command| {
            command.env("NODE_PATH", &modules);
        };
        let mut session = Session::of(verb, &words, prepare);
        click_around(&mut session);
        let answer = session.end();
        answer.assert_blamed("express.js", &[line_of("express.js", "LEAK")]);
        assert_eq!(answer.verdict(), "leaking", "{}", answer.brief());
        // Ended by SIGINT: its own status is passed on.
        assert_eq!(answer.code, 130, "{}", answer.brief());
    }
}

#[test]
fn situation_3_a_python_server_that_idles_before_ctrl_c_is_leaking() {
    let Some(python) = python() else { return };
    let words = words([&python, &source("web.py")]);
    for verb in ["trace", "check"] {
        let mut session = Session::start(verb, &words);
        click_around(&mut session);
        let answer = session.end();
        answer.assert_leaking("web.py", line_of("web.py", "LEAK"));
        let count = &answer.findings()[0]["origin"]["opened"];
        assert_eq!(count, 40, "{}", answer.brief());
    }
}

/// Answers every request and keeps its connections open, as an HTTP/1.1 server does.
fn upstream() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let answer = |stream: TcpStream| {
        let mut reader = BufReader::new(stream);
        let mut line = String::new();
        while reader.read_line(&mut line).is_ok_and(|read| read > 0) {
            let is_end = line == "\r\n";
            line.clear();
            if is_end {
                let text = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
                reader.get_mut().write_all(text).unwrap();
            }
        }
    };
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || answer(stream));
        }
    });
    port
}

#[test]
fn situation_5_a_forgotten_client_in_fastapi_is_blamed_on_the_application() {
    let Some(uvicorn) = software("venv/bin/uvicorn") else {
        return;
    };
    let (port, upstream) = (free_port(), upstream());
    let dir = source("");
    let port_word = port.to_string();
    let words = words([
        &uvicorn,
        &"fast:app",
        &"--app-dir",
        &dir,
        &"--port",
        &port_word,
        &"--log-level",
        &"warning",
    ]);
    let prepare = |command: &mut Command| {
        command.env("UPSTREAM", format!("http://127.0.0.1:{upstream}/"));
    };
    for verb in ["trace", "check"] {
        let session = Session::of(verb, &words, prepare);
        requests(port, 50, Duration::from_millis(100));
        session.terminate();
        let answer = session.end();
        answer.assert_blamed("fast.py", &[line_of("fast.py", "LEAK")]);
        assert_eq!(answer.verdict(), "leaking", "{}", answer.brief());
        for finding in answer.findings() {
            let next = finding["next_step"].as_str().unwrap_or_default();
            assert!(!next.contains("--allow uvicorn"), "{next}");
        }
    }
}

#[test]
fn situation_6_a_child_per_request_is_one_finding_that_names_it() {
    let Some(python) = python() else { return };
    let words = words([&python, &source("starter.py")]);
    for verb in ["trace", "check"] {
        let mut session = Session::start(verb, &words);
        let port = session.port();
        requests(port, 40, Duration::from_millis(100));
        session.terminate();
        let answer = session.end();
        let findings = answer.blaming("starter.py", &[line_of("starter.py", "START")]);
        let names_it = findings.iter().any(|one| {
            let why = one["why"].as_str().unwrap_or_default();
            one["rule"] == "unwaited-child" || why.contains("sleep")
        });
        assert!(names_it, "{verb}: {}", answer.brief());
        for finding in answer.findings() {
            let why = finding["why"].as_str().unwrap_or_default();
            assert!(!why.contains("unknown line"), "{verb}: {}", answer.brief());
            // The children hold what they inherited, and do nothing wrong.
            let is_child = finding["comm"] == "sleep" && finding["rule"] != "leftover-process";
            assert!(!is_child, "{verb}: {}", answer.brief());
        }
        answer.assert_origins();
        let sleeps = answer.findings().len();
        assert!(sleeps <= 2, "folded, {verb}: {}", answer.brief());
    }
}

#[test]
fn situation_6_the_text_names_the_child_once() {
    let Some(python) = python() else { return };
    // The program ends itself: a text report has no port to wait for.
    let script = "import subprocess, time\nheld = []\nfor _ in range(30):\n    held.append(subprocess.Popen(['sleep', '3']))\n    time.sleep(0.1)\n";
    let words = words([&python, &"-c", &script]);
    let report = text_of("trace", &words, &source(""));
    let naming = report.lines().filter(|line| line.contains("sleep"));
    assert!((1..=2).contains(&naming.count()), "{report}");
    let each = report.lines().filter(|line| line.contains("sleep (pid"));
    assert!(each.count() <= 1, "{report}");
    assert!(!report.contains("unknown line"), "{report}");
}

#[test]
fn situation_10_one_database_connection_per_request_is_no_hazard() {
    let Some(python) = python() else { return };
    let directory = tempfile::tempdir().unwrap();
    // Several servers at once, each with several clients: threads end in any order.
    let start = |number: u32| {
        let database = directory.path().join(format!("{number}.db"));
        Session::start(
            "check",
            &words([&python, &source("database.py"), &database]),
        )
    };
    let mut sessions: Vec<Session> = (0..3).map(start).collect();
    let ports: Vec<u16> = sessions.iter_mut().map(Session::port).collect();
    std::thread::scope(|scope| {
        for port in ports.iter().flat_map(|port| [*port; 4]) {
            scope.spawn(move || (0..40).for_each(|_| drop(get(port))));
        }
    });
    for session in sessions {
        session.terminate();
        let answer = session.end();
        let hazards = answer.document["hazards"].as_array().unwrap();
        assert!(hazards.is_empty(), "{hazards:?}");
        answer.assert_quiet();
    }
}

#[test]
fn situation_3_a_server_that_is_asked_by_its_own_pid_to_end_is_leaking() {
    let Some(python) = python() else { return };
    let words = words([&python, &source("web.py")]);
    let mut session = Session::start("trace", &words);
    let port = session.port();
    requests(port, 40, Duration::from_millis(100));
    idle(Duration::from_secs(4));
    let pid = children_of(session.pid());
    assert_eq!(pid.len(), 1, "{pid:?}");
    signal(pid[0], Signal::INT);
    let answer = session.end();
    answer.assert_leaking("web.py", line_of("web.py", "LEAK"));
}

/// The processes that this one started.
fn children_of(pid: u32) -> Vec<u32> {
    let path = format!("/proc/{pid}/task");
    let tasks = std::fs::read_dir(path).unwrap().flatten();
    let lists = tasks.map(|task| std::fs::read_to_string(task.path().join("children")));
    let text: String = lists.map(Result::unwrap).collect();
    text.split_whitespace()
        .map(|word| word.parse().unwrap())
        .collect()
}
