"""Fixtures of a wider scope, loops and threads: who is blamed for what."""

OWNERS = """
    import os
    import pytest

    def hold(path="/etc/hosts"):
        return os.open(path, os.O_RDONLY)

    @pytest.fixture(scope="session")
    def whole():
        number = hold()
        yield number
        os.close(number)

    @pytest.fixture(scope="module")
    def forgetful():
        return hold("/etc/hostname")

    @pytest.fixture
    def narrow():
        number = hold()
        yield number
        os.close(number)

    @pytest.fixture
    def leaking():
        return hold("/etc/passwd")

    class TestClass:
        @classmethod
        def setup_class(cls):
            cls.number = hold()

        @classmethod
        def teardown_class(cls):
            os.close(cls.number)

        def test_one(self, whole, narrow):
            pass

        def test_two(self, whole, request):
            request.getfixturevalue("forgetful")

    def test_blamed(whole, leaking):
        pass
"""


def test_only_what_a_test_and_its_own_fixtures_left_is_blamed(pytester, untraced):
    pytester.makepyfile(OWNERS)
    result = untraced()
    result.assert_outcomes(passed=3, errors=1)
    result.stdout.fnmatch_lines(
        [
            "*teardown of test_blamed*",
            "fdguard: 1 descriptor left behind",
            "  fd *  regular  /etc/passwd",
            "*fdguard: left open by fixtures (class, module or session scope)*",
            "forgetful (module): 1 descriptor",
            "  fd *  regular  /etc/hostname",
        ]
    )
    result.stdout.no_fnmatch_line("whole (session)*")


def test_the_loop_of_a_session_is_not_blamed_and_that_of_a_test_is(pytester, untraced):
    pytester.makepyfile(
        """
        import asyncio
        import pytest

        @pytest.fixture(scope="session")
        def loop():
            loop = asyncio.new_event_loop()
            yield loop
            loop.close()

        def test_waits(loop):
            loop.run_until_complete(asyncio.sleep(0))

        def test_again(loop):
            loop.run_until_complete(asyncio.sleep(0))

        kept = []

        def test_forgets():
            kept.append(asyncio.new_event_loop())
        """
    )
    result = untraced()
    result.assert_outcomes(passed=3, errors=1)
    result.stdout.fnmatch_lines(
        ["*teardown of test_forgets*", "fdguard: 3 descriptors left behind", "  fd *  eventpoll  anon_inode:*", "  fd *  unix  *"]
    )


def test_what_another_thread_lets_go_a_moment_later_is_no_leftover(pytester, untraced):
    pytester.makepyfile(
        """
        import os, threading, time

        class Clock:
            monotonic = time.monotonic

            @staticmethod
            def sleep(_):
                # The guard has seen the leftover, and waits.
                is_over.set()
                thread.join()

        is_over = threading.Event()

        def let_go(number):
            is_over.wait()
            os.close(number)

        def test_it():
            global thread
            thread = threading.Thread(target=let_go, args=[os.open("/etc/hosts", os.O_RDONLY)])
            thread.start()
        """
    )
    pytester.makeconftest(
        """
        import time
        from pytest_fdguard import guard

        def pytest_collection_modifyitems(items):
            guard.time = items[0].module.Clock

        def pytest_unconfigure():
            guard.time = time
        """
    )
    untraced("-o", "fdguard_settle=60").assert_outcomes(passed=1)


def test_other_threads_make_it_uncertain_and_it_is_told(pytester, untraced):
    pytester.makepyfile(
        """
        import os, threading
        done, end = threading.Event(), threading.Event()

        def work():
            os.open("/etc/hosts", os.O_RDONLY)
            done.set()
            end.wait()

        thread = threading.Thread(target=work)

        def test_it():
            thread.start()
            done.wait()

        def test_end():
            end.set()
            thread.join()
        """
    )
    result = untraced("-o", "fdguard_settle=0")
    result.assert_outcomes(passed=2, errors=1)
    result.stdout.fnmatch_lines(
        ["  fd *  regular  /etc/hosts", "  uncertain: 1 more thread is running than before the test and may have opened them"]
    )
