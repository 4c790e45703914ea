"""valgrind's own programs for `--track-fds`: the same lines left the same descriptors open."""

import collections
import json
import os
import pathlib
import re
import subprocess
import tempfile

from .common import FDGUARD, LIMIT, ROOT, Row, needs, skip

OPEN = re.compile(r"^==\d+== Open (AF_\S+ socket|file descriptor)")
FRAME = re.compile(r"\((\w+\.c):(\d+)\)$")


def sources():
    """The directory none/tests: VALGRIND_TESTS names one, of a newer version for example."""
    if "VALGRIND_TESTS" in os.environ:
        return pathlib.Path(os.environ["VALGRIND_TESTS"])
    brought = subprocess.run([ROOT / "testkit/debian-source", "valgrind"], stdout=subprocess.PIPE, text=True)
    return pathlib.Path(brought.stdout.strip()) / "none/tests" if brought.returncode == 0 else None


def by_valgrind(program, source):
    """How many descriptors each line of the source left open. What was inherited has no line."""
    ran = subprocess.run(
        ["valgrind", "--track-fds=yes", str(program)], capture_output=True, text=True, timeout=LIMIT, stdin=subprocess.DEVNULL
    )
    lines, is_open = collections.Counter(), False
    for line in ran.stderr.splitlines():
        if OPEN.match(line):
            is_open = True
        elif is_open and (frame := FRAME.search(line)) and frame[1] == source:
            lines[int(frame[2])] += 1
            is_open = False
        elif "inherited from parent" in line:
            is_open = False
    return lines


def by_fdguard(program, source):
    with tempfile.NamedTemporaryFile(suffix=".json") as out:
        words = [FDGUARD, "trace", "--error-exitcode", "0", "--json", "-o", out.name, "--", str(program)]
        subprocess.run(words, capture_output=True, timeout=LIMIT, stdin=subprocess.DEVNULL)
        document = json.loads(pathlib.Path(out.name).read_text())
    lines = collections.Counter()
    for site in document.get("sites", []):
        culprit = site.get("culprit") or {}
        if site["live"] and (culprit.get("file") or "").endswith(source):
            lines[culprit["line"]] += site["live"]
    return lines, document


def section():
    if not needs("valgrind", "valgrind", "cc"):
        return []
    tests = sources()
    if tests is None or not tests.is_dir():
        skip("valgrind", "no sources of its tests")
        return []
    row = Row("valgrind none/tests, open at the end", "a line or count that differs")
    hazards = Row("valgrind none/tests, misuse", "a misuse that fdguard does not name")
    programs = sorted(path for path in tests.glob("*.c") if path.name.startswith(("fdleak", "fdbaduse", "double_close", "file_dclose")))
    with tempfile.TemporaryDirectory(prefix="campaign-") as work:
        for path in programs:
            program = pathlib.Path(work) / path.stem
            built = subprocess.run(["cc", "-g", "-O0", "-w", f"-I{tests.parent.parent}", "-o", str(program), str(path)], capture_output=True)
            if built.returncode != 0:
                skip(f"valgrind {path.stem}", "it does not compile here")
                continue
            theirs, (ours, document) = by_valgrind(program, path.name), by_fdguard(program, path.name)
            if path.name.startswith("fdleak"):
                row.attempts += 1
                if theirs != ours:
                    row.lose(f"{path.stem}: valgrind {dict(theirs)}, fdguard {dict(ours)}")
            else:
                hazards.attempts += 1
                if not document.get("hazards"):
                    hazards.lose(path.stem)
    if not hazards.attempts:
        skip("valgrind, misuse", "this version has no fdbaduse or double close (3.21 has): name its tests with VALGRIND_TESTS")
    return [row, hazards] if hazards.attempts else [row]
