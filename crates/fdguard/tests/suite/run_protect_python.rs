//! The bug that protection prevents: a TLS library writes into a database, because a stranger
//! closed its socket.

use std::path::{Path, PathBuf};
use std::process::Command;

use testkit::{have, skip};

use super::leakbench::judged;
use super::{CommandOutput, fdguard};

const ROUNDS: usize = 3;

fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../testkit/python")
        .join(name)
}

/// The script's output, with a fresh database each time.
fn said_by(mut command: Command, python: &Path, name: &str) -> CommandOutput {
    let dir = tempfile::tempdir().unwrap();
    command.arg(python).arg(script(name)).arg(dir.path());
    CommandOutput::of(command.output().unwrap())
}

fn corrupt_without_and_intact_with(python: &Path, name: &str) {
    for _ in 0..ROUNDS {
        let without = said_by(Command::new("env"), python, name);
        // The first bytes belong to the database, then comes OpenSSL's alert.
        let alert = "CORRUPT 53 51 4c 69 74 17 03 03 00 13 ";
        assert!(without.text().starts_with(alert), "{}", without.text());
        let mut command = fdguard();
        command.args(["run", "--once", "--protect", "--"]);
        let with = said_by(command, python, name);
        assert!(
            with.text().starts_with("INTACT "),
            "{}{}",
            with.text(),
            with.stderr
        );
        let told = "critical stranger-close  prevented: fd ";
        assert!(with.stderr.contains(told), "{}", with.stderr);
        assert!(with.stderr.contains(name), "{}", with.stderr);
    }
}

#[test]
fn r41_tls_does_not_reach_the_database() {
    if !have("openssl") {
        return skip("needs openssl");
    }
    corrupt_without_and_intact_with(Path::new("python3"), "tls_recycle.py");
}

#[test]
fn r41_a_walk_over_the_pool_of_httpx_does_not_reach_the_database() {
    let python = std::env::home_dir()
        .unwrap_or_default()
        .join(".cache/leakbench/venv/bin/python");
    let has_httpx = Command::new(&python)
        .args(["-c", "import httpx"])
        .status()
        .is_ok_and(|status| status.success());
    if !has_httpx || !have("openssl") {
        return skip("needs LeakBench's Python with httpx, and openssl");
    }
    corrupt_without_and_intact_with(&python, "httpx_pool.py");
}

/// The script's output is the same with and without protection.
fn same(words: &[&str], script: &str) {
    let dir = || tempfile::tempdir().unwrap();
    let run = |mut command: Command, dir: &Path| {
        command.args(words).arg(script).arg(dir);
        CommandOutput::of(command.output().unwrap())
    };
    let without = run(Command::new("env"), dir().path());
    let mut command = fdguard();
    command.args(["run", "--once", "--protect", "--"]);
    let with = run(command, dir().path());
    assert_eq!(without.code, 0, "{}", without.stderr);
    assert_eq!((with.text(), &*with.stderr), (without.text(), ""));
    assert!(with.text().ends_with("done\n"), "{}", with.text());
}

#[test]
fn r41_threads_that_share_a_database_get_the_same_results() {
    same(&["python3", "-c"], DATABASE);
}

const DATABASE: &str = "
import os, sqlite3, subprocess, sys, threading
board = os.path.join(sys.argv[1], 'board.db')
first = sqlite3.connect(board)
print(first.execute('PRAGMA journal_mode=WAL').fetchone())
first.execute('CREATE TABLE t(id INTEGER PRIMARY KEY, who INTEGER, n INTEGER)')
first.commit()
def work(who):
    for turn in range(10):
        own = sqlite3.connect(board, timeout=60)
        with own:
            own.executemany('INSERT INTO t(who, n) VALUES (?, ?)', [(who, n) for n in range(20)])
        own.close()
threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
[t.start() for t in threads], [t.join() for t in threads]
print(first.execute('SELECT who, count(*), sum(n) FROM t GROUP BY who').fetchall())
# Another process must find the locks of this one.
other = 'import sqlite3, sys; c = sqlite3.connect(sys.argv[1], timeout=0); c.execute(\"BEGIN IMMEDIATE\")'
first.execute('BEGIN IMMEDIATE')
second = sqlite3.connect(board)
print(second.execute('SELECT count(*) FROM t').fetchone())
second.close()
busy = subprocess.run([sys.executable, '-c', other, board], capture_output=True, text=True)
print('locked' in busy.stderr, busy.returncode)
first.rollback()
print(first.execute('PRAGMA integrity_check').fetchone())
first.close()
print(sorted(os.listdir(sys.argv[1])))
print('done')
";

#[test]
fn r41_a_server_of_asyncio_gives_the_same_answers() {
    same(&["python3", "-c"], SERVER);
}

const SERVER: &str = "
import asyncio, os, sys
async def serve(reader, writer):
    word = await reader.readline()
    with open(os.path.join(sys.argv[1], 'log'), 'a') as log:
        log.write('x')
    writer.write(b'you said ' + word)
    await writer.drain()
    writer.close()
async def ask(port, n):
    reader, writer = await asyncio.open_connection('127.0.0.1', port)
    writer.write(b'%d\\n' % n)
    answer = await reader.read()
    writer.close()
    return answer
async def main():
    server = await asyncio.start_server(serve, '127.0.0.1', 0)
    port = server.sockets[0].getsockname()[1]
    for batch in range(20):
        answers = await asyncio.gather(*(ask(port, n) for n in range(20)))
        assert answers == [b'you said %d\\n' % n for n in range(20)], answers
    child = await asyncio.create_subprocess_exec('echo', 'child', stdout=asyncio.subprocess.PIPE)
    print((await child.communicate())[0], child.returncode)
    server.close()
    print(os.path.getsize(os.path.join(sys.argv[1], 'log')))
asyncio.run(main())
print('done')
";

#[test]
fn r41_a_server_of_node_gives_the_same_answers() {
    if !have("node") {
        return skip("needs node");
    }
    same(&["node", "-e"], NODE);
}

const NODE: &str = "
const http = require('http'), fs = require('fs'), child = require('child_process');
const server = http.createServer((asked, answer) => {
    fs.readFile('/etc/hostname', () => answer.end('you said ' + asked.url));
});
const ask = (port, n) => new Promise((good, bad) => {
    http.get({ port, path: '/' + n, agent: false }, (answer) => {
        let text = '';
        answer.on('data', (more) => text += more);
        answer.on('end', () => good(text));
    }).on('error', bad);
});
server.listen(0, async () => {
    for (let batch = 0; batch < 15; batch++) {
        const numbers = [...Array(20).keys()];
        const answers = await Promise.all(numbers.map((n) => ask(server.address().port, n)));
        if (answers.some((text, n) => text !== 'you said /' + n)) console.log('bad', answers);
    }
    console.log(child.execFileSync('echo', ['child']).toString());
    server.close(() => console.log('done'));
});
";

#[test]
fn r41_a_second_close_takes_nobodys_journal() {
    judged("protect", "c-double-close");
}

#[test]
fn r41_a_late_record_stays_out_of_the_database() {
    judged("protect", "py-tls-recycle");
}
