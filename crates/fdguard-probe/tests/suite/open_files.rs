//! Numbers that refer to the same open file name each other, in both tiers.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};

use fdguard_probe::{Depth, Options, Probe};
use serde_json::{Value, json};
use testkit::{have, skip};

use super::{document, record};

/// Opens a file twice, duplicates one, forks a child, and sends it the other.
const SHARING: &str = "
import array, json, os, signal, socket, sys
path = sys.argv[1]
one, second = os.open(path, os.O_RDWR), os.open(path, os.O_RDWR)
duplicate = os.dup(one)
ours, theirs = socket.socketpair()
child = os.fork()
if child == 0:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    ours.close(); os.close(second); os.close(duplicate)
    _, sent, _, _ = theirs.recvmsg(1, socket.CMSG_SPACE(4))
    received = array.array('i', sent[0][2])[0]
    theirs.send(str(received).encode())
    signal.pause()
theirs.close()
ours.sendmsg([b'x'], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array('i', [second]))])
received = int(ours.recv(16))
print(json.dumps({'child': child, 'one': one, 'second': second, 'duplicate': duplicate, 'received': received}), flush=True)
sys.stdin.read()
os.kill(child, signal.SIGKILL); os.wait()
";

struct Family {
    child: Child,
    report: Value,
}

impl Family {
    fn start() -> Option<Self> {
        if !have("python3") {
            skip("needs python3");
            return None;
        }
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut command = Command::new("python3");
        command.args(["-c", SHARING]).arg(file.path());
        testkit::start_clean(&mut command);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        output.read_line(&mut line).unwrap();
        let report = serde_json::from_str(&line).unwrap();
        Some(Self { child, report })
    }

    fn number(&self, name: &str) -> u32 {
        u32::try_from(self.report[name].as_u64().unwrap()).unwrap()
    }

    /// The documents of both, or of the parent alone, in this tier.
    fn look(&self, depth: Depth, pids: &[u32]) -> Vec<Value> {
        let options = Options {
            depth,
            ..Options::default()
        };
        let snapshots = Probe::new().unwrap().snapshots(pids, options);
        let documents = snapshots.into_iter().map(|one| document(&one.unwrap()));
        documents.collect()
    }
}

impl Drop for Family {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        drop(self.child.wait());
    }
}

/// The numbers that the record names, as pairs.
fn shared(document: &Value, fd: u32) -> Value {
    record(document, fd)["open_file"]["shared_with"].clone()
}

#[test]
fn a_duplicate_an_inherited_and_a_received_number_are_one_open_file() {
    let Some(family) = Family::start() else {
        return;
    };
    let (parent, child) = (family.child.id(), family.number("child"));
    let fd = |name: &str| family.number(name);
    for depth in [Depth::Full, Depth::Kernel] {
        let [ours, theirs] = &family.look(depth, &[parent, child])[..] else {
            panic!("two processes");
        };
        let own_one = json!({"pid": parent, "fd": fd("one")});
        let own_duplicate = json!({"pid": parent, "fd": fd("duplicate")});
        let inherited = json!({"pid": child, "fd": fd("one")});
        assert_eq!(shared(ours, fd("one")), json!([own_duplicate, inherited]));
        assert_eq!(shared(ours, fd("duplicate")), json!([own_one, inherited]));
        let received = json!([{"pid": child, "fd": fd("received")}]);
        assert_eq!(shared(ours, fd("second")), received, "{depth:?}");
        let sent = json!([{"pid": parent, "fd": fd("second")}]);
        assert_eq!(shared(theirs, fd("received")), sent);
        let both = json!([own_one, own_duplicate]);
        assert_eq!(shared(theirs, fd("one")), both);
    }
}

#[test]
fn alone_a_process_names_its_own_numbers() {
    let Some(family) = Family::start() else {
        return;
    };
    let parent = family.child.id();
    let fd = |name: &str| family.number(name);
    for depth in [Depth::Full, Depth::Kernel] {
        let ours = &family.look(depth, &[parent])[0];
        let duplicate = json!([{"pid": parent, "fd": fd("duplicate")}]);
        assert_eq!(shared(ours, fd("one")), duplicate, "{depth:?}");
        // Another opening of the same file is another open file.
        assert_eq!(record(ours, fd("second"))["open_file"], Value::Null);
    }
}
