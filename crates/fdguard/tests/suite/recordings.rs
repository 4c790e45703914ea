//! Recordings of real, healthy servers under load: their replay must stay quiet.

use std::path::{Path, PathBuf};

use serde_json::Value;

use super::fdguard;

fn recordings() -> Vec<PathBuf> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recordings");
    let files = std::fs::read_dir(dir).unwrap();
    let mut files: Vec<PathBuf> = files.map(|file| file.unwrap().path()).collect();
    files.sort();
    files
}

#[test]
fn r15_real_servers_under_load_raise_nothing() {
    let files = recordings();
    assert!(files.len() >= 4, "{files:?}");
    for file in files {
        let output = fdguard()
            .args(["watch", "--json", "--from"])
            .arg(&file)
            .output()
            .unwrap();
        let found: Value = serde_json::from_slice(&output.stdout).unwrap();
        let name = file.display();
        let verdict = found["verdict"].as_str().unwrap();
        assert!(matches!(verdict, "stable" | "bounded"), "{name}: {verdict}");
        let grave: Vec<&Value> = found["findings"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|finding| finding["severity"] != "info")
            .collect();
        assert!(grave.is_empty(), "{name}: {grave:#?}");
        assert_eq!(output.status.code(), Some(0), "{name}");
        assert!(
            found["samples"].as_u64().unwrap() > 100,
            "{name} was watched"
        );
    }
}

#[test]
fn r58_the_doctor_examines_a_recording_too() {
    let dir = tempfile::tempdir().unwrap();
    let bundle = dir.path().join("evidence");
    let node = recordings()
        .into_iter()
        .find(|file| file.to_string_lossy().contains("node-http"))
        .unwrap();
    let output = fdguard()
        .args(["doctor", "--json", "--from"])
        .arg(&node)
        .arg("-o")
        .arg(&bundle)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(found["schema"], "fdguard.diagnosis/1");
    assert_eq!(found["verdict"], "bounded");
    assert!(bundle.join("report.html").is_file());
    // The bundle's own recording gives the same result.
    let again = fdguard()
        .args(["watch", "--json", "--from"])
        .arg(bundle.join("recording.jsonl"))
        .output()
        .unwrap();
    let again: Value = serde_json::from_slice(&again.stdout).unwrap();
    for key in ["verdict", "samples", "baseline", "final"] {
        assert_eq!(found[key], again[key], "{key}");
    }
}

#[test]
fn r58_a_recording_and_a_process_exclude_each_other() {
    let output = fdguard()
        .args(["doctor", "--from", "x.jsonl", "1"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(output.stdout.is_empty());
}
