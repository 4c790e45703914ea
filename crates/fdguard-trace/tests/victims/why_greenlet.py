"""Holds files in greenlets that wait, and says which: `NAME FD FD ...`, then READY."""
import gc
import sys

from greenlet import getcurrent, greenlet

gc.disable()


def say(name, *fds):
    print(name, *fds, flush=True)


def new():
    return open("/dev/null", "rb")


def waits():
    held = new()
    say("local", held.fileno())
    getcurrent().parent.switch()
    return held


def inner():
    getcurrent().parent.switch()


def outer():
    held = new()
    say("outer", held.fileno())
    inner()
    return held


def starts(held):
    """Is never started."""
    return held


class Session:
    def __init__(self):
        self.log = new()


def serves():
    session = Session()
    say("object", session.log.fileno())
    getcurrent().parent.switch()
    return session


waiting = [greenlet(run) for run in (waits, outer, serves)]
for one in waiting:
    one.switch()
closed = new()
say("closure", closed.fileno())
idle = greenlet(lambda kept=closed: kept)
del closed, one
say("READY")
sys.stdin.read()
