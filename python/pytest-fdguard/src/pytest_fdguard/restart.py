"""Restarts this pytest under the tracer with the same command line, terminal and process id."""

import os
import shutil
import subprocess
import sys
import sysconfig
from typing import List, NamedTuple, Optional

# Holds the pid of the tracer that this process became: a child of that pid was restarted.
VARIABLE = "FDGUARD_PYTEST"
TRACED = "FDGUARD_TRACE_DIR"
# Nothing reads the tracer's periodic samples.
SELDOM = "60s"

# Whether this process has already started a pytest: a test that runs pytest in-process must not be
# replaced.
_begun = False


class Plan(NamedTuple):
    """The path of the program, or the reason why it is not used."""

    program: Optional[str]
    why_not: Optional[str]


def is_traced() -> bool:
    return TRACED in os.environ


def find(named: Optional[str]) -> Plan:
    """Finds the program: as named, else in the installation of this Python, else in PATH."""
    if named:
        found = shutil.which(named)
        return _tried(found) if found else Plan(None, f"{named} is not an executable program")
    beside = os.path.join(sysconfig.get_path("scripts"), "fdguard")
    found = beside if os.access(beside, os.X_OK) else shutil.which("fdguard")
    return _tried(found) if found else Plan(None, "fdguard program not found (pip install fdguard)")


def _tried(program: str) -> Plan:
    """Checks that the program runs: after the restart it is too late."""
    try:
        ended = subprocess.run([program, "--version"], stdin=subprocess.DEVNULL, capture_output=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired) as error:
        return Plan(None, f"{program} does not run: {error}")
    if ended.returncode != 0:
        return Plan(None, f"{program} does not run: exit code {ended.returncode}")
    return Plan(os.path.abspath(program), None)


def begin() -> bool:
    """Whether this is the first pytest of the process."""
    global _begun
    is_first = not _begun
    _begun = True
    return is_first


def was_restarted() -> bool:
    return os.environ.get(VARIABLE) == str(os.getppid())


def own_command() -> List[str]:
    with open("/proc/self/cmdline", "rb") as file:
        words = file.read().split(b"\0")[:-1]
    return [os.fsdecode(word) for word in words]


def is_whole_process(arguments: List[str], command: List[str], name: str) -> bool:
    """Whether the process is only this pytest, so that its command line is enough to restart it. A program that calls
    pytest.main() has done other work before, and an xdist worker gets its work from the controller."""
    is_pytest = os.path.basename(name) in ("pytest", "py.test") or name.endswith(os.path.join("pytest", "__main__.py"))
    return is_pytest and command[len(command) - len(arguments) :] == arguments


def command_under(program: str, command: List[str], report: Optional[str]) -> List[str]:
    """The exit code is pytest's: what the tracer finds in a whole test run does not fail a test."""
    tracer = [program, "trace", "--every", SELDOM, "--error-exitcode", "0", "-o", report or os.devnull, "--"]
    return [*tracer, sys.executable, *command[1:]]


def become(command: List[str]) -> None:
    sys.stdout.flush()
    sys.stderr.flush()
    environment = {**os.environ, VARIABLE: str(os.getpid())}
    os.execve(command[0], command, environment)
