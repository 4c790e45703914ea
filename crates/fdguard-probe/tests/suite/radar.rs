//! The radar with full privileges: counts that follow, exits that are noticed.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use fdguard_core::host::HostRow;
use fdguard_probe::{Options, Probe, Radar};
use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};
use testkit::{FakeProc, Victim};

fn row(radar: &mut Radar, probe: &Probe, pid: u32) -> Option<HostRow> {
    let view = radar.scan(probe).unwrap();
    view.rows.into_iter().find(|row| row.pid == pid)
}

#[test]
fn counts_follow_from_look_to_look() {
    let mut victim = Victim::start("leaker");
    let probe = Probe::new().unwrap();
    let mut radar = Radar::new();
    for (order, count) in [
        ("0", 3),
        ("7", 10),
        ("-7", 3),
        ("300 file", 303),
        ("-1", 302),
    ] {
        victim.tell(order);
        let seen = row(&mut radar, &probe, victim.pid()).unwrap();
        assert_eq!(seen.count, Some(count), "after {order}");
        let whole = probe.snapshot(victim.pid(), Options::default()).unwrap();
        assert_eq!(whole.count, seen.count);
        assert_eq!(whole.limits, seen.limits);
        assert_eq!(whole.process.key(), seen.key());
        assert_eq!(whole.table_size, seen.table_size, "after {order}");
    }
    victim.finish();
}

#[test]
fn r8_a_process_that_became_a_zombie_is_shown_as_one() {
    let probe = Probe::new().unwrap();
    let mut radar = Radar::new();
    let mut child = Command::new("cat")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let pid = child.id();
    assert!(!row(&mut radar, &probe, pid).unwrap().zombie);
    drop(child.stdin.take());
    let ended = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
    waitid(WaitId::Pid(Pid::from_child(&child)), ended).unwrap();
    let seen = row(&mut radar, &probe, pid).unwrap();
    assert_eq!((seen.zombie, seen.count), (true, Some(0)));
    assert!(row(&mut Radar::new(), &probe, pid).unwrap().zombie);
    child.wait().unwrap();
    assert_eq!(row(&mut radar, &probe, pid), None);
}

/// A shell that waits for a line, then turns into cat.
struct TurningShell {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl TurningShell {
    fn start() -> Self {
        let mut child = Command::new("sh")
            .args(["-c", "echo ready; read go; echo; exec cat"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut shell = Self {
            stdin: child.stdin.take().unwrap(),
            stdout: BufReader::new(child.stdout.take().unwrap()),
            child,
        };
        assert_eq!(shell.line(), "ready\n");
        shell
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        line
    }

    fn turn(&mut self) {
        self.stdin.write_all(b"go\nhello\n").unwrap();
        assert_eq!([self.line(), self.line()], ["\n", "hello\n"]);
    }

    fn name(&self, radar: &mut Radar, probe: &Probe) -> String {
        let row = row(radar, probe, self.child.id()).unwrap();
        row.comm.to_lossy().into_owned()
    }

    fn finish(mut self) {
        drop(self.stdin);
        assert!(self.child.wait().unwrap().success());
    }
}

#[test]
fn a_process_that_becomes_another_program_is_shown_under_its_new_name() {
    let probe = Probe::new().unwrap();
    let mut radar = Radar::new();
    let mut shell = TurningShell::start();
    for _ in 0..2 {
        assert_eq!(shell.name(&mut radar, &probe), "sh");
    }
    shell.turn();
    // Rare facts are read again every sixteen scans.
    let names: Vec<String> = (0..16).map(|_| shell.name(&mut radar, &probe)).collect();
    assert_eq!(names.last().map(String::as_str), Some("cat"));
    shell.finish();
}

#[test]
fn a_process_that_was_first_seen_before_its_exec_has_its_name_from_the_second_scan_on() {
    let probe = Probe::new().unwrap();
    let mut radar = Radar::new();
    // What is read again every sixteen scans is that of one of them at most.
    let mut shells = [(); 3].map(|()| TurningShell::start());
    radar.scan(&probe).unwrap();
    shells.iter_mut().for_each(TurningShell::turn);
    let view = radar.scan(&probe).unwrap();
    for shell in shells {
        let mut rows = view.rows.iter();
        let row = rows.find(|row| row.pid == shell.child.id()).unwrap();
        assert_eq!(row.comm.as_str(), Some("cat"));
        shell.finish();
    }
}

#[test]
fn kernel_threads_are_no_rows_and_every_process_is_one() {
    let probe = Probe::new().unwrap();
    let view = Radar::new().scan(&probe).unwrap();
    assert!(view.rows.is_sorted_by_key(|row| row.pid));
    assert!(
        view.rows
            .iter()
            .all(|row| row.pid != 2 || row.ppid != Some(0))
    );
    assert!(view.rows.iter().any(|row| row.pid == std::process::id()));
    assert!(view.host.files.used.is_some() && view.taken_at.is_some());
}

#[test]
fn a_made_up_tree_is_looked_at_without_sizes() {
    let mut tree = FakeProc::new();
    let info = "pos:\t0\nflags:\t02\nmnt_id:\t1\nino:\t4\n";
    let process = tree.process(10).limits("64", "unlimited").table_size(256);
    process.fd(0, "/dev/null", info).fd(7, "/dev/null", info);
    tree.process(11).without("stat");
    tree.process(12).file("stat", "").comm("later");
    tree.process(13).without("status").without("limits");
    let probe = Probe::at(tree.root()).unwrap();
    let mut radar = Radar::new();
    for _ in 0..2 {
        let view = radar.scan(&probe).unwrap();
        let ten = &view.rows[0];
        assert_eq!(
            (ten.pid, ten.count, ten.table_size),
            (10, Some(2), Some(256))
        );
        assert_eq!((ten.limits.soft, ten.limits.hard), (Some(64), None));
        assert!(view.rows.iter().all(|row| row.pid != 11));
    }
}

#[test]
fn a_single_look_at_a_crowd_says_what_it_left_out() {
    let info = "pos:\t0\nflags:\t02\nmnt_id:\t1\nino:\t4\n";
    let mut tree = FakeProc::new();
    tree.process(10)
        .comm("small")
        .table_size(64)
        .fd(0, "/dev/null", info);
    // One simulated process under a thousand numbers.
    for pid in 11..1010 {
        std::os::unix::fs::symlink("10", tree.root().join(pid.to_string())).unwrap();
    }
    let mut large = tree.process(5000).comm("large").table_size(2048);
    for fd in 0..70 {
        large = large.fd(fd, "/dev/null", info);
    }
    drop(large);
    let probe = Probe::at(tree.root()).unwrap();
    let view = Radar::single(false).scan(&probe).unwrap();
    assert_eq!(view.rows.len(), 1001);
    let small = &view.rows[0];
    assert_eq!((small.comm.as_str(), small.count), (Some("small"), Some(1)));
    assert_eq!(
        (small.table_size, small.uid),
        (None, None),
        "unknown is never zero"
    );
    assert!(small.limits.soft.is_some());
    let large = view.rows.last().unwrap();
    assert_eq!((large.count, large.crossed_1024()), (Some(70), Some(true)));
    assert_eq!(view.gaps.len(), 1);
    assert!(
        view.gaps[0].what.contains("1000 processes"),
        "{}",
        view.gaps[0].what
    );

    let view = Radar::single(true).scan(&probe).unwrap();
    assert!(
        view.rows
            .iter()
            .all(|row| row.table_size.is_some() && row.uid.is_some())
    );
    assert!(view.gaps.is_empty());
}
