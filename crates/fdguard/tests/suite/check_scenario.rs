//! `fdguard check --scenario`: several exercises of one server, failing paths among them.

use std::net::TcpListener;
use std::path::PathBuf;

use serde_json::Value;

use super::{CommandOutput, fdguard};

fn victim() -> PathBuf {
    testkit::c_variant("served", "O1", &["-O1", "-g", "-fno-inline"])
        .expect("a victim that compiles")
}

fn port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

/// Runs this scenario, with PORT, VICTIM and SERVER replaced.
fn scenario(kind: &str, text: &str) -> CommandOutput {
    let (port, victim) = (port().to_string(), victim().display().to_string());
    let server = format!("[{victim:?}, {kind:?}, {port:?}]");
    let text = text
        .replace("SERVER", &server)
        .replace("VICTIM", &victim)
        .replace("PORT", &port);
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("canary.toml");
    std::fs::write(&file, text).unwrap();
    let mut command = fdguard();
    command
        .args([
            "check",
            "--json",
            "--cycles",
            "12",
            "--warmup",
            "2",
            "--scenario",
        ])
        .arg(&file);
    CommandOutput::of(command.output().unwrap())
}

fn document(said: &CommandOutput) -> Value {
    let last = said.text().lines().last();
    serde_json::from_str(last.expect(&said.stderr)).unwrap()
}

const BOTH: &str = "\
server = SERVER
ready = \"tcp:PORT\"

[[exercise]]
name = \"polite\"
run = \"VICTIM ask PORT\"

[[exercise]]
name = \"the client goes away\"
kind = \"tcp-disconnect\"
address = \"127.0.0.1:PORT\"
send = \"hello\"

[[exercise]]
name = \"nobody there\"
run = \"VICTIM ask 1\"
must = \"fail\"
";

#[test]
fn r35_only_the_failing_path_leaks_and_is_named() {
    let said = scenario("careless", BOTH);
    assert_eq!(said.code, 1, "{}", said.stderr);
    let found = document(&said);
    let findings = found["findings"].as_array().unwrap();
    assert_eq!(findings.len(), 1, "{findings:?}");
    let why = findings[0]["why"].as_str().unwrap();
    assert!(
        why.contains("in exercise \"the client goes away\""),
        "{why}"
    );
    let names: Vec<&str> = found["check"]["exercises"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["polite", "the client goes away", "nobody there"]);
}

#[test]
fn r35_a_server_that_closes_on_every_path_passes() {
    let said = scenario("clean", BOTH);
    assert_eq!(said.code, 0, "{}{}", said.stderr, said.text());
}

#[test]
fn r35_a_client_that_gives_up_is_an_exercise() {
    let text = "server = SERVER\nready = \"line:^listening\"\n[[exercise]]\nname = \"impatient\"\nkind = \"http-timeout\"\naddress = \"127.0.0.1:PORT\"\nafter_ms = 20\n";
    let said = scenario("leak", text);
    assert_eq!(said.code, 1, "{}", said.stderr);
    assert_eq!(document(&said)["findings"][0]["rule"], "leak-per-request");
}

#[test]
fn a_budget_and_an_allowance_of_the_file_count() {
    let budget = format!("{BOTH}[budget]\nregular = 3\n");
    let budget = budget.replace("ready =", "allow = [\"/etc/passwd\"]\nready =");
    let said = scenario("leak", &budget);
    assert_eq!(said.code, 1, "{}", said.stderr);
    let found = document(&said);
    let counting: Vec<&str> = found["findings"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|one| one["severity"] != "info")
        .map(|one| one["rule"].as_str().unwrap())
        .collect();
    assert_eq!(counting, ["expected-budget"], "{found}");
    let said = scenario("leak", &budget.replace("regular = 3", "regular = 3000"));
    assert_eq!(said.code, 0, "{}", said.stderr);
}

#[test]
fn a_mistake_in_the_file_is_told_with_its_place_and_nothing_runs() {
    let said = scenario(
        "clean",
        &BOTH.replace("name = \"polite\"", "name = \"polite\"\ncylces = 3"),
    );
    assert_eq!(said.code, 2, "{}", said.stderr);
    assert!(
        said.stderr
            .contains("canary.toml: line 6, column 1: unknown field `cylces`"),
        "{}",
        said.stderr
    );
    assert_eq!(said.text(), "");
    let said = scenario("clean", &BOTH.replace("tcp:PORT", "carrier-pigeon"));
    assert_eq!(said.code, 2, "{}", said.stderr);
    assert!(said.stderr.contains("line 2, column 9"), "{}", said.stderr);
    let said = scenario("clean", &BOTH.replace("server = SERVER\n", ""));
    assert_eq!(said.code, 2, "{}", said.stderr);
    assert!(said.stderr.contains("no server"), "{}", said.stderr);
}

#[test]
fn explain_names_the_source_of_every_value_and_runs_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("canary.toml");
    let text = "ready = \"tcp:1\"\n[[exercise]]\nname = \"a\"\nrun = \"false\"\ncycles = 50\n";
    std::fs::write(&file, text).unwrap();
    let name = file.display().to_string();
    let mut command = fdguard();
    command.args(["check", "--explain", "--scenario", &name, "--warn-at", "60"]);
    command.args(["--limit", "64", "--", "false"]);
    let said = CommandOutput::of(command.output().unwrap());
    assert_eq!(said.code, 0, "{}", said.stderr);
    let lines: Vec<String> = said
        .text()
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
        .collect();
    for expected in [
        "levels.warning = \"60\" # --warn-at",
        "levels.critical = \"90\" # default",
        "server = \"false\" # command line",
        &format!("ready = \"tcp:1\" # {name}:1"),
        "limit = \"64\" # --limit",
        "warmup = \"5\" # default",
        &format!("exercise[0].cycles = \"50\" # {name}:5"),
    ] {
        assert!(
            lines.iter().any(|line| line == expected),
            "{expected}: {lines:#?}"
        );
    }
}

#[test]
fn explain_lists_the_entries_of_the_users_playbook() {
    let dir = tempfile::tempdir().unwrap();
    let (settings, playbook) = (dir.path().join("own.toml"), dir.path().join("play.toml"));
    std::fs::write(&settings, "playbook = \"play.toml\"\n").unwrap();
    let entry = "[[advice]]\nid = \"open-files\"\nclass = \"regular\"\nsource = \"our cache\"\n\
        confirm = \"count\"\nfix = \"close\"\n";
    std::fs::write(&playbook, entry).unwrap();
    let explain = |option: &str, file: &std::path::Path| {
        let mut command = fdguard();
        command.args(["check", "--explain", option]).arg(file);
        CommandOutput::of(command.args(["--", "false"]).output().unwrap())
    };
    let expected = format!("# {}:4", playbook.display());
    for said in [
        explain("--config", &settings),
        explain("--playbook", &playbook),
    ] {
        assert_eq!(said.code, 0, "{}", said.stderr);
        let text = said.text();
        let line = text.lines().find(|line| line.contains("our cache"));
        let line = line.unwrap_or_else(|| panic!("{text}"));
        assert!(line.starts_with("advice[0].source = "), "{line}");
        assert!(line.ends_with(&expected), "{line}");
    }
    std::fs::write(&playbook, entry.replace("fix", "fixx")).unwrap();
    let said = explain("--playbook", &playbook);
    assert_eq!((said.code, said.text()), (2, ""), "{}", said.stderr);
}

#[test]
fn r36_a_soak_keeps_at_it() {
    // A machine under load may need more than the first times for the least number of cycles.
    let soaks = ["2s", "8s", "30s"];
    let goes_on = soaks.iter().any(|soak| cycles_of_a_soak(soak) > 12);
    assert!(
        goes_on,
        "none of {soaks:?} went on after the cycles that count"
    );
}

/// How many cycles a soak of this length makes, of at least ten that count.
fn cycles_of_a_soak(soak: &str) -> u64 {
    let (port, victim) = (port().to_string(), victim());
    let ask = format!("{} ask {port}", victim.display());
    let mut command = fdguard();
    command.args(["check", "--json", "--soak", soak, "--cycles", "10"]);
    command.args(["--exercise", &ask, "--ready", &format!("tcp:{port}"), "--"]);
    command.arg(victim).args(["clean", &port]);
    let said = CommandOutput::of(command.output().unwrap());
    assert_eq!(said.code, 0, "{}", said.stderr);
    let cycles = &document(&said)["check"]["exercises"][0]["cycles"];
    cycles.as_u64().unwrap()
}

#[test]
fn r36_more_than_in_the_last_run_that_passed_fails() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("baseline.json");
    let run = |kind: &str| {
        let (port, victim) = (port().to_string(), victim());
        let ask = format!("{} ask {port}", victim.display());
        let mut command = fdguard();
        let allow = [
            "check",
            "--json",
            "--allow",
            "regular",
            "--cycles",
            "12",
            "--exercise",
            &ask,
        ];
        command.args(allow).arg("--baseline").arg(&file);
        command.args(["--ready", &format!("tcp:{port}"), "--"]);
        CommandOutput::of(command.arg(victim).args([kind, &port]).output().unwrap())
    };
    assert_eq!(run("clean").code, 0);
    let first = std::fs::read(&file).unwrap();
    let said = run("leak");
    assert_eq!(said.code, 1, "{}", said.text());
    let found = document(&said);
    let finding = found["findings"]
        .as_array()
        .unwrap()
        .iter()
        .find(|one| one["rule"] == "expected-budget");
    let why = finding.unwrap()["why"].as_str().unwrap();
    assert!(
        why.contains("descriptors of class regular at the end, up from 0 in the run of"),
        "{why}"
    );
    assert_eq!(
        std::fs::read(&file).unwrap(),
        first,
        "a run that fails is no baseline"
    );
    std::fs::write(&file, "{}").unwrap();
    assert_eq!(run("clean").code, 2);
}
