//! Processes that hold a database: the victim knows what it did.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};

use fdguard_core::lint::Severity;
use fdguard_files::{Inspection, Verdict};
use rusqlite::Connection;

use super::{Made, alert, holder};

fn has<'a>(found: &'a Inspection, rule: &str) -> Option<&'a fdguard_files::Finding> {
    found.findings.iter().find(|one| one.rule == rule)
}

#[test]
fn r43_an_idle_connection_has_its_locks_and_our_look_leaves_them() {
    let made = Made::new("wal");
    let mut victim = holder(&made.path);
    for _ in 0..3 {
        let found = made.inspect();
        assert_eq!(found.verdict, Verdict::Healthy, "{:?}", found.findings);
        let process = &found.holders.processes[0];
        assert_eq!(
            (process.pid, process.connections, process.parked),
            (victim.pid(), 1, 0)
        );
        assert!(
            process.locks.shared && process.locks.everybody,
            "{:?}",
            process.locks
        );
    }
    // What it writes after our looks is there for others.
    victim.tell("c.execute(\"INSERT INTO t VALUES(1000, 'x')\")");
    let rows: i64 = Connection::open(&made.path)
        .unwrap()
        .query_row("SELECT count(*) FROM t", [], |row| row.get(0))
        .unwrap();
    assert_eq!(rows, 201);
    victim.finish();
}

#[test]
fn r44_live_connections_are_told_from_parked_descriptors() {
    let made = Made::new("wal");
    let mut victim = holder(&made.path);
    victim.tell("cs=[sqlite3.connect(p) for _ in range(10)]; [x.execute('SELECT count(*) FROM t').fetchall() for x in cs]");
    let process = made.inspect().holders.processes[0].clone();
    assert_eq!((process.connections, process.parked), (11, 0));
    victim.tell("[x.close() for x in cs]");
    let found = made.inspect();
    let process = &found.holders.processes[0];
    assert_eq!((process.connections, process.parked), (1, 10));
    assert!(
        has(&found, "parked")
            .unwrap()
            .message
            .contains("10 descriptors")
    );
    assert_eq!(found.verdict, Verdict::Healthy);
    victim.finish();
}

#[test]
fn r43_a_process_that_lost_its_locks_is_told_from_outside() {
    let made = Made::new("wal");
    let mut victim = holder(&made.path);
    victim.tell("open(p,'rb').close()");
    let found = made.inspect();
    let finding = has(&found, "lost-locks").unwrap();
    assert_eq!(
        (finding.severity, &finding.pids),
        (Severity::Critical, &vec![victim.pid()])
    );
    assert_eq!(found.verdict, Verdict::Endangered);
    // The next outsider removes the log under it, and its writes go nowhere.
    let outsider = Connection::open(&made.path).unwrap();
    outsider
        .query_row("SELECT count(*) FROM t", [], |_| Ok(()))
        .unwrap();
    outsider.close().unwrap();
    let found = made.inspect();
    let finding = has(&found, "deleted-file").unwrap();
    assert!(
        finding.message.contains("going nowhere"),
        "{}",
        finding.message
    );
    assert_eq!(found.verdict, Verdict::Endangered);
    assert!(found.next[0].contains("stop"), "{:?}", found.next);
    victim.finish();
}

#[test]
fn r44_a_replaced_database_names_who_goes_on_with_the_old_one() {
    let made = Made::new("wal");
    let victim = holder(&made.path);
    let other = Made::new("delete");
    fs::rename(&other.path, &made.path).unwrap();
    let found = made.inspect();
    let finding = has(&found, "deleted-file").unwrap();
    assert_eq!(finding.pids, [victim.pid()]);
    victim.finish();
}

#[test]
fn r44_several_writers_and_a_reader_that_pins_the_log_are_named() {
    let made = Made::new("wal");
    let mut reader = holder(&made.path);
    let mut writer = holder(&made.path);
    reader.tell("c.execute('BEGIN'); r=c.execute('SELECT count(*) FROM t').fetchone()[0]");
    // The first write after a checkpointed log begins it; the reader has looked at the database alone until then.
    writer.tell("c.execute(\"UPDATE t SET b='y' WHERE a=1\")");
    reader.tell("c.execute('COMMIT'); c.execute('BEGIN'); r=c.execute('SELECT count(*) FROM t').fetchone()[0]");
    writer.tell("[c.execute(\"UPDATE t SET b='z' WHERE a=2\") for _ in range(5)]; r=0");
    let found = made.inspect();
    let finding = has(&found, "reader-pins-log").unwrap();
    assert_eq!(finding.pids, [reader.pid()], "{}", finding.message);
    let mut both = has(&found, "several-writers").unwrap().pids.clone();
    both.sort_unstable();
    let mut wanted = vec![reader.pid(), writer.pid()];
    wanted.sort_unstable();
    assert_eq!(both, wanted);
    assert_eq!(found.verdict, Verdict::Healthy);
    reader.finish();
    writer.finish();
}

#[test]
fn r42_a_record_over_a_live_log_mode_header_is_seen_while_sqlite_sees_nothing() {
    let made = Made::new("wal");
    let mut victim = holder(&made.path);
    victim.tell("r=c.execute('CREATE TABLE later(x)').fetchall()");
    made.write(5, &alert());
    let said = victim.tell("r=c.execute('PRAGMA quick_check').fetchone()[0]");
    assert_eq!(said, "ok");
    let found = made.inspect();
    assert_eq!(found.verdict, Verdict::Damaged);
    assert!(found.sqlite.unwrap().heals_by_checkpoint);
    assert!(
        found
            .next
            .iter()
            .any(|step| step.contains(&victim.pid().to_string())),
        "{:?}",
        found.next
    );
    drop(victim);
}

#[test]
fn r42_a_database_that_is_written_without_a_pause_is_never_called_damaged() {
    for mode in ["wal", "delete"] {
        let made = Made::new(mode);
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let connection = Connection::open(&made.path).unwrap();
                connection
                    .pragma_update(None, "wal_autocheckpoint", 20)
                    .unwrap();
                connection
                    .pragma_update(None, "synchronous", "off")
                    .unwrap();
                let mut n = 0;
                while !stop.load(Ordering::Relaxed) {
                    n += 1;
                    connection
                        .execute("INSERT INTO t(b) VALUES(hex(randomblob(300)))", [])
                        .unwrap();
                    if n % 50 == 0 {
                        connection
                            .execute("DELETE FROM t WHERE a > 250", [])
                            .unwrap();
                    }
                    if mode == "wal" && n % 70 == 0 {
                        connection
                            .query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))
                            .unwrap();
                    }
                }
            });
            for round in 0..40 {
                // From a process of its own it would see the holder, too; here the writer is a thread of ours.
                let found = made.inspect();
                let is_wrong = found.is_finding();
                if is_wrong {
                    stop.store(true, Ordering::Relaxed);
                }
                assert!(!is_wrong, "{mode}, round {round}: {:?}", found.findings);
            }
            stop.store(true, Ordering::Relaxed);
        });
    }
}
