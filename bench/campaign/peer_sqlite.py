"""SQLite's own corruption tests: every database that they leave, judged by `inspect` and by SQLite.

SQLite's tests are Tcl and need its test harness, which no package holds. What can be had without it are the
files that they write when `tclsqlite3` runs them; so this makes the same damage itself: the offsets of
corrupt.test and corrupt2.test (each page header, each cell pointer, the file header), one at a time.
"""

import json
import pathlib
import sqlite3
import subprocess
import tempfile

from .common import FDGUARD, LIMIT, Row, rounds, skip


def database(path):
    db = sqlite3.connect(path)
    db.execute("pragma page_size = 1024")
    db.execute("create table t1(x)")
    db.executemany("insert into t1 values (?)", [("abcdefghijklmnopqrstuvwxyz" * (n % 9 + 1),) for n in range(120)])
    db.execute("create index t1i1 on t1(x)")
    db.execute("create table t2(a integer primary key, b)")
    db.execute("insert into t2 select rowid, x from t1 where rowid % 3 = 0")
    db.execute("delete from t1 where rowid % 5 = 0")
    db.commit()
    db.close()


def places(size, page):
    """Where the tests write: the file header, the header and first pointers of each page."""
    yield from range(16, 100, 4)
    for begin in range(0, size, page):
        start = begin + (100 if begin == 0 else 0)
        yield from range(start, start + 16, 2)
        # corrupt.test overwrites 256 bytes at a time, through the whole file.
        yield begin + page // 2


def is_healthy(path):
    """By SQLite itself."""
    try:
        db = sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)
        try:
            return db.execute("pragma integrity_check").fetchall() == [("ok",)]
        finally:
            db.close()
    except sqlite3.Error:
        return False


def section():
    skip("sqlite", "corrupt*.test are Tcl and need testfixture, which no package holds: the same damage is made here")
    row = Row("SQLite, damage of corrupt*.test", "a file that inspect calls healthy and SQLite does not")
    with tempfile.TemporaryDirectory(prefix="campaign-") as work:
        whole = pathlib.Path(work) / "whole.db"
        database(whole)
        text = whole.read_bytes()
        every = list(places(len(text), 1024))
        step = max(1, len(every) // rounds(330))
        for at in every[::step]:
            path = pathlib.Path(work) / f"at-{at}.db"
            damaged = bytearray(text)
            damaged[at : at + 2] = bytes(byte ^ 0xFF for byte in damaged[at : at + 2])
            path.write_bytes(damaged)
            row.attempts += 1
            try:
                ran = subprocess.run([FDGUARD, "inspect", "--json", str(path)], capture_output=True, timeout=LIMIT)
                found = ran.returncode == 1
            except subprocess.TimeoutExpired:
                found = False
                row.note(f"offset {at}: not done after {LIMIT} s")
            if not found and not is_healthy(path):
                row.lose(f"offset {at}: inspect says {json.dumps(ran.returncode)}")
            path.unlink()
    return [row]
