"""Sessions: exact results, interrupts, limits, receipts and problems."""

import threading

import pytest

import fdguard
from fdguard import CommandFailed, Limits, ProblemError, Pty, Repl


def test_a_result_is_exact(shell):
    result = shell.run("cd /tmp; echo hi; echo oh >&2; exit_with() { return 7; }; exit_with")
    assert (result.how, result.status, result.ok) == ("exited", 7, False)
    assert (result.stdout.text, result.stderr.text, result.folder) == ("hi\n", "oh\n", "/tmp")
    assert (result.number, result.earlier, result.was_reset) == (1, None, False)
    with pytest.raises(CommandFailed, match="command exited 7: oh") as failed:
        result.check()
    assert failed.value.result is result
    assert shell.run("pwd").check().stdout.text == "/tmp\n"


def test_python_keeps_its_variables_and_reports_its_end(host):
    with host.session("python", channel="pipes") as session:
        assert session.run("x = 20\nprint(x + 1)").stdout.text == "21\n"
        assert session.run("print(x * 2)").stdout.text == "40\n"
        failed = session.run("1 / 0")
        assert failed.status == 1 and "ZeroDivisionError" in failed.stderr.text
        ended = session.run("import os; os._exit(3)")
        assert (ended.how, ended.status) == ("program-ended", 3)


def test_bytes_that_are_not_text_arrive_whole_in_a_stream(shell):
    with shell.stream(r"printf 'a\xffb'") as stream:
        data = b"".join(chunk.data for chunk in stream)
    assert data == b"a\xffb"
    assert stream.result.stdout.text == "a\ufffdb" and stream.result.ok


def test_output_beyond_the_cap_is_counted(host):
    with host.session("bash", channel="pipes", output_cap=4096) as shell:
        result = shell.run("head -c 100000 /dev/zero | tr '\\0' x")
    assert result.stdout.bytes == 100000
    assert result.stdout.dropped.bytes >= 100000 - 4096 and len(result.stdout.dropped.sha256) == 64


def test_a_timeout_keeps_the_output_so_far(shell):
    result = shell.run("echo begun; sleep 1000", timeout_ms=1000)
    assert (result.how, result.status, result.stdout.text) == ("timed-out", None, "begun\n")
    assert shell.run("echo on").stdout.text == "on\n"


def test_another_thread_interrupts(shell):
    is_running, results = threading.Event(), []

    def work():
        stream = shell.stream("echo begun; sleep 1000")
        for _ in stream:
            is_running.set()
        results.append(stream.result)

    thread = threading.Thread(target=work)
    thread.start()
    assert is_running.wait(60)
    assert shell.info().busy_ms is not None
    with pytest.raises(ProblemError) as busy:
        shell.run("true")
    assert busy.value.code == "busy" and busy.value.problem.status == 409
    assert shell.interrupt() is True
    thread.join()
    assert (results[0].how, results[0].stdout.text) == ("interrupted", "begun\n")
    assert shell.interrupt() is False


def test_leaving_a_stream_interrupts_the_command(shell, tmp_path):
    with shell.stream(f"trap 'echo gone > {tmp_path}/end' INT; echo begun; sleep 1000; :") as stream:
        assert next(iter(stream)).text == "begun\n"
    # The session is usable again as soon as the command has ended.
    while True:
        try:
            assert shell.run(f"cat {tmp_path}/end").stdout.text == "gone\n"
            break
        except ProblemError as problem:
            assert problem.code == "busy"


def test_a_receipt_counts_what_is_left(host):
    with host.session("bash") as shell:
        shell.run("sleep 1000 & sleep 1000 &")
        assert [one.id for one in host.sessions()] == [shell.id]
    receipt = shell.receipt
    assert receipt.clean and (receipt.survivors, receipt.zombies, receipt.descriptors_left) == (0, 0, 0)
    assert receipt.reaped == 2 and receipt.reason == "asked"
    assert shell.close() is receipt, "closing twice gives the same receipt"
    assert host.sessions() == []


def test_reset_replaces_the_interpreter_in_its_directory(shell):
    shell.run("cd /tmp; x=1")
    assert shell.reset().reason == "reset"
    assert shell.run("echo $x; pwd").stdout.text == "\n/tmp\n"


def test_a_session_takes_all_settings(host, tmp_path):
    settings = {"folder": str(tmp_path), "environment": {"COLOUR": "red"}, "ready_within_ms": 60_000}
    with host.session("bash", channel=Pty(columns=100, rows=50), limits=Limits(descriptors=64), **settings) as shell:
        said = shell.run("echo $COLOUR; stty size; ulimit -n; pwd")
        assert said.stdout.text.split() == ["red", "50", "100", "64", str(tmp_path)]
        assert said.stderr is None, "a terminal merges both streams"
        assert shell.info().limits_kept_by.descriptors == "rlimit"


def test_any_interpreter_that_reports_its_end(host):
    template = 'eval "$(cat {file})"; printf "%s %d\\n" {nonce} $? >&{fd}\n'
    with host.session(Repl(["sh"], template), channel="pipes") as sh:
        result = sh.run("x=1; echo from sh; false")
        assert (result.status, result.stdout.text) == (1, "from sh\n")
        assert sh.run("echo $x").check().stdout.text == "1\n"


def test_a_refusal_carries_the_problem_document(host):
    with pytest.raises(ProblemError) as refused:
        host.session("cobol")
    problem = refused.value.problem
    assert (problem.status, problem.type) == (422, "urn:fdguard:problem:bad-request")
    assert problem.code == refused.value.code and problem.detail in str(refused.value)
    with pytest.raises(fdguard.HostError):
        host.abort_call("nothing")


def test_a_session_that_ended_elsewhere_closes_quietly(host):
    with host.session("bash") as shell:
        fdguard.Host(host.url, host.token, tied=False)._ask(fdguard.requests.close_session(shell.id))
    assert shell.receipt.clean, "the host remembers the receipt"
    with pytest.raises(ProblemError) as gone:
        shell.run("true")
    assert gone.value.code in ("unknown", "ended")
