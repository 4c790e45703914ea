"""What fails a test and what does not. Lines are another matter: these run without the tracer."""

import pytest


def outcomes(result, **expected):
    result.assert_outcomes(**expected)


def test_a_clean_test_passes(pytester, untraced):
    pytester.makepyfile(
        """
        import subprocess

        def test_clean():
            with open("/etc/passwd"):
                pass
            subprocess.run(["true"], check=True)
        """
    )
    result = untraced()
    outcomes(result, passed=1)
    assert result.ret == 0


def test_a_leftover_fails_with_class_and_target(pytester, untraced):
    pytester.makepyfile(
        """
        import os, socket
        kept = []

        def test_file():
            os.open("/etc/passwd", os.O_RDONLY)

        def test_listener():
            kept.append(socket.create_server(("127.0.0.1", 0)))

        def test_pipe():
            os.pipe()
        """
    )
    result = untraced()
    outcomes(result, passed=3, errors=3)
    result.stdout.fnmatch_lines(
        [
            "*ERROR at teardown of test_file*",
            "fdguard: 1 descriptor left behind",
            "  fd *  regular  /etc/passwd",
            "*ERROR at teardown of test_listener*",
            "  fd *  tcp:LISTEN  127.0.0.1:*",
            "*ERROR at teardown of test_pipe*",
            "fdguard: 2 descriptors left behind",
            "  fd *  pipe  pipe:*",
        ]
    )
    assert result.ret == 1


def test_a_number_that_went_to_something_else_is_seen(pytester, untraced):
    pytester.makepyfile(
        """
        import os
        number = os.open("/etc/passwd", os.O_RDONLY)

        def test_swap():
            os.close(number)
            assert os.open("/etc/hostname", os.O_RDONLY) == number
        """
    )
    result = untraced()
    outcomes(result, passed=1, errors=1)
    result.stdout.fnmatch_lines(["  fd *  regular  /etc/hostname"])


def test_the_second_test_is_not_blamed_for_the_first(pytester, untraced):
    pytester.makepyfile(
        """
        import os

        def test_one():
            os.eventfd(0) if hasattr(os, "eventfd") else os.pipe()

        def test_two():
            pass
        """
    )
    result = untraced()
    outcomes(result, passed=2, errors=1)
    result.stdout.no_fnmatch_line("*teardown of test_two*")


def test_markers_and_configuration_allow(pytester, untraced):
    pytester.makeini("[pytest]\nfdguard_allow =\n    regular */hostname\n    process sleep*\n")
    pytester.makepyfile(
        """
        import os, subprocess
        import pytest

        @pytest.mark.fdguard_allow(count=2, class_="pipe", reason="the pool's")
        def test_by_class():
            os.pipe()

        @pytest.mark.fdguard_allow(target="/etc/pass*")
        def test_by_target():
            os.open("/etc/passwd", os.O_RDONLY)

        @pytest.mark.fdguard_skip
        def test_not_looked_at():
            os.open("/etc/passwd", os.O_RDONLY)

        def test_by_configuration():
            os.open("/etc/hostname", os.O_RDONLY)

        @pytest.mark.fdguard_allow(count=1, class_="pipe")
        def test_one_too_many():
            os.pipe()

        @pytest.mark.fdguard_allow(class_="pipe")
        def test_of_another_class():
            os.open("/etc/passwd", os.O_RDONLY)
        """
    )
    result = untraced("--strict-markers")
    outcomes(result, passed=6, errors=2)
    result.stdout.fnmatch_lines(
        [
            "*teardown of test_one_too_many*",
            "fdguard: 1 descriptor left behind",
            "*teardown of test_of_another_class*",
            "  fd *  regular  /etc/passwd",
        ]
    )


def test_a_wrong_marker_or_setting_is_one_clear_line(pytester, untraced):
    path = pytester.makepyfile(
        """
        import pytest

        @pytest.mark.fdguard_allow(klass="pipe")
        def test_it():
            pass
        """
    )
    result = untraced()
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"ERROR: {path.name}::test_it: fdguard_allow has no argument 'klass': use count, *"])
    result = untraced("-o", "fdguard_settle=soon")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: fdguard_settle = soon: must be a number of seconds"])


CYCLE = """
    def test_cycle():
        ring = [open("/etc/hosts")]
        ring.append(ring)
"""


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_what_the_collector_closes_is_told_in_strict_runs_only(pytester, untraced):
    pytester.makepyfile(CYCLE)
    outcomes(untraced(), passed=1)
    result = untraced("--fdguard-strict")
    outcomes(result, passed=1, errors=1)
    result.stdout.fnmatch_lines(["  fd *  regular  /etc/hosts", "  closed only by the garbage collector: fd *"])


def test_what_a_fixture_returned_goes_with_the_test(pytester, untraced):
    pytester.makepyfile(
        """
        import pytest

        @pytest.fixture
        def file():
            return open("/etc/hosts")

        def test_it(file):
            assert file.readline()
        """
    )
    outcomes(untraced("--fdguard-strict", "-W", "ignore"), passed=1)


def test_children_fail_as_descriptors_do(pytester, untraced):
    pytester.makepyfile(
        """
        import os, subprocess
        kept = []

        def test_running():
            kept.append(subprocess.Popen(["sleep", "600"]))

        def test_after():
            kept[0].kill()
            kept[0].wait()
        """
    )
    result = untraced("-o", "fdguard_settle=0")
    outcomes(result, passed=2, errors=1)
    result.stdout.fnmatch_lines(
        [
            "*teardown of test_running*",
            "fdguard: 1 child process left behind",
            "  process *  sleep 600 (still running)",
        ]
    )


def test_a_zombie_fails(pytester, untraced):
    pytester.makepyfile(
        """
        import os, subprocess
        kept = []

        def test_zombie():
            kept.append(subprocess.Popen(["true"]))
            os.waitid(os.P_PID, kept[-1].pid, os.WEXITED | os.WNOWAIT)

        def test_after():
            assert kept.pop().wait() == 0
        """
    )
    result = untraced()
    outcomes(result, passed=2, errors=1)
    result.stdout.fnmatch_lines(["  process *  true (zombie: ended but not waited for)"])


def test_the_helpers_of_multiprocessing_are_not_blamed(pytester):
    pytester.makepyfile(
        """
        from multiprocessing import shared_memory

        def test_memory():
            memory = shared_memory.SharedMemory(create=True, size=16)
            memory.close()
            memory.unlink()
        """
    )
    # In a separate process: this one may already have the helper.
    outcomes(pytester.runpytest_subprocess("--fdguard", "--fdguard-no-trace"), passed=1)


def test_a_failed_test_is_not_failed_again(pytester, untraced):
    pytester.makepyfile(
        """
        def test_fails():
            file = open("/etc/hosts")
            assert file is None
        """
    )
    result = untraced()
    outcomes(result, failed=1)
    result.stdout.fnmatch_lines(["*Captured fdguard teardown*", "  fd *  regular  /etc/hosts", "*traceback may keep*"])


def test_a_failed_teardown_keeps_its_own_error(pytester, untraced):
    pytester.makepyfile(
        """
        import os
        import pytest

        @pytest.fixture
        def broken():
            yield os.open("/etc/hosts", os.O_RDONLY)
            raise RuntimeError("the pool is gone")

        def test_it(broken):
            pass
        """
    )
    result = untraced()
    outcomes(result, passed=1, errors=1)
    result.stdout.fnmatch_lines(["E*RuntimeError: the pool is gone", "*Captured fdguard teardown*", "  fd *  regular*"])


def test_without_the_option_nothing_is_looked_at(pytester):
    pytester.makepyfile("import os\ndef test_it():\n    os.open('/etc/hosts', os.O_RDONLY)\n")
    result = pytester.runpytest_inprocess()
    outcomes(result, passed=1)
    result.stdout.no_fnmatch_line("*fdguard:*")
