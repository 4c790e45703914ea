//! `fdguard run`: files, flags, reloads, output.

use std::io::Read as _;
use std::net::TcpStream;
use std::path::PathBuf;

use rustix::process::Signal;
use tempfile::TempDir;

use super::run;
use super::running::{Running, free_port, get, service};

struct File {
    path: PathBuf,
    _dir: TempDir,
}

impl File {
    fn new(text: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("services.toml");
        let file = Self { path, _dir: dir };
        file.write(text);
        file
    }

    fn write(&self, text: &str) {
        std::fs::write(&self.path, text).unwrap();
    }

    fn shown(&self) -> &str {
        self.path.to_str().unwrap()
    }
}

#[test]
fn a_mistake_in_the_file_is_told_with_line_and_column() {
    let file = File::new("[service.a]\ncommand = [\"true\"]\nrestrat = \"always\"\n");
    let said = run(["run", "--config", file.shown()]);
    assert_eq!((said.code, said.text()), (78, ""));
    let first = said.stderr.lines().next().unwrap();
    let expected = format!(
        "fdguard: {}: line 3, column 1: unknown key `restrat`: did you mean `restart`?",
        file.shown()
    );
    assert_eq!(first, expected);
    let said = run(["run", "--config", "/nowhere/services.toml"]);
    assert_eq!(said.code, 78, "{}", said.stderr);
    let said = run(["run", "--stop-grace", "soon", "--", "true"]);
    assert_eq!(said.code, 2, "{}", said.stderr);
    assert!(
        said.stderr.starts_with("fdguard: --stop-grace: "),
        "{}",
        said.stderr
    );
}

#[test]
fn explain_says_what_holds_and_who_said_so() {
    let file = File::new("[service.a]\ncommand = [\"true\"]\nstop_grace = \"3s\"\n");
    let said = run([
        "run",
        "--explain",
        "--restart",
        "never",
        "--config",
        file.shown(),
    ]);
    assert_eq!((said.code, &*said.stderr), (0, ""));
    let text = said.text();
    let line = |key: &str| {
        let found = text.lines().find(|line| line.starts_with(key));
        found
            .unwrap_or_else(|| panic!("{key} in {text}"))
            .to_owned()
    };
    assert!(line("stop_grace = \"3s\"").ends_with(&format!("# {}:3", file.shown())));
    assert!(line("restart = \"never\"").ends_with("# --restart"));
    assert!(line("min_uptime").ends_with("# default"));
}

#[test]
fn the_command_of_a_written_unit_is_understood() {
    let args = [
        "--listen",
        "tcp:8787",
        "--stop-grace",
        "7s",
        "--name",
        "web@1",
    ];
    let words = ["unit", "systemd"]
        .into_iter()
        .chain(args)
        .chain(["--", "sleep", "7"]);
    let said = run(words);
    assert_eq!(said.code, 0, "{}", said.stderr);
    let line = said
        .text()
        .lines()
        .find_map(|line| line.strip_prefix("ExecStart="));
    let words: Vec<&str> = line.unwrap().split(' ').collect();
    assert_eq!(words[1], "run");
    let explained = run([&["run", "--explain"], &words[2..]].concat());
    assert_eq!(explained.code, 0, "{}", explained.stderr);
    let text = explained.text();
    assert!(text.contains("[service.web@1]"), "{text}");
    assert!(text.contains("stop_grace = \"7s\""), "{text}");
}

#[test]
fn services_start_after_those_they_wait_for_and_stop_before_them() {
    let service = service();
    let file = File::new(&format!(
        "[service.web]\ncommand = [{service:?}, \"stamp\"]\nafter = [\"db\"]\n\
         [service.db]\ncommand = [{service:?}, \"notify\", \"READY=1\"]\nready = \"notify\"\n"
    ));
    let mut running = Running::start(["--config", file.shown()]);
    running.event("start", &["service=web"]);
    let at = |name: &str| running.seen.iter().position(|line| line.contains(name));
    assert!(
        at("event=ready service=db") < at("event=start service=web"),
        "{:#?}",
        running.seen
    );
    assert_eq!(running.stop().0, 0);
    let ends: Vec<&String> = running
        .seen
        .iter()
        .filter(|line| line.contains("event=exit"))
        .collect();
    assert!(
        ends[0].contains("service=web") && ends[1].contains("service=db"),
        "{ends:?}"
    );
}

#[test]
fn one_that_is_ready_at_once_frees_others_at_once() {
    let off = "budget = { fds = \"off\", highest = \"off\", \"class:tcp:CLOSE_WAIT\" = \"off\" }\n";
    let service = service();
    let one = |name: &str, after: &str| {
        format!("[service.{name}]\ncommand = [{service:?}, \"stamp\"]\nafter = [{after}]\n{off}")
    };
    let text = [one("c", "\"b\""), one("b", "\"a\""), one("a", "")].concat();
    let file = File::new(&text);
    let mut running = Running::start(["--config", file.shown()]);
    for name in ["a", "b", "c"] {
        running.event("start", &[&format!("service={name} ")]);
    }
    assert_eq!(running.stop().0, 0);
}

#[test]
fn a_service_whose_dependency_is_down_is_not_started() {
    let file = File::new(
        "[service.web]\ncommand = [\"true\"]\nafter = [\"db\"]\n\
         [service.db]\ncommand = [\"false\"]\nrestart = \"never\"\nready = \"notify\"\n",
    );
    let mut running = Running::start(["--config", file.shown()]);
    running.event(
        "down",
        &["service=web", "reason=dependency", "dependency=db"],
    );
    assert_eq!(running.ended().0, 1);
}

#[test]
fn a_reload_restarts_what_changed_starts_what_is_new_and_ends_what_is_gone() {
    let service = service();
    let one = |name: &str, word: &str| {
        format!("[service.{name}]\ncommand = [{service:?}, \"stamp\", {word:?}]\n")
    };
    let file = File::new(&format!(
        "{}{}{}",
        one("kept", "a"),
        one("changed", "a"),
        one("gone", "a")
    ));
    let mut running = Running::start(["--config", file.shown()]);
    for _ in 0..3 {
        running.line("stamp ");
    }
    file.write(&format!(
        "{}{}{}",
        one("kept", "a"),
        one("changed", "b"),
        one("new", "a")
    ));
    running.signal(Signal::HUP);
    running.event(
        "reload",
        &[
            "ok=true",
            "kept=1",
            "changed=changed",
            "added=new",
            "removed=gone",
        ],
    );
    for _ in 0..2 {
        running.line("stamp ");
    }
    running.event("restart", &["service=changed", "reason=reload"]);
    file.write("[service.kept]\ncommand = 3 3\n");
    running.signal(Signal::HUP);
    running.event("reload", &["ok=false", "line 2, column "]);
    running.signal(Signal::QUIT);
    let mut standing = Vec::new();
    for _ in 0..3 {
        let told = running.event("state", &["state=ready"]);
        standing.push(told.value("service").to_owned());
    }
    standing.sort();
    assert_eq!(standing, ["changed", "kept", "new"]);
    assert_eq!(running.stop().0, 0);
    let restarts =
        |line: &&String| line.contains("event=restart") && !line.contains("service=changed");
    assert_eq!(
        running.seen.iter().filter(restarts).count(),
        0,
        "{:#?}",
        running.seen
    );
}

#[test]
fn a_reload_keeps_the_sockets() {
    let (service, port) = (service(), free_port());
    let text = |word: &str| {
        format!(
            "[service.web]\ncommand = [{service:?}, \"serve\", {word:?}]\nlisten = [\"tcp:{port}\"]\n"
        )
    };
    let ask = || {
        let mut answer = [0; 2];
        let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        stream.read_exact(&mut answer).unwrap();
    };
    let file = File::new(&text("a"));
    let mut running = Running::start(["--config", file.shown()]);
    let first = running.line("serving ");
    ask();
    file.write(&text("b"));
    running.signal(Signal::HUP);
    // A new connection is not refused; at most the old service is cut off while it answers.
    drop(TcpStream::connect(("127.0.0.1", port)).unwrap());
    running.event("restart", &["reason=reload"]);
    assert_ne!(running.line("serving "), first);
    ask();
    assert_eq!(running.stop().0, 0);
}

#[test]
fn a_reload_moves_the_metrics() {
    let (one, other) = (free_port(), free_port());
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().map(|at| (at.port(), taken)).unwrap();
    let text = |port: u16| {
        format!(
            "metrics = \"127.0.0.1:{port}\"\n[service.a]\ncommand = [{:?}, \"stamp\"]\n",
            service()
        )
    };
    let file = File::new(&text(one));
    let mut running = Running::start(["--config", file.shown()]);
    running.line("stamp ");
    let is_served = |port: u16| TcpStream::connect(("127.0.0.1", port)).is_ok();
    assert!(is_served(one));
    file.write(&text(other));
    running.signal(Signal::HUP);
    running.event("reload", &["ok=true", "kept=1"]);
    assert!(is_served(other) && !is_served(one));
    file.write(&text(taken.0));
    running.signal(Signal::HUP);
    running.event("reload", &["ok=false", "--metrics"]);
    assert!(is_served(other));
    assert_eq!(running.stop().0, 0);
}

#[test]
fn without_a_file_a_reload_is_a_gentle_restart() {
    let mut running = Running::start(["--", &*service(), "stamp"]);
    running.line("stamp ");
    running.signal(Signal::HUP);
    running.event("reload", &["changed=all"]);
    running.event("restart", &["reason=reload", "signal=SIGTERM"]);
    running.line("stamp ");
    assert_eq!(running.stop().0, 0);
}

#[test]
fn logs_that_were_moved_are_opened_anew() {
    let dir = tempfile::tempdir().unwrap();
    let (log, moved) = (dir.path().join("a.log"), dir.path().join("moved.log"));
    let log_flag = format!("{} pass=lines", log.display());
    let mut running = Running::start(["--log", &*log_flag, "--", &*service(), "catch"]);
    running.line("catching ");
    std::fs::rename(&log, &moved).unwrap();
    running.signal(Signal::USR1);
    running.signal(Signal::USR2);
    running.line("caught 12");
    assert_eq!(running.stop().0, 0);
    let text = |path| std::fs::read_to_string(path).unwrap();
    assert!(text(&moved).starts_with("catching "), "{}", text(&moved));
    assert_eq!(text(&log), "caught 12\n");
}

#[test]
fn output_is_kept_in_a_file_and_a_full_disk_stops_nobody() {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("out.log");
    let said = run([
        "run",
        "--log",
        log.to_str().unwrap(),
        "--",
        "sh",
        "-c",
        "echo one; echo two >&2",
    ]);
    assert_eq!((said.code, said.text()), (0, ""));
    let text = std::fs::read_to_string(&log).unwrap();
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["one", "two"]);
    for place in ["/dev/full", "/nowhere/out.log"] {
        let mut running =
            Running::start(["--log", place, "--", "sh", "-c", "echo one; sleep 1000"]);
        running.event("log_failed", &[]);
        assert_eq!(running.stop().0, 0, "{place}");
    }
}

#[test]
fn metrics_and_health_are_served() {
    let address = format!("127.0.0.1:{}", free_port());
    let mut running = Running::start(["--metrics", &*address, "--", &*service(), "stamp"]);
    running.line("stamp ");
    let get = |path: &str| get(&address, path);
    let text = get("/metrics");
    assert!(text.contains("fdguard"), "{text}");
    assert!(text.starts_with("HTTP/1.1 200"), "{text}");
    assert!(
        text.contains("process_open_fds ") && text.contains("service-O1"),
        "{text}"
    );
    assert!(get("/health").starts_with("HTTP/1.1 200"));
    assert_eq!(running.stop().0, 0);
}
