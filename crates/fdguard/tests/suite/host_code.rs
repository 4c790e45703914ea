//! Hostile code: the host reports what happened, the next session works, and nothing is left
//! behind.

use std::fs;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use super::hosted::{Hosted, LONG, WARM, children, eventually, read_answer};

/// Concurrent sessions in tests with many cases.
const LANES: usize = 4;
const SHORT: Duration = Duration::from_millis(400);
/// Less than a caller waits for an answer.
const PATIENT: Duration = Duration::from_secs(12);

/// What became of hostile code.
struct Fate {
    done: Value,
    /// The output of the next command in the same session; `None` when the session has ended.
    next: Option<String>,
    receipt: Value,
}

impl Fate {
    fn how(&self) -> &str {
        self.done["outcome"]["how"]
            .as_str()
            .unwrap_or_else(|| panic!("{}", self.done))
    }

    fn text(&self) -> &str {
        self.done["stdout"]["text"].as_str().unwrap()
    }
}

fn bash() -> Value {
    json!({"program": "bash"})
}

fn bash_on_pipes() -> Value {
    json!({"program": "bash", "channel": "pipes"})
}

fn python() -> Value {
    json!({"program": "python", "channel": "pipes"})
}

/// Runs it in its own session, runs one more command there, and closes the session.
fn suffer(hosted: &Hosted, spec: &Value, code: &str, timeout: Duration) -> Fate {
    let session = hosted.open(spec);
    let id = session["id"].as_str().unwrap();
    let (status, done) = hosted.exec(id, code, timeout);
    assert_eq!(status, 200, "{code}: {done}");
    let more = match spec["program"] == "python" {
        true => "import posix\nwritten = posix.write(1, b'more\\n')",
        false => "command echo more",
    };
    let (status, next) = hosted.exec(id, more, PATIENT);
    assert!([200, 404, 410].contains(&status), "{code}: {next}");
    let next = (status == 200 && next["outcome"]["how"] == "exited")
        .then(|| next["stdout"]["text"].as_str().unwrap().to_owned());
    let receipt = receipt(hosted, id);
    Fate {
        done,
        next,
        receipt,
    }
}

/// The receipt of a session, from the close or, if it ended before, from the host's events.
fn receipt(hosted: &Hosted, id: &str) -> Value {
    let (status, receipt) = hosted.ask("DELETE", &format!("/v1/sessions/{id}"), "");
    if status == 200 {
        return receipt;
    }
    let mut found = None;
    eventually("the end is told", LONG, || {
        let mut events = hosted.events().into_iter();
        found = events.find(|event| event["event"] == "session_close" && event["id"] == id);
        found.is_some()
    });
    found.unwrap()
}

/// Checks how the code ended, whether the session continues, and that nothing is left.
#[track_caller]
fn assert_fate(hosted: &Hosted, spec: &Value, code: &str, how: &str, goes_on: bool) -> Fate {
    let fate = suffer(
        hosted,
        spec,
        code,
        if how == "timed-out" { SHORT } else { PATIENT },
    );
    assert_eq!(fate.how(), how, "{code}: {}", fate.done);
    let next = fate.next.as_deref().map(str::trim);
    assert_eq!(
        next.is_some_and(|next| next.contains("more")),
        goes_on,
        "{code}: {next:?} {}",
        fate.done
    );
    let receipt = &fate.receipt;
    assert_eq!(
        (&receipt["survivors"], &receipt["clean"]),
        (&json!(0), &json!(true)),
        "{code}: {receipt}"
    );
    fate
}

/// Runs all of these, some in parallel: most of them wait for a time limit. Each has its own
/// session.
fn assert_fates(hosted: &Hosted, spec: &Value, cases: &[(&str, &str, bool)]) {
    let next = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..LANES {
            scope.spawn(|| {
                while let Some((code, how, goes_on)) =
                    cases.get(next.fetch_add(1, Ordering::Relaxed))
                {
                    assert_fate(hosted, spec, code, how, *goes_on);
                }
            });
        }
    });
}

/// Nothing is left, and the next session works.
fn assert_well(hosted: &Hosted) {
    let fate = suffer(hosted, &bash(), "echo well", LONG);
    assert_eq!(
        (fate.how(), fate.text().trim()),
        ("exited", "well"),
        "{}",
        fate.done
    );
    assert_eq!(fate.receipt["survivors"], 0, "{}", fate.receipt);
    eventually("nothing is left", LONG, || hosted.others().is_empty());
}

#[test]
fn code_that_forks_away_is_ended_with_its_session() {
    let hosted = Hosted::on_socket(&[]);
    for spec in [bash(), bash_on_pipes()] {
        for code in [
            "setsid sleep 1000 & disown",
            "(setsid sh -c 'sleep 1000 & sleep 1000 &' &) >/dev/null 2>&1",
            "for i in 1 2 3; do (trap '' HUP TERM INT; env -i setsid sleep 1000 >/dev/null 2>&1 &); done",
        ] {
            assert_fate(&hosted, &spec, code, "exited", true);
        }
    }
    let daemon = "import os, time\nif os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0:\n        os.closerange(0, 3)\n        time.sleep(1000)\n    os._exit(0)\nos.wait()";
    assert_fate(&hosted, &python(), daemon, "exited", true);
    assert_well(&hosted);
}

/// Code, how it ends, and whether the session continues after it.
const BASH_CODE: &[(&str, &str, bool)] = &[
    (
        "exec 3>&-; exec 3</dev/null; echo x >&3; true",
        "exited",
        true,
    ),
    (
        "for i in {1..300}; do printf '%032x 0 /tmp\\n' $i >&19; done; echo garbage >&19; true",
        "exited",
        true,
    ),
    ("exec 19>&-", "program-ended", false),
    (
        "trap '' INT TERM HUP QUIT; while :; do :; done",
        "timed-out",
        true,
    ),
    (
        "trap '' INT TERM HUP QUIT; while :; do command sleep 0.01; done",
        "timed-out",
        true,
    ),
    ("kill -STOP $$", "timed-out", true),
    (
        "stty raw -echo rows 1 cols 1; printf '\\033[?1049h'",
        "exited",
        true,
    ),
    ("exec sleep 1000", "program-ended", false),
    ("exec cat", "program-ended", false),
    ("exec true", "program-ended", false),
    ("kill -9 $$", "program-ended", false),
    ("exit 7", "program-ended", false),
    ("set -euo pipefail; false", "program-ended", false),
    ("readonly PROMPT_COMMAND", "timed-out", true),
    (
        "alias echo=false; printf() { :; }; read() { :; }; eval() { :; }; true",
        "exited",
        true,
    ),
    ("exec 0<&- 1>&- 2>&-", "exited", false),
];

#[test]
fn a_bash_that_hurts_itself_goes_on_or_is_replaced_or_its_end_is_told() {
    let hosted = Hosted::on_socket(&[]);
    assert_fates(&hosted, &bash(), BASH_CODE);
    assert_well(&hosted);
}

/// Code, how it ends, and whether the session continues after it.
const PYTHON_CODE: &[(&str, &str, bool)] = &[
    ("import sys\nsys.exit(3)", "program-ended", false),
    ("import os\nos._exit(4)", "program-ended", false),
    ("import os\nos.fork()", "exited", true),
    (
        "import os\nif os.fork() == 0:\n    raise SystemExit(5)\nos.wait()\nNone",
        "exited",
        true,
    ),
    (
        "import threading, time\ndef f():\n    while True:\n        print('x'); time.sleep(0.001)\nthreading.Thread(target=f, daemon=True).start()",
        "exited",
        true,
    ),
    (
        "import builtins\nfor n in ('print', 'open', 'len', 'compile', 'exec', 'isinstance', 'getattr', 'hasattr', 'str', 'type'):\n    setattr(builtins, n, None)",
        "exited",
        true,
    ),
    (
        "import os\nos.write = os.read = os.getpid = os.getcwdb = os._exit = None",
        "exited",
        true,
    ),
    (
        "import sys, signal\nsignal.signal = None\nclass S:\n    def write(self, t): raise RuntimeError\n    def flush(self): 1/0\nsys.stdout = sys.stderr = S()",
        "exited",
        true,
    ),
    (
        "import sys\nsys.stdout.close()\nsys.stderr = None",
        "exited",
        true,
    ),
    (
        "import sys\nsys.excepthook = lambda *a: 1/0\n1/0",
        "exited",
        true,
    ),
    (
        "import linecache, sys\nlinecache.cache = None\ndel sys.modules['__main__']",
        "exited",
        true,
    ),
    ("def f():\n    f()\nf()", "exited", true),
    (
        "import ctypes
ctypes.string_at(0)",
        "program-ended",
        false,
    ),
    (
        "import signal, time\nsignal.setitimer(signal.ITIMER_REAL, 0.01)\ntime.sleep(10)",
        "program-ended",
        false,
    ),
    (
        "import faulthandler, time\nfaulthandler.dump_traceback_later(0.05, exit=True)\ntime.sleep(10)",
        "program-ended",
        false,
    ),
    (
        "import time\nwhile True:\n    try:\n        time.sleep(10)\n    except KeyboardInterrupt:\n        pass",
        "timed-out",
        true,
    ),
    (
        "import signal, time\nfor s in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):\n    signal.signal(s, signal.SIG_IGN)\nwhile True: pass",
        "timed-out",
        true,
    ),
    (
        "import os, signal\nos.kill(os.getpid(), signal.SIGSTOP)",
        "timed-out",
        true,
    ),
    (
        "import os\nos.closerange(3, 100000)",
        "program-ended",
        false,
    ),
    (
        "import os\nheld = []\ntry:\n    while True: held.append(os.open('/dev/null', 0))\nexcept OSError: pass",
        "exited",
        true,
    ),
    (
        "import gc\ngc.set_threshold(1)\nclass D:\n    def __del__(self): raise KeyboardInterrupt\nfor i in range(50): D()",
        "exited",
        true,
    ),
    (
        "import os\nos.execvp('sleep', ['sleep', '1000'])",
        "program-ended",
        false,
    ),
    (
        "import os, signal\nsignal.signal(signal.SIGCHLD, signal.SIG_IGN)\nfor i in range(30):\n    if os.fork() == 0:\n        os._exit(0)",
        "exited",
        true,
    ),
    (
        "import atexit, time\natexit.register(time.sleep, 1000)\nimport threading\nthreading.Thread(target=time.sleep, args=(1000,)).start()",
        "exited",
        true,
    ),
];

#[test]
fn a_python_that_hurts_itself_goes_on_or_is_replaced_or_its_end_is_told() {
    let hosted = Hosted::on_socket(&[]);
    assert_fates(&hosted, &python(), PYTHON_CODE);
    assert_well(&hosted);
}

#[test]
fn a_keeper_that_is_stopped_by_its_own_session_does_not_keep_it_from_ending() {
    let hosted = Hosted::on_socket(&[]);
    let session = hosted.open(&bash());
    let id = session["id"].as_str().unwrap();
    let code = "sleep 1000 & setsid sleep 1000 & kill -STOP $PPID";
    assert_eq!(hosted.exec(id, code, LONG).0, 200);
    let receipt = hosted.close(id);
    eventually("nothing is left", LONG, || hosted.others().is_empty());
    assert_eq!(
        (&receipt["survivors"], &receipt["clean"]),
        (&json!(0), &json!(true)),
        "{receipt}"
    );
    assert_well(&hosted);
}

#[test]
fn a_keeper_that_is_killed_by_its_own_session_leaves_nobody_behind() {
    let hosted = Hosted::on_socket(&[]);
    // There was no look at the tree before, and these are no longer below the program.
    for code in [
        "(setsid sleep 1000 >/dev/null 2>&1 &); kill -9 $PPID; sleep 1000",
        "(env -i setsid sh -c 'trap \"\" HUP TERM; sleep 1000 & wait' >/dev/null 2>&1 &); sleep 0.05; kill -9 $PPID; sleep 1000",
    ] {
        let session = hosted.open(&bash());
        let id = session["id"].as_str().unwrap();
        let (status, done) = hosted.exec(id, code, LONG);
        assert!([200, 410].contains(&status), "{done}");
        let told = receipt(&hosted, id);
        assert_eq!(
            (&told["survivors"], &told["clean"]),
            (&json!(0), &json!(true)),
            "{told}"
        );
    }
    eventually("nothing is left", LONG, || {
        hosted.others().is_empty() && children(hosted.pid()).is_empty()
    });
    assert_well(&hosted);
}

#[test]
fn a_warm_session_that_kills_its_keeper_leaves_nobody_behind() {
    let hosted = Hosted::on_socket(&[WARM]);
    hosted.wait_until_warm();
    let pool = hosted.others().len();
    let bystander = hosted.open(&python());
    let session = hosted.open(&python());
    let id = session["id"].as_str().unwrap();
    let code = "import os, time\nif os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0:\n        time.sleep(1000)\n    os._exit(0)\nos.wait()\nos.kill(os.getppid(), 9)\ntime.sleep(1000)";
    let (status, done) = hosted.exec(id, code, PATIENT);
    assert!([200, 410].contains(&status), "{done}");
    let told = receipt(&hosted, id);
    assert_eq!(
        (&told["survivors"], &told["clean"]),
        (&json!(0), &json!(true)),
        "{told}"
    );
    let id = bystander["id"].as_str().unwrap();
    let (status, done) = hosted.exec(id, "print(6 * 7)", PATIENT);
    assert_eq!(
        (status, done["stdout"]["text"].as_str()),
        (200, Some("42\n")),
        "{done}"
    );
    assert_eq!(hosted.close(id)["survivors"], 0);
    eventually("nothing is left but the pool", LONG, || {
        hosted.others().len() == pool
    });
}

#[test]
fn a_stranger_at_the_sessions_socket_ends_nobodys_command() {
    let hosted = Hosted::on_socket(&[]);
    let session = hosted.open(&bash());
    let id = session["id"].as_str().unwrap().to_owned();
    let stop = hosted.dir.path().join("stop");
    let code = format!(
        "until [ -e {} ]; do sleep 0.02; done; echo by itself",
        stop.display()
    );
    let body = json!({"code": code, "timeout_ms": 20_000}).to_string();
    let running = hosted.send("POST", &format!("/v1/sessions/{id}/exec"), &body);
    eventually("it runs", LONG, || {
        hosted.ask("GET", "/v1/health", "").1["sessions"]["busy"] == 1
    });
    let attack = "import os, socket\n\
        s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)\n\
        s.setblocking(False)\n\
        rows = [l.split() for l in open('/proc/net/unix')]\n\
        names = {r[-1] for r in rows if r[-1][0] == '@' or 'fdguard-' in r[-1]}\n\
        for name in names:\n\
        \x20   to = name if name[0] == '/' else '\\0' + name[1:]\n\
        \x20   for i in range(200):\n\
        \x20       try:\n\
        \x20           s.sendto(b'%032x 0 /\\n' % i, to)\n\
        \x20           s.sendto(b'\\xff' * 9000, to)\n\
        \x20       except OSError: pass\n\
        print(len(names) > 0)";
    let fate = suffer(&hosted, &python(), attack, LONG);
    assert_eq!(
        (fate.how(), fate.text()),
        ("exited", "True\n"),
        "{}",
        fate.done
    );
    let (_, health) = hosted.ask("GET", "/v1/health", "");
    assert_eq!(
        health["strays"], 0,
        "nobody finds the host's socket: {health}"
    );
    assert_eq!(
        health["sessions"]["busy"], 1,
        "the command was ended: {health}"
    );
    fs::write(&stop, "").unwrap();
    let (status, done) = read_answer(running).unwrap();
    assert_eq!(
        (status, &done["outcome"]["how"]),
        (200, &json!("exited")),
        "{done}"
    );
    assert!(
        done["stdout"]["text"]
            .as_str()
            .unwrap()
            .contains("by itself"),
        "{done}"
    );
    assert_eq!(receipt(&hosted, &id)["survivors"], 0);
    assert_well(&hosted);
}

#[test]
fn limits_hold_for_forks_memory_and_descriptors() {
    let hosted = Hosted::on_socket(&[]);
    let mut few = bash_on_pipes();
    few["limits"] = json!({"processes": 40});
    let fate = suffer(
        &hosted,
        &few,
        "while :; do sleep 1000 & done 2>/dev/null",
        Duration::from_secs(10),
    );
    assert!(
        ["limit-reached", "exited", "timed-out"].contains(&fate.how()),
        "{}",
        fate.done
    );
    assert_eq!(fate.receipt["survivors"], 0, "{}", fate.receipt);
    let mut small = python();
    small["limits"] = json!({"memory_bytes": 256 << 20});
    let fate = suffer(
        &hosted,
        &small,
        "held = []\nwhile True: held.append(bytearray(1 << 24))",
        LONG,
    );
    assert!(
        ["limit-reached", "exited", "program-ended"].contains(&fate.how()),
        "{}",
        fate.done
    );
    assert_eq!(fate.receipt["survivors"], 0, "{}", fate.receipt);
    let mut narrow = bash();
    narrow["limits"] = json!({"descriptors": 64});
    let fate = suffer(
        &hosted,
        &narrow,
        "for i in {20..80}; do eval \"exec $i</dev/null\" || break; done 2>/dev/null; true",
        LONG,
    );
    assert_eq!(fate.how(), "exited", "{}", fate.done);
    assert_eq!(fate.receipt["survivors"], 0, "{}", fate.receipt);
    assert_well(&hosted);
}

#[test]
fn a_flood_of_output_does_not_fill_the_host() {
    let hosted = Hosted::on_socket(&[]);
    let before = peak_kib(&hosted);
    let all: u64 = match std::env::var_os("FDGUARD_TEST_FLOOD") {
        Some(_) => 1 << 30,
        None => 200 << 20,
    };
    for spec in [bash_on_pipes(), bash()] {
        let all = if spec == bash() { all / 20 } else { all };
        let code = format!("head -c {all} /dev/zero | tr '\\0' x");
        let fate = suffer(&hosted, &spec, &code, Duration::from_secs(120));
        assert_eq!(fate.how(), "exited", "{}", fate.done["outcome"]);
        assert_eq!(fate.done["stdout"]["bytes"], all);
        assert_eq!(fate.receipt["survivors"], 0, "{}", fate.receipt);
    }
    // Unread output of a process that was left behind.
    let session = hosted.open(&bash_on_pipes());
    let id = session["id"].as_str().unwrap();
    assert_eq!(hosted.exec(id, "yes & sleep 0.2", LONG).0, 200);
    thread::sleep(Duration::from_millis(500));
    let fate = hosted.close(id);
    assert_eq!(fate["survivors"], 0, "{fate}");
    let after = peak_kib(&hosted);
    eprintln!("the host's peak: {before} KiB before, {after} KiB after");
    assert!(
        after < before + 32 * 1024,
        "{before} KiB before, {after} KiB after"
    );
    assert_well(&hosted);
}

#[test]
fn processes_that_never_stop_writing_hold_up_no_end_of_a_command() {
    let hosted = Hosted::on_socket(&[]);
    for spec in [bash(), bash_on_pipes()] {
        let session = hosted.open(&spec);
        let id = session["id"].as_str().unwrap();
        let flood = "for i in 1 2 3 4; do cat /dev/zero & done; true";
        for code in [flood, "true", "true"] {
            let (status, done) = hosted.exec(id, code, PATIENT);
            assert_eq!(
                (status, &done["outcome"]["how"]),
                (200, &json!("exited")),
                "{code}"
            );
        }
        assert_eq!(hosted.close(id)["survivors"], 0);
    }
    assert_well(&hosted);
}

/// The host's peak memory.
fn peak_kib(hosted: &Hosted) -> u64 {
    let status = fs::read(format!("/proc/{}/status", hosted.pid())).unwrap();
    fdguard_proc::status::number_of(&status, b"VmHWM").unwrap()
}
