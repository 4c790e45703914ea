//! A Python program that waits to be asked goes on without fdguard: at once if fdguard was killed,
//! and after a while if it lives and does not answer.

use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

/// Says its number, and opens files when it is told to. Then it says how long that took.
const PROGRAM: &str = "
import os, sys, time
def say(name, text):
    with open(name + '.new', 'w') as file: file.write(text)
    os.rename(name + '.new', name)
say('pid', str(os.getpid()))
while not os.path.exists('go'): time.sleep(0.01)
began = time.monotonic()
kept = [open('/proc/self/stat') for _ in range(12)]
say('took', str(time.monotonic() - began))
";

/// A program under a trace that does not run any more.
struct Unanswered {
    dir: tempfile::TempDir,
    tracer: Child,
    pid: String,
}

impl Unanswered {
    fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let tracer = Command::new(env!("CARGO_BIN_EXE_fdguard"))
            .current_dir(dir.path())
            .args(["trace", "--why", "-o", "trace.txt", "--"])
            .args(["python3", "-c", PROGRAM])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut run = Self {
            dir,
            tracer,
            pid: String::new(),
        };
        run.pid = run.wait_for("pid");
        run.signal(Signal::STOP);
        let stat = format!("/proc/{}/stat", run.tracer.id());
        testkit::wait_until("fdguard stands still", || {
            std::fs::read_to_string(&stat).is_ok_and(|stat| stat.contains(") T "))
        });
        std::fs::write(run.dir.path().join("go"), []).unwrap();
        testkit::wait_until("the program waits", || run.is_waiting());
        run
    }

    /// What the program has said.
    fn wait_for(&self, name: &str) -> String {
        let path = self.dir.path().join(name);
        testkit::wait_for(name, || std::fs::read_to_string(&path).ok())
    }

    /// How long the program took to open its files, in seconds.
    fn took(&self) -> f64 {
        self.wait_for("took").parse().unwrap()
    }

    /// Whether the file is there that a program creates that waits.
    fn is_waiting(&self) -> bool {
        let traces = std::fs::read_dir("/dev/shm").unwrap().flatten();
        let names = traces.filter_map(|trace| std::fs::read_dir(trace.path()).ok());
        let mut names = names.flatten().flatten().map(|entry| entry.file_name());
        let begin = format!("{}-", self.pid);
        names.any(|name| {
            let name = name.to_string_lossy();
            name.starts_with(&begin) && Path::new(&*name).extension() == Some("waiting".as_ref())
        })
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_child(&self.tracer);
        kill_process(pid, signal).unwrap();
    }
}

#[test]
fn w22_a_program_that_waits_goes_on_after_a_while_if_nobody_answers() {
    let mut run = Unanswered::start();
    let took = run.took();
    assert!((14.0..25.0).contains(&took), "{took}");
    // It is read by then.
    run.signal(Signal::CONT);
    run.tracer.wait().unwrap();
    let text = std::fs::read_to_string(run.dir.path().join("trace.txt")).unwrap();
    assert!(text.contains("held by 12 TextIOWrapper"), "{text}");
}

#[test]
fn w22_a_program_that_waits_goes_on_when_fdguard_is_killed() {
    let mut run = Unanswered::start();
    run.tracer.kill().unwrap();
    run.tracer.wait().unwrap();
    let took = run.took();
    assert!(took < 12.0, "{took}");
}
