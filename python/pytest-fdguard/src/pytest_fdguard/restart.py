"""Starts this pytest once more, under the tracer: the same command line, terminal and process number."""

import os
import shutil
import subprocess
import sys
import sysconfig
from typing import List, NamedTuple, Optional

# Holds the process number of the tracer that this module became: whoever has it as parent was started again.
VARIABLE = "FDGUARD_PYTEST"
TRACED = "FDGUARD_TRACE_DIR"
# Nobody reads the tracer's own looks from outside.
SELDOM = "60s"

# Whether this process has begun a pytest before: a test that runs pytest inside itself must not be replaced.
_begun = False


class Plan(NamedTuple):
    """Where the program is, and why it is not used, where that needs saying."""

    program: Optional[str]
    why_not: Optional[str]


def is_traced() -> bool:
    return TRACED in os.environ


def find(named: Optional[str]) -> Plan:
    """The program: as named, else that of the same installation as this Python, else that of the PATH."""
    if named:
        found = shutil.which(named)
        return _tried(found) if found else Plan(None, f"{named} is no program")
    beside = os.path.join(sysconfig.get_path("scripts"), "fdguard")
    found = beside if os.access(beside, os.X_OK) else shutil.which("fdguard")
    return _tried(found) if found else Plan(None, "there is no fdguard program (pip install fdguard)")


def _tried(program: str) -> Plan:
    """After the restart it is too late to find out that it does not run."""
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
    """Whether the process is this pytest and nothing else, so that its command line says all. A program that calls
    pytest.main() has done things before, and an xdist worker is told by its controller what to do."""
    is_pytest = os.path.basename(name) in ("pytest", "py.test") or name.endswith(os.path.join("pytest", "__main__.py"))
    return is_pytest and command[len(command) - len(arguments) :] == arguments


def command_under(program: str, command: List[str], report: Optional[str]) -> List[str]:
    """The exit code is pytest's alone: what the tracer finds in a whole test run is not a test's failure."""
    tracer = [program, "trace", "--every", SELDOM, "--error-exitcode", "0", "-o", report or os.devnull, "--"]
    return [*tracer, sys.executable, *command[1:]]


def become(command: List[str]) -> None:
    sys.stdout.flush()
    sys.stderr.flush()
    environment = {**os.environ, VARIABLE: str(os.getpid())}
    os.execve(command[0], command, environment)
