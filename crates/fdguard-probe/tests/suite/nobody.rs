//! Without any privilege: the same test, run again as `nobody`.

use std::env;
use std::fs::{self, Permissions};
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use fdguard_core::{Snapshot, Tier};
use fdguard_probe::{Error, Options, Probe, ProcessWatcher, Radar};
use serde_json::{Value, json};
use tempfile::TempDir;
use testkit::{FakeProc, NOBODY, Namespace, Victim, VictimLaunch, have, is_root, run_as, skip};

use super::select_use::waiter;

/// Set in the process that runs as nobody; its value is the question.
const ROLE: &str = "FDGUARD_TEST_AS_NOBODY";
/// Marks an answer in the test harness's output.
const ANSWER: &str = "@@answer ";

/// A copy of this test binary that runs one test as nobody and answers line by line.
pub(super) struct Nobody {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
    _copy: TempDir,
}

impl Nobody {
    /// Runs `test` again; it gets `question` from [`asked`].
    fn run(test: &str, question: &Value) -> Self {
        Self::run_in("nobody", test, question)
    }

    /// The same for a test of another module.
    pub(super) fn run_in(module: &str, test: &str, question: &Value) -> Self {
        let copy = tempfile::tempdir().unwrap();
        fs::set_permissions(copy.path(), Permissions::from_mode(0o755)).unwrap();
        let program = copy.path().join("test");
        let copied = Command::new("cp")
            .arg(env::current_exe().unwrap())
            .arg(&program)
            .status();
        assert!(copied.unwrap().success());
        let mut command = run_as(NOBODY, Command::new(program));
        command
            .args([
                "--exact",
                "--nocapture",
                &format!("suite::{module}::{test}"),
            ])
            .env(ROLE, question.to_string())
            .env_remove("NEXTEST_EXECUTION_MODE")
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        Self {
            stdin: child.stdin.take().unwrap(),
            stdout: BufReader::new(child.stdout.take().unwrap()),
            child,
            _copy: copy,
        }
    }

    pub(super) fn hear(&mut self) -> Value {
        let mut line = String::new();
        loop {
            line.clear();
            let length = self.stdout.read_line(&mut line).unwrap();
            assert!(length > 0, "nobody ended without an answer");
            if let Some((_, answer)) = line.split_once(ANSWER) {
                return serde_json::from_str(answer).unwrap();
            }
        }
    }

    fn again(&mut self) -> Value {
        writeln!(self.stdin, "again").unwrap();
        self.hear()
    }
}

impl Drop for Nobody {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// The question, in the process that runs as nobody.
pub(super) fn asked() -> Option<Value> {
    let question = env::var(ROLE).ok()?;
    assert!(!is_root(), "nobody is root");
    Some(serde_json::from_str(&question).unwrap())
}

pub(super) fn answer(value: &Value) {
    println!("\n{ANSWER}{value}");
}

pub(super) fn pid_of(value: &Value) -> u32 {
    u32::try_from(value.as_u64().unwrap()).unwrap()
}

/// Answers once for each line of standard input, and once before.
fn answer_each_time(mut look: impl FnMut() -> Value) {
    answer(&look());
    for line in std::io::stdin().lines() {
        assert_eq!(line.unwrap(), "again");
        answer(&look());
    }
}

/// The size of a table according to the kernel: how much it allocates differs between kernels.
fn table_size(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("FDSize:"));
    line.unwrap().trim().parse().unwrap()
}

#[test]
fn r6_nobody_counts_what_root_holds() {
    if let Some(pid) = asked() {
        let probe = Probe::new().unwrap();
        let mut radar = Radar::new();
        return answer_each_time(|| {
            let view = radar.scan(&probe).unwrap();
            let row = view.rows.iter().find(|row| row.pid == pid_of(&pid));
            assert!(view.gaps.is_empty(), "{:?}", view.gaps);
            json!({"row": row, "processes": view.rows.len(), "crossed": row.unwrap().crossed_1024()})
        });
    }
    if !is_root() {
        return skip("needs root");
    }
    let mut victim = Victim::of("leaker").nofile(5000).start();
    victim.tell("97");
    let mut nobody = Nobody::run("r6_nobody_counts_what_root_holds", &victim.pid().into());
    let first = nobody.hear();
    assert_eq!(first["row"]["count"], 100);
    assert_eq!(first["row"]["limits"]["soft"], 5000);
    assert_eq!(first["row"]["table_size"], table_size(victim.pid()));
    assert_eq!(first["row"]["uid"], 0);
    assert_eq!(first["row"]["comm"], "leaker");
    assert_eq!(first["crossed"], false);
    let own = Radar::new()
        .scan(&Probe::new().unwrap())
        .unwrap()
        .rows
        .len();
    // Other processes come and go meanwhile.
    assert!(first["processes"].as_u64().unwrap() + 50 > own as u64);
    for (order, count) in [("10", 110), ("-30", 80), ("0", 80), ("1000 socket", 1080)] {
        victim.tell(order);
        assert_eq!(nobody.again()["row"]["count"], count, "after {order}");
    }
    let grown = nobody.again();
    let size = table_size(victim.pid());
    assert!(size > 1024, "{size} has no room for what it holds");
    assert_eq!(grown["row"]["table_size"], size, "growth is noticed");
    assert_eq!(grown["crossed"], true);
    victim.finish();
}

#[test]
fn r6_a_process_that_holds_nothing_is_counted_as_nothing() {
    if let Some(pid) = asked() {
        let view = Radar::new().scan(&Probe::new().unwrap()).unwrap();
        let row = view.rows.iter().find(|row| row.pid == pid_of(&pid));
        answer(&json!({"row": row, "gaps": view.gaps}));
        let probe = Probe::new().unwrap();
        let looked = probe.snapshot(pid_of(&pid), Options::default()).unwrap();
        return answer(&json!(looked.count));
    }
    if !is_root() {
        return skip("needs root");
    }
    if !have("bash") {
        return skip("needs bash, which closes numbers of two digits too");
    }
    let close_all = r#"for fd in /proc/$$/fd/*; do eval "exec ${fd##*/}<&-"; done; kill -STOP $$"#;
    let mut bare = Command::new("bash")
        .args(["-c", close_all])
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let pid = rustix::process::Pid::from_child(&bare);
    let stopped = rustix::process::WaitIdOptions::STOPPED | rustix::process::WaitIdOptions::NOWAIT;
    rustix::process::waitid(rustix::process::WaitId::Pid(pid), stopped).unwrap();
    assert_eq!(testkit::listed(bare.id()), Vec::<u32>::new());
    let mut nobody = Nobody::run(
        "r6_a_process_that_holds_nothing_is_counted_as_nothing",
        &bare.id().into(),
    );
    let (seen, looked) = (nobody.hear(), nobody.hear());
    bare.kill().unwrap();
    bare.wait().unwrap();
    assert_eq!(seen["row"]["count"], 0, "{seen}");
    assert_eq!(looked, 0);
    assert_eq!(seen["gaps"], json!([]));
}

#[test]
fn r6_the_list_of_root_is_refused_with_count_reason_and_remedy() {
    if let Some(pid) = asked() {
        let probe = Probe::new().unwrap();
        let pid = pid_of(&pid);
        let seen: Snapshot = probe.snapshot(pid, Options::default()).unwrap();
        assert_eq!((seen.tier, seen.fds.is_none()), (Tier::Radar, true));
        return answer(&super::document(&seen));
    }
    if !is_root() {
        return skip("needs root");
    }
    let mut victim = Victim::start("leaker");
    victim.tell("40 file");
    let mut nobody = Nobody::run(
        "r6_the_list_of_root_is_refused_with_count_reason_and_remedy",
        &victim.pid().into(),
    );
    let document = nobody.hear();
    assert_eq!(document["tier"], "radar");
    assert_eq!(document["count"], 43);
    for unknown in ["fds", "classes", "targets", "highest", "lowest"] {
        assert_eq!(document[unknown], Value::Null, "{unknown}");
    }
    let gap = &document["gaps"][0];
    assert!(gap["why"].as_str().unwrap().contains("permission denied"));
    assert!(gap["remedy"].as_str().unwrap().contains("sudo"));
    assert_eq!(
        document["limits"]["soft"].as_u64(),
        rustix::process::getrlimit(rustix::process::Resource::Nofile).current
    );
    victim.finish();
}

#[test]
fn r6_nobody_watches_the_count_of_what_root_holds() {
    if let Some(pid) = asked() {
        let probe = Probe::new().unwrap();
        let mut watcher = ProcessWatcher::new(&probe, pid_of(&pid)).unwrap();
        assert_eq!(watcher.tier(), Tier::Radar);
        assert_eq!(watcher.gaps().len(), 1, "{:?}", watcher.gaps());
        assert!(watcher.gaps()[0].remedy.contains("sudo"));
        assert!(matches!(watcher.list().unwrap_err(), Error::Io { .. }));
        return answer_each_time(|| {
            let looks = [watcher.glance(), watcher.tick(), watcher.verify(9)];
            let counts = looks.map(|look| match look {
                Ok(tick) => {
                    assert!(!tick.listed && tick.opened.is_empty(), "{tick:?}");
                    json!(tick.count)
                }
                Err(Error::Vanished(_)) => json!("vanished"),
                Err(other) => panic!("{other:?}"),
            });
            json!(counts)
        });
    }
    if !is_root() {
        return skip("needs root");
    }
    let mut victim = Victim::start("leaker");
    victim.tell("40 file");
    let test = "r6_nobody_watches_the_count_of_what_root_holds";
    let mut nobody = Nobody::run(test, &victim.pid().into());
    assert_eq!(nobody.hear(), json!([43, 43, 43]));
    victim.tell("-20");
    assert_eq!(nobody.again(), json!([23, 23, 23]));
    victim.finish();
    assert_eq!(nobody.again(), json!(["vanished", "vanished", "vanished"]));
}

#[test]
fn r6_nobody_sees_its_own_processes_in_full() {
    if let Some(pid) = asked() {
        let seen = super::look(pid_of(&pid));
        return answer(&super::document(&seen));
    }
    if !is_root() {
        return skip("needs root");
    }
    let victim = Victim::of("everything").as_user(NOBODY).start();
    let mut nobody = Nobody::run(
        "r6_nobody_sees_its_own_processes_in_full",
        &victim.pid().into(),
    );
    let document = nobody.hear();
    super::assert_says_the_same(&document, victim.holdings());
    assert_eq!(document["tier"], "full");
    victim.finish();
}

#[test]
fn r6_a_directory_that_may_not_be_listed_is_a_gap() {
    if let Some(root) = asked() {
        let probe = Probe::at(root.as_str().unwrap().as_ref()).unwrap();
        let list = |pid| super::document(&probe.snapshot(pid, Options::default()).unwrap());
        return answer(&json!([list(10), list(11)]));
    }
    if !is_root() {
        return skip("needs root");
    }
    let mut tree = FakeProc::new();
    let info = "pos:\t0\nflags:\t02\nmnt_id:\t1\nino:\t4\n";
    tree.process(10).fd(0, "/dev/null", info).denied("fd");
    tree.process(11).fd(0, "/dev/null", info).denied("fdinfo");
    let root = tree.root().to_str().unwrap().to_owned();
    let mut nobody = Nobody::run(
        "r6_a_directory_that_may_not_be_listed_is_a_gap",
        &root.into(),
    );
    let seen = nobody.hear();
    assert_eq!(seen[0]["tier"], "radar");
    assert_eq!(seen[0]["count"], Value::Null, "unknown is never zero");
    assert_eq!(seen[0]["gaps"].as_array().unwrap().len(), 1);
    // Listed but refused one by one: counted, without a list.
    assert_eq!(seen[1]["tier"], "radar");
    assert_eq!(
        (&seen[1]["count"], &seen[1]["fds"]),
        (&json!(1), &Value::Null)
    );
    assert_eq!(seen[1]["gaps"].as_array().unwrap().len(), 1);
}

#[test]
fn r7_nobody_looks_at_its_own_in_another_mount_namespace_and_not_at_roots() {
    if let Some(pids) = asked() {
        let probe = Probe::new().unwrap();
        let of = |key: &str| probe.select_use(pid_of(&pids[key])).unwrap();
        return answer(&json!({"own": of("own"), "roots": of("roots")}));
    }
    if !is_root() {
        return skip("needs root");
    }
    let Some(program) = waiter(("polls", &["-DWAIT=BY_POLL"])) else {
        return;
    };
    let launch = || VictimLaunch::program(&program);
    let own = launch().as_user(NOBODY).in_new(Namespace::Mount).start();
    let roots = launch().start();
    let question = json!({"own": own.pid(), "roots": roots.pid()});
    let test = "r7_nobody_looks_at_its_own_in_another_mount_namespace_and_not_at_roots";
    let said = Nobody::run(test, &question).hear();
    assert_eq!(said["own"], json!({"select": "absent"}));
    let why = "no permission to read its memory map";
    assert_eq!(said["roots"], json!({"select": "unknown", "why": why}));
    own.finish();
    roots.finish();
}
