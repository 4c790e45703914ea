"""lsof's own tests, with `fdguard snap -F` in the place of lsof, as far as it answers them."""

import os
import pathlib
import subprocess
import tempfile

from .common import FDGUARD, LIMIT, ROOT, Row, needs, skip

# Each of these opens something and looks for it in the output of lsof for its own process.
TESTS = ["LTnlink", "LTszoff", "LTunix", "LTsock", "LTlock"]
NOT_ASKED = {
    "LTbasic": "it looks for lsof itself among the processes",
    "LTbigf": "it does not run on Linux",
    "LTdnlc": "it needs the kernel's name cache, which Linux does not show",
    "LTnfs": "it needs a server of NFS",
    "case-*.bash": "they test lsof's own options and exit codes",
}
# Intended differences: an error that contains these words does not count.
KNOWN = {
    "LTsock": ("by host and port", "fdguard writes addresses and looks no names up"),
    # It fails without a message; failures with a message count.
    "LTszoff": ("LTszoff ...", "its last question is for another notation of offsets, lsof's -oo2"),
}
# The caller is the shim's parent, and some tests have children. lsof writes all fields, each
# terminated by NUL; so does fdguard. No test file is on NFS, which -N selects.
SHIM = '#!/bin/sh\ncase " $*" in *" -wNa "*) exit 1 ;; esac\nexec "{fdguard}" snap -F0 --tree "$PPID"\n'


def section():
    if not needs("lsof", "cc"):
        return []
    brought = subprocess.run([ROOT / "testkit/debian-source", "lsof"], stdout=subprocess.PIPE, text=True)
    if brought.returncode != 0:
        skip("lsof", "no sources of its tests")
        return []
    for name, why in NOT_ASKED.items():
        skip(f"lsof {name}", why)
    tests = pathlib.Path(brought.stdout.strip()) / "tests"
    row = Row("lsof's own tests on snap -F", "a test that fails")
    with tempfile.TemporaryDirectory(prefix="campaign-") as work:
        work = pathlib.Path(work)
        shim = work / "lsof"
        shim.write_text(SHIM.format(fdguard=os.path.realpath(FDGUARD)))
        shim.chmod(0o755)
        for name in TESTS:
            program = work / name
            words = ["cc", "-w", "-DLT_DIAL_linux", "-DLT_VERS=20501", f"-I{tests}", f"-I{tests.parent}"]
            built = subprocess.run(
                [*words, "-o", str(program), str(tests / f"{name}.c"), str(tests / "LTlib.c")], capture_output=True, text=True
            )
            if built.returncode != 0:
                skip(f"lsof {name}", f"it does not compile here: {built.stderr.strip().splitlines()[-1][:100]}")
                continue
            row.attempts += 1
            try:
                env = dict(os.environ, LT_LSOF_PATH=str(shim))
                ran = subprocess.run([str(program)], cwd=work, env=env, capture_output=True, text=True, timeout=LIMIT)
            except subprocess.TimeoutExpired:
                row.lose(f"{name}: not done after {LIMIT} s")
                continue
            errors = [line.strip() for line in (ran.stdout + ran.stderr).splitlines() if "OK" not in line and line.strip()]
            words, why = KNOWN.get(name, ("", ""))
            if words and any(words in line for line in errors):
                row.note(f"{name}: a known difference: {why}")
                errors = [line for line in errors if words not in line]
            if ran.returncode != 0 and errors:
                row.lose(f"{name}: {errors[-1][:120]}")
    return [row]
