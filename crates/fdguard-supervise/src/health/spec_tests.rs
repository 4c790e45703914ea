//! Checks as flags and as tables.

use std::time::Duration;

use proptest::prelude::*;
use serde::Deserialize;

use super::spec::{CheckSpec, Kind};

#[derive(Debug, Deserialize)]
struct File {
    health: CheckSpec,
}

fn flag(text: &str) -> CheckSpec {
    text.parse().unwrap()
}

fn table(text: &str) -> Result<CheckSpec, String> {
    let read = toml::from_str::<File>(&format!("[health]\n{text}"));
    read.map(|file| file.health).map_err(|why| why.to_string())
}

#[test]
fn every_form_is_read_and_shown() {
    for (text, shown) in [
        ("tcp:8080", "tcp:localhost:8080"),
        ("tcp:[::1]:80", "tcp:[::1]:80"),
        ("http://127.0.0.1:81/h", "http://127.0.0.1:81/h"),
        ("http:http://a:1/", "http://a:1/"),
        ("http:8080/ready", "http://localhost:8080/ready"),
        ("exec:test -e /x && true", "exec:test -e /x && true"),
        ("notify", "notify"),
        ("fd:3", "fd:3"),
        ("line:listening on .*:\\d+", "line:listening on .*:\\d+"),
        ("up:5s", "up:5s"),
        ("up:250ms", "up:250ms"),
        ("accept", "accept"),
    ] {
        assert_eq!(flag(text).kind.to_string(), shown, "{text}");
    }
}

#[test]
fn words_after_a_page_say_what_is_expected() {
    let spec = flag("http:80/h status=204 period=2s timeout=500ms failure=5 body=all is  well");
    let Kind::Http(page) = &spec.kind else {
        panic!("{spec:?}")
    };
    assert_eq!(page.status, 204..=204);
    assert_eq!(page.body.as_ref().unwrap().0.as_str(), "all is  well");
    assert_eq!(spec.timing.period, Duration::from_secs(2));
    assert_eq!(spec.timing.timeout, Duration::from_millis(500));
    assert_eq!(spec.timing.failure_threshold, 5);
}

#[test]
fn what_is_no_check_is_one_clear_line() {
    for (bad, word) in [
        ("", "is not a check"),
        ("tcp", "is not a check"),
        ("tcp:", "is not a check"),
        ("tcp:0", "is not a port"),
        ("tcp:80 perod=1s", "period="),
        ("tcp:80 period=1ms", "at least 10ms"),
        ("tcp:80 failure=0", "threshold"),
        ("http:80/ status=99", "status range"),
        ("http:80/ body=(", "regular expression"),
        ("https://x/", "exec:curl"),
        ("fd:2", "descriptor"),
        ("line:[", "regular expression"),
        ("up:soon", "is not a time"),
        ("ping:host", "is not a check"),
        ("notify:x", "is not a check"),
    ] {
        let error = bad.parse::<CheckSpec>().unwrap_err();
        assert!(error.contains(word), "{bad}: {error}");
        assert!(!error.contains('\n'), "{bad}: {error}");
    }
}

#[test]
fn a_table_has_the_names_of_kubernetes() {
    let text = "http = \"http://localhost:8787/health\"\nstatus = \"200-299\"\nbody = \"ok\"\n\
        initial_delay_seconds = 5\nperiod_seconds = 2.5\ntimeout_seconds = 3\nsuccess_threshold = 2\nfailure_threshold = 4\n";
    let spec = table(text).unwrap();
    let same = flag(
        "http:8787/health status=200-299 delay=5s period=2.5s timeout=3s success=2 failure=4 body=ok",
    );
    assert_eq!(spec, same);
    assert_eq!(table("tcp = 80").unwrap(), flag("tcp:80"));
    let read: File = toml::from_str("health = \"up:3s\"").unwrap();
    assert_eq!(read.health, flag("up:3s"));
}

#[test]
fn a_table_has_times_with_units_too() {
    let text = "tcp = 80\ndelay = \"5s\"\nperiod = \"1m30s\"\ntimeout = \"250ms\"\n";
    assert_eq!(
        table(text).unwrap(),
        flag("tcp:80 delay=5s period=90s timeout=250ms")
    );
    for (bad, word) in [
        ("tcp = 80\nperiod = \"soon\"", "'soon' is not a time"),
        (
            "tcp = 80\nperiod = \"5s\"\nperiod_seconds = 5",
            "period is given twice",
        ),
        (
            "tcp = 80\ndelay = \"5s\"\ninitial_delay_seconds = 5",
            "delay is given twice",
        ),
    ] {
        let error = table(bad).unwrap_err();
        assert!(error.contains(word), "{bad}: {error}");
    }
}

#[test]
fn a_table_with_a_wrong_key_says_which_and_where() {
    let error = table("tcp = 80\nperiodSeconds = 3").unwrap_err();
    assert!(
        error.contains("periodSeconds") && error.contains("line 3"),
        "{error}"
    );
    for (bad, word) in [
        ("period_seconds = 3", "one of"),
        ("tcp = 80\nnotify = true", "only one of"),
        ("tcp = 80\nbody = \"x\"", "apply only to http"),
        ("tcp = 80\nperiod_seconds = -1", "not a time"),
        ("tcp = 80\nsuccess_threshold = 0", "threshold"),
        ("fd = 1", "descriptor"),
    ] {
        let error = table(bad).unwrap_err();
        assert!(error.contains(word), "{bad}: {error}");
    }
}

#[test]
fn what_happens_once_is_known_as_such() {
    for (text, once) in [
        ("notify", true),
        ("fd:3", true),
        ("up:1s", true),
        ("tcp:1", false),
        ("accept", false),
    ] {
        assert_eq!(flag(text).is_once(), once, "{text}");
    }
}

proptest! {
    #[test]
    fn any_text_is_survived_as_a_check(
        kind in prop_oneof!["tcp:", "http:", "http://", "fd:", "up:", "line:", "https://", ""].prop_map(String::from),
        rest in ".*",
        words in "( (status|body|period|timeout|delay|success|failure)=[0-9a-z.-]{0,6}){0,3}",
    ) {
        let text = format!("{kind}{rest}{words}");
        if let Ok(spec) = text.parse::<CheckSpec>() {
            // Its displayed form can be parsed again.
            let again = spec.kind.to_string().parse::<CheckSpec>();
            prop_assert!(again.is_ok(), "{} -> {again:?}", spec.kind);
        }
        let log = text.parse::<crate::output::OutputSpec>();
        prop_assert!(log.is_ok_and(|form| form.check().is_ok()) || text.parse::<crate::output::OutputSpec>().is_err());
    }
}
