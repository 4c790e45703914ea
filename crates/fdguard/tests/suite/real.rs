//! Third-party programs, compared with two third-party tools: the same numbers, and the same kind
//! for each, or a difference that is explained below.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::Value;
use testkit::{Victim, have, is_root, run_as, skip};

use super::snap;

/// A coarse kind of fdguard and the other tool's word for it. Lists only observed pairs: a test
/// below fails if a row is not needed.
type Name = (&'static str, &'static str);

/// The type names of `lsof -F t`, seen with 4.95.
const LSOF: &[Name] = &[
    ("file", "REG"),
    ("directory", "DIR"),
    ("device", "CHR"),
    ("blockdev", "BLK"),
    // One name for pipes with and without a name.
    ("pipe", "FIFO"),
    // The version of the protocol, and not which protocol: that is another field.
    ("inet", "IPv4"),
    ("inet", "IPv6"),
    ("inet", "raw"),
    ("inet", "raw6"),
    // A socket that lsof finds in none of the tables it reads: unbound, or bound and neither
    // connected nor listening. fdguard queries netlink, and the inode for its protocol.
    ("inet", "sock"),
    ("unix", "unix"),
    ("netlink", "netlink"),
    ("packet", "pack"),
    // There is no vsock table to read, and a netlink socket that was never bound is in no table.
    ("vsock", "sock"),
    ("netlink", "sock"),
    // lsof has one type for anonymous inodes: the name after it says which.
    ("anonymous", "a_inode"),
    // Message queues, namespaces and secret memory have inodes with the mode of a regular file.
    ("kernel", "REG"),
];

/// The type names of `lsfd`, seen with util-linux 2.38.1: the type in the mode of the inode.
const LSFD: &[Name] = &[
    ("file", "REG"),
    ("directory", "DIR"),
    ("device", "CHR"),
    ("blockdev", "BLK"),
    ("pipe", "FIFO"),
    // lsfd only knows that it is a socket: family and state are not queried.
    ("inet", "SOCK"),
    ("unix", "SOCK"),
    ("netlink", "SOCK"),
    ("packet", "SOCK"),
    ("vsock", "SOCK"),
    // The mode of an anonymous inode has no type.
    ("anonymous", "UNKN"),
    // As for lsof.
    ("kernel", "REG"),
];

/// The coarse kind that other tools know, too.
fn kind(class: &str) -> &'static str {
    match class {
        "regular" | "deleted" | "sqlite-db" | "sqlite-wal" | "sqlite-shm" | "sqlite-journal"
        | "memfd" => "file",
        "directory" => "directory",
        "chardev" | "tty" | "pty-master" => "device",
        "blockdev" => "blockdev",
        "pipe" | "fifo" => "pipe",
        "udp" | "raw" => "inet",
        "unix" => "unix",
        "netlink" => "netlink",
        "packet" => "packet",
        "vsock" => "vsock",
        "other:mqueue" | "other:net" | "other:secretmem" => "kernel",
        tcp if tcp.starts_with("tcp:") => "inet",
        _ => "anonymous",
    }
}

/// A third-party program. It ends with the test, however that ends.
struct Service {
    child: Child,
    stop: Signal,
}

impl Service {
    fn start(mut command: Command) -> Self {
        // In its own process group, so that its children end with it.
        let child = command.process_group(0).spawn().unwrap();
        Self {
            child,
            stop: Signal::KILL,
        }
    }

    fn pid(&self) -> u32 {
        self.child.id()
    }

    fn stdout(&mut self) -> BufReader<ChildStdout> {
        BufReader::new(self.child.stdout.take().unwrap())
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ended = kill_process_group(Pid::from_child(&self.child), self.stop);
        drop(self.child.wait());
    }
}

/// Number and class of everything a process holds, according to fdguard.
fn ours(pid: u32) -> (BTreeMap<u32, String>, Value) {
    let document = snap(pid, &["--json"]).good_json();
    let table = document["fds"].as_array().unwrap().iter().map(|record| {
        let fd = u32::try_from(record["fd"].as_u64().unwrap()).unwrap();
        (fd, record["class"].as_str().unwrap().to_owned())
    });
    (table.collect(), document)
}

fn by_lsof(pid: u32) -> BTreeMap<u32, String> {
    let mut command = Command::new("lsof");
    command.args(["-nP", "-F", "ft", "-p", &pid.to_string()]);
    // It exits with 1 for warnings, too.
    let output = command.stderr(Stdio::null()).output().unwrap();
    let mut table = BTreeMap::new();
    let mut number = None;
    for field in String::from_utf8_lossy(&output.stdout).lines() {
        match field.split_at_checked(1) {
            Some(("f", fd)) => number = fd.parse().ok(),
            Some(("t", word)) => table.extend(number.take().map(|fd| (fd, word.to_owned()))),
            _ => {}
        }
    }
    table
}

fn by_lsfd(pid: u32) -> BTreeMap<u32, String> {
    // Later versions call the plain type STTYPE; 2.38 has only TYPE for it.
    let ask = |column: &str| {
        let mut command = Command::new("lsfd");
        let columns = format!("ASSOC,{column}");
        command.args(["--json", "-o", &columns, "-p", &pid.to_string()]);
        command.stderr(Stdio::null()).output().unwrap()
    };
    let mut output = ask("STTYPE");
    if !output.status.success() {
        output = ask("TYPE");
    }
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    let rows = document["lsfd"].as_array().unwrap().iter();
    rows.filter_map(|row| {
        let fd = row["assoc"].as_str()?.parse().ok()?;
        let word = row["sttype"].as_str().or(row["type"].as_str())?;
        Some((fd, word.to_owned()))
    })
    .collect()
}

/// Every difference that no table explains.
fn unexplained(
    ours: &BTreeMap<u32, String>,
    theirs: &BTreeMap<u32, String>,
    names: &[(&str, &str)],
) -> Vec<String> {
    let mut numbers: Vec<&u32> = ours.keys().chain(theirs.keys()).collect();
    numbers.sort_unstable();
    numbers.dedup();
    let explained = |fd: &u32| {
        let (Some(class), Some(word)) = (ours.get(fd), theirs.get(fd)) else {
            return false;
        };
        let kind = kind(class);
        names.contains(&(kind, word.as_str()))
    };
    numbers
        .into_iter()
        .filter(|fd| !explained(fd))
        .map(|fd| format!("{fd}: {:?} is {:?} to them", ours.get(fd), theirs.get(fd)))
        .collect()
}

type Ask = fn(u32) -> BTreeMap<u32, String>;

const TOOLS: [(&str, Ask, &[Name]); 2] = [("lsof", by_lsof, LSOF), ("lsfd", by_lsfd, LSFD)];

/// Both tools agree with fdguard about one process. A busy program may change in between: then it
/// asks again.
fn assert_agreed(pid: u32) -> Value {
    let mut answer = ours(pid).1;
    for (program, ask, names) in TOOLS {
        if !have(program) {
            skip(&format!("needs {program}"));
            continue;
        }
        let mut tries = 0;
        loop {
            let before = ours(pid).0;
            let theirs = ask(pid);
            let (after, document) = ours(pid);
            answer = document;
            tries += 1;
            if before == after || tries == 20 {
                let found = unexplained(&after, &theirs, names);
                assert!(
                    found.is_empty(),
                    "process {pid}, {program}:\n{}",
                    found.join("\n")
                );
                break;
            }
        }
    }
    super::contract::assert_snapshot(&answer);
    answer
}

fn of_class<'a>(document: &'a Value, class: &str) -> Vec<&'a Value> {
    let fds = document["fds"].as_array().unwrap();
    fds.iter().filter(|fd| fd["class"] == class).collect()
}

/// Requests a page on a persistent connection, and reads the head of the answer.
fn kept_alive(port: u16) -> TcpStream {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream
        .write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: keep-alive\r\n\r\n")
        .unwrap();
    let mut first = [0; 12];
    stream.read_exact(&mut first).unwrap();
    assert_eq!(&first, b"HTTP/1.1 200");
    stream
}

fn assert_serves(document: &Value, port: u16, clients: &[TcpStream]) {
    let listeners = of_class(document, "tcp:LISTEN");
    let own = listeners.iter().filter(|fd| {
        let local = fd["detail"]["local"].as_str().unwrap();
        local.parse::<SocketAddr>().unwrap().port() == port
    });
    assert_eq!(own.count(), 1, "{listeners:?}");
    for client in clients {
        let local = client.local_addr().unwrap();
        let connections = of_class(document, "tcp:ESTABLISHED");
        let found = connections.iter().filter(|fd| {
            let remote = fd["detail"]["remote"].as_str().unwrap();
            let remote: SocketAddr = remote.parse().unwrap();
            remote.port() == local.port() && remote.ip().to_canonical() == local.ip()
        });
        assert_eq!(found.count(), 1, "{connections:?}");
    }
}

#[test]
fn one_of_everything_and_no_row_of_the_tables_is_idle() {
    let victim = Victim::start("everything");
    assert_agreed(victim.pid());
    let refused = victim.line()["refused"].as_array().unwrap().len();
    if !is_root() || refused > 0 {
        victim.finish();
        return skip("needs root, and a kernel that refuses nothing, for one of every kind");
    }
    let ours = ours(victim.pid()).0;
    for (program, ask, names) in TOOLS {
        if !have(program) {
            continue;
        }
        let theirs = ask(victim.pid());
        let seen: Vec<(&str, &str)> = ours
            .iter()
            .map(|(fd, class)| (kind(class), theirs[fd].as_str()))
            .collect();
        let idle: Vec<&Name> = names.iter().filter(|name| !seen.contains(name)).collect();
        assert!(idle.is_empty(), "{program} never says {idle:?}");
    }
    victim.finish();
}

#[test]
fn a_difference_that_is_not_explained_is_found() {
    let table = |rows: &[(u32, &str)]| {
        rows.iter()
            .map(|(fd, it)| (*fd, (*it).to_owned()))
            .collect()
    };
    let ours: BTreeMap<u32, String> = table(&[(0, "pipe"), (3, "unix"), (4, "eventfd")]);
    let same = table(&[(0, "FIFO"), (3, "unix"), (4, "a_inode")]);
    assert_eq!(unexplained(&ours, &same, LSOF), Vec::<String>::new());
    let more = table(&[(0, "FIFO"), (3, "unix"), (4, "a_inode"), (5, "REG")]);
    let other = table(&[(0, "FIFO"), (3, "IPv4"), (4, "a_inode")]);
    let fewer = table(&[(0, "FIFO"), (3, "unix")]);
    for theirs in [more, other, fewer] {
        assert_eq!(unexplained(&ours, &theirs, LSOF).len(), 1, "{theirs:?}");
    }
}

#[test]
fn python_http_server_with_kept_connections() {
    if !have("python3") {
        return skip("needs python3");
    }
    let dir = tempfile::tempdir().unwrap();
    let mut command = Command::new("python3");
    command
        .args(["-u", "-m", "http.server", "0", "--bind", "127.0.0.1"])
        .args(["--protocol", "HTTP/1.1"])
        .current_dir(dir.path())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let mut server = Service::start(command);
    let mut line = String::new();
    server.stdout().read_line(&mut line).unwrap();
    let mut words = line.split_whitespace().skip_while(|word| *word != "port");
    let Some(port) = words.nth(1).and_then(|port| port.parse().ok()) else {
        return skip("python3 before 3.11 knows no --protocol");
    };
    let clients: Vec<TcpStream> = (0..3).map(|_| kept_alive(port)).collect();
    let document = assert_agreed(server.pid());
    assert_serves(&document, port, &clients);
    // Closed by the client, and maybe not noticed yet: never still established.
    let gone = clients[0].local_addr().unwrap().to_string();
    clients[0].shutdown(std::net::Shutdown::Both).unwrap();
    let document = assert_agreed(server.pid());
    let still = of_class(&document, "tcp:ESTABLISHED");
    assert!(still.iter().all(|fd| fd["detail"]["remote"] != gone));
}

const NODE: &str = "
const http = require('http'), fs = require('fs');
fs.watch(process.argv[1], () => {});
setInterval(() => {}, 60000);
const kept = fs.openSync(process.argv[1] + '/kept.log', 'a');
const server = http.createServer((ask, answer) => answer.end('ok'));
server.keepAliveTimeout = 0;
server.listen(0, '127.0.0.1', () => console.log(server.address().port + ' ' + kept));
";

#[test]
fn node_server_with_timer_watch_and_kept_connections() {
    if !have("node") {
        return skip("needs node");
    }
    let dir = tempfile::tempdir().unwrap();
    let mut command = Command::new("node");
    command
        .args(["-e", NODE])
        .arg(dir.path())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit());
    let mut server = Service::start(command);
    let mut line = String::new();
    server.stdout().read_line(&mut line).unwrap();
    let (port, kept) = line.trim().split_once(' ').unwrap();
    let (port, kept): (u16, u32) = (port.parse().unwrap(), kept.parse().unwrap());
    let clients: Vec<TcpStream> = (0..4).map(|_| kept_alive(port)).collect();
    let document = assert_agreed(server.pid());
    assert_serves(&document, port, &clients);
    let watchers = of_class(&document, "inotify");
    assert_eq!(watchers.len(), 1);
    assert_eq!(watchers[0]["detail"]["watches"], 1);
    assert!(!of_class(&document, "eventpoll").is_empty());
    let path = dir.path().canonicalize().unwrap().join("kept.log");
    let files = of_class(&document, "regular");
    let file = files.iter().find(|fd| fd["fd"] == kept);
    assert_eq!(file.unwrap()["target"], path.to_str().unwrap());
}

/// A query that was answered on a session that stays open.
fn session(bin: &Path, socket: &Path) -> Service {
    let mut command = Command::new(bin.join("psql"));
    command
        .args(["-XqAt", "-U", "postgres", "-d", "postgres", "-h"])
        .arg(socket)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    let mut session = Service::start(command);
    let stdin = session.child.stdin.as_mut().unwrap();
    writeln!(stdin, "select 'connected';").unwrap();
    let mut line = String::new();
    let mut stdout = session.stdout();
    stdout.read_line(&mut line).unwrap();
    assert_eq!(line, "connected\n");
    session.child.stdout = Some(stdout.into_inner());
    session
}

fn postgres_bin() -> Option<PathBuf> {
    let versions = fs::read_dir("/usr/lib/postgresql").ok()?;
    versions
        .filter_map(|entry| Some(entry.ok()?.path().join("bin")))
        .filter(|bin| bin.join("initdb").is_file() && bin.join("psql").is_file())
        .max()
}

fn uid_of(user: &str) -> Option<u32> {
    let users = fs::read_to_string("/etc/passwd").ok()?;
    let line = users
        .lines()
        .find(|line| line.split(':').next() == Some(user))?;
    line.split(':').nth(2)?.parse().ok()
}

/// Starts a database in `folder` and waits until it accepts connections.
fn postgres(bin: &Path, dir: &Path, uid: u32) -> Service {
    chown(dir, Some(uid), Some(uid)).unwrap();
    let data = dir.join("data");
    let mut init = run_as(uid, Command::new(bin.join("initdb")));
    init.args(["--no-sync", "--auth=trust", "-U", "postgres", "-D"])
        .arg(&data)
        .current_dir("/");
    let made = init.output().unwrap();
    assert!(made.status.success(), "{made:?}");
    let mut command = run_as(uid, Command::new(bin.join("postgres")));
    command
        .arg("-D")
        .arg(&data)
        .arg("-k")
        .arg(dir)
        .args(["-c", "listen_addresses=", "-c", "fsync=off"])
        .current_dir("/")
        .stdin(Stdio::null())
        .stderr(Stdio::piped());
    let mut server = Service::start(command);
    // Its quick shutdown, which also ends its children and releases shared memory.
    server.stop = Signal::QUIT;
    let mut log = BufReader::new(server.child.stderr.take().unwrap());
    let mut line = String::new();
    while !line.contains("ready to accept connections") {
        line.clear();
        assert!(log.read_line(&mut line).unwrap() > 0, "it ended early");
    }
    // Keep the pipe open: later output would get a broken pipe.
    server.child.stderr = Some(log.into_inner());
    server
}

#[test]
fn postgres_with_a_few_connections_process_by_process() {
    let (Some(bin), Some(uid)) = (postgres_bin(), uid_of("postgres")) else {
        return skip("needs PostgreSQL and its user");
    };
    if !is_root() {
        return skip("needs root, to run PostgreSQL as its own user");
    }
    let dir = tempfile::tempdir().unwrap();
    let server = postgres(&bin, dir.path(), uid);
    let sessions: Vec<Service> = (0..4).map(|_| session(&bin, dir.path())).collect();
    let tree = snap(server.pid(), &["--tree", "--json"]).good_json();
    super::contract::assert_snapshots(&tree);
    let members = tree["snapshots"].as_array().unwrap();
    assert!(members.len() > sessions.len() + 1, "{}", members.len());
    let mut connected = 0;
    for member in members {
        let pid = u32::try_from(member["process"]["pid"].as_u64().unwrap()).unwrap();
        let document = assert_agreed(pid);
        // A session's process: one connection to one psql, which holds the other end.
        for socket in of_class(&document, "unix") {
            let holders = socket["detail"]["peer"]["holders"].as_array();
            let peers = holders.into_iter().flatten();
            connected += peers
                .filter(|peer| sessions.iter().any(|it| peer["pid"] == it.pid()))
                .count();
        }
    }
    assert_eq!(connected, sessions.len());
    for session in &sessions {
        assert_agreed(session.pid());
    }
}

#[test]
fn chromium_process_by_process() {
    let names = ["chromium", "chromium-browser", "google-chrome", "chrome"];
    let Some(browser) = names.into_iter().find(|name| have(name)) else {
        return skip("needs Chromium");
    };
    let dir = tempfile::tempdir().unwrap();
    let mut command = Command::new(browser);
    command
        .args(["--headless", "--no-sandbox", "--disable-gpu"])
        .args(["--remote-debugging-port=0", "about:blank"])
        .arg(format!("--user-data-dir={}", dir.path().display()))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    let mut service = Service::start(command);
    let mut log = BufReader::new(service.child.stderr.take().unwrap());
    let mut line = String::new();
    while !line.contains("DevTools listening on") {
        line.clear();
        assert!(log.read_line(&mut line).unwrap() > 0, "it ended early");
    }
    let tree = snap(service.pid(), &["--tree", "--json"]).good_json();
    for member in tree["snapshots"].as_array().unwrap() {
        let pid = u32::try_from(member["process"]["pid"].as_u64().unwrap()).unwrap();
        assert_agreed(pid);
    }
}
