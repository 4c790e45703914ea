"""Compares descriptors and children before and after each test and fails the test for leftovers."""

import gc
import threading
import time
from contextlib import contextmanager
from typing import List, Optional

import pytest

from . import allow, failure_text, lines, owners
from .look import Child, Descriptor, Look, State, look
from .naming import name

# Seconds between checks while others may still release descriptors.
AGAIN = 0.01


class Guard:
    """One per process that runs tests."""

    def __init__(self, config, program: Optional[str]):
        # The fdguard program to ask for lines, if this process is traced.
        self.program = program
        self.is_strict = config.option.fdguard_strict or config.getini("fdguard_strict")
        self.allowed: List[str] = config.getini("fdguard_allow")
        self.settle = seconds(config.getini("fdguard_settle"))
        self.before: Optional[Look] = None
        self.has_failed = False
        self.fixtures = owners.Fixtures()
        self.left_by_fixtures: List[str] = []

    # The comparison hooks are outermost, so that descriptors held by other plugins do not count.

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_setup(self, item):
        self.before = None if item.get_closest_marker("fdguard_skip") else look()
        self.has_failed = False
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item, call):
        if call.when != "teardown" and call.excinfo is not None:
            self.has_failed = True
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef):
        if self.before is None or fixturedef.scope == "function":
            return (yield)
        before = look()
        try:
            return (yield)
        finally:
            # It outlives the first test that uses it.
            new = look().since(before)
            self.fixtures.own(fixturedef, new)
            self.before.descriptors.update(new.descriptors)
            self.before.children.update(new.children)

    def pytest_fixture_post_finalizer(self, fixturedef):
        self.fixtures.end(fixturedef)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_teardown(self, item):
        try:
            result = yield
        except (KeyboardInterrupt, pytest.exit.Exception):
            raise
        except BaseException:
            self.has_failed = True
            self.judge(item)
            raise
        self.judge(item)
        return result

    # The verdict.

    def judge(self, item) -> None:
        before, self.before = self.before, None
        if before is None:
            return
        self.note_fixtures()
        with no_collection():
            self.compare(item, before)

    def compare(self, item, before: Look) -> None:
        left = self.leftovers(before)
        if left.is_empty():
            return
        # Values returned by fixtures end with the test: pytest drops them right afterwards, too.
        item.funcargs = {}
        left = self.leftovers(before).only(left)
        if not self.is_strict:
            left = self.collected(before, left)
        left = self.settled(before, left)
        found, _ = allow.sift(named(left), self.allowances(item))
        if not found:
            return
        answer = self.ask(found)
        found = failure_text.attributed(found, answer)
        notes = failure_text.doubts(found, before.threads, left.threads, threading.get_native_id())
        if self.is_strict:
            closed = left.since(self.collected(before, left))
            notes += failure_text.collected(found, {one.fd for one in closed.descriptors})
        if answer and answer.why_not:
            notes.append(f"no opening lines: {answer.why_not}")
        self.tell(item, found, notes)

    def leftovers(self, before: Look) -> Look:
        return owners.without_runtime(look().since(before))

    def collected(self, before: Look, left: Look) -> Look:
        """What is left after a garbage collection. It runs twice because a finalizer can release more."""
        for _ in range(2):
            if not left.is_empty():
                gc.collect()
                left = self.leftovers(before).only(left)
        return left

    def settled(self, before: Look, left: Look) -> Look:
        """What is left after other threads and children had time to release it."""
        deadline = time.monotonic() + self.settle
        while not left.is_empty() and left.may_change() and time.monotonic() < deadline:
            time.sleep(AGAIN)
            left = self.leftovers(before).only(left)
        return left

    def allowances(self, item) -> List[allow.Allowance]:
        return allow.of_lines(self.allowed) + marked(item)

    def ask(self, found: List[failure_text.Leftover]) -> Optional[lines.Answer]:
        """Asks the tracer for opening lines. Processes have none, and asking takes time."""
        is_asked = self.program and not all(failure_text.is_process(one) for one in found)
        return lines.ask(self.program) if is_asked else None

    def tell(self, item, found: List[failure_text.Leftover], notes: List[str]) -> None:
        """Fails the test. A test that already failed gets a report section instead: its traceback may hold the leftovers."""
        if self.has_failed:
            notes = [*notes, "the test failed, and its traceback may keep them open"]
            item.add_report_section("teardown", "fdguard", failure_text.failure(found, notes))
        else:
            pytest.fail(failure_text.failure(found, notes), pytrace=False)

    # Fixtures that outlive a test and do not close what they opened.

    def note_fixtures(self) -> None:
        left = [(one.fixture, [descriptor(each) for each in one.descriptors]) for one in self.fixtures.left()]
        answer = self.ask([one for _, found in left for one in found])
        for fixture, found in left:
            found = failure_text.attributed(found, answer)
            self.left_by_fixtures += [f"{fixture}: {failure_text.counted(found)}", *failure_text.listing(found)]

    def pytest_sessionfinish(self, session):
        if hasattr(session.config, "workeroutput"):
            session.config.workeroutput["fdguard"] = self.left_by_fixtures

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node):
        self.left_by_fixtures += getattr(node, "workeroutput", {}).get("fdguard", [])

    def pytest_terminal_summary(self, terminalreporter):
        if self.left_by_fixtures:
            terminalreporter.section("fdguard: left open by fixtures (class, module or session scope)", yellow=True)
            for line in self.left_by_fixtures:
                terminalreporter.line(line)

    def pytest_collection_modifyitems(self, items):
        for item in items:
            try:
                marked(item)
            except ValueError as error:
                raise pytest.UsageError(f"{item.nodeid}: {error}") from None


@contextmanager
def no_collection():
    """Disables automatic garbage collection, which could close a leftover while it is being reported."""
    is_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if is_on:
            gc.enable()


def marked(item) -> List[allow.Allowance]:
    return [allow.of_marker(mark) for mark in item.iter_markers("fdguard_allow")]


def named(left: Look) -> List[failure_text.Leftover]:
    found = [descriptor(one) for one in sorted(left.descriptors)]
    return found + [process(child, state) for child, state in sorted(left.children.items())]


def descriptor(one: Descriptor) -> failure_text.Leftover:
    return failure_text.Leftover(one.fd, *name(one))


def process(child: Child, state: State) -> failure_text.Leftover:
    what = "still running" if state.is_running else "zombie: ended but not waited for"
    return failure_text.Leftover(child.pid, "process", state.command, what)


def seconds(text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = -1.0
    # This also rejects NaN.
    if not 0 <= found < float("inf"):
        raise pytest.UsageError(f"fdguard_settle = {text}: must be a number of seconds")
    return found
