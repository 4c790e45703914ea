//! The evidence bundle of `fdguard doctor`: what is in it, who may read it, what must not be in it.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::Value;
use testkit::{Victim, skip};

use super::doctor::{doctor, doctor_of_a_leak};
use super::run;

/// Every file of a bundle.
pub(super) const FILES: [&str; 11] = [
    "README.txt",
    "diagnosis.json",
    "limits.txt",
    "log-symptoms.json",
    "recording.jsonl",
    "report.html",
    "report.txt",
    "snapshot-begin.json",
    "snapshot-end.json",
    "tree.json",
    "versions.json",
];

/// Uses the decoder of recordings; another test checks that the `zstd` program reads it.
fn unpacked(bytes: &[u8]) -> Vec<u8> {
    let mut decoder = ruzstd::decoding::StreamingDecoder::new(bytes).unwrap();
    let mut content = Vec::new();
    decoder.read_to_end(&mut content).unwrap();
    content
}

/// The files of an archive, or of a directory.
pub(super) fn files(place: &Path) -> BTreeMap<String, Vec<u8>> {
    if place.is_dir() {
        let entries = fs::read_dir(place)
            .unwrap()
            .map(|entry| entry.unwrap().path());
        let name = |path: &Path| path.file_name().unwrap().to_str().unwrap().to_owned();
        return entries
            .map(|path| (name(&path), fs::read(&path).unwrap()))
            .collect();
    }
    let bytes = fs::read(place).unwrap();
    let is_plain = place.extension().unwrap() == "tar";
    let tar = if is_plain { bytes } else { unpacked(&bytes) };
    let mut archive = tar::Archive::new(tar.as_slice());
    let entries = archive.entries().unwrap().map(|entry| {
        let mut entry = entry.unwrap();
        let path = entry.path().unwrap().into_owned();
        assert_eq!(entry.header().mode().unwrap(), 0o600);
        assert_eq!(path.components().count(), 2, "{path:?}");
        let mut content = Vec::new();
        entry.read_to_end(&mut content).unwrap();
        (
            path.file_name().unwrap().to_str().unwrap().to_owned(),
            content,
        )
    });
    entries.collect()
}

#[test]
fn r16_a_bundle_is_complete_in_every_form_and_only_its_user_may_read_it() {
    let mut victim = Victim::start("leaker");
    victim.tell("20 file");
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("app.log");
    fs::write(&log, "fine\nOSError: [Errno 24] Too many open files\n").unwrap();
    for name in ["evidence", "evidence.tar", "evidence.tar.zst"] {
        let place = dir.path().join(name);
        let (shown, log) = (place.to_str().unwrap(), log.to_str().unwrap());
        let said = doctor(victim.pid(), &["-o", shown, "--log", log]);
        assert_eq!((said.code, &*said.stderr), (0, ""), "{}", said.text());
        assert!(
            said.text().contains(&format!("evidence\n  {shown}\n")),
            "{}",
            said.text()
        );
        let mode = place.metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, if place.is_dir() { 0o700 } else { 0o600 });
        let files = files(&place);
        let names: Vec<&str> = files.keys().map(String::as_str).collect();
        assert_eq!(names, FILES, "{name}");
        for (name, content) in &files {
            let text = std::str::from_utf8(content).unwrap();
            assert!(text.ends_with('\n') && !text.contains('\u{1b}'), "{name}");
            if name.ends_with(".json") || name.ends_with(".jsonl") {
                text.lines()
                    .for_each(|line| drop(serde_json::from_str::<Value>(line).unwrap()));
            }
        }
        assert!(!String::from_utf8_lossy(&files["diagnosis.json"]).contains(shown));
        let symptoms: Value = serde_json::from_slice(&files["log-symptoms.json"]).unwrap();
        assert_eq!(symptoms["logs"][0]["symptoms"][0]["first_line"], 2);
    }
    // No temporary file is left.
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 4);
    let begin = dir.path().join("evidence/snapshot-begin.json");
    let end = dir.path().join("evidence/snapshot-end.json");
    let said = run([
        "diff",
        begin.to_str().unwrap(),
        end.to_str().unwrap(),
        "--exit-code",
    ]);
    assert_eq!(said.code, 0, "{}", said.stderr);
    let modes = fs::read_dir(dir.path().join("evidence")).unwrap();
    assert!(
        modes
            .into_iter()
            .all(|file| file.unwrap().metadata().unwrap().permissions().mode() & 0o777 == 0o600)
    );
    victim.finish();
}

/// A program with secrets in its paths, its arguments and its peers; it waits for the end of its
/// input.
struct Secretive {
    child: Child,
    dir: tempfile::TempDir,
    has_peer: bool,
}

const SECRETS: [&str; 6] = [
    "zqalice",
    "zqproject",
    "zqcustomer",
    "zqhunter2",
    "203.0.113.77",
    "zqchat",
];

impl Secretive {
    fn start() -> Self {
        let dir = tempfile::Builder::new()
            .prefix("zqproject")
            .tempdir()
            .unwrap();
        let script = r#"
            mkdir -p "$1/home/zqalice"
            exec 5>"$1/home/zqalice/zqcustomer-4711.jsonl" 6>"$1/zqchat.db"
            exec 7<>/dev/udp/203.0.113.77/4711 && echo peer || echo none
            read -r line"#;
        let mut child = Command::new("bash")
            .args([
                "-c",
                script,
                "bash",
                dir.path().to_str().unwrap(),
                "--password=zqhunter2",
            ])
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap())
            .read_line(&mut line)
            .unwrap();
        Self {
            has_peer: line == "peer\n",
            child,
            dir,
        }
    }
}

impl Drop for Secretive {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

#[test]
fn r10_nothing_secret_is_in_a_redacted_bundle() {
    let victim = Secretive::start();
    let out = tempfile::tempdir().unwrap();
    let log = victim.dir.path().join("zqalice.log");
    fs::write(&log, "zqhunter2: too many open files: zqcustomer\n").unwrap();
    let secrets = SECRETS
        .iter()
        .filter(|secret| victim.has_peer || !secret.starts_with("203"));
    let secrets: Vec<&str> = secrets.copied().collect();
    let places = ["folder", "bundle.tar.zst"].map(|name| out.path().join(name));
    for place in &places {
        let html = out.path().join("page.html");
        let args = [
            "--log",
            log.to_str().unwrap(),
            "-o",
            place.to_str().unwrap(),
            "--html",
            html.to_str().unwrap(),
        ];
        let plain = doctor(victim.child.id(), &["--json"]);
        for secret in secrets.iter().filter(|secret| **secret != "zqalice") {
            assert!(
                plain.text().contains(secret),
                "{secret} must be there to be redacted: {}",
                plain.text()
            );
        }
        let said = doctor(victim.child.id(), &[&args[..], &["--redact"]].concat());
        let mut texts = files(place);
        texts.insert("stdout".to_owned(), said.stdout);
        texts.insert("html".to_owned(), fs::read(&html).unwrap());
        texts.insert("raw".to_owned(), fs::read(place).unwrap_or_default());
        assert_eq!(texts.len(), FILES.len() + 3);
        for (name, content) in &texts {
            for secret in &secrets {
                let found = content
                    .windows(secret.len())
                    .any(|part| part == secret.as_bytes());
                assert!(
                    !found,
                    "{secret} in {name}: {}",
                    String::from_utf8_lossy(content)
                );
            }
        }
        let snapshot = String::from_utf8(texts["snapshot-end.json"].clone()).unwrap();
        assert!(
            snapshot.contains(".jsonl\"") && snapshot.contains("/home/~"),
            "{snapshot}"
        );
        assert!(snapshot.contains(r#""comm":"bash""#));
    }
}

#[test]
fn r16_the_archive_is_read_by_the_programs_that_everybody_has() {
    if !(testkit::have("tar") && testkit::have("zstd")) {
        return skip("needs tar and zstd");
    }
    let victim = Victim::start("leaker");
    let dir = tempfile::tempdir().unwrap();
    let place = dir.path().join("evidence.tar.zst");
    doctor(victim.pid(), &["-o", place.to_str().unwrap()]);
    let script = r#"zstd -dc "$1" | tar -tf -"#;
    let listed = Command::new("sh")
        .args(["-c", script, "sh"])
        .arg(&place)
        .output()
        .unwrap();
    let listed = String::from_utf8(listed.stdout).unwrap();
    let mut names: Vec<&str> = listed.lines().collect();
    names.sort_unstable();
    assert_eq!(names, FILES.map(|name| format!("evidence/{name}")));
    victim.finish();
}

#[test]
fn the_recording_of_a_bundle_is_judged_again_by_watch() {
    let mut victim = Victim::of("leaker").nofile(1024).start();
    let dir = tempfile::tempdir().unwrap();
    let place = dir.path().join("evidence");
    let said = doctor_of_a_leak(
        &mut victim,
        &["-o", place.to_str().unwrap(), "--json", "--redact"],
    );
    let recording = place.join("recording.jsonl");
    let again = run(["watch", "--from", recording.to_str().unwrap(), "--json"]);
    assert_eq!(
        (again.code, &again.json()["verdict"]),
        (1, &said.json()["verdict"]),
        "{}",
        again.stderr
    );
    victim.finish();
}
