//! A disk that is really full, and a second server on the same directory.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use super::harness::{Server, options, settings};

/// A small file system in memory. Drop removes it.
struct SmallDisk(PathBuf);

impl SmallDisk {
    fn mount(on: &Path, size: &str) -> Option<Self> {
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={size}"), "tmpfs"])
            .arg(on)
            .output()
            .ok()?;
        mounted.status.success().then(|| Self(on.to_owned()))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let removed = Command::new("umount").arg("-l").arg(&self.0).status();
        assert!(removed.unwrap().success());
    }
}

#[test]
fn a_full_disk_loses_rows_and_says_so_and_serving_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let state = dir.path().join("state");
    std::fs::create_dir(&state).unwrap();
    let Some(disk) = SmallDisk::mount(&state, "1m") else {
        return testkit::skip("cannot mount a tmpfs: needs root");
    };
    let path = state.join("history.db");
    let server = Server::with(|options| {
        options.history.as_mut().unwrap().path = path;
        options.sample_every = Duration::from_millis(1);
    });
    server.ticks(2);
    let ballast = state.join("ballast");
    // Writes until there is no room.
    drop(std::fs::write(&ballast, vec![0_u8; 2 << 20]));
    let history = |overview: &Value| overview["own"]["history"].clone();
    let lost = server.wait("lost rows", |overview| {
        // Something that changes at every tick is written at every tick.
        drop(Command::new("true").status());
        drop(
            std::fs::OpenOptions::new()
                .append(true)
                .open(&ballast)
                .and_then(|mut file| {
                    use std::io::Write as _;
                    file.write_all(&[0; 4096])
                }),
        );
        let history = history(overview);
        (history["lost_rows"].as_u64()? > 0).then_some(history)
    });
    assert!(lost["error"].as_str().unwrap().contains("full"), "{lost}");
    let is_logged = |line: &String| line.contains("event=history_lost");
    testkit::wait_until("the loss in the log", || server.log().iter().any(is_logged));
    server.ticks(3);
    // With room again, the history goes on and tells what it lost.
    std::fs::remove_file(&ballast).unwrap();
    server.wait("a write that works", |overview| {
        drop(Command::new("true").status());
        history(overview)["error"].is_null().then_some(())
    });
    drop(server);
    drop(disk);
}

#[test]
fn a_second_server_on_the_same_directory_is_refused() {
    let server = Server::start();
    let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let second = fdguard_serve::Serving::start(
        options(server.state.path()),
        settings(),
        vec![socket.into()],
        std::sync::Arc::new(|_| {}),
    );
    let error = second.unwrap_err().to_string();
    let own = format!("another fdguard serve uses it (pid {})", std::process::id());
    assert!(error.contains(&own), "{error}");
    // When the first has ended, its place is free.
    let state = server.stop();
    let again = Server::in_dir(state, |_| {});
    again.ticks(1);
}
