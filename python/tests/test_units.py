"""What is pure in the plugin, on values."""

import os
import socket
import tempfile

import pytest

from pytest_fdguard import allow, failure_text, lines, look, naming, restart
from pytest_fdguard.lines import Opened
from pytest_fdguard.failure_text import Leftover


def named(fd):
    [found] = [one for one in look.descriptors() if one.fd == fd]
    return naming.name(found)


def test_classes_have_the_names_of_the_program():
    reader, writer = os.pipe()
    left, right = socket.socketpair()
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
        port = server.getsockname()[1]
        assert named(server.fileno()) == ("tcp:LISTEN", f"127.0.0.1:{port}")
        class_, target = named(client.fileno())
        assert class_ == "tcp:ESTABLISHED" and target.endswith(f"->127.0.0.1:{port}")
        assert client.getpeername()[1] == port, "it is open as before"
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams, socket.socket() as fresh:
        assert named(datagrams.fileno())[0] == "udp"
        assert named(fresh.fileno())[0] == "tcp:UNBOUND"
    assert named(reader)[0] == "pipe" and named(left.fileno())[0] == "unix"
    for end in (left, right):
        end.close()
    os.close(reader)
    os.close(writer)


def test_classes_of_files(tmp_path):
    import sqlite3

    connection = sqlite3.connect(tmp_path / "state.db")
    connection.execute("pragma journal_mode = wal")
    connection.execute("create table t (x)")
    found = {naming.name(one)[0] for one in look.descriptors() if str(tmp_path) in one.link}
    connection.close()
    assert {"sqlite-db", "sqlite-wal"} <= found, found
    with tempfile.TemporaryFile(dir=tmp_path) as unnamed, open("/dev/null") as null:
        assert named(unnamed.fileno())[0] in ("deleted", "regular")
        assert named(null.fileno()) == ("chardev", "/dev/null")
    folder = os.open(tmp_path, os.O_RDONLY)
    assert named(folder) == ("directory", str(tmp_path))
    os.close(folder)


@pytest.mark.parametrize(
    ("arguments", "command", "name", "is_whole"),
    [
        (["-q"], ["python3", "-m", "pytest", "-q"], "/lib/pytest/__main__.py", True),
        (["-k", "a b"], ["python3", "/venv/bin/pytest", "-k", "a b"], "/venv/bin/pytest", True),
        ([], ["python3", "-X", "dev", "-m", "pytest"], "/lib/pytest/__main__.py", True),
        (["-q"], ["python3", "runner.py"], "runner.py", False),
        ([], ["python3", "runner.py"], "runner.py", False),
        (["-q"], ["python3", "-m", "pytest", "-v"], "/lib/pytest/__main__.py", False),
        (["-q"], ["python3", "-c", "import sys;exec(eval(sys.stdin.readline()))"], "/venv/bin/pytest", False),
    ],
)
def test_only_a_pytest_that_is_the_whole_process_is_started_again(arguments, command, name, is_whole):
    assert restart.is_whole_process(arguments, command, name) is is_whole


def test_the_exit_code_is_pytests_alone():
    command = restart.command_under("/bin/fdguard", ["python3", "-m", "pytest", "-k", "a b"], None)
    assert command[command.index("--error-exitcode") + 1] == "0"
    assert command[command.index("--") + 2 :] == ["-m", "pytest", "-k", "a b"]


def test_a_count_is_kept_for_what_nothing_else_allows():
    found = [Leftover(number, "pipe", f"pipe:[{number}]") for number in (5, 6, 7)]
    counted, free = allow.Allowance(class_="*", count=1), allow.Allowance(class_="pipe", target="pipe:[[]5*")
    rest, allowed = allow.sift(found, [counted, free])
    assert [one.number for one in rest] == [7] and len(allowed) == 2


def test_lines_of_another_process_or_an_old_program_are_not_taken():
    culprit = {"file": "/srv/app.py", "line": 7, "function": "serve", "language": "python"}
    site = {"pid": 10, "culprit": culprit, "stack": [culprit], "how": "open"}
    known = {**site, "fds": [{"fd": 4, "generation": 3, "thread": 10, "age_seconds": 0.1}]}
    answer = lines.read({"sites": [{**known, "pid": 11}, known]}, 10)
    assert answer.opened == {4: Opened("/srv/app.py:7 serve", ["/srv/app.py:7 serve"], "open", 3, 10)}
    assert "too old" in lines.read({"sites": [site]}, 10).why_not
    assert lines.read({"sites": [{**known, "culprit": None, "stack": []}]}, 10).opened[4].line == "unknown line"


def test_the_machinery_of_pytest_is_not_shown():
    names = ["/srv/app.py", "/srv/test_app.py", "/lib/site-packages/_pytest/python.py", "/bin/pytest"]
    stack = [{"file": name, "line": 1, "function": "f", "language": "python"} for name in names]
    assert lines.stack({"stack": stack}) == ["/srv/app.py:1 f", "/srv/test_app.py:1 f"]
    assert lines.stack({"stack": stack, "culprit": stack[1]}) == ["/srv/test_app.py:1 f"]
    # If only libraries were involved, the tracer blames the caller that started pytest.
    assert lines.stack({"stack": stack, "culprit": stack[3]})[0] == "/srv/app.py:1 f"


def test_a_tracer_that_fails_is_told(tmp_path):
    broken = tmp_path / "fdguard"
    broken.write_text("#!/bin/sh\necho 'fdguard: process is not traced' >&2\nexit 3\n")
    broken.chmod(0o755)
    assert lines.ask(str(broken)) == ({}, "fdguard: process is not traced")
    assert "cannot run the tracer" in lines.ask(str(tmp_path / "gone")).why_not
    broken.write_text("#!/bin/sh\nwhile [ \"$1\" != -o ]; do shift; done\necho '{' > \"$2\"\n")
    assert "invalid report" in lines.ask(str(broken)).why_not


def test_what_the_tracer_saw_this_thread_open_is_certain():
    mine = Leftover(5, "pipe", "pipe:[1]", opened=Opened("a.py:1 f", [], "pipe", 1, 100))
    other = mine._replace(number=6, opened=mine.opened._replace(thread=101))
    unknown = Leftover(7, "pipe", "pipe:[2]")
    assert failure_text.doubts([mine], before=1, after=3, own=100) == []
    assert failure_text.doubts([unknown], before=1, after=1, own=100) == []
    assert "2 more threads" in failure_text.doubts([mine, unknown], before=1, after=3, own=100)[0]
    assert "fd 6: opened by another thread" in failure_text.doubts([other], before=2, after=2, own=100)[0]


def test_the_tracer_is_taken_out_of_a_childs_environment(monkeypatch):
    monkeypatch.setenv("FDGUARD_TRACE_DIR", "/dev/shm/t")
    monkeypatch.setenv("LD_PRELOAD", "/dev/shm/t/lib.so:/usr/lib/own.so")
    environment = lines.untraced_environment()
    assert "FDGUARD_TRACE_DIR" not in environment and environment["LD_PRELOAD"] == "/usr/lib/own.so"
