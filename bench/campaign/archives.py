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


def swapped(row, base, step):
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


def attack(what, step):
    """A host whose root is under attack; `step` is given the row, the host, the root, a log and its number."""
    row = Row(what, "a file outside of the root")
    base = pathlib.Path(tempfile.mkdtemp(prefix="campaign-"))
    root = base / "root"
    root.mkdir()
    host = Host("--root", str(root))

    def attempt(number):
        log = root / f"{number}.log"
        log.write_text("a line\n")
        step(row, host, root, log, number)

    swapped(row, base, attempt)
    host.end()
    row.survivors += len(host.mark.survivors(3))
    host.forget()
    shutil.rmtree(base)
    return row


def archive_log(_row, host, root, log, _number):
    host.ask("POST", "/v1/archive", {"files": [str(log)], "to": str(root / "archive"), "wait_ms": 100})


def close_scope(row, host, root, log, number):
    status, scope = host.ask("POST", "/v1/scopes", {"name": f"n{number}", "root": str(root)})
    if status != 201:
        row.note(f"no scope: {scope}")
        return
    resource = {"file": {"path": str(log), "end": "archive"}}
    host.ask("POST", f"/v1/scopes/{scope['id']}/resources", resource)
    host.ask("DELETE", f"/v1/scopes/{scope['id']}")


def section():
    return [
        attack("POST /v1/archive, target swapped", archive_log),
        attack("DELETE /v1/scopes/ID, archive swapped", close_scope),
    ]
