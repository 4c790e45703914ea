"""The opening line in the failure: pytest runs under the tracer."""

LEAKS = """
    import os, socket, threading

    def careless():
        return os.open("/etc/passwd", os.O_RDONLY)  # LEAK file

    kept = []

    def test_clean():
        os.close(careless())

    def test_file():
        careless()
        careless()

    def test_listener():
        kept.append(socket.create_server(("127.0.0.1", 0)))  # LEAK listener

    def work():
        os.open("/etc/hosts", os.O_RDONLY)  # LEAK thread
        done.set()
        end.wait()

    done, end = threading.Event(), threading.Event()

    def test_thread():
        kept.append(threading.Thread(target=work))
        kept[-1].start()
        done.wait()
        os.open("/etc/hostname", os.O_RDONLY)

    def test_last():
        end.set()
        kept[-1].join()
"""


def line_of(path, mark):
    lines = path.read_text().splitlines()
    return next(at for at, line in enumerate(lines, 1) if f"# LEAK {mark}" in line)


def test_the_line_that_opened_it_is_told(pytester, traced):
    path = pytester.makepyfile(LEAKS)
    result = traced("-o", "fdguard_settle=0")
    result.assert_outcomes(passed=5, errors=3)
    file, listener, thread = (line_of(path, mark) for mark in ("file", "listener", "thread"))
    result.stdout.fnmatch_lines(
        [
            "*teardown of test_file*",
            f"fdguard: 2 descriptors left behind, opened at {path.name}:{file} careless",
            "  fd * (generation *)  regular  /etc/passwd",
            "  fd * (generation *)  regular  /etc/passwd",
            f"    opened at {path.name}:{file} careless (open*)",
            f"      {path.name}:{file} careless",
            f"      {path.name}:* test_file",
            "*teardown of test_listener*",
            "  fd *  tcp:LISTEN  127.0.0.1:*",
            f"    opened at {path.name}:{listener} test_listener (socket)",
            "*teardown of test_thread*",
            f"    opened at {path.name}:{thread} work (open*)",
            "  uncertain: fd [0-9]*: opened by another thread, not the test's; 1 more thread is running *",
        ],
        consecutive=False,
    )
    # One of the two was opened by the test itself and is certain.
    # On a CI system pytest repeats the whole message in its summary.
    uncertain = sorted({line.strip() for line in result.outlines if "uncertain: fd" in line})
    assert len(uncertain) == 1 and "," not in uncertain[0].partition(":")[2].partition(":")[0], uncertain
    assert not [line for line in result.outlines if "still open in" in line or "no opening lines" in line]
    assert "still open in" not in result.stderr.str()


def test_workers_of_xdist_are_traced(pytester, traced):
    path = pytester.makepyfile(
        """
        import os
        import pytest

        @pytest.fixture(scope="session")
        def forgetful():
            return os.open("/etc/hostname", os.O_RDONLY)

        @pytest.mark.parametrize("number", range(4))
        def test_clean(number, forgetful):
            with open("/etc/hosts"):
                pass

        def test_leaks():
            os.open("/etc/passwd", os.O_RDONLY)  # LEAK file
        """
    )
    result = traced("-n", "2")
    result.assert_outcomes(passed=5, errors=1)
    place = f"{path.name}:{line_of(path, 'file')} test_leaks"
    result.stdout.fnmatch_lines(
        [
            f"fdguard: 1 descriptor left behind, opened at {place}",
            "*fdguard: left open by fixtures (class, module or session scope)*",
            "forgetful (session): 1 descriptor",
        ]
    )
    assert result.ret == 1


def test_the_collectors_work_has_its_line_in_strict_runs(pytester, traced):
    path = pytester.makepyfile(
        """
        def test_cycle():
            ring = [open("/etc/hosts")]  # LEAK ring
            ring.append(ring)
        """
    )
    result = traced("--fdguard-strict", "-W", "ignore")
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(
        [
            f"    opened at {path.name}:{line_of(path, 'ring')} test_cycle (open*)",
            "  closed only by the garbage collector: fd *",
        ]
    )


def test_a_test_that_fills_the_table_is_told_with_its_line(pytester, traced):
    path = pytester.makepyfile(
        """
        import os, resource

        def test_fills():
            _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
            resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard))
            try:
                while True:
                    os.open("/etc/hosts", os.O_RDONLY)  # LEAK all
            except OSError:
                pass
        """
    )
    result = traced()
    result.assert_outcomes(passed=1, errors=1)
    place = f"{path.name}:{line_of(path, 'all')} test_fills"
    result.stdout.fnmatch_lines([f"fdguard: * descriptors left behind, opened at {place}", "  and * more"])


def test_a_leaked_event_loop_is_blamed_on_the_test(pytester, traced):
    """Its own line, not one of the standard library's, wherever that is: as in a virtual environment over pyenv."""
    path = pytester.makepyfile(
        """
        import asyncio

        kept = []

        def test_loop():
            kept.append(asyncio.new_event_loop())  # LEAK loop

        def test_run():
            async def work():
                kept.append(asyncio.new_event_loop())  # LEAK task

            asyncio.run(work())
        """
    )
    result = traced("-W", "ignore")
    result.assert_outcomes(passed=2, errors=2)
    loop, task = (line_of(path, mark) for mark in ("loop", "task"))
    result.stdout.fnmatch_lines(
        [
            "*teardown of test_loop*",
            f"fdguard: 3 descriptors left behind, opened at {path.name}:{loop} test_loop",
            "*teardown of test_run*",
            f"fdguard: 3 descriptors left behind, opened at {path.name}:{task} *work",
        ]
    )
    blamed = [line.strip() for line in result.outlines if line.strip().startswith("opened at ")]
    assert blamed and all(line.startswith(f"opened at {path.name}:") for line in blamed), blamed
