"""Targets of archives that are swapped with a link meanwhile: nothing may get out of the root."""

import ctypes
import os
import pathlib
import shutil
import tempfile
import threading

from .common import Host, Row, rounds

EXCHANGE = 2
AT_FDCWD = -100
LIBC = ctypes.CDLL(None, use_errno=True)


class Swap(threading.Thread):
    """Exchanges two names, again and again."""

    def __init__(self, one, other):
        super().__init__(daemon=True)
        self.names = os.fsencode(one), os.fsencode(other)
        self.is_over = False
        self.count = 0

    def run(self):
        one, other = self.names
        while not self.is_over:
            if LIBC.renameat2(AT_FDCWD, one, AT_FDCWD, other, EXCHANGE) == 0:
                self.count += 1

    def stop(self):
        self.is_over = True
        self.join()


def swapped(row, base, host, step):
    """Runs `step` for each round while `archive` and a link to elsewhere change places."""
    inside, outside = base / "root", base / "outside"
    link = inside / "link"
    (inside / "archive").mkdir(parents=True, exist_ok=True)
    outside.mkdir(exist_ok=True)
    link.symlink_to(outside)
    swap = Swap(inside / "archive", link)
    swap.start()
    try:
        for number in range(rounds(400)):
            row.attempts += 1
            step(number)
    finally:
        swap.stop()
    if swap.count < row.attempts:
        row.note(f"only {swap.count} exchanges")
    left = [path for path in outside.rglob("*") if path.is_file()]
    row.losses += len(left)
    if left:
        row.note(f"{len(left)} files lie outside of the root")


def archive_route():
    row = Row("POST /v1/archive, target swapped", "a file outside of the root")
    base = pathlib.Path(tempfile.mkdtemp(prefix="campaign-"))
    (base / "root").mkdir()
    host = Host("--root", str(base / "root"))

    def step(number):
        log = base / "root" / f"{number}.log"
        log.write_text("a line\n")
        host.ask("POST", "/v1/archive", {"files": [str(log)], "to": str(base / "root/archive"), "wait_ms": 100})

    swapped(row, base, host, step)
    host.end()
    row.survivors += len(host.mark.survivors(3))
    host.forget()
    shutil.rmtree(base)
    return row


def scope_end():
    row = Row("DELETE /v1/scopes/ID, archive swapped", "a file outside of the root")
    base = pathlib.Path(tempfile.mkdtemp(prefix="campaign-"))
    (base / "root").mkdir()
    host = Host("--root", str(base / "root"))

    def step(number):
        log = base / "root" / f"{number}.log"
        log.write_text("a line\n")
        status, scope = host.ask("POST", "/v1/scopes", {"name": f"n{number}", "root": str(base / "root")})
        if status != 201:
            return row.note(f"no scope: {scope}")
        resource = {"file": {"path": str(log), "end": "archive"}}
        host.ask("POST", f"/v1/scopes/{scope['id']}/resources", resource)
        host.ask("DELETE", f"/v1/scopes/{scope['id']}")

    swapped(row, base, host, step)
    host.end()
    row.survivors += len(host.mark.survivors(3))
    host.forget()
    shutil.rmtree(base)
    return row


def section():
    return [archive_route(), scope_end()]
