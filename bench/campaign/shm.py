"""`/dev/shm` with hardly any room: it costs records, never the program."""

import pathlib
import subprocess
import tempfile

from .common import FDGUARD, LIMIT, Row, is_root, needs

# Children, threads and many opening sites, so that every page of the record is used.
VICTIM = """
import os, subprocess, sys, threading
def place(n):
    exec(f"def at{n}(): return open('/dev/null')")
    return eval(f"at{n}")()
kept = [place(n) for n in range(200)]
threads = [threading.Thread(target=lambda: [open('/dev/null').close() for _ in range(50)]) for _ in range(4)]
[t.start() for t in threads]; [t.join() for t in threads]
for _ in range(4):
    child = subprocess.run(["/bin/sh", "-c", "exec 9</dev/null; cat </dev/null; exit 7"])
    if child.returncode != 7: sys.exit(f"a child ended with {child.returncode}")
print("whole", flush=True)
"""
MODES = {
    "trace": ["trace", "--error-exitcode", "0", "--"],
    "check": ["check", "--error-exitcode", "0", "--"],
    "run --once --protect": ["run", "--once", "--protect", "--"],
}
INSIDE = 'mount -t tmpfs -o size="$1" none /dev/shm && shift && exec "$@"'
# Size of the file system in KiB. The record of the first process fits from about 400 on; that of a
# child needs more.
LEVELS = [*range(8, 168, 16), *range(176, 1200, 24)]


def section():
    if not is_root("shm") or not needs("shm", "unshare", "mount", "python3"):
        return []
    rows = []
    with tempfile.TemporaryDirectory(prefix="campaign-") as work:
        victim = pathlib.Path(work) / "victim.py"
        victim.write_text(VICTIM)
        for name, words in MODES.items():
            row = Row(f"/dev/shm full, {name}", "a program or child that died")
            for level in LEVELS:
                row.attempts += 1
                command = ["unshare", "-m", "sh", "-c", INSIDE, "sh", f"{level}k", FDGUARD, *words, "python3", str(victim)]
                try:
                    ran = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, cwd=work)
                except subprocess.TimeoutExpired:
                    row.lose(f"{level} KiB: not done after {LIMIT} s")
                    continue
                if "whole" not in ran.stdout or ran.returncode not in (0, 1):
                    last = (ran.stderr.strip().splitlines() or ["?"])[-1]
                    row.lose(f"{level} KiB: status {ran.returncode}: {last[:100]}")
            rows.append(row)
    return rows
