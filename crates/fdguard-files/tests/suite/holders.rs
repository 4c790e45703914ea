//! Processes that hold a database: the victim reports what it did.

use std::fs;

use fdguard_core::lint::Severity;
use fdguard_files::{FileVerdict, Inspection};
use rusqlite::Connection;

use super::{MadeDatabase, alert, holder};

fn has<'a>(found: &'a Inspection, rule: &str) -> Option<&'a fdguard_files::FileFinding> {
    found.findings.iter().find(|one| one.rule == rule)
}

#[test]
fn r43_an_idle_connection_has_its_locks_and_our_look_leaves_them() {
    let made = MadeDatabase::new("wal");
    let mut victim = holder(&made.path);
    for _ in 0..3 {
        let found = made.inspect();
        assert_eq!(found.verdict, FileVerdict::Healthy, "{:?}", found.findings);
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
    // Its writes after the inspections are visible to others.
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
    let made = MadeDatabase::new("wal");
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
    assert_eq!(found.verdict, FileVerdict::Healthy);
    victim.finish();
}

#[test]
fn r43_a_process_that_lost_its_locks_is_told_from_outside() {
    let made = MadeDatabase::new("wal");
    let mut victim = holder(&made.path);
    victim.tell("open(p,'rb').close()");
    let found = made.inspect();
    let finding = has(&found, "lost-locks").unwrap();
    assert_eq!(
        (finding.severity, &finding.pids),
        (Severity::Critical, &vec![victim.pid()])
    );
    assert_eq!(found.verdict, FileVerdict::Endangered);
    // The next outsider removes the log, and the victim's writes are lost.
    let outsider = Connection::open(&made.path).unwrap();
    outsider
        .query_row("SELECT count(*) FROM t", [], |_| Ok(()))
        .unwrap();
    outsider.close().unwrap();
    let found = made.inspect();
    let finding = has(&found, "deleted-file").unwrap();
    assert!(
        finding.message.contains("everything it writes is lost"),
        "{}",
        finding.message
    );
    assert_eq!(found.verdict, FileVerdict::Endangered);
    assert!(found.next[0].contains("stop"), "{:?}", found.next);
    victim.finish();
}

#[test]
fn r43_a_forked_child_without_locks_has_not_lost_them() {
    let made = MadeDatabase::new("wal");
    let mut victim = holder(&made.path);
    victim.tell("rp, wp = os.pipe()");
    let child = victim.tell("r = os.fork(); (r == 0) and (os.read(rp, 1), os._exit(0))");
    let found = made.inspect();
    assert_eq!(found.verdict, FileVerdict::Healthy, "{:?}", found.findings);
    let told = has(&found, "inherited").unwrap();
    assert_eq!(told.pids, [u32::try_from(child.as_u64().unwrap()).unwrap()]);
    victim.tell("os.write(wp, b'x'); os.waitpid(r, 0); r = 0");
    victim.finish();
}

#[test]
fn r44_a_replaced_database_names_who_goes_on_with_the_old_one() {
    let made = MadeDatabase::new("wal");
    let victim = holder(&made.path);
    let other = MadeDatabase::new("delete");
    fs::rename(&other.path, &made.path).unwrap();
    let found = made.inspect();
    let finding = has(&found, "deleted-file").unwrap();
    assert_eq!(finding.pids, [victim.pid()]);
    victim.finish();
}

#[test]
fn r44_several_writers_and_a_reader_that_pins_the_log_are_named() {
    let made = MadeDatabase::new("wal");
    let mut reader = holder(&made.path);
    let mut writer = holder(&made.path);
    reader.tell("c.execute('BEGIN'); r=c.execute('SELECT count(*) FROM t').fetchone()[0]");
    // The first write after a checkpoint restarts the log; until then the reader used only the
    // database.
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
    assert_eq!(found.verdict, FileVerdict::Healthy);
    reader.finish();
    writer.finish();
}

#[test]
fn r42_a_record_over_a_live_log_mode_header_is_seen_while_sqlite_sees_nothing() {
    let made = MadeDatabase::new("wal");
    let mut victim = holder(&made.path);
    victim.tell("r=c.execute('CREATE TABLE later(x)').fetchall()");
    made.write(5, &alert());
    let said = victim.tell("r=c.execute('PRAGMA quick_check').fetchone()[0]");
    assert_eq!(said, "ok");
    let found = made.inspect();
    assert_eq!(found.verdict, FileVerdict::Damaged);
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

/// Commits without a pause, checkpoints its log, and occasionally opens and closes another
/// connection.
const WRITER: &str = r"
def write():
    w = sqlite3.connect(p, isolation_level=None, check_same_thread=False)
    w.execute('PRAGMA wal_autocheckpoint=20')
    w.execute('PRAGMA synchronous=off')
    n = 0
    while not stop.is_set():
        n += 1
        w.execute('INSERT INTO t(b) VALUES(hex(randomblob(300)))')
        if n % 50 == 0: w.execute('DELETE FROM t WHERE a > 250')
        if n % 70 == 0: w.execute('PRAGMA wal_checkpoint(TRUNCATE)').fetchall()
        if n % 30 == 0:
            x = sqlite3.connect(p)
            x.execute('SELECT count(*) FROM t').fetchall()
            x.close()
    w.close()
    told.append(n)
";

/// A database that a victim writes without a pause.
fn busy(mode: &str) -> (MadeDatabase, testkit::Victim) {
    let made = MadeDatabase::new(mode);
    let mut victim = holder(&made.path);
    victim.tell("import threading; stop = threading.Event(); told = []");
    victim.tell(&format!(
        "exec({WRITER:?}); t = threading.Thread(target=write); r = t.start()"
    ));
    (made, victim)
}

/// Regression: a process whose files reuse the inode numbers of deleted journals was named.
#[test]
fn r42_a_file_that_has_the_number_of_a_journal_that_is_gone_makes_nobody_a_holder() {
    let (made, victim) = busy("delete");
    let neighbours = [busy("delete"), busy("delete")];
    for _ in 0..60 {
        let found = made.inspect();
        let pids: Vec<u32> = found.holders.processes.iter().map(|it| it.pid).collect();
        assert_eq!(pids, [victim.pid()]);
    }
    for (_, mut victim) in [(made, victim)].into_iter().chain(neighbours) {
        victim.tell("stop.set(); t.join(); r = told[0]");
        victim.finish();
    }
}

fn never_called_damaged(mode: &str) {
    let (made, mut victim) = busy(mode);
    for round in 0..25 {
        let found = made.inspect();
        assert!(
            !found.is_finding(),
            "{mode}, round {round}: {:?}",
            found.findings
        );
        assert_eq!(found.holders.processes[0].pid, victim.pid());
    }
    let written = victim.tell("stop.set(); t.join(); r = told[0]");
    assert!(written.as_u64().is_some_and(|n| n > 25), "{written}");
    victim.finish();
}

#[test]
fn r42_a_database_with_a_log_that_is_written_without_a_pause_is_never_called_damaged() {
    never_called_damaged("wal");
}

#[test]
fn r42_a_database_with_a_journal_that_is_written_without_a_pause_is_never_called_damaged() {
    never_called_damaged("delete");
}
