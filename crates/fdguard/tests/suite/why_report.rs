//! Where the answers of `--why` are in reports, and which programs they are about.

use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;
use testkit::{is_root, skip};

use super::run;
use super::why::started;

/// Two workers fill lists of their own at the same line, and wait until their parent ends.
const WORKERS: &str = "
import os, time
FIRST, SECOND = [], []
near, far = os.pipe()
def fill(kept):
    for _ in range(12):
        kept.append(open('/proc/self/stat'))
for kept in (FIRST, SECOND):
    if os.fork() == 0:
        os.close(far)
        fill(kept)
        os.read(near, 1)
        os._exit(0)
time.sleep(60)
";

/// Runs a Python program under fdguard, which writes JSON.
fn traced(arguments: &[&str], code: &str) -> (Value, Output) {
    let dir = tempfile::tempdir().unwrap();
    let (script, file) = (dir.path().join("app.py"), dir.path().join("out.json"));
    std::fs::write(&script, code).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_fdguard"))
        .args(arguments)
        .args(["--why", "--json", "-o"])
        .args([&file, Path::new("--"), Path::new("python3"), &script])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    let json = std::fs::read(&file).unwrap_or_else(|error| panic!("{error}: {stderr}"));
    (serde_json::from_slice(&json).unwrap(), output)
}

/// The holders in the answers of the line that opened twelve files, one for each process.
fn roots(document: &Value) -> Vec<String> {
    let sites = document["sites"].as_array().unwrap();
    let sites = sites.iter().filter(|site| site["live"] == 12);
    let mut roots: Vec<String> = sites
        .map(|site| {
            assert_eq!(site["why"]["basis"], "object", "{site:#}");
            let chain = &site["why"]["chains"][0];
            assert_eq!(chain["count"], 12, "{site:#}");
            chain["root"].as_str().unwrap().to_owned()
        })
        .collect();
    roots.sort();
    roots
}

#[test]
fn w22_the_site_of_each_worker_has_its_own_holder() {
    if !is_root() {
        return skip("needs root");
    }
    for command in ["trace", "check"] {
        let (document, _) = traced(&[command, "--for", "4s"], WORKERS);
        let expected = ["__main__.FIRST", "__main__.SECOND"];
        assert_eq!(roots(&document), expected, "{command}: {document:#}");
    }
}

#[test]
fn w22_a_finding_has_the_answer_beside_its_reason() {
    if !is_root() {
        return skip("needs root");
    }
    let (document, _) = traced(&["check", "--strict", "--for", "4s"], WORKERS);
    let findings = document["check"]["leftovers"].as_array().unwrap().iter();
    let findings: Vec<&Value> = findings.filter(|one| one["count"] == 12).collect();
    assert_eq!(findings.len(), 2, "{document:#}");
    for finding in findings {
        assert!(finding["why"].is_string(), "{finding:#}");
        assert_eq!(finding["held_by"]["basis"], "object", "{finding:#}");
    }
}

/// Opens 40 files and 40 plain numbers, and ends by itself after this many seconds.
fn short(seconds: &str) -> String {
    format!(
        "
import os, time
FILES, NUMBERS = [], []
for _ in range(40):
    FILES.append(open('/proc/self/stat'))
for _ in range(40):
    NUMBERS.append(os.open('/proc/self/maps', os.O_RDONLY))
time.sleep({seconds})
"
    )
}

#[test]
fn w22_a_program_that_ends_by_itself_is_asked_at_its_end() {
    if !is_root() {
        return skip("needs root");
    }
    for command in ["trace", "check"] {
        for seconds in ["0.3", "2"] {
            let (document, output) = traced(&[command], &short(seconds));
            let stderr = String::from_utf8_lossy(&output.stderr);
            let why = &document["why"][0];
            assert_eq!(
                why["stale"],
                Value::Null,
                "{command} {seconds}: {why:#} {stderr}"
            );
            let mut said: Vec<(u64, &str, &str)> = Vec::new();
            for site in why["sites"].as_array().unwrap() {
                let chain = &site["why"]["chains"][0];
                let root = chain["text"]
                    .as_str()
                    .unwrap()
                    .rsplit(" ← ")
                    .next()
                    .unwrap();
                let (count, basis) = (chain["count"].as_u64(), chain["basis"].as_str());
                said.push((count.unwrap(), basis.unwrap(), root));
            }
            said.sort_unstable();
            let expected = [
                (40, "object", "__main__.FILES"),
                (40, "two_walks", "__main__.NUMBERS"),
            ];
            assert_eq!(said, expected, "{command} {seconds}: {why:#}");
        }
    }
}

/// Grows after it was asked at its fourth descriptor, and is killed: its end cannot be waited for.
const KILLED: &str = "
import os, signal
FILES = [open('/proc/self/stat') for _ in range(12)]
os.kill(os.getpid(), signal.SIGKILL)
";

#[test]
fn w22_the_answer_for_a_program_that_grew_before_it_was_killed_is_marked() {
    if !is_root() {
        return skip("needs root");
    }
    let (document, _) = traced(&["trace"], KILLED);
    let stale = &document["why"][0]["stale"];
    let expected = "8 more were opened before it ended";
    assert_eq!(stale, expected, "{document:#}");
    let gaps = document["gaps"].as_array().unwrap();
    let what = |gap: &Value| gap["what"].as_str().unwrap().to_owned();
    let about = |gap: &&Value| what(gap).starts_with("which objects hold the descriptors of ");
    assert_eq!(gaps.iter().filter(about).count(), 1, "{gaps:#?}");
}

#[test]
fn w22_forked_workers_are_asked_at_their_end() {
    if !is_root() {
        return skip("needs root");
    }
    let code = "
import multiprocessing
KEPT = []
def work(number):
    for _ in range(6):
        KEPT.append(open('/proc/self/stat'))
if __name__ == '__main__':
    multiprocessing.set_start_method('fork')
    workers = [multiprocessing.Process(target=work, args=(one,)) for one in range(2)]
    for one in workers: one.start()
    for one in workers: one.join()
";
    let (document, _) = traced(&["check"], code);
    let mut counts = Vec::new();
    for process in document["why"].as_array().unwrap() {
        for site in process["sites"].as_array().unwrap() {
            let chain = &site["why"]["chains"][0];
            if chain["root"] == "__main__.KEPT" {
                counts.push(chain["count"].as_u64().unwrap());
            }
        }
    }
    assert_eq!(counts, [6, 6], "{document:#}");
}

/// Twelve files in a list, and a wait for the end of the input.
fn traced_registry(dir: &Path) -> (Child, Child, u32) {
    let script = dir.join("registry.py");
    let code = "
import os, sys
KEPT = [open('/proc/self/stat') for _ in range(12)]
with open('pid.new', 'w') as file: file.write(str(os.getpid()))
os.rename('pid.new', 'pid')
sys.stdin.read()
";
    std::fs::write(&script, code).unwrap();
    let input = Command::new("sleep")
        .arg("600")
        .stdout(Stdio::piped())
        .spawn();
    let mut input = input.unwrap();
    let tracer = Command::new(env!("CARGO_BIN_EXE_fdguard"))
        .current_dir(dir)
        .args(["trace", "-o", "trace.txt", "--", "python3"])
        .arg(&script)
        .stdin(input.stdout.take().unwrap())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    testkit::wait_until("the program holds its files", || dir.join("pid").exists());
    let pid = std::fs::read_to_string(dir.join("pid")).unwrap();
    (tracer, input, pid.parse().unwrap())
}

fn end(mut tracer: Child, mut input: Child) {
    input.kill().unwrap();
    input.wait().unwrap();
    tracer.wait().unwrap();
}

fn kept(document: &Value) -> Vec<&Value> {
    let processes = document["why"].as_array().unwrap().iter();
    let sites = processes.flat_map(|one| one["sites"].as_array().unwrap());
    let chains = sites.map(|site| &site["why"]["chains"][0]);
    chains
        .filter(|chain| chain["root"] == "__main__.KEPT")
        .collect()
}

#[test]
fn w22_a_traced_program_is_asked_by_a_second_trace() {
    if !is_root() {
        return skip("needs root");
    }
    let dir = tempfile::tempdir().unwrap();
    let (tracer, input, pid) = traced_registry(dir.path());
    let output = run(["trace", &pid.to_string(), "--why", "--json"]);
    let document: Value = serde_json::from_str(output.text()).unwrap();
    assert_eq!(kept(&document).len(), 1, "{document:#} {}", output.stderr);
    let sites = document["sites"].as_array().unwrap().iter();
    let whys = sites.map(|site| site["why"]["basis"].as_str());
    assert_eq!(whys.collect::<Vec<_>>(), [Some("object")], "{document:#}");
    end(tracer, input);
}

#[test]
fn w22_a_doctor_asks_a_program_that_is_traced_already() {
    if !is_root() {
        return skip("needs root");
    }
    let dir = tempfile::tempdir().unwrap();
    let (tracer, input, pid) = traced_registry(dir.path());
    let output = run(["doctor", &pid.to_string(), "--why", "--for", "1s", "--json"]);
    let document: Value = serde_json::from_str(output.text()).unwrap();
    assert_eq!(kept(&document).len(), 1, "{document:#} {}", output.stderr);
    end(tracer, input);
}

#[test]
fn w22_a_doctor_has_the_holders_in_the_report_and_in_the_bundle_without_a_finding() {
    if !is_root() {
        return skip("needs root");
    }
    let dir = tempfile::tempdir().unwrap();
    let bundle = dir.path().join("bundle");
    let mut program = super::why::registry();
    let output = run([
        "doctor",
        &program.id().to_string(),
        "--trace",
        "1s",
        "--why",
        "-o",
        bundle.to_str().unwrap(),
    ]);
    drop(program.stdin.take());
    assert!(program.wait().unwrap().success());
    let chain = "held by 12 Session.log ← list (12 entries) ← __main__.SESSIONS [object]";
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let text = words(output.text());
    assert!(text.contains(chain), "{text} {}", output.stderr);
    let report = std::fs::read_to_string(bundle.join("report.txt")).unwrap();
    assert!(words(&report).contains(chain), "{report}");
    let json = std::fs::read(bundle.join("diagnosis.json")).unwrap();
    let document: Value = serde_json::from_slice(&json).unwrap();
    assert_eq!(document["findings"].as_array().unwrap().len(), 0);
    let chain = &document["why"][0]["sites"][0]["why"]["chains"][0];
    assert_eq!(chain["root"], "__main__.SESSIONS", "{document:#}");
}

#[test]
fn w22_what_is_left_out_is_counted() {
    if !is_root() {
        return skip("needs root");
    }
    // 24 lines with a file each, and one with 2,100.
    let lines = "KEPT.append(open('/proc/self/stat'))\n".repeat(24);
    let code = format!(
        "
import resource, sys, time
resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))
KEPT, MANY = [], []
for _ in range(2100): MANY.append(open('/proc/self/stat'))
{lines}"
    );
    let (document, _) = traced(&["trace"], &code);
    let why = &document["why"][0];
    let sites = why["sites"].as_array().unwrap();
    assert_eq!(sites.len(), 20);
    assert_eq!(why["more_sites"], 5, "{why:#}");
    assert_eq!(sites[0]["why"]["chains"][0]["count"], 2000);
    assert_eq!(sites[0]["why"]["more"], 100);
}

#[test]
fn w22_a_language_that_is_not_known_is_named() {
    if !is_root() {
        return skip("needs root");
    }
    let mut command = Command::new("perl");
    let code = "$| = 1; open(A, '<', '/dev/null'); print qq(READY\\n); <STDIN>";
    if !testkit::have("perl") {
        return skip("needs perl");
    }
    let (mut program, _) = started(command.args(["-e", code]));
    let output = run(["why", &program.id().to_string()]);
    drop(program.stdin.take());
    assert!(program.wait().unwrap().success());
    assert_eq!(output.code, 3);
    let expected = format!("fdguard: process {}: not supported for Perl", program.id());
    assert!(output.stderr.contains(&expected), "{}", output.stderr);
}
