"""The official MCP client against `fdguard host`: everything that a real client does, asserted.

    mcp_client.py stdio FDGUARD          starts the host itself
    mcp_client.py http URL TOKEN         asks a host that runs
    mcp_client.py hang FDGUARD           starts a command that never ends, says "hanging PID", and waits to be killed
"""

import asyncio
import os
import socket
import sys
import tempfile
import time

import httpx2
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client


def text(result):
    assert result.content[0].type == "text", result
    return result.content[0].text


async def call(client, tool, arguments=None, **more):
    return await client.call_tool(tool, arguments or {}, **more)


async def lists_tools(client):
    tools = {tool.name: tool for tool in (await client.list_tools()).tools}
    assert {"python", "bash", "interrupt", "reset", "snap", "watch", "doctor", "trace", "check"} <= set(tools), tools
    for name, tool in tools.items():
        hints = tool.annotations
        assert tool.description and hints.title, name
        assert hints.read_only_hint is (name in ("snap", "watch", "doctor", "why")), name
        assert hints.destructive_hint is (name in ("python", "bash", "reset", "archive", "trace", "check")), name
        assert tool.input_schema["type"] == "object", name


async def python_keeps_state(client):
    first = await call(client, "python", {"code": "import os\nx = 41\ny = os.getpid()"})
    assert not first.is_error and first.structured_content["schema"] == "fdguard.exec/1", first
    assert first.structured_content["outcome"] == {"how": "exited", "status": 0}, first
    assert text(await call(client, "python", {"code": "print(x + 1)"})).startswith("42\n[exit status 0, ")
    wrong = await call(client, "python", {"code": "1/0"})
    assert "ZeroDivisionError" in text(wrong) and "[exit status 1, " in text(wrong), wrong
    assert not wrong.is_error


async def bash_tells_status_and_errors(client):
    shown = await call(client, "bash", {"command": "cd /; echo out; echo err >&2; (exit 7)"})
    assert "out" in text(shown) and "err" in text(shown), shown
    assert text(shown).splitlines()[-1].startswith("[exit status 7, "), shown
    assert shown.structured_content["outcome"]["status"] == 7, shown
    assert text(await call(client, "bash", {"code": "pwd"})).startswith("/\n")


async def a_timeout_leaves_the_session(client):
    late = await call(client, "python", {"code": "import time\ntime.sleep(60)", "timeout_ms": 300})
    assert late.is_error and late.structured_content["outcome"]["how"] == "timed-out", late
    assert text(late).splitlines()[-1].startswith("[timed out: "), late
    assert text(await call(client, "python", {"code": "print(x)"})).startswith("41\n")


async def begun(sign):
    """Waits for the file that a command makes when it begins."""
    deadline = time.monotonic() + 20
    while not os.path.exists(sign):
        assert time.monotonic() < deadline, "the command did not begin"
        await asyncio.sleep(0.02)
    os.remove(sign)


def new_sign():
    return os.path.join(tempfile.gettempdir(), f"fdguard-mcp-{os.getpid()}-{time.monotonic_ns()}")


async def an_interrupt_reaches_what_runs(client):
    sign = new_sign()
    code = f"for i in range(3): print(i, flush=True)\nopen({sign!r}, 'w').close()\ntime.sleep(60)"
    running = asyncio.create_task(call(client, "python", {"code": code}))
    await begun(sign)
    busy = await call(client, "python", {"code": "pass"})
    assert busy.is_error and "is busy" in text(busy), busy
    # The other session is free all the while.
    assert text(await call(client, "bash", {"command": "echo free"})).startswith("free\n")
    told = await call(client, "interrupt", {"tool": "python"})
    assert told.structured_content["was_running"] is True, told
    done = await running
    assert done.structured_content["outcome"]["how"] == "interrupted", done
    assert text(done).startswith("0\n1\n2\n"), done
    assert text(await call(client, "python", {"code": "print(x)"})).startswith("41\n")
    nothing = await call(client, "interrupt", {"tool": "python"})
    assert nothing.structured_content["was_running"] is False, nothing


async def a_cancelled_call_is_interrupted(client):
    sign = new_sign()
    running = asyncio.create_task(call(client, "bash", {"command": f"touch {sign}; sleep 61"}))
    await begun(sign)
    running.cancel()
    try:
        await running
    except asyncio.CancelledError:
        pass
    deadline = time.monotonic() + 20
    while True:
        after = await call(client, "bash", {"command": "echo after"})
        if not after.is_error:
            break
        assert "is busy" in text(after) and time.monotonic() < deadline, after
        await asyncio.sleep(0.02)
    assert text(after).startswith("after\n"), after


async def output_is_told_while_it_runs(client):
    told = []

    async def hear(progress, _total, message):
        told.append((progress, message))

    command = "for i in 1 2 3 4 5; do echo line $i; sleep 0.2; done"
    done = await call(client, "bash", {"command": command}, progress_callback=hear)
    assert not done.is_error, done
    assert told and "line 1" in "".join(message for _, message in told), told
    counts = [progress for progress, _ in told]
    assert counts == sorted(set(counts)), told


async def a_reset_forgets(client):
    await call(client, "bash", {"command": "sleep 1000 & kept=1"})
    receipt = await call(client, "reset", {"tool": "bash"})
    assert receipt.structured_content["survivors"] == 0, receipt
    assert text(await call(client, "bash", {"command": "echo [$kept]; jobs"})).startswith("[]\n[exit")
    ended = await call(client, "bash", {"command": "exit 4"})
    assert ended.is_error and ended.structured_content["outcome"] == {"how": "program-ended", "status": 4}, ended
    anew = await call(client, "bash", {"command": "echo anew"})
    assert "new session" in text(anew) and "anew\n" in text(anew), anew


async def much_output_is_cut_and_said(client):
    much = await call(client, "python", {"code": "print('begin'); print('x' * 3_000_000); print('end')"})
    stdout = much.structured_content["stdout"]
    assert stdout["bytes"] > 3_000_000 and stdout["dropped"]["bytes"] > 2_900_000, stdout["dropped"]
    assert len(text(much)) < 100_000 and text(much).startswith("begin"), len(text(much))
    assert "bytes omitted from the middle]" in text(much).splitlines()[-1]
    assert "end" in text(much)[-300:]


async def wrong_calls_are_one_line(client):
    for tool, arguments in [
        ("python", {}),
        ("python", {"code": "1", "more": 1}),
        ("bash", {"command": "true", "timeout_ms": 0}),
        ("reset", {"tool": "perl"}),
        ("snap", {"pid": 4194304}),
        ("watch", {"seconds": 0}),
    ]:
        refused = await call(client, tool, arguments)
        assert refused.is_error and len(text(refused).splitlines()) == 1, refused
    try:
        await call(client, "nonsense")
    except Exception as error:
        assert "nonsense" in str(error), error
    else:
        raise AssertionError("there is no such tool")


async def descriptors(client):
    seen = await call(client, "snap")
    assert seen.structured_content["schema"] == "fdguard.snapshot/1", seen
    return seen.structured_content["count"]


async def the_host_is_seen_and_stays_small(client):
    await call(client, "python", {"code": "pass"})
    await call(client, "bash", {"command": "true"})
    before = await descriptors(client)
    assert before > 5, before
    for number in range(25):
        await call(client, "python", {"code": f"print({number})"})
        await call(client, "bash", {"command": "ls / | wc -l"})
    # A look itself holds up to eight for a moment, and a connection of ours may come or go; fifty
    # calls that leak would be more.
    after = await descriptors(client)
    assert after <= before + 9, (before, after)
    judged = await call(client, "watch", {"seconds": 1})
    assert judged.structured_content["schema"] == "fdguard.diagnosis/1", judged.structured_content["schema"]
    examined = await call(client, "doctor", {"seconds": 1})
    assert examined.structured_content["schema"].startswith("fdguard."), examined


LEAKY = """import socket, sys
kept = []
server = socket.create_server(("127.0.0.1", int(sys.argv[1])))
while True:
    kept.append(open("/etc/passwd"))
    server.accept()[0].close()
"""


async def a_fix_is_proven(client):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    connect = f"import socket; socket.create_connection(('127.0.0.1', {port})).recv(1)"
    exercise = {"exercise": f'{sys.executable} -c "{connect}"', "ready": f"tcp:{port}", "cycles": 10, "seconds": 200}

    async def check(code):
        # The client itself validates the result against the schema that the tool declares.
        return await call(client, "check", {"command": [sys.executable, "-c", code, str(port)], **exercise})

    failed = await check(LEAKY)
    assert failed.structured_content, failed
    assert failed.structured_content["check"]["passed"] is False, failed
    assert len(text(failed).splitlines()) < 20 and text(failed).startswith("check failed"), failed
    passed = await check(LEAKY.replace("kept.append(open(\"/etc/passwd\"))", "pass"))
    assert passed.structured_content["check"]["passed"] is True, passed
    assert passed.structured_content["run"]["status"] == 0, passed


CASES = [
    lists_tools,
    python_keeps_state,
    bash_tells_status_and_errors,
    a_timeout_leaves_the_session,
    an_interrupt_reaches_what_runs,
    a_cancelled_call_is_interrupted,
    output_is_told_while_it_runs,
    a_reset_forgets,
    much_output_is_cut_and_said,
    wrong_calls_are_one_line,
    the_host_is_seen_and_stays_small,
    a_fix_is_proven,
]


async def all_cases(client):
    for case in CASES:
        begin = time.monotonic()
        await case(client)
        print(f"ok {case.__name__} {time.monotonic() - begin:.1f} s", flush=True)


def host(fdguard):
    return StdioServerParameters(command=fdguard, args=["host", "--mcp"])


async def stdio(fdguard):
    async with Client(host(fdguard)) as client:
        await all_cases(client)


async def http(url, token):
    headers = {"Authorization": f"Bearer {token}"}
    async with httpx2.AsyncClient(headers=headers, timeout=60) as web:
        async with Client(streamable_http_client(url, http_client=web)) as client:
            await all_cases(client)
            async with Client(streamable_http_client(url, http_client=web)) as other:
                missing = await call(other, "python", {"code": "print(x)"})
                assert "NameError" in text(missing), "each client has its own session"


async def hang(fdguard):
    async with Client(host(fdguard)) as client:
        shown = await call(client, "bash", {"command": "echo $PPID"})
        sign = new_sign()
        command = f"sleep 1000 & touch {sign}; sleep 1001"
        running = asyncio.create_task(call(client, "bash", {"command": command}))
        await begun(sign)
        print("hanging", int(text(shown).splitlines()[0]), flush=True)
        await running


asyncio.run(globals()[sys.argv[1]](*sys.argv[2:]))
