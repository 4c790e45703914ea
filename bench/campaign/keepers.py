"""Keepers that the program below them stops, and hosts that are killed meanwhile."""

import signal
import subprocess
import time

from .common import FDGUARD, LIMIT, Host, Marked, Row, rounds

# The program keeps its keeper stopped for as long as it lives.
STOPPER = "trap '' TERM INT; echo ready; while :; do kill -STOP $PPID 2>/dev/null; sleep 0.01; done"


def run_ends(row, name, signals):
    """`run` with such a program, ended by these signals."""
    mark = Marked()
    process = subprocess.Popen(
        [FDGUARD, "run", "--stop-grace", "1s", "--evidence", "off", "--", "sh", "-c", STOPPER],
        env=mark.env(), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )
    process.stdout.readline()
    time.sleep(0.2)
    row.attempts += 1
    for one in signals:
        process.send_signal(one)
        time.sleep(0.2)
    try:
        process.wait(30)
    except subprocess.TimeoutExpired:
        row.lose(f"{name}: run did not end within 30 s")
        process.kill()
        process.wait()
    left = mark.survivors(3)
    process.stdout.close()
    row.survivors += len(left)
    if left:
        row.note(f"{name}: {len(left)} processes left")


def run():
    row = Row("run, its keeper is stopped", "an end that does not come")
    for _ in range(rounds(6)):
        run_ends(row, "TERM", [signal.SIGTERM])
        run_ends(row, "two INT", [signal.SIGINT, signal.SIGINT])
    return row


def host_ends():
    """An orderly end of a host while a session stops its keeper again and again."""
    row = Row("host, keepers are stopped, TERM", "a host that does not end, or calls it clean")
    for _ in range(rounds(6)):
        host = Host()
        for _ in range(4):
            session = host.open_bash()
            code = "(while :; do kill -STOP $PPID 2>/dev/null; sleep 0.01; done) & sleep 1000 &"
            host.exec(session, code, 5_000)
        row.attempts += 1
        is_over = host.end(LIMIT)
        if not is_over:
            row.lose("the host did not end")
        left = host.mark.survivors(3)
        row.survivors += len(left)
        events = (host.dir / "events").read_text()
        if left and '"unclean":0' in events:
            row.lose(f"{len(left)} processes left under unclean=0")
        host.forget()
    return row


def host_killed():
    """One stop of the keeper, kill -9 of the host; the next host with the same state cleans up."""
    row = Row("host, keeper stopped, kill -9, next host", "a next host that does not start")
    for _ in range(rounds(12)):
        mark = Marked()
        host = Host(mark=mark)
        session = host.open_bash()
        host.exec(session, "kill -STOP $PPID; sleep 1000 &", 2_000)
        row.attempts += 1
        host.kill()
        try:
            successor = Host(state=host.dir / "state")
        except RuntimeError as error:
            row.lose(str(error).splitlines()[-1])
        else:
            left = mark.survivors(10)
            row.survivors += len(left)
            successor.end()
            successor.forget()
        mark.survivors(0)
        host.forget()
    return row


def section():
    return [run(), host_ends(), host_killed()]
