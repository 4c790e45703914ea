//! The host never leaves its roots, whatever replaces a directory while it works.

use std::fs;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use fdguard_host::Roots;
use fdguard_host::scope::{Journals, ScopeEvent, Scopes};
use rustix::fs::inotify::{self, CreateFlags, Reader, WatchFlags};
use rustix::fs::{CWD, RenameFlags, renameat_with};
use serde_json::json;

use super::http_harness::ServedHost;
use super::scope_harness::Ground;

/// A root, and a directory outside of it that must stay as it is.
struct Site {
    _base: tempfile::TempDir,
    root: PathBuf,
    outside: PathBuf,
    watch: OwnedFd,
}

impl Site {
    fn new() -> Self {
        let base = tempfile::tempdir().unwrap();
        let path = base.path().canonicalize().unwrap();
        let (root, outside) = (path.join("root"), path.join("outside"));
        fs::create_dir(&root).unwrap();
        fs::create_dir(&outside).unwrap();
        let watch = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).unwrap();
        let flags = WatchFlags::CREATE | WatchFlags::MOVE | WatchFlags::DELETE;
        inotify::add_watch(&watch, &outside, flags).unwrap();
        Self {
            _base: base,
            root,
            outside,
            watch,
        }
    }

    fn served(&self) -> ServedHost {
        ServedHost::with(|settings| settings.roots = Roots::open(&[&self.root]).unwrap())
    }

    /// Names that appeared in or disappeared from the outside directory, even for an instant.
    fn touched(&self) -> Vec<String> {
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut reader = Reader::new(&self.watch, &mut buffer);
        let mut names = Vec::new();
        while let Ok(event) = reader.next() {
            let name = event
                .file_name()
                .map(|it| it.to_string_lossy().into_owned());
            names.push(name.unwrap_or_default());
        }
        names
    }
}

/// Swaps two names until it is dropped.
struct Swapper {
    stop: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<u64>>,
}

impl Swapper {
    fn start(one: PathBuf, other: PathBuf) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let asked = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let mut swaps = 0;
            while !asked.load(Ordering::Relaxed) {
                renameat_with(CWD, &one, CWD, &other, RenameFlags::EXCHANGE).unwrap();
                swaps += 1;
            }
            swaps
        });
        Self {
            stop,
            thread: Some(thread),
        }
    }

    fn stop(mut self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap()
    }
}

/// How many of these places have the file; it must be one.
fn places(name: &str, dirs: &[&Path]) -> usize {
    dirs.iter().filter(|dir| dir.join(name).exists()).count()
}

#[test]
fn an_archive_swapped_with_a_link_again_and_again_gets_no_file_outside() {
    let site = Site::new();
    let served = site.served();
    let (old, link) = (site.root.join("old"), site.root.join("link"));
    fs::create_dir(&old).unwrap();
    symlink(&site.outside, &link).unwrap();
    let swapper = Swapper::start(old.clone(), link.clone());
    let mut archived = 0;
    for round in 0..150 {
        let name = format!("log-{round}");
        let log = site.root.join(&name);
        fs::write(&log, "line\n").unwrap();
        let body = json!({"files": [log], "to": old, "wait_ms": 0}).to_string();
        let answer = served.send("POST", "/v1/archive", &body);
        assert!(
            [200, 403, 422].contains(&answer.status),
            "round {round}: {answer:?}"
        );
        archived += u32::from(answer.status == 200 && answer.json()["success"] == true);
    }
    let swaps = swapper.stop();
    assert_eq!(site.touched(), [""; 0], "after {swaps} swaps");
    // One of the two names is the directory.
    let real = if old.symlink_metadata().unwrap().is_dir() {
        &old
    } else {
        &link
    };
    for round in 0..150 {
        let name = format!("log-{round}");
        assert_eq!(places(&name, &[&site.root, real]), 1, "{name}");
    }
    let is_log = |entry: fs::DirEntry| entry.file_name().to_string_lossy().starts_with("log-");
    let there = fs::read_dir(real).unwrap().flatten().filter(|_| true);
    assert_eq!(
        there.map(is_log).filter(|is| *is).count(),
        archived as usize
    );
}

#[test]
fn files_whose_dir_is_swapped_with_a_link_are_not_taken_from_outside() {
    let site = Site::new();
    let served = site.served();
    let (own, link) = (site.root.join("own"), site.root.join("link"));
    fs::create_dir(&own).unwrap();
    fs::write(site.outside.join("secret"), "s").unwrap();
    site.touched();
    symlink(&site.outside, &link).unwrap();
    let swapper = Swapper::start(own.clone(), link);
    let body = json!({"files": [own.join("secret")], "to": site.root.join("to"), "wait_ms": 0});
    for round in 0..100 {
        let answer = served.send("POST", "/v1/archive", &body.to_string());
        assert!(
            answer.status == 403 || answer.json()["success"] == false,
            "round {round}: {answer:?}"
        );
    }
    swapper.stop();
    assert_eq!(site.touched(), [""; 0]);
    assert!(site.outside.join("secret").exists());
}

#[test]
fn a_target_that_became_a_link_after_the_scope_was_opened_gets_nothing() {
    for to in [None, Some("there/archive")] {
        let site = Site::new();
        let served = site.served();
        let agent = site.root.join("agent");
        fs::create_dir(&agent).unwrap();
        fs::write(agent.join("log"), "line\n").unwrap();
        let to = to.map(|to| site.root.join(to));
        let body = json!({"name": "agent", "root": agent, "archive_to": to}).to_string();
        let scope = served.send("POST", "/v1/scopes", &body);
        assert_eq!(scope.status, 201, "{scope:?}");
        let scope = format!("/v1/scopes/{}", scope.json()["id"].as_str().unwrap());
        let resource = json!({"file": {"path": "log", "end": "archive"}}).to_string();
        let added = served.send("POST", &format!("{scope}/resources"), &resource);
        assert_eq!(added.status, 201, "{added:?}");
        let target = to.unwrap_or_else(|| agent.join("archive"));
        fs::create_dir_all(target.parent().unwrap()).unwrap();
        symlink(&site.outside, &target).unwrap();
        let closed = served.send("DELETE", &scope, "").json();
        assert_eq!(closed["success"], false, "{closed}");
        let error = closed["resources"][0]["error"].as_str().unwrap();
        assert!(error.contains("is a symbolic link"), "{error}");
        assert!(agent.join("log").exists(), "it stays where it was");
        assert_eq!(site.touched(), [""; 0]);
    }
}

#[test]
fn a_scope_whose_own_root_became_a_link_touches_nothing() {
    let site = Site::new();
    let served = site.served();
    let agent = site.root.join("agent");
    fs::create_dir(&agent).unwrap();
    for name in ["log", "prompt"] {
        fs::write(agent.join(name), "own\n").unwrap();
        fs::write(site.outside.join(name), "not its\n").unwrap();
    }
    site.touched();
    let body = json!({"name": "agent", "root": agent}).to_string();
    let scope = served.send("POST", "/v1/scopes", &body);
    let scope = format!("/v1/scopes/{}", scope.json()["id"].as_str().unwrap());
    for (path, end) in [("log", "archive"), ("prompt", "delete")] {
        let resource = json!({"file": {"path": path, "end": end}}).to_string();
        served.send("POST", &format!("{scope}/resources"), &resource);
    }
    fs::rename(&agent, site.root.join("moved")).unwrap();
    symlink(&site.outside, &agent).unwrap();
    for resource in [
        json!({"directory": {"name": "tmp"}}),
        json!({"program": {"command": ["touch", "here"], "log": "printed"}}),
    ] {
        let added = served.send("POST", &format!("{scope}/resources"), &resource.to_string());
        assert_eq!(added.status, 422, "{added:?}");
    }
    let closed = served.send("DELETE", &scope, "").json();
    assert_eq!(closed["success"], false, "{closed}");
    assert_eq!(site.touched(), [""; 0]);
    assert!(site.root.join("moved/log").exists());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_killed_host_wrote_down_is_ended_below_todays_roots_alone() {
    let site = Site::new();
    let ground = Ground::new();
    let state = tempfile::tempdir().unwrap();
    let mut means = ground.means();
    means.wills = Some(Journals::make(state.path()).unwrap());
    means.roots = Some(Roots::open(&[&site.root]).unwrap());
    let agent = site.root.join("agent");
    fs::create_dir(&agent).unwrap();
    fs::write(agent.join("log"), "line\n").unwrap();
    // Journals of a dead host: one whose archive is elsewhere, and one whose archive became a link.
    let will = |scope: &str, to: &Path| {
        let head = json!({"schema": "fdguard.will/1", "scope": scope, "name": "n", "root": agent,
            "archive_to": to, "client": null, "mark": null, "host": "b:1:1:-"});
        let file = json!({"file": {"number": 1, "path": "log", "end": "archive"}});
        let path = state.path().join(format!("scopes/{scope}.jsonl"));
        fs::write(path, format!("{head}\n{file}\n")).unwrap();
    };
    symlink(&site.outside, agent.join("archive")).unwrap();
    will("elsewhere", &site.outside);
    will("link", &agent.join("archive"));
    let scopes = Scopes::new(means);
    let inherited = scopes.inherit(|_| true).await;
    assert!(inherited.is_empty(), "both are outside now: {inherited:?}");
    let told = ground.events.lock().unwrap();
    let count = told
        .iter()
        .filter(|it| matches!(it, ScopeEvent::Will { .. }));
    assert_eq!(count.count(), 2, "{told:?}");
    assert!(agent.join("log").exists());
    assert_eq!(site.touched(), [""; 0]);
}
