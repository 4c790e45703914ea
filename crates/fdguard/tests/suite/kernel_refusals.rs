//! Where the kernel refuses the programs, the reason and another way are said; and what only the
//! kernel can trace: a program with another user's rights.

use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::Path;
use std::process::Command;

use testkit::{is_root, skip};

use super::CommandOutput;
use super::kernel_trace::{leak_is_found, may_trace, variant};

/// Runs fdguard where a script has changed what it sees of the kernel; `None` if that cannot be.
fn run_where(namespaces: &[&str], change: &str, words: &[&str]) -> Option<CommandOutput> {
    let script = format!("({change}) || exit 99; exec \"$@\"");
    let mut command = Command::new("unshare");
    testkit::start_clean(&mut command);
    command.args(namespaces).args(["sh", "-c", &script, "sh"]);
    command
        .arg(Path::new(env!("CARGO_BIN_EXE_fdguard")))
        .args(words);
    let said = CommandOutput::of(command.output().unwrap());
    if said.code == 99 || said.stderr.contains("unshare:") {
        skip("no namespace in which the kernel looks different");
        return None;
    }
    Some(said)
}

const NO_TYPES: &str = "mount -t tmpfs none /sys/kernel/btf";

#[test]
fn a_kernel_without_types_is_named_with_another_way() {
    if !may_trace() {
        return;
    }
    let own_mounts = ["--mount"];
    let ebpf = ["trace", "--source", "ebpf", "--", "true"];
    let Some(said) = run_where(&own_mounts, NO_TYPES, &ebpf) else {
        return;
    };
    assert_eq!(said.code, 125, "{}", said.stderr);
    for part in ["no type information", "leave out --source", "fdguard watch"] {
        assert!(said.stderr.contains(part), "{part} in {}", said.stderr);
    }
    // Without it, snapshots are read through /proc.
    let pid = std::process::id().to_string();
    let snap = ["snap", "--json", "--tier", "kernel", "--no-peers", &pid];
    let said = run_where(&own_mounts, NO_TYPES, &snap).unwrap();
    assert_eq!(said.code, 0, "{}", said.stderr);
    assert!(said.text().contains(r#""tier":"full""#), "{}", said.text());
}

/// In a user namespace of its own, root seems to have every capability, and the kernel refuses.
#[test]
fn a_kernel_that_refuses_root_and_one_that_is_locked_down_are_told_apart() {
    if !is_root() {
        return skip("needs root, for namespaces");
    }
    let namespaces = ["--user", "--map-root-user", "--mount"];
    let ebpf = ["trace", "--source", "ebpf", "--", "true"];
    let Some(said) = run_where(&namespaces, "true", &ebpf) else {
        return;
    };
    assert_eq!(said.code, 125, "{}", said.stderr);
    for part in ["CAP_BPF", "sudo", "setcap"] {
        assert!(said.stderr.contains(part), "{part} in {}", said.stderr);
    }
    let locked = "mount -t tmpfs none /sys/kernel/security && \
                  echo 'none integrity [confidentiality]' >/sys/kernel/security/lockdown";
    let Some(said) = run_where(&namespaces, locked, &ebpf) else {
        return;
    };
    assert_eq!(said.code, 125, "{}", said.stderr);
    for part in ["locked down to confidentiality", "leave out --source"] {
        assert!(said.stderr.contains(part), "{part} in {}", said.stderr);
    }
}

/// The loader ignores the library in a program that takes another user's rights.
#[test]
fn r18_a_program_with_another_users_rights_has_its_lines() {
    if !may_trace() {
        return;
    }
    let nobody = 65534;
    let program = variant("drip", "cc", &[]).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let copy = dir.path().join("drip");
    std::fs::copy(program, &copy).unwrap();
    chown(&copy, Some(nobody), Some(nobody)).unwrap();
    let with_user = std::fs::Permissions::from_mode(0o4755);
    std::fs::set_permissions(&copy, with_user).unwrap();
    let open = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(dir.path(), open).unwrap();
    leak_is_found(&copy, "it is privileged (set-uid");
}
