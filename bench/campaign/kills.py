"""A host that is killed with -9 under load: nothing lives on, and no line of a log is lost."""

import pathlib
import shutil
import tempfile
import threading

from .common import Host, Marked, Row, rounds

SESSIONS = 4
LOAD = "for i in 1 2 3; do (setsid sleep 1000 &) ; sleep 1000 & done; (while :; do sleep 0.01; done) &"


def orphans():
    row = Row("kill -9 of a loaded host", "a next host that does not start")
    for _ in range(rounds(10)):
        mark = Marked()
        host = Host(mark=mark)
        for session in [host.open_bash() for _ in range(SESSIONS)]:
            host.exec(session, LOAD)
        waiting = threading.Thread(target=ask_for_ever, args=(host,), daemon=True)
        waiting.start()
        row.attempts += 1
        host.kill()
        waiting.join(30)
        # The keepers end what is below them; the next host ends the rest.
        try:
            successor = Host(state=host.dir / "state")
        except RuntimeError as error:
            row.lose(str(error).splitlines()[-1])
            mark.survivors(0)
        else:
            row.survivors += len(mark.survivors(10))
            successor.end()
            successor.forget()
        host.forget()
    return row


def ask_for_ever(host):
    try:
        while True:
            host.ask("GET", "/v1/sessions", timeout=5)
    except (OSError, ValueError):
        pass


def lines():
    """A log that is opened again for each line, archived meanwhile by a host that is killed."""
    row = Row("kill -9 of a host that archives", "a line that is in no file")
    for _ in range(rounds(5)):
        base = pathlib.Path(tempfile.mkdtemp(prefix="campaign-"))
        root = base / "root"
        root.mkdir()
        host = Host("--root", str(root))
        log, is_over, written = root / "a.log", threading.Event(), []

        def write():
            while not is_over.is_set():
                with open(log, "a") as out:
                    out.write(f"line {len(written)}\n")
                written.append(1)

        writer = threading.Thread(target=write)
        writer.start()
        killer = threading.Timer(1.0, host.process.kill)
        killer.start()
        try:
            while True:
                body = {"files": [str(log)], "to": str(root / "archive"), "wait_ms": 50}
                host.ask("POST", "/v1/archive", body, timeout=10)
        except (OSError, ValueError):
            pass
        killer.join()
        is_over.set()
        writer.join()
        row.attempts += len(written)
        found = set()
        for path in root.rglob("*"):
            if path.is_file():
                found.update(line for line in path.read_text(errors="replace").splitlines() if line.startswith("line "))
        lost = len(written) - len(found)
        if lost > 0:
            row.losses += lost
            row.note(f"{lost} of {len(written)} lines")
        row.survivors += len(host.mark.survivors(10))
        host.forget()
        shutil.rmtree(base)
    return row


def section():
    return [orphans(), lines()]
