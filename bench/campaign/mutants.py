"""Files that were damaged by chance: one clear line and the right exit code, no panic, no hang."""

import os
import pathlib
import random
import sqlite3
import subprocess
import tempfile
import time

from .common import FDGUARD, Row, rounds

# If a small file keeps the command busy for longer than this, the attack has worked.
LIMIT = 20


def database(path):
    with sqlite3.connect(path) as db:
        db.execute("create table t(a integer primary key, b text)")
        db.executemany("insert into t(b) values (?)", [(f"row {n}" * 8,) for n in range(300)])
        db.execute("create index i on t(b)")
    db.close()


def files(work):
    """A healthy file for each reader, and how it is read."""
    db = work / "state.db"
    database(db)
    snap = work / "snapshot.json"
    with open(snap, "w") as out:
        subprocess.run([FDGUARD, "snap", str(os.getpid()), "--json"], stdout=out, check=True)
    recording = work / "watch.jsonl"
    words = [FDGUARD, "watch", str(os.getpid()), "--for", "2s", "--every", "100ms", "--record", str(recording)]
    subprocess.run(words, capture_output=True, check=False)
    log = work / "service.log"
    log.write_text("OSError: [Errno 24] Too many open files: '/tmp/x'\naccept4: EMFILE\n" * 20)
    unit = work / "a.service"
    unit.write_text("[Unit]\nDescription=a\n[Service]\nType=simple\nExecStart=/bin/true\nLimitNOFILE=1024\n")
    config = work / "fdguard.toml"
    config.write_text('[levels]\nwarning = 70\ncritical = 90\n')
    return {
        "inspect": (db, ["inspect"]),
        "inspect --check full": (db, ["inspect", "--check", "full"]),
        "diff": (snap, ["diff", str(snap)]),
        "snap --from": (snap, ["snap", "--from"]),
        "watch --from": (recording, ["watch", "--from"]),
        "explain": (log, ["explain"]),
        "unit --lint": (unit, ["unit", "--lint"]),
        "watch --config": (config, ["watch", str(os.getpid()), "--for", "100ms", "--config"]),
    }


def mutate(text, chance):
    """Flips, cuts, doubles, or puts numbers where others were."""
    text = bytearray(text)
    for _ in range(chance.choice([1, 1, 3, 20])):
        if not text:
            break
        at = chance.randrange(len(text))
        match chance.randrange(5):
            case 0:
                text[at] ^= 1 << chance.randrange(8)
            case 1:
                del text[at : at + chance.randrange(1, 200)]
            case 2:
                text[at:at] = text[at : at + chance.randrange(1, 500)]
            case 3:
                text[at : at + 8] = chance.randbytes(8)
            case 4:
                text[at:at] = chance.choice([b"99999999999999999999", b"-1", b"\0", b"\xff\xfe", b'{"' * 50, b"null"])
    return bytes(text)


def attack(row, words, path):
    began = time.monotonic()
    try:
        ran = subprocess.run([FDGUARD, *words, str(path)], capture_output=True, timeout=LIMIT, stdin=subprocess.DEVNULL)
    except subprocess.TimeoutExpired:
        return row.lose(f"{path.name}: not done after {LIMIT} s")
    if ran.returncode not in (0, 1, 2, 3) or b"panicked" in ran.stderr:
        last = ran.stderr.decode(errors="replace").strip().splitlines() or ["?"]
        row.lose(f"{path.name}: status {ran.returncode}: {last[0][:100]}")
    if time.monotonic() - began > LIMIT / 2:
        row.note(f"{path.name}: {time.monotonic() - began:.0f} s")


def section():
    seed = int(os.environ.get("SEED") or time.time())
    print(f"SEED={seed}")
    rows = []
    with tempfile.TemporaryDirectory(prefix="campaign-") as work:
        work = pathlib.Path(work)
        for name, (healthy, words) in files(work).items():
            row = Row(f"mutants, {name}", "a panic, a signal, a hang")
            if not healthy.exists():
                row.note("no healthy file")
            chance = random.Random(f"{seed} {name}")
            for number in range(rounds(60) if healthy.exists() else 0):
                row.attempts += 1
                mutant = work / f"{number}-{healthy.name}"
                mutant.write_bytes(mutate(healthy.read_bytes(), chance))
                attack(row, words, mutant)
                mutant.unlink()
            rows.append(row)
    return rows
