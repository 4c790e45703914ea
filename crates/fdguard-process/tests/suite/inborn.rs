//! What a program starts with. The program itself is the oracle.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::sync::Arc;

use fdguard_proc::stat::ProcStat;
use fdguard_process::plan::{InheritedFd, Plan, SessionKind};
use fdguard_process::tree::{Exit, Tree};

use super::harness::{heard, output, plan};

fn inborn() -> Plan {
    plan(&[testkit::c_victim("inborn").to_str().unwrap()])
}

/// The program's report: `key=value`, descriptors as `fd N=FILE`, variables as `env NAME=VALUE`.
fn said(plan: Plan) -> BTreeMap<String, String> {
    let (text, exit) = output(plan);
    assert_eq!(exit, Exit::Code(0));
    let pair = |line: &str| {
        line.split_once('=')
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
    };
    text.lines().map(|line| pair(line).unwrap()).collect()
}

fn numbers(said: &BTreeMap<String, String>) -> Vec<u32> {
    let numbers = said
        .keys()
        .filter_map(|key| key.strip_prefix("fd ")?.parse().ok());
    let mut numbers: Vec<u32> = numbers.collect();
    numbers.sort_unstable();
    numbers
}

fn file(fd: impl AsFd) -> String {
    let found = rustix::fs::fstat(fd).unwrap();
    format!("{}:{}", found.st_dev, found.st_ino)
}

/// Different files, at the next free numbers.
fn files(dir: &tempfile::TempDir, count: usize) -> Vec<Arc<OwnedFd>> {
    let file = |number| File::create(dir.path().join(format!("{number}"))).unwrap();
    (0..count)
        .map(|number| Arc::new(file(number).into()))
        .collect()
}

fn handed(fd: &Arc<OwnedFd>, name: Option<&str>) -> InheritedFd {
    InheritedFd {
        fd: Arc::clone(fd),
        name: name.map(str::to_owned),
    }
}

#[test]
fn nothing_but_the_standard_streams_is_inherited() {
    // Without close-on-exec, as a careless library opens them.
    let careless: Vec<_> = (0..50)
        .map(|_| rustix::io::dup(rustix::stdio::stdin()).unwrap())
        .collect();
    let said = said(inborn());
    assert_eq!(numbers(&said), [0, 1, 2]);
    drop(careless);
}

#[test]
fn handed_descriptors_stand_in_their_order_whatever_their_numbers_were() {
    let dir = tempfile::tempdir().unwrap();
    // Some have the very numbers that others are to get.
    let files = files(&dir, 20);
    let mut plan = inborn();
    plan.handed = files.iter().rev().map(|fd| handed(fd, None)).collect();
    plan.stdio[0] = Some(Arc::clone(&files[3]));
    plan.stdio[2] = Some(Arc::clone(&files[3]));
    let said = said(plan);
    assert_eq!(numbers(&said), (0..23).collect::<Vec<_>>());
    for (number, fd) in (3..).zip(files.iter().rev()) {
        assert_eq!(said[&format!("fd {number}")], file(fd));
    }
    assert_eq!(said["fd 0"], file(&files[3]));
    assert_eq!(said["fd 2"], file(&files[3]));
    assert!(said.keys().all(|key| !key.starts_with("env LISTEN_")));
}

#[test]
fn the_number_that_a_handed_descriptor_had_is_not_inherited_too() {
    // High and without close-on-exec, as a careless library opens it: the keeper must keep it for
    // the program.
    let low: Vec<_> = (0..20)
        .map(|_| rustix::io::dup(rustix::stdio::stdin()).unwrap())
        .collect();
    let high = Arc::new(rustix::io::dup(rustix::stdio::stdin()).unwrap());
    let mut plan = inborn();
    plan.handed = vec![handed(&high, None)];
    assert_eq!(numbers(&said(plan)), [0, 1, 2, 3]);
    drop(low);
}

#[test]
fn named_descriptors_are_announced_to_the_process_that_has_them() {
    let dir = tempfile::tempdir().unwrap();
    let files = files(&dir, 3);
    let (mut plan, mut out) = heard(inborn());
    plan.handed = vec![
        handed(&files[0], None),
        handed(&files[1], Some("http")),
        handed(&files[2], Some("control")),
    ];
    plan.environment.push(("LISTEN_PID".into(), "1".into()));
    assert_eq!(plan.numbers(), [5, 3, 4]);
    let tree = Tree::start(&plan).unwrap();
    let main = tree.main();
    drop(plan);
    let text = std::io::read_to_string(&mut out).unwrap();
    for line in [
        format!("env LISTEN_PID={main}"),
        "env LISTEN_FDS=2".to_owned(),
        "env LISTEN_FDNAMES=http:control".to_owned(),
        format!("fd 3={}", file(&files[1])),
        format!("fd 4={}", file(&files[2])),
        format!("fd 5={}", file(&files[0])),
    ] {
        assert!(text.lines().any(|found| found == line), "{line} in {text}");
    }
    assert_eq!(text.matches("LISTEN_PID=").count(), 1);
}

#[test]
fn the_environment_is_the_plans_with_the_mark_of_the_tree_and_nothing_else() {
    let mut plan = inborn();
    plan.environment = vec![("A".into(), "1".into()), ("B".into(), "x=y".into())];
    let said = said(plan);
    let variables: Vec<_> = said
        .iter()
        .filter(|(key, _)| key.starts_with("env "))
        .collect();
    let expected = [("env A", "1"), ("env B", "x=y")];
    assert_eq!(variables.len(), 3);
    for (name, value) in expected {
        assert_eq!(said[name], value);
    }
    let owner = format!("{}.", std::process::id());
    assert!(said["env FDGUARD_TREE"].starts_with(&owner), "{said:?}");
}

#[test]
fn signals_have_their_default_meaning() {
    // This test ignores PIPE itself, as every Rust program does.
    let said = said(inborn());
    assert_eq!(
        (said["blocked"].as_str(), said["kept"].as_str()),
        ("0", "0")
    );
}

#[test]
fn dir_and_limit_are_as_planned() {
    let dir = tempfile::tempdir().unwrap();
    let mut plan = inborn();
    plan.dir = Some(dir.path().to_owned());
    plan.soft_limit = Some(77);
    let said = said(plan);
    let there = fs::metadata(&said["folder"]).unwrap();
    assert_eq!(there.ino(), fs::metadata(dir.path()).unwrap().ino());
    assert_eq!(said["limit"], "77");
}

#[test]
fn a_limit_above_the_hard_one_is_the_hard_one() {
    let mut plan = inborn();
    plan.soft_limit = Some(u64::MAX - 1);
    let hard = rustix::process::getrlimit(rustix::process::Resource::Nofile).maximum;
    let expected = hard.unwrap_or(u64::MAX - 1);
    assert_eq!(said(plan)["limit"], expected.to_string());
}

#[test]
fn session_and_group_are_as_planned() {
    // Not with rustix: in a pid namespace whose session started outside, both numbers are 0, which
    // it considers impossible.
    let ids = |stat: &ProcStat<'_>| (stat.pgid.unwrap(), stat.session.unwrap());
    let (group, session) = fdguard_proc::process::stat(std::process::id(), ids).unwrap();
    let (group, session) = (group.to_string(), session.to_string());
    for (wanted, own_group, own_session) in [
        (SessionKind::Session, true, true),
        (SessionKind::Own, true, false),
        (SessionKind::Same, false, false),
    ] {
        let mut plan = inborn();
        plan.group = wanted;
        let said = said(plan);
        let expected_group = if own_group { &said["pid"] } else { &group };
        let expected_session = if own_session { &said["pid"] } else { &session };
        assert_eq!(&said["group"], expected_group, "{wanted:?}");
        assert_eq!(&said["session"], expected_session, "{wanted:?}");
        let own = std::process::id().to_string();
        assert_ne!(said["parent"], own, "its parent is the keeper");
    }
}

/// If a container shares the session of the host, the group and session of its first processes have
/// no number in it. Found by running all tests that way: the owner's group was considered
/// impossible.
#[test]
fn an_owner_whose_group_is_outside_of_its_pid_namespace_starts_programs_too() {
    let test = "suite::inborn::session_and_group_are_as_planned";
    let mut inside = std::process::Command::new("unshare");
    inside.args(["--pid", "--fork", "--mount-proc"]);
    inside.arg(std::env::current_exe().unwrap());
    inside.args(["--exact", test, "--nocapture"]);
    let output = inside.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    if said.contains("unshare failed") {
        testkit::skip(&format!("no pid namespace here: {said}"));
        return;
    }
    assert!(output.status.success(), "{said}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("1 passed"));
}
