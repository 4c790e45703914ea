"""The plugin's own tests. They run with what is installed: python/test installs both wheels before."""

import os
import pathlib
import shutil
import subprocess
import sysconfig

import pytest

pytest_plugins = ["pytester"]

# Enough for a traced run on a busy machine.
PATIENCE = 300

# Reports a skipped test, and fails where that is not allowed: the same for all languages.
SKIP = pathlib.Path(__file__).resolve().parents[2] / "testkit" / "skip"


class Skips:
    """Reports what was skipped, once for all workers of xdist."""

    def __init__(self):
        self.are_allowed = True

    def pytest_runtest_logreport(self, report):
        if not report.skipped or hasattr(report, "wasxfail"):
            return
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        told = subprocess.run([SKIP, report.nodeid, reason.removeprefix("Skipped: ")])
        self.are_allowed &= told.returncode == 0

    pytest_collectreport = pytest_runtest_logreport

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session):
        if not self.are_allowed:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_configure(config):
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Skips())


@pytest.fixture(autouse=True)
def plain_surroundings(monkeypatch):
    """Whoever runs these tests may be traced or restarted: the pytest inside must not know."""
    for name in ("FDGUARD_TRACE_DIR", "FDGUARD_PYTEST", "LD_PRELOAD", "PYTEST_ADDOPTS", "PYTEST_XDIST_WORKER"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def program():
    """The fdguard that the wheel installed."""
    found = os.path.join(sysconfig.get_path("scripts"), "fdguard")
    assert os.access(found, os.X_OK), "the wheel of fdguard is not installed: run python/test"
    return found


@pytest.fixture
def no_program(monkeypatch, tmp_path):
    """A plugin that finds no fdguard: neither beside Python nor on the PATH."""
    (tmp_path / "sitecustomize.py").write_text(
        "import sysconfig\n"
        "path = sysconfig.get_path\n"
        "sysconfig.get_path = lambda name, *more, **also: '/nonexistent' if name == 'scripts' else path(name, *more, **also)\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    assert shutil.which("fdguard") is None


@pytest.fixture
def untraced(pytester):
    """Runs pytest in this process, without lines. It may have threads of xdist, for which nobody needs to wait."""
    always = ("--fdguard", "--fdguard-no-trace", "-p", "no:cacheprovider", "-o", "fdguard_settle=0")

    def run(*arguments):
        return pytester.runpytest_inprocess(*always, *arguments)

    return run


@pytest.fixture
def traced(pytester, program):
    """Runs pytest as people do: it starts itself again under the tracer."""

    def run(*arguments):
        return pytester.runpytest_subprocess("--fdguard", "-p", "no:cacheprovider", *arguments, timeout=PATIENCE)

    return run
