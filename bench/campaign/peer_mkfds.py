"""util-linux's `test_mkfds`: one of everything that lsfd knows, described by fdguard as by lsfd."""

import os
import subprocess

from .common import FDGUARD, ROOT, Row, skip


def section():
    builder = ROOT / "testkit/mkfds"
    if not os.access(builder, os.X_OK):
        skip("lsfd", "no testkit/mkfds, which builds test_mkfds and compares")
        return []
    row = Row("test_mkfds, factories as lsfd has them", "a factory that differs")
    env = dict(os.environ, FDGUARD=FDGUARD)
    ran = subprocess.run([builder], env=env, capture_output=True, text=True, timeout=1800)
    print(ran.stdout, end="")
    print(ran.stderr, end="")
    row.attempts += 1
    if ran.returncode != 0:
        row.lose(f"testkit/mkfds: status {ran.returncode}")
    row.note("testkit/mkfds prints its own counts above")
    return [row]
