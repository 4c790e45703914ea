"""The hooks: a look before each test's setup, another after its teardown, and what came in between and stayed fails it."""

import os
import sys
from typing import Optional

import pytest

from . import restart
from .guard import Guard

NO_TRACE = "--fdguard-no-trace"
WHY_NO_LINES = pytest.StashKey[Optional[str]]()


def pytest_addoption(parser):
    group = parser.getgroup("fdguard", "what tests leave open")
    group.addoption("--fdguard", action="store_true", help="fail tests that leave descriptors or child processes behind")
    group.addoption(NO_TRACE, action="store_true", help="do not start again under the tracer: no opening lines")
    group.addoption(
        "--fdguard-strict", action="store_true", help="fail tests whose leftovers only the garbage collector closes, too"
    )
    group.addoption("--fdguard-program", metavar="PATH", help="the fdguard program, where it is not found by itself")
    group.addoption("--fdguard-report", metavar="FILE", help="keep the tracer's own report of the whole run")
    parser.addini("fdguard", "as --fdguard", type="bool", default=False)
    parser.addini("fdguard_trace", "start again under the tracer (default: true)", type="bool", default=True)
    parser.addini("fdguard_strict", "as --fdguard-strict", type="bool", default=False)
    parser.addini("fdguard_allow", "what any test may leave: lines CLASS [TARGET], both with *", type="linelist")
    parser.addini("fdguard_settle", "seconds that other threads and children get to let go", default="1")


def is_on(config, option) -> bool:
    return option.fdguard or config.getini("fdguard")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_load_initial_conftests(early_config):
    # Before the capturing begins and before a conftest.py has done anything.
    _maybe_restart(early_config, early_config.known_args_namespace)
    return (yield)


def pytest_configure(config):
    config.addinivalue_line(
        "markers",
        "fdguard_allow(count, class_, target, reason): the test may leave so many descriptors of that class and target",
    )
    config.addinivalue_line("markers", "fdguard_skip: fdguard does not look at the test")
    if not is_on(config, config.option):
        return
    if not os.path.isdir("/proc/self/fd"):
        raise pytest.UsageError("--fdguard needs Linux: there is no /proc/self/fd here")
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
    """Nothing where they were not asked for."""
    if plan.why_not or not plan.program or restart.is_traced():
        return plan.why_not
    if restart.was_restarted():
        return "this Python does not load the tracer's library"
    return "pytest was not started by its command: put fdguard trace -o /dev/null -- before the command that is"


def _maybe_restart(config, option) -> None:
    """Does not return where pytest starts again."""
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
