//! What cannot be done safely is refused, and the program goes on.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};

use fdguard_attach::{Error, Refusal, Target};
use rustix::process::{Pid, Signal, kill_process};

use super::victim::{Borrowed, enter, library, library_path, program, wait_until_it_waits};

const NOBODY: u32 = 65534;

fn refused(pid: u32) -> Refusal {
    Target::examine(pid).unwrap_err()
}

#[test]
fn a_seccomp_filter_that_kills() {
    let victim = Borrowed::start("seccomp");
    let refusal = refused(victim.pid());
    assert!(matches!(refusal, Refusal::Seccomp { .. }), "{refusal}");
    assert!(refusal.remedy().unwrap().contains("fdguard trace --"));
    assert_eq!(victim.finish().outcome(), (3, 0));
}

#[test]
fn a_filter_that_comes_after_the_examination() {
    let victim = Borrowed::start("read");
    let target = Target::examine(victim.pid()).unwrap();
    drop(victim);
    let error = target.call(&library(), c"count", b"").unwrap_err();
    assert!(
        matches!(error, Error::Ended | Error::Refused(Refusal::Gone)),
        "{error}"
    );
}

#[test]
fn programs_without_a_usable_c_library() {
    for (variant, flags, wanted) in [
        ("static", &["-static", "-O1", "-lm"][..], Refusal::Static),
        (
            "static-pie",
            &["-static-pie", "-O1", "-lm"],
            Refusal::Static,
        ),
    ] {
        // dlopen in a static program is a warning of the linker, not of the compiler.
        let Some(program) = testkit::c_variant("borrowed", variant, flags) else {
            continue;
        };
        let victim = Borrowed::of(Command::new(program).arg("read"));
        assert_eq!(refused(victim.pid()), wanted, "{variant}");
        assert_eq!(victim.finish().outcome(), (3, 0));
    }
}

#[test]
fn musl_and_32_bits() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("wait.c");
    fs::write(
        &source,
        "int getchar(void); int main(void) { return getchar() == 97 ? 0 : 1; }",
    )
    .unwrap();
    for (compiler, flag, wanted) in [
        ("musl-gcc", "-O1", Refusal::Musl),
        ("gcc", "-m32", Refusal::Architecture { kind: "32-bit" }),
    ] {
        let program = dir.path().join(compiler);
        let built = Command::new(compiler)
            .arg(flag)
            .arg("-o")
            .args([&program, &source])
            .stderr(Stdio::null())
            .status();
        if !built.is_ok_and(|status| status.success()) {
            testkit::skip(&format!("{compiler} {flag} does not work here"));
            continue;
        }
        let mut child = Command::new(&program)
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        wait_until_it_waits(child.id());
        assert_eq!(refused(child.id()), wanted);
        std::io::Write::write_all(&mut child.stdin.take().unwrap(), b"a").unwrap();
        assert!(child.wait().unwrap().success());
    }
}

#[test]
fn processes_that_are_none() {
    assert_eq!(refused(std::process::id()), Refusal::Itself);
    assert_eq!(refused(4_194_300), Refusal::Gone);
    let mut child = Command::new("true").spawn().unwrap();
    let stat = format!("/proc/{}/stat", child.id());
    while !fs::read_to_string(&stat).unwrap().contains(") Z ") {
        std::thread::yield_now();
    }
    assert_eq!(refused(child.id()), Refusal::Zombie);
    child.wait().unwrap();
    if fs::read_to_string("/proc/2/comm").is_ok_and(|name| name == "kthreadd\n") {
        assert_eq!(refused(2), Refusal::KernelThread);
    }
    let victim = Borrowed::start("crowd");
    let threads = fs::read_dir(format!("/proc/{}/task", victim.pid())).unwrap();
    let names = threads.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let thread = names.map(|name| name.parse().unwrap()).max().unwrap();
    if thread != victim.pid() {
        let process = victim.pid();
        assert_eq!(refused(thread), Refusal::Thread { process });
    }
}

#[test]
fn another_tracer() {
    let victim = Borrowed::start("traced");
    let refusal = refused(victim.pid());
    assert!(
        matches!(&refusal, Refusal::Traced { name, .. } if name == "borrowed-c"),
        "{refusal:?}"
    );
    assert_eq!(victim.finish().outcome(), (3, 0));
}

#[test]
fn a_stopped_process() {
    let victim = Borrowed::start("read");
    let pid = Pid::from_raw(victim.pid().cast_signed()).unwrap();
    kill_process(pid, Signal::STOP).unwrap();
    let stat = format!("/proc/{}/stat", victim.pid());
    while !fs::read_to_string(&stat).unwrap().contains(") T ") {
        std::thread::yield_now();
    }
    assert_eq!(refused(victim.pid()), Refusal::Stopped);
    kill_process(pid, Signal::CONT).unwrap();
    assert_eq!(victim.finish().outcome(), (3, 0));
}

/// A copy of a file that everybody can use.
fn public_copy(dir: &std::path::Path, file: &std::path::Path) -> std::path::PathBuf {
    let copy = dir.join(file.file_name().unwrap());
    assert!(
        Command::new("cp")
            .args([file, &copy])
            .status()
            .unwrap()
            .success()
    );
    fs::set_permissions(&copy, fs::Permissions::from_mode(0o755)).unwrap();
    copy
}

#[test]
fn other_users_and_protected_processes() {
    if !testkit::is_root() {
        return testkit::skip("needs root, to become another user");
    }
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let program = public_copy(dir.path(), &program());
    let enter_copy = public_copy(dir.path(), std::path::Path::new(enter(1).get_program()));
    let library = public_copy(dir.path(), &library_path());
    let output = |pid: u32| {
        let mut command = Command::new(&enter_copy);
        command.arg(pid.to_string()).arg(&library).arg("count");
        let output = command.uid(NOBODY).gid(NOBODY).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let own = || {
        let mut command = Command::new(&program);
        command.arg("read").uid(NOBODY).gid(NOBODY).current_dir("/");
        command
    };
    let of_root = Borrowed::start("read");
    let said = output(of_root.pid());
    assert!(
        said.contains("belongs to another user (uid 0)") && said.contains("sudo"),
        "{said}"
    );
    assert_eq!(of_root.finish().outcome(), (3, 0));
    let hidden = Borrowed::of(own().arg("hidden"));
    let said = output(hidden.pid());
    assert!(
        said.contains("not dumpable") && said.contains("sudo"),
        "{said}"
    );
    assert_eq!(hidden.count(), 1, "root may");
    assert_eq!(hidden.finish().outcome(), (3, 0));
    let plain = Borrowed::of(&mut own());
    plain.wait_until_it_waits();
    let said = output(plain.pid());
    assert!(said.starts_with("returned 1 "), "without root: {said}");
    assert_eq!(plain.finish().outcome(), (3, 0));
}

/// The directories and files of a root with nothing but the victim.
pub(crate) fn small_root(dir: &std::path::Path) {
    for name in [
        "proc", "tmp", "lib", "lib64", "usr", "dev", "sys", "etc", "run",
    ] {
        fs::create_dir(dir.join(name)).unwrap();
    }
    let output = Command::new("ldd").arg(program()).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    for path in text.split_whitespace().filter(|word| word.starts_with('/')) {
        let place = dir.join(path.trim_start_matches('/'));
        fs::create_dir_all(place.parent().unwrap()).unwrap();
        assert!(
            Command::new("cp")
                .arg("-L")
                .arg(path)
                .arg(&place)
                .status()
                .unwrap()
                .success()
        );
    }
    public_copy(dir, &program());
}

#[test]
fn another_namespace_with_and_without_proc() {
    if !testkit::is_root() {
        return testkit::skip("needs root for namespaces");
    }
    let dir = tempfile::tempdir().unwrap();
    small_root(dir.path());
    let proc = "mount -t proc proc proc &&";
    let with_user = ["-U", "-r", "-m", "-p", "-f"];
    for (kinds, mount, is_entered) in [
        (&["-m", "-p", "-f"][..], proc, true),
        (&["-m", "-p", "-f"], "", false),
        (&with_user, proc, true),
    ] {
        let script = format!(
            "cd {} && {mount} exec chroot . /borrowed-c read",
            dir.path().display()
        );
        let mut command = Command::new("unshare");
        command
            .args(kinds)
            .args(["--kill-child", "sh", "-c", &script]);
        let victim = Borrowed::of(&mut command);
        let children = format!("/proc/{0}/task/{0}/children", victim.pid());
        let pid = fs::read_to_string(children)
            .unwrap()
            .trim()
            .parse()
            .unwrap();
        wait_until_it_waits(pid);
        let called = Target::examine(pid)
            .unwrap()
            .call(&library(), c"count", b"");
        match called {
            Ok(call) => assert!(is_entered && call.returned == 1),
            Err(Error::NoProc { reason }) => assert!(!is_entered, "{reason}"),
            Err(error) => panic!("{error}"),
        }
        assert_eq!(victim.finish().outcome(), (3, 0));
    }
}
