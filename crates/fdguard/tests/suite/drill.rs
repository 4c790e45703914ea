//! `fdguard drill`.

use serde_json::Value;

use super::run;
use super::running::service;

#[test]
fn a_service_that_does_nothing_wrong_passes() {
    let said = run([
        "drill",
        "--within",
        "60s",
        "--json",
        "--",
        &*service(),
        "stamp",
    ]);
    assert_eq!(said.code, 0, "{}{}", said.text(), said.stderr);
    let report: Value = said.json();
    assert_eq!(report["schema"], "fdguard.drill/1");
    let cases = report["cases"].as_array().unwrap();
    let names: Vec<&str> = cases
        .iter()
        .map(|case| case["name"].as_str().unwrap())
        .collect();
    assert_eq!(
        names,
        [
            "start",
            "kill",
            "supervisor-killed",
            "table-full",
            "port-held",
            "setsid-child"
        ]
    );
    assert!(cases.iter().all(|case| case["passed"] == true), "{report}");
    println!("{report}");
}

#[test]
fn a_service_that_is_not_back_is_told_with_exit_1() {
    // Each supervisor's first run is ready; the second, after a kill, never is.
    let dir = tempfile::tempdir().unwrap();
    let script = "flag=\"$0/${FDGUARD_RUN%%:*}\"; [ -e \"$flag\" ] || { : > \"$flag\"; echo up; }; exec sleep 1000";
    let place = dir.path().to_str().unwrap();
    let command = ["--", "sh", "-c", script, place];
    let flags = ["drill", "--ready", "line:up", "--within", "300ms"];
    let said = run(flags.into_iter().chain(command));
    assert_eq!(said.code, 1, "{}{}", said.text(), said.stderr);
    let line = |name: &str| {
        let mut lines = said.text().lines();
        lines.find(|line| line.contains(name)).unwrap().to_owned()
    };
    assert!(line(" kill ").starts_with("FAIL"), "{}", said.text());
    assert!(line(" port-held ").starts_with("pass"), "{}", said.text());
}

#[test]
fn a_program_that_is_not_there_cannot_be_drilled() {
    let said = run(["drill", "--", "/nowhere/at/all"]);
    assert_eq!((said.code, said.text()), (3, ""), "{}", said.stderr);
    assert!(said.stderr.contains("command not found"), "{}", said.stderr);
}

/// Regression: the table was taken for full while Python was still loading; afterwards there was
/// room, and no budget acted.
#[test]
fn a_program_that_takes_its_time_to_load_is_at_rest_before_its_table_is_full() {
    if !testkit::have("python3") {
        return testkit::skip("needs python3");
    }
    let script = "import ssl, json, asyncio, sqlite3, time\nwhile True: time.sleep(60)";
    let said = run([
        "drill", "--within", "60s", "--json", "--", "python3", "-c", script,
    ]);
    let report: Value = said.json();
    let cases = report["cases"].as_array().unwrap();
    let full = cases.iter().find(|case| case["name"] == "table-full");
    assert_eq!(full.unwrap()["passed"], true, "{report}");
}
