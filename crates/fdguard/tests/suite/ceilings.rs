//! Ceilings shared by all processes of a user: known only if every process can be read.

use std::process::Command;

use serde_json::Value;
use testkit::{have, is_root, skip};

/// Holds 20 inotify instances until its input ends, in its own namespaces where no process is
/// hidden.
const HOLD_AND_WATCH: &str = r#"
coproc HOLDER { python3 -u -c '
import ctypes, os
libc = ctypes.CDLL(None)
for _ in range(20): libc.inotify_init1(0)
print(os.getpid())
input()'; }
read -r pid <&"${HOLDER[0]}"
"$FDGUARD" watch "$pid" --for 400ms --every 50ms --json
# Without a command after it the shell would become fdguard, and let go of the holder's input.
exit $?
"#;

#[test]
fn r9_instances_of_inotify_are_counted_for_the_user_where_everybody_can_be_read() {
    if !is_root() || !have("unshare") || !have("python3") {
        return skip("needs root, unshare and python3");
    }
    let output = Command::new("unshare")
        .args(["--fork", "--pid", "--mount", "--kill-child", "--mount-proc"])
        .args(["bash", "-c", HOLD_AND_WATCH])
        .env("FDGUARD", env!("CARGO_BIN_EXE_fdguard"))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    let found: Value = serde_json::from_slice(&output.stdout).expect(&said);
    let walls = found["processes"][0]["walls"].as_array().unwrap();
    let wall = walls
        .iter()
        .find(|wall| wall["name"] == "inotify-instances");
    assert_eq!(wall.unwrap()["used"], 20, "{found:#}");
}
