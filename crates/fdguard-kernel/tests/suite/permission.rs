//! Who may load the programs.

use std::process::Command;

use fdguard_kernel::{KernelTracer, LoadRefusal, TracerOptions, TracerScope};

use super::load;

/// Runs one of the tests below as another user with these capabilities; `None` if that cannot be.
fn run_as(test: &str, capabilities: &str, shell: &str) -> Option<String> {
    if !rustix::process::geteuid().is_root() || !testkit::have("setpriv") {
        testkit::skip("not root, or no setpriv");
        return None;
    }
    load(&TracerOptions::default())?;
    // Another user may not read this directory.
    let dir = std::env::temp_dir().join(format!("fdguard-{test}-{}", std::process::id()));
    std::fs::create_dir(&dir).unwrap();
    let program = dir.join("integration");
    std::fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    Command::new("chmod")
        .arg("-R")
        .arg("a+rX")
        .arg(&dir)
        .status()
        .unwrap();
    let script = format!("{shell} exec \"$0\" \"$@\"");
    let output = Command::new("setpriv")
        .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
        .arg(format!("--inh-caps=-all{capabilities}"))
        .arg(format!("--ambient-caps=-all{capabilities}"))
        .arg(format!("--bounding-set=-all{capabilities}"))
        .args(["sh", "-c", &script])
        .arg(&program)
        .args([
            "--exact",
            &format!("suite::permission::{test}"),
            "--nocapture",
            "--ignored",
        ])
        .current_dir("/")
        .output()
        .unwrap();
    std::fs::remove_dir_all(&dir).unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    let out = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{out}{text}");
    Some(out + &text)
}

#[test]
fn an_ordinary_user_with_two_capabilities_may_even_without_locked_memory() {
    let lock = "ulimit -l 0;";
    let Some(text) = run_as("loaded_by_another", ",+bpf,+perfmon", lock) else {
        return;
    };
    assert!(text.contains("1 passed"), "{text}");
}

#[test]
fn without_them_nobody_may() {
    for capabilities in ["", ",+bpf", ",+perfmon"] {
        let Some(text) = run_as("refused_for_another", capabilities, "") else {
            return;
        };
        assert!(text.contains("1 passed"), "{text}");
    }
}

#[test]
#[ignore = "run by the test above, as another user"]
fn loaded_by_another() {
    let mut tracer = KernelTracer::load(TracerScope::Followed).unwrap();
    tracer
        .follow(std::process::id(), Default::default())
        .unwrap();
    assert!(Command::new("true").status().unwrap().success());
    let mut count = 0;
    tracer.drain(&mut |_| count += 1).unwrap();
    assert!(count > 3, "{count}");
}

#[test]
#[ignore = "run by the test above, as another user"]
fn refused_for_another() {
    let refusal = KernelTracer::load(TracerScope::Followed).unwrap_err();
    assert_eq!(refusal, LoadRefusal::NotPermitted);
    assert_eq!(
        refusal.to_string(),
        "the kernel tracer needs CAP_BPF and CAP_PERFMON: run it with sudo"
    );
}
