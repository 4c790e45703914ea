//! Programs in several languages that open and close at each line of their input, or at each
//! connection, for tests that attach to them.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use tempfile::TempDir;
use testkit::{have, skip};

const PYTHON: &str = "\
import os, socket, sqlite3, sys, tempfile
kept = []
def keep():
    kept.append(open('/etc/passwd'))
print('READY', flush=True)
for line in sys.stdin:
    server = socket.create_server(('127.0.0.1', 0))
    for _ in range(50):
        open('/etc/passwd').close()
        for one in os.pipe(): os.close(one)
        os.close(os.dup(0))
        list(os.scandir('/etc/alternatives'))
        client = socket.create_connection(server.getsockname())
        server.accept()[0].close()
        client.close()
        sqlite3.connect(':memory:').close()
    server.close()
    keep()
    print('DONE', flush=True)
";

const NODE: &str = "\
const fs = require('fs');
const kept = [];
function keep() {
  kept.push(fs.openSync('/etc/passwd'));
}
process.stdin.on('data', async () => {
  for (let i = 0; i < 50; i++) {
    fs.closeSync(fs.openSync('/etc/passwd'));
    await (await fs.promises.open('/etc/passwd')).close();
  }
  keep();
  console.log('DONE');
});
process.stdin.on('end', () => process.exit(0));
console.log('READY');
";

const BASH: &str = "\
echo READY
while read -r line; do
  for ((i = 0; i < 50; i++)); do
    read -r one < /etc/passwd
    exec 7< /etc/passwd 8>&7
    exec 7<&- 8>&-
    word=$(:)
  done
  exec 9< /etc/passwd
  echo DONE
done
";

/// A running program. Drop kills it.
pub(crate) struct Ordered {
    child: Child,
    input: ChildStdin,
    lines: BufReader<ChildStdout>,
    server: Option<ServerPlace>,
    pub(crate) dir: TempDir,
}

/// How a server is reached.
enum ServerPlace {
    Http(u16),
    Redis(std::path::PathBuf),
    Ssh(u16),
}

impl Ordered {
    /// One that reads its input; returns when it is ready.
    pub(crate) fn start(command: &mut Command, dir: TempDir) -> Self {
        let mut ordered = Self::spawn(command, dir, None);
        let ready = ordered.line();
        assert_eq!(ready, "READY");
        ordered
    }

    fn spawn(command: &mut Command, dir: TempDir, server: Option<ServerPlace>) -> Self {
        let pipes = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = pipes.spawn().unwrap();
        Self {
            input: child.stdin.take().unwrap(),
            lines: BufReader::new(child.stdout.take().unwrap()),
            child,
            server,
            dir,
        }
    }

    fn serve(command: &mut Command, dir: TempDir, place: ServerPlace) -> Self {
        let mut ordered = Self::spawn(command, dir, Some(place));
        testkit::wait_until("the server answers", || {
            assert!(ordered.child.try_wait().unwrap().is_none(), "it ended");
            ordered.answers()
        });
        ordered
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.lines.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    /// Gives an order and returns the answer.
    pub(crate) fn say(&mut self) -> String {
        writeln!(self.input, "go").unwrap();
        self.line()
    }

    /// One round; returns when it is done.
    pub(crate) fn work(&mut self) {
        if self.server.is_none() {
            assert_eq!(self.say(), "DONE");
        } else {
            let before = self.open_count();
            for _ in 0..self.connections() {
                assert!(self.answers());
            }
            // A server may close its side later than it answers.
            testkit::wait_until("the server closes", || self.open_count() <= before);
        }
    }

    /// How many connections a round has. An SSH server executes itself for each.
    fn connections(&self) -> u32 {
        match self.server {
            Some(ServerPlace::Ssh(_)) => 12,
            _ => 100,
        }
    }

    fn open_count(&self) -> usize {
        let entries = std::fs::read_dir(format!("/proc/{}/fd", self.pid()));
        entries.unwrap().count()
    }

    /// Whether the server answers as it should.
    fn answers(&self) -> bool {
        let (request, expected) = match self.server {
            Some(ServerPlace::Http(_)) => ("GET /page HTTP/1.0\r\n\r\n", "HTTP/1.1 200"),
            // It names itself, and ends the connection of a client that does not.
            Some(ServerPlace::Ssh(_)) => ("nobody\r\n", "SSH-2.0-"),
            _ => ("QUIT\r\n", "+OK"),
        };
        self.exchange(request)
            .is_ok_and(|answer| answer.starts_with(expected))
    }

    fn exchange(&self, request: &str) -> std::io::Result<String> {
        let mut answer = Vec::new();
        match &self.server {
            Some(ServerPlace::Http(port) | ServerPlace::Ssh(port)) => {
                let mut stream = TcpStream::connect(("127.0.0.1", *port))?;
                stream.write_all(request.as_bytes())?;
                stream.read_to_end(&mut answer)?;
            }
            Some(ServerPlace::Redis(path)) => {
                let mut stream = UnixStream::connect(path)?;
                stream.write_all(request.as_bytes())?;
                stream.read_to_end(&mut answer)?;
            }
            None => {}
        }
        Ok(String::from_utf8_lossy(&answer).into_owned())
    }
}

impl Drop for Ordered {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

fn needs(program: &str) -> Option<TempDir> {
    if !have(program) {
        skip(&format!("needs {program}"));
        return None;
    }
    Some(tempfile::tempdir().unwrap())
}

fn script(program: &str, name: &str, text: &str) -> Option<Ordered> {
    let dir = needs(program)?;
    let path = dir.path().join(name);
    std::fs::write(&path, text).unwrap();
    Some(Ordered::start(Command::new(program).arg(path), dir))
}

pub(crate) fn python() -> Option<Ordered> {
    script("python3", "orders.py", PYTHON)
}

pub(crate) fn node() -> Option<Ordered> {
    script("node", "orders.js", NODE)
}

pub(crate) fn bash() -> Option<Ordered> {
    script("bash", "orders.sh", BASH)
}

pub(crate) fn java() -> Option<Ordered> {
    let dir = needs("javac")?;
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/java/Orders.java");
    let mut compiler = Command::new("javac");
    compiler
        .args(["--release", "11", "-g", "-d"])
        .arg(dir.path());
    assert!(compiler.arg(source).status().unwrap().success());
    let mut command = Command::new("java");
    command
        .args(["-Xmx64m", "-cp"])
        .arg(dir.path())
        .arg("Orders");
    Some(Ordered::start(&mut command, dir))
}

pub(crate) fn cpp() -> Option<Ordered> {
    let dir = needs("g++")?;
    let flags = ["-std=c++17", "-O1", "-g", "-fno-plt", "-Wl,-z,now"];
    let program = testkit::compiled("g++", "c/orders.cpp", "orders-cpp", &flags).unwrap();
    Some(Ordered::start(&mut Command::new(program), dir))
}

pub(crate) fn rust() -> Option<Ordered> {
    let dir = needs("rustc")?;
    let flags = ["--edition=2021", "-Copt-level=1", "-g"];
    let program = testkit::compiled("rustc", "rust/orders.rs", "orders-rust", &flags).unwrap();
    Some(Ordered::start(&mut Command::new(program), dir))
}

pub(crate) fn redis() -> Option<Ordered> {
    let dir = needs("redis-server")?;
    let socket = dir.path().join("socket");
    let mut command = Command::new("redis-server");
    command.args(["--port", "0", "--save", "", "--unixsocket"]);
    command.arg(&socket).arg("--dir").arg(dir.path());
    command.args(["--logfile", "/dev/null"]);
    Some(Ordered::serve(
        &mut command,
        dir,
        ServerPlace::Redis(socket),
    ))
}

pub(crate) fn nginx() -> Option<Ordered> {
    let dir = needs("nginx")?;
    let here = dir.path().display();
    let port = free_port();
    let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|kind| format!("{kind}_temp_path {here}/{kind};"))
        .join(" ");
    let text = format!(
        "daemon off; master_process off; pid {here}/pid; error_log /dev/null;\n\
         events {{ }}\n\
         http {{ access_log off; {temporary}\n\
         server {{ listen 127.0.0.1:{port}; root {here}; }} }}\n"
    );
    std::fs::write(dir.path().join("page"), "page\n").unwrap();
    let config = dir.path().join("nginx.conf");
    std::fs::write(&config, text).unwrap();
    let mut command = Command::new("nginx");
    command.arg("-c").arg(config);
    Some(Ordered::serve(&mut command, dir, ServerPlace::Http(port)))
}

/// The listener of an SSH server with a key of its own, as a user that may do nothing else.
pub(crate) fn sshd() -> Option<Ordered> {
    const SSHD: &str = "/usr/sbin/sshd";
    if !Path::new(SSHD).exists() || !have("ssh-keygen") || !testkit::is_root() {
        skip("needs sshd and root");
        return None;
    }
    let dir = tempfile::tempdir().unwrap();
    let (key, config) = (dir.path().join("key"), dir.path().join("config"));
    let mut keygen = Command::new("ssh-keygen");
    keygen
        .args(["-q", "-t", "ed25519", "-N", "", "-f"])
        .arg(&key);
    assert!(keygen.status().unwrap().success());
    let mut owner = Command::new("chown");
    owner
        .arg("-R")
        .arg(testkit::NOBODY.to_string())
        .arg(dir.path());
    assert!(owner.status().unwrap().success());
    let port = free_port();
    let settings = format!(
        "ListenAddress 127.0.0.1:{port}\nHostKey {}\nPidFile none\nUsePAM no\n\
         MaxStartups 1000\nStrictModes no\n",
        key.display()
    );
    // Newer versions turn away clients that fail often; older ones do not know the word.
    let patient = format!("{settings}PerSourcePenalties no\n");
    std::fs::write(&config, patient).unwrap();
    let mut check = Command::new(SSHD);
    let check = check.arg("-t").arg("-f").arg(&config);
    if !check.stderr(Stdio::null()).status().unwrap().success() {
        std::fs::write(&config, settings).unwrap();
    }
    let user = testkit::NOBODY;
    let mut command = Command::new("setpriv");
    command
        .arg(format!("--reuid={user}"))
        .arg(format!("--regid={user}"));
    command
        .args(["--clear-groups", SSHD, "-D", "-e", "-f"])
        .arg(&config);
    command.stderr(Stdio::null());
    Some(Ordered::serve(&mut command, dir, ServerPlace::Ssh(port)))
}

fn free_port() -> u16 {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    free.local_addr().unwrap().port()
}

/// A PostgreSQL server. Drop ends it.
pub(crate) struct Postgres {
    server: Child,
    dir: TempDir,
}

/// A connection, and the process that serves it.
pub(crate) struct PostgresSession {
    client: Child,
    input: ChildStdin,
    lines: BufReader<ChildStdout>,
    pub(crate) pid: u32,
}

/// A command of the server, as its own user: it does not run as root.
fn postgres_command(program: &Path) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--reuid=postgres", "--regid=postgres", "--clear-groups"]);
    command.arg(program);
    command
}

impl Postgres {
    pub(crate) fn start() -> Option<Self> {
        let versions = std::fs::read_dir("/usr/lib/postgresql")
            .into_iter()
            .flatten();
        let newest = versions.flatten().map(|one| one.path().join("bin")).max();
        let Some(bin) = newest.filter(|_| testkit::is_root() && have("psql")) else {
            skip("needs PostgreSQL and root");
            return None;
        };
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().join("data");
        std::fs::create_dir(&data).unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(dir.path(), mode).unwrap();
        let mut owner = Command::new("chown");
        assert!(owner.arg("postgres").arg(&data).status().unwrap().success());
        let mut initdb = postgres_command(&bin.join("initdb"));
        let made = initdb.args(["-A", "trust", "-D"]).arg(&data);
        assert!(made.stdout(Stdio::null()).status().unwrap().success());
        let mut command = postgres_command(&bin.join("postgres"));
        command
            .arg("-D")
            .arg(&data)
            .args(["-c", "listen_addresses=", "-k"]);
        let server = command.arg(&data).stderr(Stdio::null()).spawn().unwrap();
        let mut postgres = Self { server, dir };
        let mut ready = postgres_command(&bin.join("pg_isready"));
        ready.args(["-q", "-h"]).arg(&data);
        testkit::wait_until("PostgreSQL is ready", || {
            assert!(postgres.server.try_wait().unwrap().is_none(), "it ended");
            ready.status().unwrap().success()
        });
        Some(postgres)
    }

    /// The process that listens.
    pub(crate) fn pid(&self) -> u32 {
        self.server.id()
    }

    pub(crate) fn connect(&self) -> PostgresSession {
        let mut command = postgres_command(Path::new("psql"));
        command.args(["-qAtX", "-d", "postgres", "-h"]);
        command.arg(self.dir.path().join("data"));
        let pipes = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut client = pipes.spawn().unwrap();
        let mut session = PostgresSession {
            input: client.stdin.take().unwrap(),
            lines: BufReader::new(client.stdout.take().unwrap()),
            client,
            pid: 0,
        };
        session.pid = session.ask("select pg_backend_pid();").parse().unwrap();
        session
    }
}

impl PostgresSession {
    fn ask(&mut self, query: &str) -> String {
        writeln!(self.input, "{query}").unwrap();
        let mut line = String::new();
        self.lines.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    /// Has the server's process open and close fifty files.
    pub(crate) fn work(&mut self) {
        let query = "select count(pg_read_file('/etc/passwd')) from generate_series(1, 50);";
        assert_eq!(self.ask(query), "50");
    }
}

impl Drop for PostgresSession {
    fn drop(&mut self) {
        drop(self.client.kill());
        drop(self.client.wait());
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        // At once, with the processes of its connections.
        let pid = rustix::process::Pid::from_child(&self.server);
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::QUIT);
        drop(self.server.wait());
    }
}
