"""pytest starts itself again under the tracer: nobody notices but by the lines."""

import os
import pty
import re
import signal
import subprocess
import sys

import pytest

from conftest import PATIENCE

# Prints whether it is traced, and its arguments.
TELLS = """
    import os, sys
    import pytest

    def pytest_addoption(parser):
        parser.addoption("--words")

    @pytest.fixture(scope="session", autouse=True)
    def told(request):
        with open("told", "a") as file:
            print("traced" if "FDGUARD_TRACE_DIR" in os.environ else "plain", request.config.getoption("--words"), file=file)
"""


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ("def test_it(): pass", 0),
        ("def test_it(): assert False", 1),
        ("def test_it(): raise KeyboardInterrupt", 2),
        ("", 5),
    ],
)
def test_exit_codes_and_arguments_are_pytests_own(pytester, traced, body, code):
    pytester.makeconftest(TELLS)
    pytester.makepyfile(body)
    result = traced("--words", "two  words 'and' \"quotes\" *")
    assert result.ret == code
    if code != 5:
        told = (pytester.path / "told").read_text()
        assert told == "traced two  words 'and' \"quotes\" *\n", "one session, traced, with its arguments"


def test_a_usage_error_stays_one(pytester, traced):
    assert traced("no-such-file.py").ret == 4


def test_the_command_pytest_is_started_again_as_well(pytester, program):
    pytester.makeconftest(TELLS)
    pytester.makepyfile("def test_it(): pass")
    command = os.path.join(os.path.dirname(program), "pytest")
    # From another directory than its own, using only the configuration.
    pytester.makeini("[pytest]\nfdguard = true\n")
    ended = subprocess.run([command, "-q"], cwd=pytester.path, capture_output=True, text=True, timeout=PATIENCE)
    assert ended.returncode == 0 and "fdguard" not in ended.stderr, ended
    assert (pytester.path / "told").read_text() == "traced None\n"


def test_colours_stay_on_a_terminal(pytester, program):
    pytester.makepyfile("def test_it(): pass")
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm"}
    for name in ("NO_COLOR", "PY_COLORS", "FORCE_COLOR"):
        environment.pop(name, None)
    command = [sys.executable, "-m", "pytest", "--fdguard"]
    with subprocess.Popen(command, cwd=pytester.path, stdin=theirs, stdout=theirs, stderr=theirs, env=environment):
        os.close(theirs)
        said = b""
        while True:
            try:
                more = os.read(ours, 4096)
            except OSError:
                break
            said += more
    os.close(ours)
    assert b"\x1b[32m" in said and b"1 passed" in said, said


def test_ctrl_c_is_pytests(pytester, program):
    pytester.makepyfile(
        """
        import time

        def test_waits(capfd):
            with capfd.disabled():
                print("waiting", flush=True)
            time.sleep(600)
        """
    )
    command = [sys.executable, "-m", "pytest", "--fdguard", "-p", "no:cacheprovider"]
    with subprocess.Popen(
        command, cwd=pytester.path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    ) as running:
        said = ""
        for line in running.stdout:
            said += line
            if "waiting" in line:
                # As a terminal does it: to everybody in the foreground.
                os.killpg(running.pid, signal.SIGINT)
        assert running.wait(PATIENCE) == 2, said
    assert "KeyboardInterrupt" in said


def test_without_the_program_one_line_says_so(pytester, no_program):
    pytester.makepyfile("import os\ndef test_it():\n    os.open('/etc/hosts', os.O_RDONLY)\n")
    result = pytester.runpytest_subprocess("--fdguard", "-q", timeout=PATIENCE)
    result.assert_outcomes(passed=1, errors=1)
    said = [line for line in result.outlines if "no opening lines" in line]
    assert said == ["fdguard: no opening lines: fdguard program not found (pip install fdguard)"]
    result.stdout.fnmatch_lines(["fdguard: 1 descriptor left behind", "  fd *  regular  /etc/hosts"])


def test_a_program_that_does_not_run_is_told(pytester):
    broken = pytester.path / "broken"
    broken.write_text("#!/bin/sh\nexit 1\n")
    broken.chmod(0o755)
    pytester.makepyfile("def test_it(): pass")
    result = pytester.runpytest_subprocess("--fdguard", "--fdguard-program", str(broken), timeout=PATIENCE)
    assert result.ret == 0
    result.stdout.fnmatch_lines([f"fdguard: no opening lines: {broken} does not run: exit code 1"])


def test_without_tracing_nothing_is_started_again_or_said(pytester):
    pytester.makeconftest(TELLS)
    pytester.makepyfile("def test_it(): pass")
    result = pytester.runpytest_subprocess("--fdguard", "--fdguard-no-trace", timeout=PATIENCE)
    assert (pytester.path / "told").read_text() == "plain None\n"
    result.stdout.no_fnmatch_line("*no opening lines*")


def test_a_program_that_calls_pytest_is_not_started_again(pytester, program):
    pytester.makepyfile("def test_it(): pass")
    script = pytester.path / "runner.py"
    script.write_text("import sys, pytest\nprint('began')\nsys.exit(pytest.main(['--fdguard']))\n")
    result = pytester.run(sys.executable, str(script), timeout=PATIENCE)
    assert result.ret == 0
    assert result.outlines.count("began") == 1
    result.stdout.fnmatch_lines(["fdguard: no opening lines: pytest was not started from its own command: *"])


def test_the_tracers_own_report_can_be_kept(pytester, traced):
    pytester.makepyfile("def test_it(): pass")
    assert traced("--fdguard-report", "kept.txt").ret == 0
    assert re.search(r"\(pid \d+\)", (pytester.path / "kept.txt").read_text())
