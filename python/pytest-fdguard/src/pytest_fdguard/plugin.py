"""The hooks: snapshots before each test's setup and after its teardown; anything new fails the test."""

import os
import sys
from typing import Optional

import pytest

from . import restart
from .guard import Guard

NO_TRACE = "--fdguard-no-trace"
WHY_NO_LINES = pytest.StashKey[Optional[str]]()


def pytest_addoption(parser):
    group = parser.getgroup("fdguard", "detect descriptors and processes that tests leave behind")
    group.addoption("--fdguard", action="store_true", help="fail tests that leave descriptors or child processes behind")
    group.addoption(NO_TRACE, action="store_true", help="do not restart pytest under the tracer; opening lines are not shown")
    group.addoption(
        "--fdguard-strict", action="store_true", help="also fail tests whose leftovers are closed only by the garbage collector"
    )
    group.addoption("--fdguard-program", metavar="PATH", help="path of the fdguard program, if it is not found automatically")
    group.addoption("--fdguard-report", metavar="FILE", help="write the tracer's report of the whole run to FILE")
    parser.addini("fdguard", "same as --fdguard", type="bool", default=False)
    parser.addini("fdguard_trace", "restart pytest under the tracer (default: true)", type="bool", default=True)
    parser.addini("fdguard_strict", "same as --fdguard-strict", type="bool", default=False)
    parser.addini("fdguard_allow", "leftovers accepted from any test, one CLASS [TARGET] per line; * is a wildcard", type="linelist")
    parser.addini("fdguard_settle", "seconds that other threads and children have to release descriptors", default="1")


def is_on(config, option) -> bool:
    return option.fdguard or config.getini("fdguard")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_load_initial_conftests(early_config):
    # Before capturing starts and before any conftest.py runs.
    _maybe_restart(early_config, early_config.known_args_namespace)
    return (yield)


def pytest_configure(config):
    config.addinivalue_line(
        "markers",
        "fdguard_allow(count, class_, target, reason): accept this many leftovers of this class and target",
    )
    config.addinivalue_line("markers", "fdguard_skip: do not check this test for leftovers")
    if not is_on(config, config.option):
        return
    if not os.path.isdir("/proc/self/fd"):
        raise pytest.UsageError("--fdguard requires Linux: /proc/self/fd not found")
    plan = _plan(config, config.option)
    config.pluginmanager.register(Guard(config, plan.program if restart.is_traced() else None), "fdguard-guard")
    config.stash[WHY_NO_LINES] = _why_no_lines(plan)


@pytest.hookimpl(trylast=True)
def pytest_sessionstart(session):
    why = session.config.stash.get(WHY_NO_LINES, None)
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if why and reporter and not hasattr(session.config, "workerinput"):
        reporter.write_line(f"fdguard: no opening lines: {why}", yellow=True)


def _plan(config, option) -> restart.Plan:
    if option.fdguard_no_trace or not config.getini("fdguard_trace"):
        return restart.Plan(None, None)
    return restart.find(option.fdguard_program)


def _why_no_lines(plan: restart.Plan) -> Optional[str]:
    """Why opening lines are missing; None if they were not requested."""
    if plan.why_not or not plan.program or restart.is_traced():
        return plan.why_not
    if restart.was_restarted():
        return "this Python does not load the tracer's library"
    return "pytest was not started from its own command: prefix the command with fdguard trace -o /dev/null --"


def _maybe_restart(config, option) -> None:
    """Restarts pytest under the tracer if needed; then it does not return."""
    is_first = restart.begin()
    is_wanted = is_first and is_on(config, option) and not option.help and not option.version
    if not is_wanted or restart.is_traced() or restart.was_restarted():
        return
    arguments = [str(one) for one in config.invocation_params.args]
    command = restart.own_command()
    if not restart.is_whole_process(arguments, command, sys.argv[0]):
        return
    program = _plan(config, option).program
    if program:
        restart.become(restart.command_under(program, command, option.fdguard_report))
