//! The image of `packaging/container`, run by podman with the privileges of the compose file.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;
use testkit::{NOBODY, Victim};

use super::deployment::packaging;

/// Options of `podman run` that are what a service of a compose file asks for, but for its memory
/// and its image; one on each line.
const OPTIONS: &str = r"
import sys, yaml
[service] = yaml.safe_load(open(sys.argv[1]))['services'].values()
print('--pid=' + service['pid'], '--network=' + service['network_mode'], '--user=' + service['user'], sep='\n')
if service['read_only']:
    print('--read-only', '--read-only-tmpfs=false', sep='\n')
lists = {'cap_drop': '--cap-drop', 'cap_add': '--cap-add', 'security_opt': '--security-opt', 'tmpfs': '--tmpfs'}
for key, option in lists.items():
    for value in service[key]:
        print(f'{option}={value}')
";

/// Podman with images and containers of its own, which end with the test.
struct Podman {
    dir: TempDir,
}

impl Podman {
    fn command(&self) -> Command {
        let mut command = Command::new("podman");
        command
            .arg("--root")
            .arg(self.dir.path().join("root"))
            .arg("--runroot")
            .arg(self.dir.path().join("run"))
            .args(["--storage-driver", "vfs"])
            .args(["--runtime", "runc", "--cgroup-manager", "cgroupfs"]);
        command
    }

    /// Builds the image with this program.
    fn build(&self, program: &Path) -> bool {
        let context = self.dir.path().join("context");
        std::fs::create_dir(&context).unwrap();
        // A build for tests has debug information ten times its size.
        let stripped = Command::new("strip")
            .arg("-o")
            .arg(context.join("fdguard"))
            .arg(program)
            .status();
        assert!(stripped.unwrap().success());
        let mut command = self.command();
        command
            .args(["build", "--quiet", "--layers=false", "--isolation=chroot"])
            .arg("--file")
            .arg(packaging("container/Containerfile"))
            .args(["--tag", "fdguard-test"])
            .arg(&context);
        command.output().is_ok_and(|output| output.status.success())
    }

    fn run(&self, options: &[String], program: &[&str]) -> Command {
        let mut command = self.command();
        command
            .args(["run", "--rm", "--ulimit=nofile=1024:1024"])
            .arg("--ulimit=nproc=4096:4096")
            .args(options)
            .arg("fdguard-test")
            .args(program);
        command
    }
}

impl Drop for Podman {
    fn drop(&mut self) {
        // A container that is left would keep files of the directory in use.
        drop(self.command().args(["rm", "--all", "--force"]).output());
    }
}

/// What the build for tests loads, which the one for releases has in itself.
fn libraries() -> Vec<String> {
    let places = ["/lib", "/lib64", "/usr/lib"];
    let places = places.iter().filter(|place| Path::new(place).exists());
    places
        .map(|place| format!("--volume={place}:{place}:ro"))
        .collect()
}

fn options(python: &Path) -> Vec<String> {
    let output = Command::new(python)
        .args(["-c", OPTIONS])
        .arg(packaging("compose/fdguard-serve.yml"))
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    text.lines().map(str::to_owned).collect()
}

/// A server in a container, and its address.
struct Contained {
    child: Child,
    address: String,
}

impl Drop for Contained {
    fn drop(&mut self) {
        let pid = rustix::process::Pid::from_child(&self.child);
        // Podman passes it on.
        let _sent = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        drop(self.child.wait());
    }
}

/// `fdguard serve` in the image, when it listens.
fn serve(podman: &Podman, mut arguments: Vec<String>, state: &Path) -> Contained {
    arguments.push(format!("--volume={}:/var/lib/fdguard", state.display()));
    let words = ["fdguard", "serve", "--listen", "127.0.0.1:0", "--no-token"];
    let more = ["--state", "/var/lib/fdguard", "--every", "100ms"];
    let mut child = podman
        .run(&arguments, &[&words[..], &more].concat())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    stdout.read_line(&mut line).unwrap();
    let address = line
        .split("http://")
        .nth(1)
        .and_then(|rest| rest.split(' ').next());
    Contained {
        address: address.unwrap_or_else(|| panic!("{line}")).to_owned(),
        child,
    }
}

#[test]
fn the_image_with_the_privileges_of_the_compose_file_reads_processes_of_other_users() {
    let Some(python) = testkit::software("venv/bin/python") else {
        return;
    };
    if !testkit::is_root() || !testkit::have("podman") || !testkit::have("strip") {
        return testkit::skip("needs root, podman and strip");
    }
    let podman = Podman {
        dir: tempfile::tempdir().unwrap(),
    };
    if !podman.build(&PathBuf::from(env!("CARGO_BIN_EXE_fdguard"))) {
        return testkit::skip("podman cannot build an image here");
    }
    let image = podman
        .command()
        .args(["image", "inspect", "fdguard-test"])
        .output()
        .unwrap();
    let image: Value = serde_json::from_slice(&image.stdout).unwrap();
    assert_eq!(image[0]["RootFS"]["Layers"].as_array().unwrap().len(), 1);
    assert_eq!(
        image[0]["Config"]["Env"],
        serde_json::json!(["PATH=/usr/bin"])
    );
    let libraries = libraries();
    let plain = podman.run(&libraries, &["fdguard", "--version"]).output();
    if !plain.is_ok_and(|output| output.status.success()) {
        return testkit::skip("podman cannot run a container here");
    }
    let state = tempfile::tempdir().unwrap();
    let arguments = [options(&python), libraries].concat();
    let served = serve(&podman, arguments, state.path());
    let victim = Victim::of("leaker").as_user(NOBODY).start();
    let path = format!("/api/v1/snapshot?pid={}", victim.pid());
    let url = format!("http://{}{path}", served.address);
    let output = Command::new("curl").args(["-sS", &url]).output().unwrap();
    let snapshot: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(snapshot["process"]["pid"], victim.pid(), "{snapshot}");
    let fds = snapshot["fds"].as_array().unwrap();
    let numbers: Vec<u64> = fds.iter().filter_map(|fd| fd["fd"].as_u64()).collect();
    let listed: Vec<u64> = victim.listed().into_iter().map(u64::from).collect();
    assert_eq!(numbers, listed, "{snapshot}");
    assert!(fds.iter().all(|fd| fd["target"].is_string()), "{snapshot}");
    victim.finish();
}
