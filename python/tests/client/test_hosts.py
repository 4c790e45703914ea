"""Hosts: a private one ends with its client, however that ends; a running one keeps nothing of it."""

import glob
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

import pytest
from processes import PATIENCE, wait_for_end

from fdguard import ConnectionFailed, Host, ProblemError, StartFailed

CLIENT = """
import os, sys
from fdguard import Host
host = Host({arguments})
shell = host.session("bash")
shell.run("sleep 1000 &")
print(host.{what}, shell.pid, shell.run("echo $!").stdout.text.strip(), flush=True)
sys.stdin.read()
"""


def start(arguments, what="url", **more):
    """A client in its own process that waits with an open session."""
    code = CLIENT.format(arguments=arguments, what=what)
    return subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, **more)


def listeners(path):
    """The processes that have the path of a socket in their command line."""
    found = []
    for line in glob.glob("/proc/[0-9]*/cmdline"):
        try:
            with open(line, "rb") as file:
                if path.encode() in file.read():
                    found.append(int(line.split("/")[2]))
        except OSError:
            pass
    return found


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_private_host_ends_with_its_process(program, how):
    with start(f"program={program!r}") as client:
        url, *pids = client.stdout.readline().split()
        path = url[len("unix:") :]
        processes = [*listeners(path), *map(int, pids)]
        assert len(processes) >= 4 and os.stat(path).st_mode & 0o077 == 0
        client.send_signal(how)
    for pid in processes:
        wait_for_end(pid)
    assert not os.path.exists(os.path.dirname(path))


def test_a_private_host_ends_with_its_object(program, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    descriptors = len(os.listdir("/proc/self/fd"))
    host = Host(program=program)
    pid = host.session("bash").pid
    del host
    wait_for_end(pid)
    assert os.listdir(tmp_path) == [] and len(os.listdir("/proc/self/fd")) == descriptors
    with Host(program=program, log=str(tmp_path / "log")) as host:
        pid = host.session("bash").pid
        host.close()
        with pytest.raises(ConnectionFailed):
            host.health()
    wait_for_end(pid)
    assert os.listdir(tmp_path) == ["log"] and "event=shutdown_end" in (tmp_path / "log").read_text()


def test_a_private_host_ends_if_a_forked_child_does_not(program):
    """A child that was forked without exec has a copy of the pipe: then close() must end the host."""
    host = Host(program=program)
    pid = host.session("bash").pid
    end, release = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(release)
        os.read(end, 1)
        os._exit(0)
    host.close()
    wait_for_end(pid)
    os.close(release)
    os.close(end)
    os.waitpid(child, 0)


def test_sessions_cannot_read_the_token(program, tmp_path):
    with Host(program=program) as host, host.session("bash", channel="pipes") as shell:
        (tmp_path / "token").write_text(host.token)
        command = f"grep -lF -f {tmp_path}/token /proc/[0-9]*/environ /proc/[0-9]*/cmdline 2>/dev/null"
        assert shell.run(command).stdout.text == ""
        with pytest.raises(ProblemError) as refused:
            Host(host.url, "wrong", tied=False).sessions()
        assert refused.value.problem.status == 401


def test_the_reason_why_a_host_did_not_start(program):
    with pytest.raises(StartFailed, match="/nonexistent/root"):
        Host(program=program, options=["--root", "/nonexistent/root"])
    with pytest.raises(StartFailed, match="not an executable program"):
        Host(program="/nonexistent/fdguard")
    with pytest.raises(StartFailed, match="did not start"):
        Host(program="/bin/false")


def test_sessions_at_a_running_host_end_with_their_client(running):
    with start(f"{running.url!r}, {running.token!r}", "token") as client:
        _, *pids = client.stdout.readline().split()
        with Host(running.url, running.token) as other:
            assert len(other.sessions()) == 1
        client.kill()
    for pid in pids:
        wait_for_end(int(pid))


def test_sessions_at_a_running_host_end_with_its_object(running):
    descriptors = len(os.listdir("/proc/self/fd"))
    with Host(running.url, running.token) as host:
        pid = host.session("bash").pid
        assert host.session("bash").run("echo hi").ok and host.health().clients == 1
    wait_for_end(pid)
    with Host(running.url, running.token, tied=False) as host:
        assert host.sessions() == [] and host.health().clients == 0
        kept = host.session("bash")
    with Host(running.url, running.token, tied=False) as host:
        assert [one.id for one in host.sessions()] == [kept.id]
    kept.close()
    # The thread that read the heartbeats has closed its connection.
    for _ in range(PATIENCE * 100):
        if len(os.listdir("/proc/self/fd")) == descriptors:
            return
        time.sleep(0.01)
    raise AssertionError("descriptors left")


def test_the_default_token_and_wrong_addresses(running, monkeypatch, tmp_path):
    monkeypatch.setenv("FDGUARD_HOST_TOKEN", running.token)
    assert Host(running.url).sessions() == []
    monkeypatch.delenv("FDGUARD_HOST_TOKEN")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    (tmp_path / "fdguard").mkdir()
    (tmp_path / "fdguard" / "host.token").write_text(running.token + "\n")
    assert Host(running.url).sessions() == []
    with pytest.raises(ValueError, match="not an address"):
        Host("localhost:7878")
    with pytest.raises(ConnectionFailed, match="no answer from the host at unix:/nonexistent"):
        Host("unix:/nonexistent").health()


def test_scopes_clean_up_what_they_hold(host, tmp_path):
    root = tmp_path / "agent"
    root.mkdir()
    (root / "log.jsonl").write_text("{}\n")
    (root / "scratch").write_text("x")
    with host.scope("agent 7", str(root)) as scope:
        session = host.session("bash")
        scope.add_session(session)
        scope.add_file("log.jsonl", "archive")
        scope.add_file("scratch", "delete")
        scope.add_directory("work")
        own = subprocess.Popen(["sleep", "1000"])
        scope.add_process(own.pid, whose="lent")
        view = scope.add_program(["sh", "-c", "echo $WORD; exec sleep 1000"], log="out.log", environment={"WORD": "hi"}, role="main")
        assert [one.kind for one in view.resources][:3] == ["session", "file", "file"]
        assert [one.id for one in host.scopes()] == [scope.id] and scope.view().status == "running"
        pid = next(one.pid for one in view.resources if one.kind == "program")
    done = scope.clean_up
    assert done.success and done.errors == [] and all(one.ok for one in done.resources)
    assert {one.did for one in done.resources} >= {"archived", "deleted", "kept", "ended"}
    assert own.poll() is None
    own.kill()
    own.wait()
    wait_for_end(pid)
    assert not (root / "scratch").exists() and not (root / "log.jsonl").exists()


def test_an_agent_that_closes_its_own_scope_gets_a_ticket(host, tmp_path):
    with host.session("python", channel="pipes") as session:
        scope = host.scope("self", str(tmp_path))
        scope.add_session(session, role="main")
        code = f"import sys; sys.path[:0] = {sys.path!r}\nfrom fdguard import Host\nhost = Host({host.url!r}, {host.token!r}, tied=False)\n"
        code += f"from fdguard.host import Scope\nprint(Scope(host, host.scopes()[0]).close().ticket, flush=True)\nimport time; time.sleep(1000)"
        with session.stream(code) as stream:
            ticket = next(iter(stream)).text.strip()
            while host.ticket(ticket).state == "pending":
                assert host.ticket(ticket).scope in (scope.id, None)
            assert host.ticket(ticket).result.reason == "asked-from-inside"


def test_archive_and_calls(host, tmp_path, running):
    log = tmp_path / "a.log"
    log.write_text("one line\n")
    moved = host.archive([str(log)], str(tmp_path / "old"))
    assert moved["success"] and not log.exists()
    answer = host.call(f"{running.url}/v1/health")
    assert answer.status == 200 and b"fdguard.health/1" in answer.body
    assert host.calls() == []
    assert "fdguard_host_sessions" in host.metrics() and host.openapi()["openapi"].startswith("3.1")


def test_a_call_is_aborted_by_another_client(host):
    with socket.create_server(("127.0.0.1", 0)) as server:
        failed = []

        def work():
            try:
                host.call(f"http://127.0.0.1:{server.getsockname()[1]}/", body="x", headers={"a": "b"})
            except ProblemError as problem:
                failed.append(problem.code)

        thread = threading.Thread(target=work)
        thread.start()
        connection, _ = server.accept()
        (call,) = host.calls()
        assert host.abort_call(call.id).sockets == 1
        thread.join()
        connection.close()
    assert failed == ["aborted"]
