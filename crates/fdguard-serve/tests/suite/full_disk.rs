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
fn a_disk_that_is_full_at_the_start_costs_rows_and_not_the_server() {
    let dir = tempfile::tempdir().unwrap();
    let state = dir.path().join("state");
    std::fs::create_dir(&state).unwrap();
    let Some(disk) = SmallDisk::mount(&state, "1m") else {
        return testkit::skip("cannot mount a tmpfs: needs root");
    };
    let ballast = state.join("ballast");
    drop(std::fs::write(&ballast, vec![0_u8; 2 << 20]));
    let path = state.join("history.db");
    let server = Server::with(|options| {
        options.history.as_mut().unwrap().path.clone_from(&path);
        options.sample_every = Duration::from_millis(1);
    });
    let gap = server.wait("the gap", |overview| {
        let gaps = overview["gaps"].as_array()?.iter();
        let mut gaps = gaps.filter(|gap| gap["what"] == "the history");
        gaps.next().cloned()
    });
    assert!(
        gap["why"].as_str().unwrap().contains("not written"),
        "{gap}"
    );
    server.wait("lost rows", |overview| {
        let lost = overview["own"]["history"]["lost_rows"].as_u64()?;
        (lost > 0).then_some(())
    });
    std::fs::remove_file(&ballast).unwrap();
    server.wait("a write that works", |overview| {
        drop(Command::new("true").status());
        let history = &overview["own"]["history"];
        (history["error"].is_null() && path.exists()).then_some(())
    });
    let log = server.log();
    assert!(log.iter().any(|line| line.contains("event=history_waits")));
    drop(server);
    drop(disk);
}

#[test]
fn a_history_that_cannot_be_read_is_not_an_empty_one() {
    let server = Server::start();
    let victim = super::harness::leaker().start();
    let name = super::harness::command();
    let path = format!("/api/v1/service?kind=command&name={name}");
    let read = || server.json(&path);
    server.ticks(3);
    testkit::wait_until("the history", || !read()["history"].is_null());
    assert_eq!(read()["history_error"], Value::Null);
    let file = rusqlite::Connection::open(server.state.path().join("history.db")).unwrap();
    file.pragma_update(None, "user_version", 99).unwrap();
    let unread = read();
    assert_eq!(unread["history"], Value::Null);
    let why = unread["history_error"].as_str().unwrap();
    assert!(why.contains("another version"), "{why}");
    victim.finish();
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
