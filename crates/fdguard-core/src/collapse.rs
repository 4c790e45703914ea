//! Puts targets that differ only in numbers, identifiers or temporary names under one name.

use std::borrow::Cow;

use bstr::ByteSlice as _;

use crate::{Detail, FdEntry};

/// The lowest ephemeral port by default.
const EPHEMERAL: u16 = 32768;

/// The collapsed target of a descriptor. Paths are collapsed by their names, connections by the
/// port that was chosen at random: `*->10.0.0.7:443` for a client, `0.0.0.0:8080<-*` for a server.
#[must_use]
pub fn target(entry: &FdEntry) -> Vec<u8> {
    let mut out = Vec::with_capacity(entry.target.as_bytes().len());
    append_target(entry, &mut out);
    out
}

/// The same, appended to other bytes.
pub fn append_target(entry: &FdEntry, out: &mut Vec<u8>) {
    match &entry.detail {
        Detail::Inet(inet) => match inet.local.as_deref() {
            Some(local) => append_connection(local, inet.remote.as_deref(), out),
            None => out.extend_from_slice(entry.target.as_bytes()),
        },
        // The command is more informative than the pid.
        Detail::Pidfd(pidfd) => match &pidfd.command {
            Some(command) => {
                out.extend_from_slice(b"pid * ");
                out.extend_from_slice(command.as_bytes());
            }
            None => append(entry.target.as_bytes(), out),
        },
        _ => append(entry.target.as_bytes(), out),
    }
}

fn append_connection(local: &str, remote: Option<&str>, out: &mut Vec<u8>) {
    let parts = match remote {
        None if is_ephemeral(local) => [host(local), ":*"],
        None => [local, ""],
        Some(remote) if is_ephemeral(remote) && !is_ephemeral(local) => [local, "<-*"],
        Some(remote) => ["*->", remote],
    };
    for part in parts {
        out.extend_from_slice(part.as_bytes());
    }
}

fn host(address: &str) -> &str {
    address.rsplit_once(':').map_or(address, |(host, _)| host)
}

fn is_ephemeral(address: &str) -> bool {
    let port = address
        .rsplit_once(':')
        .and_then(|(_, port)| port.parse::<u16>().ok());
    port.is_some_and(|port| port >= EPHEMERAL)
}

/// Collapses one target: `/tmp/agent-41/log.jsonl` becomes `/tmp/agent-*/log.jsonl`.
///
/// Path components are judged one by one. Runs of digits, UUIDs, long hexadecimal strings and the
/// random tails of temporary names become `*`; words stay. Bytes that are not text stay as they
/// are.
#[must_use]
pub fn collapse(target: &[u8]) -> Cow<'_, [u8]> {
    let mut out = Vec::with_capacity(target.len());
    append(target, &mut out);
    if out == target {
        Cow::Borrowed(target)
    } else {
        Cow::Owned(out)
    }
}

fn append(target: &[u8], out: &mut Vec<u8>) {
    if !target.iter().any(u8::is_ascii_digit) && !target.contains_str("tmp") {
        return out.extend_from_slice(target);
    }
    let mut under_tmp = false;
    for (index, part) in target.split(|byte| *byte == b'/').enumerate() {
        if index > 0 {
            out.push(b'/');
        }
        push_component(out, part, under_tmp);
        under_tmp = is_temporary_place(part, under_tmp);
    }
}

/// The target with words of eight letters in temporary places collapsed, too; `None` where there
/// are none. Used to decide whether a name that looks like a word is one of many random ones.
#[must_use]
pub fn with_words(target: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(target.len());
    let mut found = false;
    let mut under_tmp = false;
    for (index, part) in target.split(|byte| *byte == b'/').enumerate() {
        if index > 0 {
            out.push(b'/');
        }
        let word = part
            .len()
            .checked_sub(8)
            .map(|at| part.split_at(at))
            .filter(|(prefix, tail)| {
                under_tmp
                    && matches!(prefix.last(), Some(b'-' | b'_' | b'.'))
                    && tail.iter().all(u8::is_ascii_lowercase)
            });
        match word {
            Some((prefix, _)) => {
                found = true;
                out.extend_from_slice(prefix);
                push_star(&mut out);
            }
            None => out.extend_from_slice(part),
        }
        under_tmp = is_temporary_place(part, under_tmp);
    }
    found.then_some(out)
}

fn is_temporary_place(part: &[u8], under_tmp: bool) -> bool {
    matches!(part, b"tmp" | b"T" | b"shm") || (under_tmp && part.is_empty())
}

fn push_component(out: &mut Vec<u8>, part: &[u8], under_tmp: bool) {
    if let Some(prefix) = python_prefix(part).filter(|_| under_tmp) {
        push_component(out, prefix, true);
        push_star(out);
        return;
    }
    for (index, token) in tokens(part).enumerate() {
        let random = is_identifier(token) || (under_tmp && index > 0 && is_random_tail(token));
        if random || (under_tmp && is_temporary_name(token)) {
            push_star(out);
        } else {
            push_without_numbers(out, token);
        }
    }
}

/// Splits a component into words and the separators between them, each a token.
fn tokens(part: &[u8]) -> impl Iterator<Item = &[u8]> {
    let separator = |byte: &u8| {
        matches!(
            byte,
            b'-' | b'_' | b'.' | b':' | b'[' | b']' | b'@' | b' ' | b'#' | b','
        )
    };
    let mut rest = part;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let end = if let Some(uuid) = uuid_prefix(rest) {
            uuid
        } else if separator(&rest[0]) {
            1
        } else {
            rest.iter().position(separator).unwrap_or(rest.len())
        };
        let (token, tail) = rest.split_at(end);
        rest = tail;
        Some(token)
    })
}

/// Length of a UUID at the start, if there is one.
fn uuid_prefix(bytes: &[u8]) -> Option<usize> {
    const SHAPE: [usize; 5] = [8, 4, 4, 4, 12];
    let mut at = 0;
    for (index, length) in SHAPE.into_iter().enumerate() {
        if index > 0 {
            (bytes.get(at) == Some(&b'-')).then_some(())?;
            at += 1;
        }
        let group = bytes.get(at..at + length)?;
        group.iter().all(u8::is_ascii_hexdigit).then_some(())?;
        at += length;
    }
    let ends = bytes
        .get(at)
        .is_none_or(|next| !next.is_ascii_alphanumeric());
    ends.then_some(at)
}

/// Hexadecimal strings of eight or more characters that hold a digit: hashes, container ids.
fn is_identifier(token: &[u8]) -> bool {
    uuid_prefix(token).is_some()
        || (token.len() >= 8
            && token.iter().all(u8::is_ascii_hexdigit)
            && token.iter().any(u8::is_ascii_digit))
}

/// The random tail that `mkstemp` and similar functions append to a name: six or more letters and
/// digits that do not look like a word.
fn is_random_tail(token: &[u8]) -> bool {
    token.len() >= 6
        && token.iter().all(u8::is_ascii_alphanumeric)
        && (token.iter().any(u8::is_ascii_digit) || mixes_case(token))
}

/// The part before the eight random characters of a name made by Python's `tempfile`, which uses
/// the underscore as one of them. Eight letters alone may be a word, and stay.
fn python_prefix(part: &[u8]) -> Option<&[u8]> {
    let (prefix, tail) = part.split_at_checked(part.len().checked_sub(8)?)?;
    let random = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || *byte == b'_';
    let is_random = tail.iter().all(random) && !tail.iter().all(u8::is_ascii_lowercase);
    let is_set_off = prefix == b"tmp" || matches!(prefix.last(), Some(b'-' | b'.' | b'_'));
    (is_random && is_set_off).then_some(if prefix == b"tmp" { b"" } else { prefix })
}

/// Python's `tmpab12_x9z` and Go's and Rust's `.tmpXYZ`: `tmp` with a random tail in one word.
fn is_temporary_name(token: &[u8]) -> bool {
    token
        .strip_prefix(b"tmp")
        .is_some_and(|tail| tail.len() >= 5 && tail.iter().all(u8::is_ascii_alphanumeric))
}

/// More than one upper-case letter after a lower-case one is not a human CamelCase word.
fn mixes_case(token: &[u8]) -> bool {
    let changes = token
        .windows(2)
        .filter(|pair| pair[0].is_ascii_lowercase() != pair[1].is_ascii_lowercase())
        .count();
    changes >= 3
}

fn push_without_numbers(out: &mut Vec<u8>, token: &[u8]) {
    // `sqlite3`, `python3`, `utf8`: a single digit after a word belongs to the word.
    let mut rest = token;
    while let Some(start) = rest.iter().position(u8::is_ascii_digit) {
        let length = rest[start..]
            .iter()
            .position(|byte| !byte.is_ascii_digit())
            .unwrap_or(rest.len() - start);
        let word_before = start > 0 && rest[start - 1].is_ascii_alphabetic();
        let last = start + length == rest.len();
        out.extend_from_slice(&rest[..start]);
        if word_before && length == 1 && last && start >= 2 && rest.len() == token.len() {
            out.extend_from_slice(&rest[start..start + length]);
        } else {
            push_star(out);
        }
        rest = &rest[start + length..];
    }
    out.extend_from_slice(rest);
}

fn push_star(out: &mut Vec<u8>) {
    if out.last() != Some(&b'*') {
        out.push(b'*');
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{append_connection, collapse};

    fn connection(local: &str, remote: Option<&str>) -> String {
        let mut text = Vec::new();
        append_connection(local, remote, &mut text);
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn connections_meet_by_the_port_that_was_not_chosen_at_random() {
        let client = |port: u16| connection(&format!("10.0.0.1:{port}"), Some("10.0.0.7:443"));
        assert_eq!(client(40001), "*->10.0.0.7:443");
        assert_eq!(client(40001), client(50002));
        assert_eq!(
            connection("0.0.0.0:8080", Some("10.0.0.9:41000")),
            "0.0.0.0:8080<-*"
        );
        assert_eq!(connection("[::1]:8080", None), "[::1]:8080");
        assert_eq!(connection("127.0.0.1:45675", None), "127.0.0.1:*");
    }

    #[test]
    fn numbers_identifiers_and_temporary_names_become_stars() {
        for (target, expected) in [
            ("/tmp/agent-41/log.jsonl", "/tmp/agent-*/log.jsonl"),
            ("/var/lib/app/state.db", "/var/lib/app/state.db"),
            ("/data/app.sqlite3", "/data/app.sqlite3"),
            ("pipe:[48213]", "pipe:[*]"),
            (
                "/run/6f1c2d3e-0000-4abc-8def-0123456789ab.sock",
                "/run/*.sock",
            ),
            ("/tmp/tmpk3j2h1xq/out", "/tmp/*/out"),
            ("/tmp/leakbench-a8fk2l_3/x", "/tmp/leakbench-*/x"),
            ("/tmp/agent-_bumltqx/state.db", "/tmp/agent-*/state.db"),
            ("/tmp/tmp3t_0ol9l/x", "/tmp/*/x"),
            ("/tmp/agent-sessions/x", "/tmp/agent-sessions/x"),
            ("/tmp/.tmpR7xQwz/db", "/tmp/.*/db"),
            ("/tmp/#10010650", "/tmp/#*"),
            (
                "/usr/lib/x86_64-linux-gnu/libc.so.6",
                "/usr/lib/x*_*-linux-gnu/libc.so.*",
            ),
            ("/tmp/plain/readme", "/tmp/plain/readme"),
            ("/proc/812/fd", "/proc/*/fd"),
            ("", ""),
        ] {
            let got = collapse(target.as_bytes());
            assert_eq!(String::from_utf8_lossy(&got), expected, "{target}");
        }
    }

    proptest! {
        #[test]
        fn collapsing_never_panics_and_settles_at_once(bytes: Vec<u8>) {
            let once = collapse(&bytes).into_owned();
            prop_assert_eq!(collapse(&once).into_owned(), once.clone());
            prop_assert!(once.len() <= bytes.len());
        }

        #[test]
        fn temporary_names_are_final(name in "(tmp)?[a-k]{0,6}[0-9]?[-_.][a-k0-9_]{8}") {
            let path = format!("/tmp/{name}");
            let once = collapse(path.as_bytes()).into_owned();
            prop_assert_eq!(collapse(&once).into_owned(), once.clone());
        }

        #[test]
        fn paths_that_differ_in_a_number_meet(a in 0u32..100_000, b in 0u32..100_000) {
            let left = format!("/srv/session-{a}/out.log");
            let right = format!("/srv/session-{b}/out.log");
            prop_assert_eq!(collapse(left.as_bytes()), collapse(right.as_bytes()));
        }
    }
}
