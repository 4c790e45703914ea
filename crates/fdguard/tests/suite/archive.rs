//! `fdguard archive` as its users run it.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;
use testkit::ScriptedProcess;

use super::{CommandOutput, run};

/// Holds a file open for appending, and writes a last line when its input ends.
const HOLD: &str = "import sys\nf=open(sys.argv[1],'a')\nprint('ready',flush=True)\nsys.stdin.read()\nf.write('last\\n')";

struct Place {
    dir: TempDir,
    to: PathBuf,
}

impl Place {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let to = dir.path().join("archive");
        Self { dir, to }
    }

    fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.dir.path().join(name);
        fs::write(&path, text).unwrap();
        path
    }

    fn run(&self, args: &[&str], files: &[&PathBuf]) -> CommandOutput {
        let mut all = vec!["archive".to_owned(), "--to".to_owned()];
        all.push(self.to.display().to_string());
        all.extend(args.iter().map(|arg| (*arg).to_owned()));
        all.extend(files.iter().map(|path| path.display().to_string()));
        run(all)
    }
}

#[test]
fn r50_each_file_has_its_line_and_all_archived_is_0() {
    let place = Place::new();
    let a = place.file("a.jsonl", "{}\n{}\n");
    let b = place.file("b.jsonl", "{}\n{\"torn");
    let said = place.run(&[], &[&a, &b]);
    assert_eq!((said.code, &*said.stderr), (0, ""), "{}", said.text());
    let lines: Vec<&str> = said.text().lines().collect();
    assert_eq!(lines.len(), 2, "{}", said.text());
    assert!(lines[0].starts_with("archived ") && lines[0].contains("2 lines, 6 bytes"));
    assert!(
        lines[1].contains("the last line is torn (6 bytes)"),
        "{}",
        lines[1]
    );
    assert_eq!(
        fs::read_to_string(place.to.join("a.jsonl")).unwrap(),
        "{}\n{}\n"
    );
    let again = place.run(&[], &[&a]);
    assert_eq!(again.code, 0);
    assert!(
        again
            .text()
            .starts_with("already archived by another process: "),
        "{}",
        again.text()
    );
}

#[test]
fn r50_a_file_that_is_written_stays_its_writer_is_named_and_the_code_is_1() {
    let place = Place::new();
    let held = place.file("held.log", "first\n");
    let free = place.file("free.log", "x\n");
    let writer = ScriptedProcess::python(HOLD, &held);
    let said = place.run(&["--wait", "0"], &[&held, &free]);
    assert_eq!((said.code, &*said.stderr), (1, ""), "{}", said.text());
    let first = said.text().lines().next().unwrap();
    assert!(first.starts_with("not archived "), "{first}");
    assert!(
        first.contains(&format!("(pid {}, descriptor ", writer.id())),
        "{first}"
    );
    assert!(held.exists() && place.to.join("free.log").exists());
    drop(writer);
    assert_eq!(place.run(&["--wait", "0"], &[&held]).code, 0);
    let text = fs::read_to_string(place.to.join("held.log")).unwrap();
    assert_eq!(text, "first\nlast\n");
}

#[test]
fn r49_the_document_has_a_receipt_for_each_file() {
    let place = Place::new();
    let held = place.file("held.jsonl", "{}\n");
    let free = place.file("free.jsonl", "{}\n");
    let writer = ScriptedProcess::python(HOLD, &held);
    let began = Instant::now();
    let said = place.run(&["--wait", "100ms", "--json"], &[&held, &free]);
    assert!(began.elapsed() >= Duration::from_millis(100));
    assert_eq!((said.code, &*said.stderr), (1, ""));
    let document = said.json();
    assert!(said.text().starts_with("{\"schema\":\"fdguard.archive/1\""));
    assert_eq!(document["success"], json!(false));
    let files = document["files"].as_array().unwrap();
    assert_eq!(files[0]["outcome"], "kept");
    assert_eq!(files[0]["error"]["kind"], "still-written");
    assert_eq!(files[0]["writers"][0]["pid"], writer.id());
    assert_eq!(files[0]["writers"][0]["at_deadline"], json!(true));
    assert_eq!(
        (&files[0]["lines"], &files[0]["sha256"]),
        (&Value::Null, &Value::Null)
    );
    assert_eq!(files[1]["outcome"], "archived");
    assert_eq!(
        (&files[1]["method"], &files[1]["proof"]),
        (&json!("rename"), &json!("lease"))
    );
    assert_eq!(
        files[1]["tail"],
        json!({"torn_bytes": 0, "last_line_is_json": true})
    );
    assert!(files[1]["steps_ms"]["settled"].is_number());
}

#[test]
fn what_cannot_be_looked_at_is_3_and_the_others_are_archived() {
    let place = Place::new();
    let free = place.file("free.log", "x\n");
    let missing = place.dir.path().join("missing");
    let dir = place.dir.path().to_owned();
    let said = place.run(&[], &[&missing, &dir, &free]);
    assert_eq!(said.code, 3, "{}", said.text());
    assert!(
        said.stderr.contains("missing: no such file\nhint: "),
        "{}",
        said.stderr
    );
    assert!(
        said.stderr.contains(": is a directory\nhint: "),
        "{}",
        said.stderr
    );
    assert_eq!(said.text().lines().count(), 1);
    assert!(place.to.join("free.log").exists());
}

#[test]
fn wrong_usage_is_2_in_one_line() {
    for args in [
        &["archive", "a.log"][..],
        &["archive", "--to", "x"],
        &["archive", "a.log", "--to", "x", "--wait", "soon"],
    ] {
        let said = run(args);
        assert_eq!((said.code, said.text()), (2, ""), "{args:?}");
        assert_eq!(said.stderr.lines().count(), 2, "{}", said.stderr);
    }
}
