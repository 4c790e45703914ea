"""Opening lines, from the tracer of this process."""

import json
import os
import subprocess
import tempfile
from typing import Dict, List, NamedTuple, Optional

from .look import room

# Seconds. A loaded machine may need long for many descriptors.
PATIENCE = 120
# The callers of tests and of what they await: frames outside of them do not belong to the test.
MACHINERY = ("/_pytest/", "/pluggy/", "/pytest_asyncio/")
# The event loop runs callbacks from one method. The rest of that file is called by the test itself,
# for example asyncio.new_event_loop().
LOOP_FILE, LOOP_METHODS = "/asyncio/events.py", ("_run", "Handle._run")
FRAMES = 8
# Exit codes for nothing found and for findings: both come with a report.
ANSWERED = (0, 1)


class Opened(NamedTuple):
    """Where a descriptor was opened."""

    line: str
    stack: List[str]
    how: str
    generation: int
    thread: int


class Answer(NamedTuple):
    """Origins by descriptor number, or the reason why there are none."""

    opened: Dict[int, Opened]
    why_not: Optional[str]


def untraced_environment() -> Dict[str, str]:
    """The environment for a child that must not be traced."""
    environment = dict(os.environ)
    folder = environment.pop("FDGUARD_TRACE_DIR", None)
    others = [part for part in environment.get("LD_PRELOAD", "").split(":") if not (folder and part.startswith(folder))]
    environment.pop("LD_PRELOAD", None)
    if any(others):
        environment["LD_PRELOAD"] = ":".join(others)
    return environment


def ask(program: str) -> Answer:
    """Asks the tracer once about everything this process holds, even if a test has filled the table."""
    with room(), tempfile.TemporaryDirectory(prefix="pytest-fdguard-") as folder:
        try:
            return _ask(program, os.path.join(folder, "report.json"))
        except subprocess.TimeoutExpired:
            return Answer({}, f"the tracer did not respond within {PATIENCE} s")
        except OSError as error:
            return Answer({}, f"cannot run the tracer: {error}")
        except ValueError as error:
            return Answer({}, f"invalid report from the tracer: {error}")


def _ask(program: str, path: str) -> Answer:
    own = os.getpid()
    ended = subprocess.run(
        [program, "trace", "--report", str(own), "--json", "-o", path],
        env=untraced_environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        timeout=PATIENCE,
    )
    if ended.returncode not in ANSWERED:
        said = ended.stderr.decode(errors="replace").strip().partition("\n")[0]
        return Answer({}, said or f"the tracer exited with code {ended.returncode}")
    with open(path, encoding="utf-8") as file:
        return read(json.load(file), own)


def read(document: dict, pid: int) -> Answer:
    """The origins of one process in a report, by descriptor number."""
    opened: Dict[int, Opened] = {}
    for site in document.get("sites", []):
        if site.get("pid") != pid:
            continue
        if "fds" not in site:
            return Answer({}, "this fdguard is too old to report the line of each descriptor")
        frames = stack(site)
        line = frames[0] if frames else frame(site.get("culprit"))
        for one in site["fds"]:
            opened[one["fd"]] = Opened(line, frames, site.get("how") or "", one["generation"], one["thread"])
    return Answer(opened, None)


def text(value) -> str:
    """A name; names that are not text arrive as base64 and become `?`."""
    return "?" if value is None or isinstance(value, dict) else str(value)


def near(path: str) -> str:
    """The path relative to the current directory, if it is below it."""
    try:
        folder = os.path.join(os.getcwd(), "")
    except FileNotFoundError:
        return path
    return path[len(folder) :] if path.startswith(folder) else path


def frame(one: Optional[dict]) -> str:
    """`file:line function`, as editors accept it."""
    if not one:
        return "unknown line"
    place = near(text(one.get("file")))
    if one.get("line") is not None:
        place += f":{one['line']}"
    return f"{place} {text(one.get('function'))}"


def is_machinery(one: dict) -> bool:
    """Whether a frame belongs to the machinery that calls tests or what they await."""
    file, function = text(one.get("file")), text(one.get("function"))
    is_loop = file.endswith(LOOP_FILE) and function in LOOP_METHODS
    return is_loop or any(part in file for part in MACHINERY)


def stack(site: dict) -> List[str]:
    """The Python frames of the test, from the culprit outwards. If only libraries were involved, the tracer blames the caller
    that started pytest; then the list starts at the innermost frame."""
    frames: List[str] = []
    for one in site.get("stack", []):
        if is_machinery(one):
            break
        if one.get("language") == "python":
            frames.append(frame(one))
    culprit = frame(site.get("culprit"))
    start = frames.index(culprit) if culprit in frames else 0
    return frames[start : start + FRAMES]
