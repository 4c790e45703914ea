use proptest::prelude::*;

use super::Redactor;
use crate::snapshot::Process;
use crate::testing::{file, pidfd, pipe, snapshot, tcp, unix_listener};
use crate::{Class, Summary, TcpState, Text, collapse};

fn path(redactor: &mut Redactor, text: &str) -> String {
    String::from_utf8(redactor.path(text.as_bytes())).unwrap()
}

#[test]
fn r10_shapes_of_paths_stay_visible() {
    let redactor = &mut Redactor::new();
    for (from, to) in [
        ("/home/alice/projects/acme.jsonl", "/home/~a/~b/~c.jsonl"),
        ("/home/alice/crm.db-wal", "/home/~a/~d.db-wal"),
        ("/home/alice/crm.db", "/home/~a/~d.db"),
        ("/tmp/agent-41/log.jsonl", "/tmp/~e-1/log.jsonl"),
        ("/tmp/agent-42/log.jsonl", "/tmp/~e-2/log.jsonl"),
        (
            "/usr/lib/x86_64-linux-gnu/libssl.so.3",
            "/usr/lib/x86_64-linux-gnu/libssl.so.3",
        ),
        ("/dev/null", "/dev/null"),
        ("/dev/pts/3", "/dev/pts/3"),
        ("/dev/shm/acme", "/dev/shm/~c"),
        ("/proc/12/fd", "/proc/12/fd"),
        ("pipe:[123]", "pipe:[123]"),
        ("anon_inode:[eventfd]", "anon_inode:[eventfd]"),
        ("/var/log/alice.customer", "/var/log/~f"),
        ("/srv/x (deleted)", "/srv/~g (deleted)"),
    ] {
        let shown = path(redactor, from);
        // `log` is a place and a kind of file, not a private name.
        assert_eq!(shown, to, "{from}");
    }
}

#[test]
fn the_program_stays_and_its_arguments_do_not() {
    let redactor = &mut Redactor::new();
    let process = Process {
        comm: "python3".into(),
        exe: Some("/home/alice/.venv/bin/python3.11".into()),
        cmdline: [
            "/home/alice/.venv/bin/python3.11",
            "-m",
            "acme.agent",
            "--token=hunter2",
        ]
        .map(Text::from)
        .to_vec(),
        container: Some("f00dcafe".to_owned()),
        ..Process::default()
    };
    let shown = redactor.process(&process);
    assert_eq!(shown.comm.as_str(), Some("python3"));
    assert_eq!(
        shown.exe.unwrap().as_str(),
        Some("/home/~a/.venv/bin/python3.11")
    );
    let words: Vec<_> = shown
        .cmdline
        .iter()
        .map(|word| word.as_str().unwrap())
        .collect();
    assert_eq!(words, ["/home/~a/.venv/bin/python3.11", "-m", "~b", "~c"]);
    assert_eq!(shown.container.as_deref(), Some("~d"));
    let titled = Process {
        comm: "postgres".into(),
        cmdline: vec!["postgres: alice billing 10.0.0.9(5555) idle".into()],
        ..Process::default()
    };
    assert_eq!(redactor.process(&titled).cmdline[0].as_str(), Some("~e"));
}

#[test]
fn hosts_become_tokens_and_ports_of_services_stay() {
    let redactor = &mut Redactor::new();
    for (from, to) in [
        ("10.1.2.3:45678->93.184.216.34:443", "~a:32768->~b:443"),
        ("10.1.2.3:45679->93.184.216.34:443", "~a:32769->~b:443"),
        ("127.0.0.1:8080", "127.0.0.1:8080"),
        ("[::]:9999", "[::]:~c"),
        ("[2001:db8::1]:45678", "~d:32768"),
        ("socket:[77]", "socket:[77]"),
    ] {
        assert_eq!(redactor.connection(from), to);
        let again = redactor.connection(to);
        assert_eq!(again, to);
    }
}

#[test]
fn r10_what_a_redacted_snapshot_means_is_the_same_without_the_names() {
    let mut fds = vec![
        file(3, Class::SqliteDb, "/home/alice/secret.db"),
        file(4, Class::SqliteWal, "/home/alice/secret.db-wal").deleted(),
        tcp(5, TcpState::CloseWait, Some("10.9.8.7:5432")),
        unix_listener(6, "/run/alice.sock"),
        pidfd(7, Some(false), Some("alice's shell")),
        pipe(8, crate::detail::PipeEnd::Read, None),
    ];
    fds.extend((20..40).map(|fd| file(fd, Class::Regular, &format!("/tmp/alice-{fd}/x.jsonl"))));
    let plain = snapshot(fds);
    let shown = Redactor::new().snapshot(&plain);
    let (before, after) = (Summary::summarize(&plain), Summary::summarize(&shown));
    assert_eq!(before.classes, after.classes);
    let counts = |summary: &Summary| -> Vec<(Class, u64)> {
        let rows = summary.targets.iter().flatten();
        let mut rows: Vec<_> = rows.map(|row| (row.class.clone(), row.count)).collect();
        rows.sort();
        rows
    };
    assert_eq!(counts(&before), counts(&after));
    let rules =
        |summary: &Summary| -> Vec<&str> { summary.lints.iter().map(|hit| hit.rule).collect() };
    assert_eq!(rules(&before), rules(&after));
    let text = format!("{shown:?}{after:?}");
    for secret in ["alice", "secret", "10.9.8.7"] {
        assert!(!text.contains(secret), "{secret} in {text}");
    }
}

#[test]
fn sentences_of_ours_keep_their_words_and_lose_their_paths() {
    let redactor = &mut Redactor::new();
    let said = redactor
        .prose("neither netlink nor /proc/PID/net could be read: (/home/alice/x) and/or 3/4");
    assert_eq!(
        said,
        "neither netlink nor /proc/PID/net could be read: (/home/~a/~b and/or 3/4"
    );
}

/// Names that are never those of a system directory.
fn secret() -> impl Strategy<Value = String> {
    "zq[a-z0-9_ .%-]{6,20}".prop_map(|name| name.trim_end().to_owned())
}

proptest! {
    #[test]
    fn r10_nothing_of_a_name_is_in_its_token(names in prop::collection::vec(secret(), 1..6)) {
        let redactor = &mut Redactor::new();
        let shown = path(redactor, &format!("/tmp/{}", names.join("/")));
        for name in &names {
            let stem = name.split('.').next().unwrap();
            prop_assert!(!shown.contains(stem), "{} in {}", stem, shown);
        }
        let again = path(redactor, &shown);
        prop_assert_eq!(again, shown);
    }

    #[test]
    fn the_same_name_has_the_same_token_and_another_name_another(a in secret(), b in secret()) {
        let redactor = &mut Redactor::new();
        let (first, second) = (redactor.path(a.as_bytes()), redactor.path(b.as_bytes()));
        prop_assert_eq!(&redactor.path(a.as_bytes()), &first);
        prop_assert_eq!(a == b, first == second);
    }

    #[test]
    fn what_was_collapsed_together_still_is(word in "[a-z]{3,6}", one in 10..99_u32, two in 10..99_u32) {
        let redactor = &mut Redactor::new();
        let shown = [one, two].map(|number| redactor.path(format!("/srv/{word}-{number}/x").as_bytes()));
        prop_assert_eq!(collapse::collapse(&shown[0]), collapse::collapse(&shown[1]));
    }

    #[test]
    fn any_bytes_are_taken(bytes: Vec<u8>) {
        let redactor = &mut Redactor::new();
        let shown = redactor.path(&bytes);
        prop_assert_eq!(redactor.path(&shown), shown.clone());
        drop(redactor.program(&bytes));
        drop(redactor.connection(&String::from_utf8_lossy(&bytes)));
    }
}

#[test]
fn a_name_that_looks_like_a_token_keeps_its_own() {
    let mut redactor = Redactor::new();
    let names: [&[u8]; 6] = [b"~c", b"one", b"two", b"three", b"~a", b"four"];
    let tokens = names.map(|name| redactor.word(name));
    assert_eq!(names.map(|name| redactor.word(name)), tokens);
    assert_ne!(tokens[0], "~c");
    let text = "opened /~d/x /y /z /w /v /u";
    let once = redactor.prose(text);
    assert_eq!(redactor.prose(text), once);
}
