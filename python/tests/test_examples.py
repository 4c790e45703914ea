"""The ready canaries: the good ones pass, the bad ones fail with their line."""

import pathlib
import shutil

import pytest

EXAMPLES = pathlib.Path(__file__).parent.parent / "examples"


def place(name, mark, function):
    lines = (EXAMPLES / name).read_text().splitlines()
    [at] = [at for at, line in enumerate(lines, 1) if mark in line]
    return f"{name}:{at} {function}"


def test_the_canaries(pytester, traced):
    shutil.copytree(EXAMPLES, pytester.path, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
    result = traced()
    result.assert_outcomes(passed=5, errors=2)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    # Older Python versions do not report the class of a method.
    get = place("test_client_per_call_leaks.py", "self.connection.request", "*get")
    fetch = place("test_client_per_call_leaks.py", "Client(port).get", "fetch")
    pipe = place("test_failing_exec_leaks.py", "= os.pipe()", "start_tool")
    result.stdout.fnmatch_lines(
        [
            f"fdguard: 5 descriptors left behind, opened at {get}",
            "  fd *  tcp:*  127.0.0.1:*->127.0.0.1:*",
            f"      {fetch}",
            f"fdguard: 40 descriptors left behind, opened at {pipe}",
            "  fd *  pipe  pipe:*",
            "  and 30 more",
        ]
    )
    result.stdout.no_fnmatch_line("*teardown of*popen_itself*")
    result.stdout.no_fnmatch_line("*left open by fixtures*")
