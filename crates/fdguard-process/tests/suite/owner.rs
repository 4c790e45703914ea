//! Owners in processes of their own: the test's own executable, in a role.

use std::io::{BufRead as _, BufReader};
use std::process::{ChildStdout, Command, Stdio};
use std::time::Duration;

use fdguard_process::tree::{Exit, Mechanism, Options, Tree};

use super::harness::{AT_ONCE, alive, empty, family, heard, line, pidfd, plan, token, wait_for};

const ROLE: &str = "FDGUARD_TEST_ROLE";
const TOKEN: &str = "FDGUARD_TEST_TOKEN";

/// Not a test: what an owner in a process of its own does.
#[test]
#[ignore = "a role that other tests start"]
fn role() {
    let Ok(role) = std::env::var(ROLE) else {
        testkit::skip("no role was given");
        return;
    };
    match role.as_str() {
        "family" | "copied" => {
            let token = std::env::var(TOKEN).unwrap();
            let (plan, mut out) = heard(family(&token, &[]));
            let options = Options {
                orphan_grace: Duration::from_millis(50),
                ..Options::default()
            };
            let tree = Tree::start_with(&plan, options).unwrap();
            assert_eq!(line(&mut out), "up");
            // A child that holds the owner's end of the pair, as a copy of the owner without an
            // exec would. It ends with its input, the test's pipe.
            let copy = (role == "copied").then(|| rustix::io::dup(tree.fd()).unwrap());
            let holder = copy.map(|_held_by_the_child_too| Command::new("cat").spawn().unwrap());
            println!("owns {} {}", tree.main(), tree.keeper());
            // Until the test kills this process.
            std::io::stdin().read_line(&mut String::new()).unwrap();
            drop(tree);
            if let Some(mut holder) = holder {
                holder.wait().unwrap();
            }
        }
        "inborn" => {
            let inborn = testkit::c_victim("inborn");
            let mut tree = Tree::start(&plan(&[inborn.to_str().unwrap()])).unwrap();
            println!("exit {:?}", empty(&mut tree).0);
        }
        "unprivileged" => {
            let mut plan = plan(&["sleep", "1000"]);
            plan.cgroup = true;
            let mut tree = Tree::start(&plan).unwrap();
            println!("held by {:?}", tree.mechanism());
            tree.stop(AT_ONCE);
            println!("exit {:?}", empty(&mut tree).0);
        }
        other => panic!("no role {other}"),
    }
}

/// This executable in a role, started through `wrapper`.
fn command(wrapper: &[&str], role: &str, token: &str) -> Command {
    let exe = std::env::current_exe().unwrap();
    let words = ["--ignored", "--exact", "suite::owner::role", "--nocapture"];
    let mut all = wrapper.iter().map(Into::into).chain([exe.into_os_string()]);
    let mut command = Command::new(all.next().unwrap());
    command
        .args(all)
        .args(words)
        .envs([(ROLE, role), (TOKEN, token)])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    command
}

fn find_line(out: &mut BufReader<ChildStdout>, wanted: &str) -> String {
    for line in out.lines() {
        let line = line.unwrap();
        // The name of the running test may precede it.
        if let Some(at) = line.find(wanted) {
            return line[at + wanted.len()..].to_owned();
        }
    }
    panic!("no line with {wanted}");
}

#[test]
fn the_tree_of_a_killed_owner_ends() {
    for _ in 0..10 {
        kill_owner("family");
    }
}

#[test]
fn a_copy_of_the_owner_that_lives_on_does_not_keep_its_tree() {
    kill_owner("copied");
}

fn kill_owner(role: &str) {
    let token = token();
    let mut owner = command(&[], role, &token).spawn().unwrap();
    let mut out = BufReader::new(owner.stdout.take().unwrap());
    let pids = find_line(&mut out, "owns ");
    let pids: Vec<u32> = pids.split(' ').map(|pid| pid.parse().unwrap()).collect();
    let [main, keeper] = pids[..] else {
        panic!("{pids:?}");
    };
    let (main, keeper) = (pidfd(main), pidfd(keeper));
    let input = owner.stdin.take();
    owner.kill().unwrap();
    owner.wait().unwrap();
    for end in [&main, &keeper] {
        wait_for(std::os::fd::AsFd::as_fd(end));
    }
    // The keeper ends only after all others.
    assert_eq!(alive(&token), [0; 0]);
    drop(input);
}

#[test]
fn signals_that_the_owner_blocks_or_ignores_are_the_programs_again() {
    let wrapper = [
        "env",
        "--block-signal=USR1,TERM",
        "--ignore-signal=INT,CHLD,USR2",
    ];
    let mut owner = command(&wrapper, "inborn", "").spawn().unwrap();
    let mut out = BufReader::new(owner.stdout.take().unwrap());
    assert_eq!(find_line(&mut out, "blocked="), "0");
    assert_eq!(find_line(&mut out, "kept="), "0");
    // An owner that ignores CHLD has no zombies: the keeper has, and gets the exit code.
    assert_eq!(find_line(&mut out, "exit "), format!("{:?}", Exit::Code(0)));
    assert!(owner.wait().unwrap().success());
}

#[test]
fn without_the_right_to_make_a_cgroup_the_keeper_is_enough() {
    if !testkit::is_root() {
        testkit::skip("needs root, to become another user");
        return;
    }
    let mut owner = testkit::run_as(testkit::NOBODY, command(&[], "unprivileged", ""));
    let mut owner = match owner.spawn() {
        Ok(owner) => owner,
        Err(error) => {
            testkit::skip(&format!("another user cannot run this test: {error}"));
            return;
        }
    };
    let mut out = BufReader::new(owner.stdout.take().unwrap());
    let keeper = Mechanism::Keeper;
    assert_eq!(find_line(&mut out, "held by "), format!("{keeper:?}"));
    let killed = Exit::Signal(libc::SIGKILL);
    assert_eq!(find_line(&mut out, "exit "), format!("{killed:?}"));
    assert!(owner.wait().unwrap().success());
}
