//! Go servers under `fdguard trace`: a leak has its line, and servers of Debian are unharmed.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};
use serde_json::Value;
use tempfile::TempDir;
use testkit::{go_toolchains, skip, software};

use super::attaching::Attaching;
use super::fdguard;
use super::kernel_trace::may_trace;
use super::tracing::Tracing;

/// The line of the leaking server that opens.
fn leak_line() -> usize {
    let source = "../../testkit/go/leaky_server.go";
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(source);
    let text = std::fs::read_to_string(path).unwrap();
    text.lines()
        .position(|line| line.ends_with("// LEAK"))
        .unwrap()
        + 1
}

/// The answer to a request of one connection.
fn get(address: &str, path: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(60)))?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

/// Requests that leak and requests that do not, for long enough to show what stays open.
fn use_leaky(address: &str) {
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(3) {
        for path in ["/leak", "/", "/"] {
            assert!(
                get(address, path).unwrap().starts_with("HTTP/1.1 200"),
                "{path}"
            );
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn names_the_leak(found: &Value) {
    assert_eq!(found["verdict"], "leaking", "{found:#}");
    assert_eq!(found["coverage"]["backend"], "ebpf");
    let findings = found["findings"].as_array().unwrap();
    let named: Vec<_> = findings
        .iter()
        .filter(|one| one["severity"] != "info")
        .map(|one| &one["origin"])
        .collect();
    assert!(!named.is_empty(), "{found:#}");
    for origin in named {
        assert_eq!(origin["culprit"]["line"], leak_line(), "{found:#}");
        assert_eq!(origin["culprit"]["function"], "main.load");
        let stack = origin["stack"].to_string();
        assert!(
            stack.contains("main.keep") && !stack.contains("main.serve"),
            "{stack}"
        );
    }
}

/// The server with and without its symbols.
fn leaky_servers() -> Vec<PathBuf> {
    let Some(go) = go_toolchains().into_iter().next() else {
        skip("no Go: testkit/runtimes brings it");
        return Vec::new();
    };
    let flags = [("static", &[][..]), ("bare", &["-ldflags=-s -w"][..])];
    let build = |(variant, flags)| go.victim("leaky_server", variant, flags).unwrap();
    flags.map(build).into()
}

#[test]
fn r19_a_go_server_that_leaks_has_its_line_by_launch() {
    if !may_trace() {
        return;
    }
    for server in leaky_servers() {
        let mut tracing = Tracing::start(&["--json"], &[server.to_str().unwrap()]);
        let address = tracing.line();
        use_leaky(&address);
        let (said, report) = tracing.end();
        assert_eq!(said.code, 1, "{}", said.stderr);
        names_the_leak(&serde_json::from_str(&report).unwrap());
    }
}

#[test]
fn r19_a_go_server_that_leaks_has_its_line_by_attach() {
    if !may_trace() {
        return;
    }
    for server in leaky_servers() {
        let mut child = Command::new(server)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut address = String::new();
        let mut lines = BufReader::new(child.stdout.take().unwrap());
        lines.read_line(&mut address).unwrap();
        let mut attaching = Attaching::start(&["trace", &child.id().to_string()]);
        attaching.wait_for("tracing by the kernel");
        use_leaky(address.trim_end());
        let done = attaching.interrupt();
        assert_eq!(done.code, Some(1), "{}", done.said);
        names_the_leak(&done.found);
        assert!(
            get(address.trim_end(), "/")
                .unwrap()
                .starts_with("HTTP/1.1 200")
        );
        drop(child.stdin.take());
        assert!(child.wait().unwrap().success());
    }
}

/// A server of Debian: how it is started, and what its users do.
struct DebianServer {
    program: &'static str,
    arguments: fn(port: u16, dir: &Path) -> Vec<String>,
    /// One user: what the server answered.
    visit: fn(address: &str) -> std::io::Result<String>,
}

const CADDY: DebianServer = DebianServer {
    program: "caddy",
    arguments: |port, dir| {
        let listen = format!("127.0.0.1:{port}");
        let root = dir.display().to_string();
        ["file-server", "--listen", &listen, "--root", &root]
            .map(str::to_owned)
            .into()
    },
    visit: |address| {
        let answer = get(address, "/page")?;
        Ok(answer.rsplit("\r\n").next().unwrap_or_default().to_owned())
    },
};

const NATS: DebianServer = DebianServer {
    program: "nats-server",
    arguments: |port, _| {
        let port = port.to_string();
        ["-a", "127.0.0.1", "-p", &port].map(str::to_owned).into()
    },
    visit: |address| {
        let stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(Duration::from_secs(60)))?;
        let mut lines = BufReader::new(&stream);
        let (mut greeting, mut answer) = (String::new(), String::new());
        lines.read_line(&mut greeting)?;
        (&stream).write_all(b"CONNECT {\"verbose\":false}\r\nPING\r\n")?;
        lines.read_line(&mut answer)?;
        Ok(answer)
    },
};

const PROMETHEUS: DebianServer = DebianServer {
    program: "prometheus",
    arguments: |port, dir| {
        let config = dir.join("prometheus.yml");
        // It scrapes itself while others ask.
        let text = format!(
            "global: {{scrape_interval: 1s}}\nscrape_configs:\n- job_name: own\n  static_configs:\n  - targets: ['127.0.0.1:{port}']\n"
        );
        std::fs::write(&config, text).unwrap();
        vec![
            format!("--config.file={}", config.display()),
            format!("--storage.tsdb.path={}", dir.join("data").display()),
            format!("--web.listen-address=127.0.0.1:{port}"),
        ]
    },
    visit: |address| Ok(status_line(&get(address, "/api/v1/query?query=up")?)),
};

const ETCD: DebianServer = DebianServer {
    program: "etcd",
    arguments: |port, dir| {
        let (own, peer) = (
            format!("http://127.0.0.1:{port}"),
            format!("http://127.0.0.1:{}", free_port()),
        );
        vec![
            format!("--data-dir={}", dir.join("data").display()),
            format!("--listen-client-urls={own}"),
            format!("--advertise-client-urls={own}"),
            format!("--listen-peer-urls={peer}"),
            format!("--initial-advertise-peer-urls={peer}"),
            format!("--initial-cluster=default={peer}"),
        ]
    },
    // Its health depends on how fast the machine is.
    visit: |address| Ok(status_line(&get(address, "/version")?)),
};

fn status_line(answer: &str) -> String {
    answer.lines().next().unwrap_or_default().to_owned()
}

/// What its users and its parent saw of a server.
#[derive(Debug, PartialEq, Eq)]
struct ServerRun {
    answers: Vec<String>,
    status: ExitStatus,
}

impl DebianServer {
    fn command(&self, port: u16, dir: &TempDir) -> Option<Vec<String>> {
        let root = software("go-servers/usr")?;
        let roots = [root, PathBuf::from("/usr")];
        let dirs = roots.map(|root| ["bin", "sbin"].map(|dir| root.join(dir)));
        let mut paths = dirs.into_iter().flatten().map(|dir| dir.join(self.program));
        let program = paths.find(|path| path.exists())?;
        std::fs::write(dir.path().join("page"), "the page").unwrap();
        let mut words = vec![program.display().to_string()];
        words.extend((self.arguments)(port, dir.path()));
        Some(words)
    }

    /// Waits until it answers.
    fn wait(&self, child: &mut Child, address: &str) {
        testkit::wait_until("the server answers", || {
            let ended = child.try_wait().unwrap();
            assert!(ended.is_none(), "{} ended: {ended:?}", self.program);
            (self.visit)(address).is_ok_and(|answer| !answer.contains(" 503 "))
        });
    }

    /// Waits until it answers, lets users come from several threads, and ends it.
    fn run(&self, mut child: Child, port: u16) -> ServerRun {
        let address = format!("127.0.0.1:{port}");
        self.wait(&mut child, &address);
        let visits = |_| {
            let address = address.clone();
            let visit = self.visit;
            std::thread::spawn(move || {
                let visits = (0..100).map(|_| visit(&address).unwrap());
                visits.collect::<Vec<String>>()
            })
        };
        let users: Vec<_> = (0..4).map(visits).collect();
        let answers = users.into_iter().flat_map(|user| user.join().unwrap());
        let answers = answers.collect();
        rustix::process::kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
        ServerRun {
            answers,
            status: child.wait().unwrap(),
        }
    }
}

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

fn start(command: &mut Command, home: &TempDir) -> Child {
    for name in ["HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME"] {
        command.env(name, home.path());
    }
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// The same users see the same server with and without a trace, and nothing is found in it.
fn is_unharmed(server: &DebianServer) {
    if !may_trace() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let port = free_port();
    let Some(words) = server.command(port, &dir) else {
        return skip(&format!(
            "no {}: testkit/software brings it",
            server.program
        ));
    };
    let alone = server.run(start(Command::new(&words[0]).args(&words[1..]), &dir), port);
    let report = dir.path().join("report");
    let mut command = fdguard();
    command.args(["trace", "--json", "-o"]).arg(&report);
    let traced = server.run(start(command.arg("--").args(&words), &dir), port);
    assert_eq!(traced, alone);
    let found: Value = serde_json::from_slice(&std::fs::read(report).unwrap()).unwrap();
    assert!(opens_of_quiet(&found) >= 400, "{found:#}");
}

/// Ends a server, however the test ends.
struct KilledAtEnd(Child);

impl Drop for KilledAtEnd {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// The same for a server that is already running: users come for some seconds, then it goes on.
fn is_unharmed_while_running(server: &DebianServer) {
    if !may_trace() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let port = free_port();
    let Some(words) = server.command(port, &dir) else {
        let (program, from) = (server.program, "testkit/software and testkit/packages");
        return skip(&format!("no {program}: {from} bring it"));
    };
    let address = format!("127.0.0.1:{port}");
    let child = start(Command::new(&words[0]).args(&words[1..]), &dir);
    let mut child = KilledAtEnd(child);
    server.wait(&mut child.0, &address);
    let expected = (server.visit)(&address).unwrap();
    let pid = child.0.id().to_string();
    let mut attaching = Attaching::start(&["trace", "--every", "100ms", &pid]);
    attaching.wait_for("tracing by the kernel");
    let until = Instant::now() + Duration::from_secs(4);
    let users = std::thread::scope(|scope| {
        let user = || {
            let mut count = 0_u64;
            while Instant::now() < until {
                assert_eq!((server.visit)(&address).unwrap(), expected);
                count += 1;
            }
            count
        };
        let users = [(); 4].map(|()| scope.spawn(user));
        users.map(|user| user.join().unwrap()).iter().sum::<u64>()
    });
    let done = attaching.interrupt();
    assert!(opens_of_quiet(&done.found) >= users, "{:#}", done.found);
    assert_eq!((server.visit)(&address).unwrap(), expected);
    assert!(child.0.try_wait().unwrap().is_none(), "it goes on");
}

/// Nothing was found, and nothing was missed; returns how many opens were seen.
fn opens_of_quiet(found: &Value) -> u64 {
    assert_eq!(found["coverage"]["backend"], "ebpf");
    assert_eq!(found["coverage"]["lost_events"], 0);
    assert_ne!(found["verdict"], "leaking", "{found:#}");
    let findings = found["findings"].as_array().unwrap();
    assert!(
        findings.iter().all(|one| one["severity"] == "info"),
        "{findings:#?}"
    );
    assert_eq!(found["hazards"].as_array().unwrap().len(), 0, "{found:#}");
    // Its own work was seen, with names.
    let sites = found["sites"].as_array().unwrap();
    sites.iter().filter_map(|one| one["opened"].as_u64()).sum()
}

#[test]
fn r19_debians_caddy_is_traced_unharmed() {
    is_unharmed(&CADDY);
}

#[test]
fn r19_debians_nats_server_is_traced_unharmed() {
    is_unharmed(&NATS);
}

#[test]
fn r19_debians_caddy_goes_on_unharmed() {
    is_unharmed_while_running(&CADDY);
}

#[test]
fn r19_debians_nats_server_goes_on_unharmed() {
    is_unharmed_while_running(&NATS);
}

#[test]
fn r19_debians_prometheus_goes_on_unharmed() {
    is_unharmed_while_running(&PROMETHEUS);
}

#[test]
fn r19_debians_etcd_goes_on_unharmed() {
    is_unharmed_while_running(&ETCD);
}
