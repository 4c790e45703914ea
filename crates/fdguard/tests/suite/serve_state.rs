//! What `fdguard serve` keeps in its state directory, and what a second server finds there.

use std::path::Path;

use rustix::process::Signal;
use serde_json::Value;

use super::serve::{ServeProcess, refused, serve, with_pace};
use super::{doctor_bundle, fdguard, run};

/// A victim under a name that no other test has.
fn named_leaker(served: &ServeProcess, name: &str) -> testkit::VictimLaunch {
    let program = served.state.path().join(name);
    std::os::unix::fs::symlink(testkit::victim_path("leaker"), &program).unwrap();
    testkit::VictimLaunch::program(&program)
}

/// The samples of a service, oldest first; none while it is unknown.
fn samples(state: &Path, name: &str) -> Vec<Value> {
    let output = run([
        "history",
        name,
        "--json",
        "--state",
        state.to_str().unwrap(),
    ]);
    if output.code == 3 {
        return Vec::new();
    }
    // One document for one series.
    let document = output.json();
    assert_eq!(document["service"]["name"], name, "{document}");
    document["samples"].as_array().unwrap().clone()
}

#[test]
fn a_killed_server_loses_nothing_that_was_written_and_its_successor_continues_it() {
    let served = ServeProcess::start();
    let name = format!("kl{}", std::process::id());
    let mut victim = named_leaker(&served, &name).start();
    let state = served.state.path().to_owned();
    let before = testkit::wait_for("samples", || {
        victim.tell("1 file");
        Some(samples(&state, &name)).filter(|samples| samples.len() >= 3)
    });
    served.signal(Signal::KILL);
    let state = served.reap();
    let kept = samples(state.path(), &name);
    assert_eq!(kept[..before.len()], before);
    let served = ServeProcess::of(state, &[]);
    let state = served.state.path().to_owned();
    let after = testkit::wait_for("samples of the second server", || {
        victim.tell("1 file");
        Some(samples(&state, &name)).filter(|samples| samples.len() >= kept.len() + 3)
    });
    assert_eq!(
        after[..kept.len()],
        kept,
        "one series, and nothing of it was lost"
    );
    victim.finish();
}

#[test]
fn a_critical_finding_leaves_a_bundle_of_the_real_doctor() {
    let state = tempfile::tempdir().unwrap();
    let mut command = fdguard();
    command.arg("serve");
    let command = with_pace(command, state.path());
    let served = ServeProcess::launch(state, command, &[]);
    let name = format!("ev{}", std::process::id());
    let mut victim = named_leaker(&served, &name).nofile(60).start();
    victim.tell("57 file");
    let pid = victim.pid();
    let path = testkit::wait_for("the evidence", || {
        let overview = served.overview();
        let mut findings = overview["findings"].as_array()?.iter();
        findings.find_map(|one| {
            let path = one["evidence"].as_str()?;
            (one["finding"]["pid"] == pid).then(|| path.to_owned())
        })
    });
    assert!(
        path.contains(&format!("/evidence/command-{name}-")),
        "{path}"
    );
    let files = doctor_bundle::files(Path::new(&path));
    let names: Vec<&str> = files.keys().map(String::as_str).collect();
    assert_eq!(names, doctor_bundle::FILES);
    let diagnosis: Value = serde_json::from_slice(&files["diagnosis.json"]).unwrap();
    assert!(
        diagnosis.to_string().contains(&format!("\"pid\":{pid}")),
        "{diagnosis}"
    );
    // The doctor is a process of its own, and what it took is not hidden.
    testkit::wait_until("the doctor's time", || {
        served.overview()["own"]["children_cpu_seconds"].as_f64() > Some(0.0)
    });
    victim.finish();
    let (_state, log) = served.stop();
    assert!(log.contains("event=evidence_kept "), "{log}");
}

#[test]
fn a_state_directory_in_use_is_refused_and_its_holder_named() {
    let served = ServeProcess::start();
    let output = refused(serve(served.state.path()));
    assert_eq!(output.code, 3, "{}", output.stderr);
    let holder = format!("another fdguard serve uses it (pid {})", served.child.id());
    assert!(output.stderr.contains(&holder), "{}", output.stderr);
}

#[test]
fn a_damaged_history_is_set_aside() {
    let state = tempfile::tempdir().unwrap();
    std::fs::write(state.path().join("history.db"), vec![7; 8192]).unwrap();
    let served = ServeProcess::of(state, &[]);
    let (state, log) = served.stop();
    assert!(log.contains("event=history_set_aside"), "{log}");
    let names = std::fs::read_dir(state.path()).unwrap();
    let names: Vec<String> = names
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert!(
        names
            .iter()
            .any(|name| name.starts_with("history.db.damaged")),
        "{names:?}"
    );
}
