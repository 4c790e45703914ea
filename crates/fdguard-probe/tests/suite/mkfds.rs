//! Everything that util-linux's `test_mkfds` can create, reported as its `lsfd` does.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};
use testkit::{is_root, skip, software};

use super::{document, look, record};

/// Each factory with its parameters. `FDS` is replaced by as many numbers as it creates.
const CASES: &[(&str, usize, &[&str])] = &[
    ("ro-regular-file", 1, &["file=/etc/hosts"]),
    ("make-regular-file", 1, &["file=made"]),
    ("make-regular-file", 1, &["file=gone", "delete=true"]),
    ("pipe-no-fork", 2, &["nonblock=rw"]),
    ("directory", 1, &[]),
    ("rw-character-device", 1, &[]),
    ("socketpair", 2, &[]),
    ("socketpair", 2, &["halfclose=true"]),
    ("socketpair", 2, &["socktype=SEQPACKET"]),
    ("symlink", 1, &[]),
    ("ro-block-device", 1, &["blkdev=BLOCK"]),
    ("mapped-packet-socket", 1, &["interface=lo"]),
    (
        "mapped-packet-socket",
        1,
        &["interface=lo", "socktype=DGRAM"],
    ),
    ("pidfd", 1, &["target-pid=SELF"]),
    ("inotify", 1, &[]),
    ("unix-stream", 3, &["path=stream"]),
    (
        "unix-stream",
        3,
        &["path=half", "server-shutdown=1", "client-shutdown=2"],
    ),
    ("unix-dgram", 2, &["path=dgram"]),
    ("unix-in-netns", 3, &["path=inside"]),
    ("tcp", 3, &[]),
    ("udp", 2, &[]),
    ("udp", 2, &["lite=true"]),
    ("raw", 1, &[]),
    ("ping", 1, &["id=9999"]),
    ("tcp6", 3, &[]),
    ("udp6", 2, &[]),
    ("udp6", 2, &["lite=true"]),
    ("raw6", 1, &[]),
    ("ping6", 1, &["id=9999"]),
    ("vsock", 3, &[]),
    ("netns", 1, &[]),
    ("netlink", 1, &["groups=5"]),
    ("eventfd", 2, &[]),
    ("mqueue", 2, &["path=/fdguard-SELF"]),
    ("eventpoll", 3, &[]),
    ("timerfd", 1, &[]),
    ("signalfd", 1, &[]),
    ("cdev-tun", 1, &[]),
    ("bpf-prog", 1, &[]),
    ("multiplexing", 12, &[]),
    ("bpf-map", 1, &[]),
    ("pty", 2, &[]),
    ("userns", 1, &[]),
    ("sockdiag", 1, &[]),
    ("foreign-sockets", 2, &[]),
];

const COLUMNS: &str = "ASSOC,TYPE,STTYPE,MODE,FLAGS,DEV,RDEV,DELETED,ENDPOINTS,SOCK.NETNS,SOCK.SHUTDOWN,SOCK.TYPE,NETLINK.GROUPS,NETLINK.LPORT,NETLINK.PROTOCOL,PACKET.IFACE,RAW.PROTOCOL,PING.ID,TCP.LADDR,UDP.LADDR,UDPLITE.LADDR,UNIX.PATH,TUN.IFACE,BPF.NAME,BPF-MAP.TYPE,BPF-PROG.TYPE,INOTIFY.INODES.RAW,PTMX.TTY-INDEX,EVENTFD.ID,EVENTPOLL.TFDS,PIDFD.PID,SOCK.STATE";

/// Numbers that nothing else uses.
const FIRST: usize = 20;

/// A running factory, in its own network namespace: its ports are fixed.
struct Factory {
    child: Child,
    pid: u32,
}

impl Drop for Factory {
    fn drop(&mut self) {
        // A line ends it properly, with the child that some factories have.
        if let Some(mut stdin) = self.child.stdin.take() {
            drop(stdin.write_all(b"DONE\n"));
        }
        drop(self.child.wait());
    }
}

/// Starts it; returns its message if it cannot work here.
fn start(bin: &Path, dir: &Path, case: &(&str, usize, &[&str])) -> Result<Factory, String> {
    let (name, count, parameters) = case;
    let prepare = "ip link set lo up 2>/dev/null; echo 0 2147483647 >/proc/sys/net/ipv4/ping_group_range; exec \"$@\" 2>&1";
    let numbers = (FIRST..FIRST + count).map(|number| number.to_string());
    let own = std::process::id().to_string();
    let block = block_device().unwrap_or_default();
    let parameters = parameters
        .iter()
        .map(|text| text.replace("SELF", &own).replace("BLOCK", &block));
    let mut child = Command::new("unshare")
        .args(["--net", "sh", "-c", prepare, "sh"])
        .arg(bin.join("test_mkfds"))
        .arg(name)
        .args(numbers)
        .args(parameters)
        .current_dir(dir)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let mut said = BufReader::new(child.stdout.take().unwrap());
    said.read_line(&mut line).unwrap();
    let pid = line
        .split_whitespace()
        .next()
        .and_then(|pid| pid.parse().ok());
    let factory = Factory {
        pid: pid.unwrap_or(0),
        child,
    };
    pid.map_or(Err(line.trim().to_owned()), |_: u32| Ok(factory))
}

fn block_device() -> Option<String> {
    let mut names = std::fs::read_dir("/sys/block").ok()?;
    let name = names.find_map(|entry| entry.ok()?.file_name().into_string().ok())?;
    Some(format!("/dev/{name}"))
}

/// `lsfd`'s report on each of these numbers.
fn lsfd(bin: &Path, pid: u32) -> Vec<Value> {
    let filter = format!("(PID == {pid}) and (FD >= {FIRST}) and (FD < 50)");
    let said = Command::new(bin.join("lsfd"))
        .args(["-J", "-o", COLUMNS, "-Q", &filter])
        .output()
        .unwrap();
    let document: Value = serde_json::from_slice(&said.stdout).unwrap();
    document["lsfd"].as_array().unwrap().clone()
}

fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    }
}

/// The class that a row of `lsfd` represents, or its beginning.
fn class_of(row: &Value) -> String {
    let kind = text(&row["type"]);
    let state = text(&row["sock.state"]);
    match kind.as_str() {
        "REG" if row["deleted"] == true => "deleted".to_owned(),
        "REG" if row["dev"] == "0:4" => "other:".to_owned(),
        "REG" => "regular".to_owned(),
        "DIR" => "directory".to_owned(),
        "LINK" => "other:symlink".to_owned(),
        "BLK" => "blockdev".to_owned(),
        "CHR" if row["rdev"] == "5:2" => "pty-master".to_owned(),
        "CHR" if text(&row["rdev"]).starts_with("136:") => "tty".to_owned(),
        "CHR" => "chardev".to_owned(),
        "FIFO" => "pipe".to_owned(),
        "TCP" | "TCPv6" => format!("tcp:{}", state.to_uppercase()),
        "UDP" | "UDPv6" | "UDP-Lite" | "UDPLITEv6" => "udp".to_owned(),
        "RAW" | "RAWv6" => "raw".to_owned(),
        "PING" | "PINGv6" | "mqueue" => format!("other:{kind}"),
        "NETLINK" | "PACKET" => kind.to_lowercase(),
        "AF_VSOCK" => "vsock".to_owned(),
        unix if unix.starts_with("UNIX") => "unix".to_owned(),
        other => other.trim_matches(['[', ']']).to_owned(),
    }
}

fn words(value: &Value) -> BTreeSet<String> {
    let list = value.as_array().cloned().unwrap_or_default();
    list.iter().map(text).collect()
}

/// All holders that a record names: at the other end, or of the same thing.
fn named(ours: &Value) -> BTreeSet<(u64, u64)> {
    let detail = &ours["detail"];
    let lists = [
        &detail["peer"],
        &detail["peer"]["holders"],
        &ours["shared_with"],
    ];
    let holders = lists.into_iter().filter_map(Value::as_array).flatten();
    let pair = |one: &Value| Some((one["pid"].as_u64()?, one["fd"].as_u64()?));
    holders.filter_map(pair).collect()
}

/// `4101,test_mkfds,4-w`
fn endpoint(value: &Value) -> (u64, u64) {
    let text = text(value);
    let mut parts = text.split(',');
    let pid = parts.next().unwrap().parse().unwrap();
    let number = parts.next_back().unwrap();
    let digits = number.trim_end_matches(|c: char| !c.is_ascii_digit());
    (pid, digits.parse().unwrap())
}

/// Notes a difference.
fn same(found: &mut Vec<String>, what: &str, theirs: &str, mine: &str) {
    if theirs != mine {
        found.push(format!("{what}: lsfd {theirs}, fdguard {mine}"));
    }
}

/// All differences.
fn differences(row: &Value, ours: &Value) -> Vec<String> {
    let mut found = Vec::new();
    let class = text(&ours["class"]);
    let expected = class_of(row);
    let shown = if expected.ends_with(':') {
        &class[..expected.len()]
    } else {
        &class
    };
    same(&mut found, "class", &expected, shown);
    compare_opening(&mut found, row, ours);
    compare_detail(&mut found, &class, row, &ours["detail"]);
    compare_lists(&mut found, row, ours);
    found
}

/// Flags and close-on-exec.
fn compare_opening(found: &mut Vec<String>, row: &Value, ours: &Value) {
    let flags = text(&row["flags"]);
    let known = ["", "wronly", "rdwr", "path", "cloexec"];
    let theirs = flags.split(',').filter(|flag| !known.contains(flag));
    let theirs: BTreeSet<String> = theirs.map(str::to_owned).collect();
    let mine = words(&ours["flags"]);
    same(found, "flags", &format!("{theirs:?}"), &format!("{mine:?}"));
    let cloexec = flags.contains("cloexec").to_string();
    same(found, "cloexec", &cloexec, &text(&ours["cloexec"]));
}

/// Fields with one value.
fn compare_detail(found: &mut Vec<String>, class: &str, row: &Value, detail: &Value) {
    if !detail["dev"].is_null() || class == "regular" {
        same(found, "dev", &text(&row["dev"]), &text(&detail["dev"]));
    }
    if ["chardev", "blockdev", "tty"].contains(&class) {
        same(found, "rdev", &text(&row["rdev"]), &text(&detail["device"]));
    }
    if class == "unix" || class == "packet" {
        same(
            found,
            "kind",
            &text(&row["sock.type"]),
            &text(&detail["kind"]),
        );
    }
    for (column, mine) in pairs(detail) {
        let theirs = text(&row[column]).replace('_', "-").to_lowercase();
        // A connected socket has no name of its own: lsfd shows its listener's.
        let is_unnamed = column == "unix.path" && mine.is_empty();
        if !theirs.is_empty() && !is_unnamed {
            same(
                found,
                column,
                &theirs,
                &mine.replace('_', "-").to_lowercase(),
            );
        }
    }
}

/// Fields with several values.
fn compare_lists(found: &mut Vec<String>, row: &Value, ours: &Value) {
    let detail = &ours["detail"];
    if ours["class"] == "unix" {
        let open = text(&row["sock.shutdown"]);
        let shut = [("r", "read"), ("w", "write")];
        let shut = shut
            .into_iter()
            .filter(|(letter, _)| !open.contains(letter));
        let theirs: BTreeSet<String> = shut.map(|(_, name)| name.to_owned()).collect();
        let mine = words(&detail["shutdown"]);
        same(
            found,
            "shutdown",
            &format!("{theirs:?}"),
            &format!("{mine:?}"),
        );
    }
    let watched = words(&row["inotify.inodes.raw"]);
    let inodes = detail["inodes"].as_array().cloned().unwrap_or_default();
    let inodes = inodes
        .iter()
        .map(|one| format!("{}@{}", one["ino"], text(&one["dev"])));
    let inodes: BTreeSet<String> = inodes.collect();
    same(
        found,
        "inodes",
        &format!("{watched:?}"),
        &format!("{inodes:?}"),
    );
    let (theirs, mine) = (words(&row["eventpoll.tfds"]), words(&detail["targets"]));
    same(found, "tfds", &format!("{theirs:?}"), &format!("{mine:?}"));
    let named = named(ours);
    let ends = row["endpoints"].as_array().cloned().unwrap_or_default();
    for end in ends.iter().map(endpoint).filter(|end| !named.contains(end)) {
        found.push(format!("endpoint {end:?} is missing from {named:?}"));
    }
}

/// The column of `lsfd` for each member of a detail.
fn pairs(detail: &Value) -> Vec<(&'static str, String)> {
    let local = text(&detail["local"]);
    let port = local.rsplit(':').next().unwrap_or_default().to_owned();
    let groups = detail["groups"].as_array().cloned().unwrap_or_default();
    let mask: u64 = groups
        .iter()
        .filter_map(Value::as_u64)
        .map(|group| 1 << (group - 1))
        .sum();
    vec![
        ("sock.netns", text(&detail["netns"])),
        ("netlink.groups", mask.to_string()),
        ("netlink.lport", text(&detail["port"])),
        ("netlink.protocol", text(&detail["protocol"])),
        ("packet.iface", text(&detail["interface"])),
        ("raw.protocol", port.clone()),
        ("ping.id", port),
        ("tcp.laddr", local.clone()),
        ("udp.laddr", local.clone()),
        ("udplite.laddr", local),
        ("unix.path", text(&detail["path"])),
        ("tun.iface", text(&detail["interface"])),
        ("bpf.name", text(&detail["fields"]["name"])),
        ("bpf-map.type", text(&detail["fields"]["type"])),
        ("bpf-prog.type", text(&detail["fields"]["type"])),
        ("ptmx.tty-index", text(&detail["index"])),
        ("eventfd.id", text(&detail["id"])),
        ("pidfd.pid", text(&detail["pid"])),
    ]
}

#[test]
fn everything_that_test_mkfds_makes_is_told_as_lsfd_tells_it() {
    if !is_root() {
        return skip("needs root");
    }
    let Some(bin) = software("util-linux/bin") else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let (mut found, mut compared) = (Vec::new(), 0);
    for case in CASES {
        let name = format!("{} {}", case.0, case.2.join(" "));
        let factory = match start(&bin, dir.path(), case) {
            Ok(factory) => factory,
            Err(why) => {
                skip(&format!("{name}: {why}"));
                continue;
            }
        };
        let rows = lsfd(&bin, factory.pid);
        assert!(!rows.is_empty(), "{name}: lsfd sees nothing");
        let ours = document(&look(factory.pid));
        for row in rows {
            let number: u32 = text(&row["assoc"]).parse().unwrap();
            let differing = differences(&row, record(&ours, number));
            found.extend(
                differing
                    .iter()
                    .map(|one| format!("{name}: {number}: {one}")),
            );
        }
        if case.0 == "tcp" || case.0 == "tcp6" {
            let holders = &record(&ours, 21)["detail"]["peer"]["holders"];
            assert_eq!(holders, &json!([{"pid": factory.pid, "fd": 22}]), "{name}");
        }
        compared += 1;
    }
    println!("{compared} of {} cases compared", CASES.len());
    assert!(found.is_empty(), "{}", found.join("\n"));
    assert!(compared >= 30, "only {compared} were compared");
}
