//! All keys of a service and of the run: one table for the file, the flags and `--explain`.

/// One key.
#[derive(Clone, Copy, Debug)]
pub(super) struct Key {
    /// The name in the file; the flag is the same with dashes.
    pub(super) name: &'static str,
    /// The default.
    pub(super) default: &'static [&'static str],
    /// How many values it takes.
    pub(super) takes: Takes,
    /// Whether there is a flag.
    pub(super) has_flag: bool,
}

/// How many values a key takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Takes {
    /// One.
    One,
    /// A list, or one; a flag may be repeated.
    Many,
    /// A table of strings, or a list of `KEY=VALUE`.
    Pairs,
    /// The same, where a value may also be a table of levels.
    Budgets,
    /// A string or a table; `Checks` also takes a list of them.
    Check,
    /// See `Check`.
    Checks,
}

const fn one(name: &'static str, default: &'static [&'static str]) -> Key {
    Key {
        name,
        default,
        takes: Takes::One,
        has_flag: true,
    }
}

const fn many(name: &'static str) -> Key {
    Key {
        name,
        default: &[],
        takes: Takes::Many,
        has_flag: true,
    }
}

const fn file_only(mut key: Key) -> Key {
    key.has_flag = false;
    key
}

const fn takes(mut key: Key, takes: Takes) -> Key {
    key.takes = takes;
    key
}

/// Keys of the whole run, at the top of the file.
pub(super) const RUN: &[Key] = &[
    one("log_format", &["text"]),
    one("metrics", &["off"]),
    one("metrics_token", &["off"]),
    one("evidence", &["auto"]),
];

/// Keys of `[service.NAME]`.
pub(super) const SERVICE: &[Key] = &[
    file_only(many("command")),
    file_only(many("after")),
    one("folder", &[]),
    takes(many("env"), Takes::Pairs),
    one("restart", &["on-failure"]),
    many("stop_on"),
    one("backoff", &["100ms..30s"]),
    one("min_uptime", &["1s"]),
    one("reset_after", &["10s"]),
    one("crash_loop", &["5/60s"]),
    one("stop_signal", &["TERM"]),
    one("stop_grace", &["10s"]),
    one("background", &["adopt"]),
    many("listen"),
    one("on_conflict", &["refuse"]),
    takes(one("ready", &[]), Takes::Check),
    one("ready_timeout", &["120s"]),
    takes(many("health"), Takes::Checks),
    one("watchdog", &["off"]),
    one("notify_access", &["main"]),
    takes(many("budget"), Takes::Budgets),
    one("warmup", &["10s"]),
    one("drain", &["none"]),
    one("drain_timeout", &["30s"]),
    one("prove_timeout", &["120s"]),
    one("when_again", &["keep"]),
    one("raise_limit", &["on"]),
    one("log", &["off"]),
];

/// The key of this name in a table, or the nearest one as a suggestion.
pub(super) fn find(table: &'static [Key], name: &str) -> Result<&'static Key, String> {
    if let Some(key) = table.iter().find(|key| key.name == name) {
        return Ok(key);
    }
    let near = table
        .iter()
        .map(|key| (distance(key.name, name), key.name))
        .min();
    Err(match near {
        Some((far, near)) if far <= 3 => {
            format!("unknown key `{name}`: did you mean `{near}`?")
        }
        _ => {
            let known: Vec<&str> = table.iter().map(|key| key.name).collect();
            format!("unknown key `{name}`: known keys are {}", known.join(", "))
        }
    })
}

/// The edit distance.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, y) in b.iter().enumerate() {
            let same = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = same.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::{SERVICE, distance, find};

    #[test]
    fn a_slip_is_told_with_what_was_meant() {
        assert_eq!(distance("restart", "restrat"), 2);
        let said = find(SERVICE, "restrat").unwrap_err();
        assert_eq!(said, "unknown key `restrat`: did you mean `restart`?");
        let said = find(SERVICE, "colour_of_the_sky").unwrap_err();
        assert!(said.contains("known keys are command, after"), "{said}");
    }

    #[test]
    fn no_key_stands_twice() {
        for (at, key) in SERVICE.iter().enumerate() {
            assert!(SERVICE[at + 1..].iter().all(|other| other.name != key.name));
        }
    }
}
