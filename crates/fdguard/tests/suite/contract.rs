//! The public contract as a checker: every key, every type, every promise about order and sums.

use fdguard_core::Class;
use jiff::Timestamp;
use serde_json::Value;

/// Collects violations of the contract.
#[derive(Default)]
pub(crate) struct Check {
    pub(crate) found: Vec<String>,
}

impl Check {
    pub(crate) fn is(&mut self, holds: bool, what: impl FnOnce() -> String) {
        if !holds {
            self.found.push(what());
        }
    }

    /// The value at `key` is there and `fits`.
    pub(crate) fn key<'a>(
        &mut self,
        object: &'a Value,
        key: &str,
        fits: impl Fn(&Value) -> bool,
    ) -> &'a Value {
        let value = object.get(key);
        self.is(value.is_some_and(fits), || {
            format!("{key} is {value:?} in {:.200}", object.to_string())
        });
        value.unwrap_or(&Value::Null)
    }
}

pub(crate) fn number(value: &Value) -> bool {
    value.is_u64()
}

pub(crate) fn number_or_unknown(value: &Value) -> bool {
    value.is_u64() || value.is_null()
}

pub(crate) fn word(value: &Value) -> bool {
    value.is_string()
}

fn truth(value: &Value) -> bool {
    value.is_boolean()
}

pub(crate) fn list(value: &Value) -> bool {
    value.is_array()
}

/// RFC 3339 with a zone.
pub(crate) fn time(value: &Value) -> bool {
    value
        .as_str()
        .is_some_and(|text| text.parse::<Timestamp>().is_ok() && text.contains('T'))
}

/// A string, or `{"bytes": base64}` for bytes that are not text.
pub(crate) fn text(value: &Value) -> bool {
    let base64 = |encoded: &str| {
        encoded.len().is_multiple_of(4)
            && encoded
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"+/=".contains(&byte))
    };
    match value {
        Value::String(_) => true,
        Value::Object(map) => {
            map.len() == 1 && map.get("bytes").and_then(Value::as_str).is_some_and(base64)
        }
        _ => false,
    }
}

pub(crate) fn or_unknown(fits: impl Fn(&Value) -> bool) -> impl Fn(&Value) -> bool {
    move |value| value.is_null() || fits(value)
}

pub(crate) fn class(value: &Value) -> bool {
    value
        .as_str()
        .is_some_and(|name| name.parse::<Class>().is_ok())
}

pub(crate) fn elements(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// Asserts that this is a `fdguard.snapshot/1` document.
pub(crate) fn assert_snapshot(document: &Value) {
    let mut check = Check::default();
    snapshot(&mut check, document);
    assert!(check.found.is_empty(), "{}", check.found.join("\n"));
}

/// Asserts that this is a `fdguard.snapshots/1` document.
pub(crate) fn assert_snapshots(document: &Value) {
    let mut check = Check::default();
    assert_eq!(document["schema"], "fdguard.snapshots/1");
    let members = elements(check.key(document, "snapshots", list));
    check.is(document["processes"] == members.len(), || {
        format!(
            "{} processes, {} shown",
            document["processes"],
            members.len()
        )
    });
    check.key(document, "count", number_or_unknown);
    for member in members {
        snapshot(&mut check, member);
    }
    gaps(&mut check, document);
    assert!(check.found.is_empty(), "{}", check.found.join("\n"));
}

fn snapshot(check: &mut Check, document: &Value) {
    check.is(document["schema"] == "fdguard.snapshot/1", || {
        format!("schema {}", document["schema"])
    });
    check.key(document, "taken_at", time);
    process(check, check_object(document, "process"));
    let limits = check_object(document, "limits");
    check.key(limits, "soft", number_or_unknown);
    check.key(limits, "hard", number_or_unknown);
    for key in ["count", "lowest", "highest", "table_size"] {
        check.key(document, key, number_or_unknown);
    }
    check.key(document, "percent_of_soft", or_unknown(Value::is_number));
    for wall in elements(check.key(document, "walls", list)) {
        check.key(wall, "name", word);
        for key in ["at", "used", "left"] {
            check.key(wall, key, number_or_unknown);
        }
    }
    for lint in elements(check.key(document, "lints", list)) {
        check.key(lint, "rule", word);
        check.key(lint, "message", word);
        let fds = elements(check.key(lint, "fds", list));
        check.is(fds.iter().all(number), || format!("fds of {lint}"));
    }
    gaps(check, document);
    if document["tier"] == "radar" {
        let unknown = ["fds", "classes", "targets"];
        check.is(unknown.iter().all(|key| document[key].is_null()), || {
            "the radar lists nothing".to_owned()
        });
        return;
    }
    fds(check, document);
    sums(check, document);
}

pub(crate) fn check_object<'a>(document: &'a Value, key: &str) -> &'a Value {
    document.get(key).unwrap_or(&Value::Null)
}

pub(crate) fn process(check: &mut Check, process: &Value) {
    check.key(process, "pid", number);
    check.key(process, "start_time", or_unknown(time));
    check.key(process, "comm", text);
    check.key(process, "exe", or_unknown(text));
    let words = elements(check.key(process, "cmdline", list));
    check.is(words.iter().all(text), || format!("cmdline {words:?}"));
    for key in ["uid", "threads", "children", "zombies"] {
        check.key(process, key, number_or_unknown);
    }
    check.key(process, "container", or_unknown(word));
}

pub(crate) fn gaps(check: &mut Check, document: &Value) {
    for gap in elements(check.key(document, "gaps", list)) {
        for key in ["what", "why", "remedy"] {
            check.key(gap, key, |value| {
                value.as_str().is_some_and(|text| !text.is_empty())
            });
        }
    }
}

fn fds(check: &mut Check, document: &Value) {
    let fds = elements(check.key(document, "fds", list));
    let numbers: Vec<u64> = fds.iter().filter_map(|fd| fd["fd"].as_u64()).collect();
    check.is(numbers.is_sorted_by(|a, b| a < b), || {
        format!("not ascending: {numbers:?}")
    });
    check.is(
        document["lowest"].as_u64() == numbers.first().copied(),
        || format!("lowest {}", document["lowest"]),
    );
    check.is(
        document["highest"].as_u64() == numbers.last().copied(),
        || format!("highest {}", document["highest"]),
    );
    for fd in fds {
        check.key(fd, "fd", number);
        check.key(fd, "class", class);
        check.key(fd, "target", text);
        check.key(fd, "mode", |mode| {
            mode.is_null() || ["r", "w", "rw", "path"].iter().any(|known| mode == known)
        });
        check.key(fd, "cloexec", or_unknown(truth));
        check.key(fd, "deleted", truth);
        check.key(fd, "detail", Value::is_object);
        detail(check, fd);
    }
}

/// The keys that the contract names for a class.
fn detail(check: &mut Check, fd: &Value) {
    let keys: &[&str] = match fd["class"].as_str().unwrap_or_default() {
        "pidfd" => &["pid", "alive"],
        "eventpoll" => &["watching", "ghosts"],
        "pipe" => &["end", "peer"],
        "unix" => &["path", "peer"],
        "inotify" => &["watches"],
        "regular" | "sqlite-db" | "sqlite-wal" | "sqlite-shm" | "sqlite-journal" | "deleted" => {
            &["path", "pos", "locks"]
        }
        name if name.starts_with("tcp:") => &["local", "remote", "state", "rx_queue", "tx_queue"],
        _ => &[],
    };
    for key in keys {
        check.key(&fd["detail"], key, |_| true);
    }
}

fn sums(check: &mut Check, document: &Value) {
    let fds = elements(&document["fds"]);
    for key in ["classes", "targets"] {
        let rows = elements(check.key(document, key, list));
        let counts: Vec<u64> = rows
            .iter()
            .filter_map(|row| row["count"].as_u64())
            .collect();
        check.is(counts.is_sorted_by(|a, b| a >= b), || {
            format!("{key} not largest first: {counts:?}")
        });
        let sum: u64 = counts.iter().sum();
        check.is(sum == fds.len() as u64, || {
            format!("{key} add up to {sum}, there are {}", fds.len())
        });
        for row in rows {
            check.key(row, "class", class);
            let held = fds.iter().filter(|fd| fd["class"] == row["class"]).count();
            check.is(key == "targets" || row["count"] == held, || {
                format!("{row}, but {held} listed")
            });
        }
    }
    for row in elements(&document["targets"]) {
        check.key(row, "target", text);
    }
    let unread = elements(&document["gaps"]).iter().any(|gap| {
        gap["what"]
            .as_str()
            .is_some_and(|what| what.ends_with("descriptors"))
    });
    check.is(unread || document["count"] == fds.len(), || {
        format!("count {}, listed {}", document["count"], fds.len())
    });
}

/// Asserts that this is a `fdguard.host/1` document.
pub(crate) fn assert_host(document: &Value) {
    let mut check = Check::default();
    assert_eq!(document["schema"], "fdguard.host/1");
    check.key(document, "taken_at", time);
    check.key(document, "tier", |tier| tier == "radar");
    check.key(document, "host", Value::is_object);
    for row in elements(check.key(document, "processes", list)) {
        check.key(row, "pid", number);
        check.key(row, "comm", text);
        check.key(row, "zombie", truth);
        for key in ["ppid", "start_ticks", "uid", "count", "table_size"] {
            check.key(row, key, number_or_unknown);
        }
        check.key(row, "limits", Value::is_object);
        check.key(row, "percent_of_soft", or_unknown(Value::is_number));
        check.key(row, "crossed_1024", or_unknown(truth));
        check.key(row, "nearest_wall", or_unknown(Value::is_object));
        check.key(row, "growth", or_unknown(Value::is_object));
    }
    gaps(&mut check, document);
    assert!(check.found.is_empty(), "{}", check.found.join("\n"));
}
