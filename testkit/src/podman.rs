//! Containers of podman, from an image that is made from one local file: nothing is fetched.

use std::path::Path;
use std::process::{Command, Output};

/// A running container with one process, `/bin/busybox sleep`. Drop removes it and its image.
#[derive(Debug)]
pub struct PodmanContainer {
    name: String,
    image: String,
    pid: u32,
    id: String,
}

impl PodmanContainer {
    /// Starts a container with this name.
    ///
    /// # Errors
    ///
    /// Why there can be none here, for [`crate::skip`].
    pub fn start(name: &str) -> Result<Self, String> {
        if !crate::have("podman") || !crate::is_root() {
            return Err("needs podman and root".to_owned());
        }
        let busybox = ["/bin/busybox", "/usr/bin/busybox"];
        let mut busybox = busybox.into_iter().filter(|path| Path::new(path).is_file());
        let busybox = busybox.next().ok_or("no busybox to make an image from")?;
        let mut container = Self {
            name: name.to_owned(),
            image: format!("localhost/{name}"),
            pid: 0,
            id: String::new(),
        };
        container.import(busybox)?;
        container.run()?;
        Ok(container)
    }

    /// Removes it and starts another one under its name.
    ///
    /// # Errors
    ///
    /// What podman says.
    pub fn replace(&mut self) -> Result<(), String> {
        output(podman().args(["rm", "-f", "-t", "0", &self.name]))?;
        self.run()
    }

    fn import(&self, busybox: &str) -> Result<(), String> {
        let dir = tempfile::tempdir().map_err(|error| error.to_string())?;
        let bin = dir.path().join("bin");
        let made =
            std::fs::create_dir(&bin).and_then(|()| std::fs::copy(busybox, bin.join("busybox")));
        made.map_err(|error| error.to_string())?;
        let tar = dir.path().join("root.tar");
        let mut pack = Command::new("tar");
        output(
            pack.arg("-cf")
                .arg(&tar)
                .arg("-C")
                .arg(dir.path())
                .arg("bin"),
        )?;
        output(podman().arg("import").arg(&tar).arg(&self.image)).map(drop)
    }

    /// Without network, and with limits that this machine allows.
    fn run(&mut self) -> Result<(), String> {
        let mut run = podman();
        run.args(["run", "-d", "--network", "none", "--name", &self.name])
            .args([
                "--ulimit",
                "nofile=1024:1024",
                "--ulimit",
                "nproc=1024:1024",
            ])
            .args([&self.image, "/bin/busybox", "sleep", "600"]);
        output(&mut run)?;
        let format = "{{.State.Pid}} {{.Id}}";
        let text = output(podman().args(["inspect", "-f", format, &self.name]))?;
        let (pid, id) = text.trim().split_once(' ').unwrap_or_default();
        self.pid = pid
            .parse()
            .map_err(|error| format!("no pid in {text:?}: {error}"))?;
        id.clone_into(&mut self.id);
        Ok(())
    }

    /// Its process, as the machine counts.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Its id.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }
}

impl Drop for PodmanContainer {
    fn drop(&mut self) {
        drop(podman().args(["rm", "-f", "-t", "0", &self.name]).output());
        drop(podman().args(["rmi", "-f", &self.image]).output());
    }
}

/// With the runtime and the cgroups that work without systemd and with cgroups of version 1.
fn podman() -> Command {
    let mut command = Command::new("podman");
    command.args(["--runtime", "runc", "--cgroup-manager", "cgroupfs"]);
    command
}

fn output(command: &mut Command) -> Result<String, String> {
    let failed = |why: String| format!("podman cannot run a container here: {why}");
    let Output {
        status,
        stdout,
        stderr,
    } = command
        .output()
        .map_err(|error| failed(error.to_string()))?;
    if !status.success() {
        return Err(failed(String::from_utf8_lossy(&stderr).into_owned()));
    }
    Ok(String::from_utf8_lossy(&stdout).into_owned())
}
