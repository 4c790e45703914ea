//! The doctor on common servers with default settings: it must find nothing wrong.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::Value;
use testkit::{Victim, skip};

use super::mcp_peer::eventually;
use super::{CommandOutput, fdguard, run};

/// A server with its processes. Drop asks it to end.
struct Server {
    child: Child,
    workers: usize,
}

impl Server {
    fn start(mut command: Command, workers: usize) -> Self {
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let server = Self {
            child: command.spawn().unwrap(),
            workers,
        };
        eventually("the workers run and have settled", || server.is_settled());
        server
    }

    /// Whether all workers are idle, with everything open that they open at start.
    fn is_settled(&self) -> bool {
        let workers = self.children();
        let waits = |pid: &String| {
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            let channel = fs::read_to_string(format!("/proc/{pid}/syscall")).unwrap_or_default();
            stat.contains(") S ") && !channel.starts_with("running")
        };
        workers.len() == self.workers && workers.iter().all(waits)
    }

    fn children(&self) -> Vec<String> {
        let pid = self.child.id();
        let list = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
        let list = list.unwrap_or_default();
        list.split_whitespace().map(str::to_owned).collect()
    }

    fn doctor(&self, words: &[&str]) -> CommandOutput {
        let pid = self.child.id().to_string();
        let first = ["doctor", &pid, "--for", "3s", "--every", "100ms"];
        run(first.into_iter().chain(words.iter().copied()))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let pid = rustix::process::Pid::from_child(&self.child);
        let _ended = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        let _reaped = self.child.wait();
    }
}

fn port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

fn nginx(dir: &Path) -> Option<Server> {
    let place = dir.display();
    let config = format!(
        "worker_processes 4;\ndaemon off;\npid {place}/pid;\nerror_log {place}/error.log;\n\
         events {{ worker_connections 64; }}\nhttp {{ access_log {place}/access.log;\n\
         server {{ listen 127.0.0.1:{}; location / {{ return 200 ok; }} }} }}\n",
        port()
    );
    fs::write(dir.join("nginx.conf"), config).unwrap();
    let program = ["/usr/sbin/nginx", "/usr/bin/nginx", "/usr/local/sbin/nginx"];
    let Some(program) = program.iter().find(|path| Path::new(path).exists()) else {
        skip("needs nginx");
        return None;
    };
    let mut command = Command::new(program);
    command
        .arg("-p")
        .arg(dir)
        .arg("-c")
        .arg(dir.join("nginx.conf"));
    Some(Server::start(command, 4))
}

/// gunicorn from the packages that testkit/software installs.
fn gunicorn(dir: &Path) -> Option<Server> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let program: PathBuf = root.join("target/software/venv/bin/gunicorn");
    if !program.exists() {
        skip("needs gunicorn: testkit/software installs it");
        return None;
    }
    let code = "def app(env, start):\n    start('200 OK', [])\n    return [b'ok']\n";
    fs::write(dir.join("app.py"), code).unwrap();
    let mut command = Command::new(program);
    let address = format!("127.0.0.1:{}", port());
    command
        .args(["-w", "4", "-b", &address, "app:app"])
        .current_dir(dir);
    // Its control socket is in the home directory.
    command.env("HOME", dir);
    Some(Server::start(command, 4))
}

fn is_healthy(server: &Server, name: &str) {
    let said = server.doctor(&["--tree"]);
    let text = said.text();
    assert_eq!((said.code, &*said.stderr), (0, ""), "{text}");
    // A server that just started may still open its own descriptors.
    let is_rising = ["leaking: ", "growing: "]
        .iter()
        .any(|word| text.starts_with(word));
    assert!(!is_rising, "{text}");
    assert!(
        text.contains(&format!(
            "{name} (pid {}) and 4 other processes",
            server.child.id()
        )),
        "{text}"
    );
    // Equal workers take one line.
    assert!(
        text.contains(&format!("\n4 × {name} worker: stable\n")),
        "{text}"
    );
    assert_eq!(text.matches("\nopen descriptors of ").count(), 1, "{text}");
    assert!(!text.contains("\nproblems\n"), "{text}");
    // The master alone, and a worker alone: the other holders of the listener are its family.
    let said = server.doctor(&[]);
    assert_eq!(said.code, 0, "{}", said.text());
    let worker = server.children()[0].clone();
    let said = run(["doctor", &worker, "--for", "1s", "--json"]);
    assert_eq!(said.code, 0, "{}", said.text());
    let document = said.json();
    let lints = document["lints"].as_array().unwrap();
    let listener = lints
        .iter()
        .find(|lint| lint["rule"] == "inherited-listener");
    assert!(
        listener.is_none_or(|lint| lint["severity"] == "info"),
        "{lints:?}"
    );
}

#[test]
fn r23_nginx_as_it_comes_is_healthy_and_its_workers_are_one_line() {
    let dir = tempfile::tempdir().unwrap();
    if let Some(server) = nginx(dir.path()) {
        is_healthy(&server, "nginx");
    }
}

#[test]
fn r23_gunicorn_as_it_comes_is_healthy_and_its_workers_are_one_line() {
    let dir = tempfile::tempdir().unwrap();
    if let Some(server) = gunicorn(dir.path()) {
        is_healthy(&server, "gunicorn");
    }
}

#[test]
fn r8_a_process_that_is_selected_twice_is_counted_once() {
    let victim = Victim::of("parent").arg("3").arg("0").start();
    let pid = victim.pid().to_string();
    let children = victim.line()["children"].as_array().unwrap().clone();
    let child = children[0]["pid"].to_string();
    // By its number, by the other flag, as the child of one and in the tree of it.
    let words = [
        "doctor", &pid, &child, "-p", &pid, "--name", "parent", "--tree",
    ];
    let said = run(words.into_iter().chain(["--for", "300ms", "--json"]));
    let document = said.json();
    let pids = |list: &Value, key: fn(&Value) -> &Value| -> Vec<u64> {
        let list = list.as_array().unwrap();
        list.iter().filter_map(|one| key(one).as_u64()).collect()
    };
    for found in [
        pids(&document["processes"], |one| &one["pid"]),
        pids(
            &document["evidence"]["processes"],
            |one| &one["snapshot"]["pid"],
        ),
        pids(&document["evidence"]["family"], |one| &one["pid"]),
    ] {
        let mut once = found.clone();
        once.sort_unstable();
        once.dedup();
        assert_eq!(found.len(), once.len(), "{found:?}");
        let ours = found.iter().filter(|one| one.to_string() == pid);
        assert_eq!(ours.count(), 1, "{found:?}");
    }
    victim.finish();
}

/// A Python that imports `select` and leaks, under a limit far above 1024.
fn leaking_python(dir: &Path) -> Child {
    let file = dir.join("leaky app.py");
    let code = "import resource, select, time\n\
        resource.setrlimit(resource.RLIMIT_NOFILE, (20000, 20000))\n\
        kept = [open('/etc/passwd') for _ in range(950)]\nprint('ready', flush=True)\n\
        while True:\n    kept.append(open('/etc/passwd'))\n    time.sleep(0.25)\n";
    fs::write(&file, code).unwrap();
    let mut child = Command::new("python3")
        .arg(&file)
        .arg("--token=secret words")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let mut out = std::io::BufReader::new(child.stdout.as_mut().unwrap());
    std::io::BufRead::read_line(&mut out, &mut line).unwrap();
    child
}

fn limit_in_top(pid: u32) -> Value {
    let document = run(["top", "--once", "--json"]).json();
    let rows = document["processes"].as_array().unwrap();
    let row = rows.iter().find(|row| row["pid"] == pid).unwrap();
    row["nearest_wall"].clone()
}

#[test]
fn r7_a_python_that_could_call_select_has_its_real_limit_everywhere_and_a_warning() {
    let hard = rustix::process::getrlimit(rustix::process::Resource::Nofile).maximum;
    if hard.is_some_and(|hard| hard < 20_000) {
        return skip("needs a hard limit of 20,000 descriptors");
    }
    let dir = tempfile::tempdir().unwrap();
    let mut child = leaking_python(dir.path());
    let (pid, number) = (child.id(), child.id().to_string());
    let watched = run([
        "watch", &number, "--for", "12s", "--every", "100ms", "--json",
    ])
    .json();
    let said = run([
        "doctor", &number, "--for", "12s", "--every", "100ms", "--json",
    ]);
    let top = limit_in_top(pid);
    let redacted = run([
        "doctor", &number, "--for", "12s", "--every", "100ms", "--redact",
    ]);
    child.kill().unwrap();
    child.wait().unwrap();
    let examined = said.json();
    assert_eq!(
        (&top["name"], &top["at"]),
        (&"soft-limit".into(), &20_000.into())
    );
    for document in [&watched, &examined] {
        assert_eq!(document["verdict"], "leaking", "{document}");
        let findings = document["findings"].as_array().unwrap();
        let of = |rule: &str| findings.iter().find(|one| one["rule"] == rule).unwrap();
        let leak = of("leak");
        assert_eq!(leak["walls"][0]["name"], "soft-limit", "{leak}");
        assert_eq!(leak["severity"], "warning", "the limit is far: {leak}");
        assert_eq!(of("select-cliff")["severity"], "warning", "{findings:?}");
        // The advice is about this process, and its command can be pasted.
        let step = leak["next_step"].as_str().unwrap();
        assert!(step.contains(&format!("fdguard snap {pid} ")), "{step}");
        let command = format!(
            "'{}/leaky app.py' '--token=secret words'`",
            dir.path().display()
        );
        assert!(
            step.contains("`fdguard trace -- ") && step.contains(&command),
            "{step}"
        );
    }
    let headline = examined["headline"].as_str().unwrap();
    assert!(
        headline.contains("the soft limit of 20,000 is reached in "),
        "{headline}"
    );
    // With redaction, the advice must not reveal arguments either.
    let text = redacted.text();
    assert!(text.contains("fdguard trace -- "), "{text}");
    assert!(
        !text.contains("secret") && !text.contains("leaky app"),
        "{text}"
    );
}

#[test]
fn findings_come_before_plots_and_holdings() {
    let victim = Victim::start("everything");
    let dir = tempfile::tempdir().unwrap();
    let page = dir.path().join("page.html");
    let mut command = fdguard();
    command.args([
        "doctor",
        &victim.pid().to_string(),
        "--for",
        "400ms",
        "--html",
    ]);
    let said = CommandOutput::of(command.arg(&page).output().unwrap());
    let text = said.text();
    let at = |text: &str, part: &str| text.find(part).unwrap_or_else(|| panic!("{part}: {text}"));
    assert!(
        at(text, "\nproblems\n") < at(text, "\nopen descriptors\n"),
        "{text}"
    );
    let page = fs::read_to_string(&page).unwrap();
    assert!(at(&page, ">problems<") < at(&page, "<svg"), "{page}");
    victim.finish();
}
