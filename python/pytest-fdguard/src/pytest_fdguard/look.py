"""A snapshot of this process: descriptors, children and threads. Reads /proc and closes what it opens."""

import errno
import os
import resource
from contextlib import contextmanager
from typing import Dict, List, NamedTuple, Optional, Set, Tuple

# Standard input, output and error: pytest's capturing replaces them.
STDIO = (0, 1, 2)
# Descriptors needed for a snapshot and a query to the tracer.
ROOM = 64


class Descriptor(NamedTuple):
    """A descriptor by identity: the same number with another target is a different descriptor."""

    fd: int
    link: str
    device: int
    inode: int


class Child(NamedTuple):
    """A child by identity: a reused process id is a different child."""

    pid: int
    started: int


class State(NamedTuple):
    """State of a child at the time of the snapshot."""

    command: str
    is_running: bool


class Look(NamedTuple):
    descriptors: Set[Descriptor]
    children: Dict[Child, State]
    threads: int

    def since(self, before: "Look") -> "Look":
        """What is new in this snapshot."""
        new = {child: state for child, state in self.children.items() if child not in before.children}
        return Look(self.descriptors - before.descriptors, new, self.threads)

    def only(self, other: "Look") -> "Look":
        """What is in both."""
        both = {child: state for child, state in self.children.items() if child in other.children}
        return Look(self.descriptors & other.descriptors, both, self.threads)

    def may_change(self) -> bool:
        """Whether other threads or children are running and may still release descriptors."""
        return self.threads > 1 or any(state.is_running for state in self.children.values())

    def is_empty(self) -> bool:
        return not self.descriptors and not self.children


def look() -> Look:
    try:
        return Look(descriptors(), children(), threads())
    except OSError as error:
        if error.errno != errno.EMFILE:
            raise
    # The test filled the descriptor table, which is exactly what we look for.
    with room():
        return Look(descriptors(), children(), threads())


@contextmanager
def room():
    """Raises the soft limit by a few descriptors, if the hard limit allows it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        yield
        return
    wanted = soft + ROOM if hard == resource.RLIM_INFINITY else min(soft + ROOM, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def descriptors() -> Set[Descriptor]:
    found = set()
    for name in os.listdir("/proc/self/fd"):
        fd = int(name)
        if fd in STDIO:
            continue
        try:
            link = os.readlink(f"/proc/self/fd/{fd}")
            about = os.fstat(fd)
        except OSError:
            # It belongs to the listing itself, or another thread closed it meanwhile.
            continue
        found.add(Descriptor(fd, link, about.st_dev, about.st_ino))
    return found


def threads() -> int:
    return len(os.listdir("/proc/self/task"))


def children() -> Dict[Child, State]:
    found = {}
    for pid in _child_numbers():
        child = _child(pid)
        if child is not None:
            found[child[0]] = child[1]
    return found


def _child_numbers() -> Set[int]:
    """Children of every thread. On kernels without the list, every process is asked for its parent."""
    found: Set[int] = set()
    for thread in os.listdir("/proc/self/task"):
        try:
            with open(f"/proc/self/task/{thread}/children") as listed:
                found.update(int(pid) for pid in listed.read().split())
        except FileNotFoundError:
            if not os.path.exists(f"/proc/self/task/{thread}"):
                continue
            own = os.getpid()
            return {int(name) for name in os.listdir("/proc") if name.isdigit() and _parent(int(name)) == own}
    return found


def _stat(pid: int) -> Optional[List[str]]:
    """Name, state, parent and so on. The name may contain blanks and parentheses."""
    try:
        with open(f"/proc/{pid}/stat", errors="replace") as file:
            text = file.read()
    except OSError:
        return None
    head, _, tail = text.rpartition(")")
    return [head.partition("(")[2], *tail.split()]


def _parent(pid: int) -> Optional[int]:
    fields = _stat(pid)
    return int(fields[2]) if fields else None


def _child(pid: int) -> Optional[Tuple[Child, State]]:
    fields = _stat(pid)
    if not fields:
        return None
    name, letter, started = fields[0], fields[1], int(fields[20])
    is_running = letter not in "ZX"
    command = command_line(pid) if is_running else ""
    return Child(pid, started), State(command or name, is_running)


def command_line(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            words = file.read().split(b"\0")
    except OSError:
        return ""
    text = b" ".join(words).decode(errors="replace").strip()
    return text if len(text) <= 80 else text[:79] + "…"
