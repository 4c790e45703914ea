"""A host for this process alone, on a unix socket in a private directory. It ends with this process.

Between the two is a shell that waits for the end of a pipe. The kernel closes the other end when
this process ends, however it ends; then the shell stops the host and removes the directory.
A death signal (PR_SET_PDEATHSIG) would do it when the *thread* ends that started the host.
"""

import os
import secrets
import select
import shutil
import signal
import subprocess
import sysconfig
import tempfile
import time
import weakref
from typing import Optional, Sequence

from .errors import StartFailed

# Seconds. Python for the warm interpreter may be slow on a loaded machine.
START = 60.0
# Seconds for closing all sessions; more than the shell grants.
STOP = 60.0
# The longest path of a unix socket, with its zero byte.
LONGEST_SOCKET = 107

# $1: the private directory, $2: the event log, then the command. The first line of stdin is the
# token: it must be in no argument and in no environment that sessions can read. The shell closes
# its stdout, so that the end of it means that the host is gone.
KEEPER = """
dir=$1 log=$2; shift 2
IFS= read -r FDGUARD_HOST_TOKEN || exit 1
export FDGUARD_HOST_TOKEN
"$@" </dev/null 2>>"$log" &
host=$!
unset FDGUARD_HOST_TOKEN
exec >/dev/null 2>&1
read -r end
kill -TERM "$host"
tries=0
while kill -0 "$host" && [ "$tries" -lt 600 ]; do sleep 0.05; tries=$((tries + 1)); done
kill -KILL "$host"
wait "$host"
rm -rf "$dir"
"""


def find_program(named: Optional[str] = None) -> str:
    """The fdguard program: as named, else of this Python's installation, else in PATH."""
    if named:
        found = shutil.which(named)
        if found is None:
            raise StartFailed(f"{named} is not an executable program")
        return found
    for scheme in (None, "posix_user"):
        folder = sysconfig.get_path("scripts") if scheme is None else sysconfig.get_path("scripts", scheme)
        beside = os.path.join(folder, "fdguard")
        if os.access(beside, os.X_OK):
            return beside
    found = shutil.which("fdguard")
    if found is None:
        raise StartFailed("fdguard program not found: pip install fdguard, or name it with program=")
    return found


class PrivateHost:
    """A running private host: `path` is its socket, `token` its token."""

    def __init__(self, program: Optional[str], options: Sequence[str], log: Optional[str]) -> None:
        found = find_program(program)
        self.token = secrets.token_hex(32)
        folder = _private_folder()
        self.path = os.path.join(folder, "socket")
        events = log or os.path.join(folder, "events.log")
        command = [found, "host", "--listen", f"unix:{self.path}", *options]
        try:
            self._process = subprocess.Popen(
                ["/bin/sh", "-c", KEEPER, "fdguard-keeper", folder, events, *command],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                # Ctrl-C in this terminal is for this process: it closes its sessions in order.
                start_new_session=True,
            )
        except OSError as error:
            shutil.rmtree(folder, ignore_errors=True)
            raise StartFailed(f"cannot start the host: {error}") from error
        self._stop = weakref.finalize(self, _stop, self._process, os.getpid())
        try:
            self._wait_until_ready(events)
        except BaseException:
            self.close()
            raise

    def _wait_until_ready(self, events: str) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        try:
            self._process.stdin.write(self.token.encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError as error:
            raise StartFailed("cannot start the host: no /bin/sh") from error
        said = _read_line(self._process.stdout.fileno(), START)
        if said is None:
            raise StartFailed(f"the host was not ready within {START:.0f} s")
        if b"listens at" not in said:
            raise StartFailed(f"the host did not start: {_last_line(events)}")

    @property
    def is_running(self) -> bool:
        """False if the host ended by itself."""
        output = self._process.stdout
        if not self._stop.alive or output is None:
            return False
        return not _is_readable(output.fileno(), 0)

    def close(self) -> None:
        """Ends the host, with all its sessions. Does nothing the second time."""
        self._stop()


def _private_folder() -> str:
    folder = tempfile.mkdtemp(prefix="fdguard-host-")
    if len(os.fsencode(folder)) + len("/socket") <= LONGEST_SOCKET:
        return folder
    os.rmdir(folder)
    return tempfile.mkdtemp(prefix="fdguard-host-", dir="/tmp")


def _read_line(number: int, seconds: float) -> Optional[bytes]:
    """One line, or what there is at the end; None if it does not come in time."""
    said, until = b"", time.monotonic() + seconds
    while not said.endswith(b"\n"):
        left = until - time.monotonic()
        if left <= 0 or not _is_readable(number, left):
            return None
        piece = os.read(number, 4096)
        if not piece:
            return said
        said += piece
    return said


def _is_readable(number: int, seconds: float) -> bool:
    """With poll: select() fails for numbers above 1023."""
    poll = select.poll()
    poll.register(number, select.POLLIN)
    return bool(poll.poll(seconds * 1000))


def _last_line(path: str) -> str:
    """The reason that the host gave: its last line that is neither an event nor a hint."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            lines = [line.strip() for line in file if not line.startswith(("fdguard_event", "hint:"))]
    except OSError as error:
        return str(error)
    return lines[-1] if lines else "it gave no reason"


def _stop(process: "subprocess.Popen[bytes]", owner: int) -> None:
    """Ends the host. A forked child must leave its parent's host alone."""
    is_owner = os.getpid() == owner
    if process.stdin is not None:
        try:
            if is_owner:
                # A forked child may hold a copy of the pipe, so that its end does not come.
                process.stdin.write(b"end\n")
            process.stdin.close()
        except OSError:
            pass
    if is_owner:
        try:
            process.wait(STOP)
        except subprocess.TimeoutExpired:
            # Host and shell are in their own process group. The keepers end the sessions.
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    if process.stdout is not None:
        process.stdout.close()
