"""The asyncio client does the same, and cancelling a task interrupts its command."""

import asyncio
import os

import pytest

from fdguard import AsyncHost, HostError, ProblemError


def run(test):
    return asyncio.run(asyncio.wait_for(test, 300))


def test_results_streams_and_receipts(program):
    async def test():
        async with AsyncHost(program=program) as host:
            async with host.session("bash", channel="pipes") as shell:
                result = await shell.run("echo hi; echo oh >&2; false")
                assert (result.status, result.stdout.text, result.stderr.text) == (1, "hi\n", "oh\n")
                async with shell.stream("echo a; echo b") as stream:
                    text = "".join([chunk.text async for chunk in stream])
                assert text == "a\nb\n" and (await stream.result()).ok
                assert (await shell.run("sleep 1000", timeout_ms=500)).how == "timed-out"
                assert (await shell.reset()).reason == "reset"
                assert (await shell.info()).id == shell.id
                with pytest.raises(ProblemError) as refused:
                    await host.session("cobol")
                assert refused.value.problem.status == 422
            assert shell.receipt.clean
            assert (await host.health()).sessions.open == 0 and await host.sessions() == []
            assert "fdguard" in await host.metrics() and "paths" in await host.openapi()

    descriptors = len(os.listdir("/proc/self/fd"))
    run(test())
    assert len(os.listdir("/proc/self/fd")) == descriptors


def test_sessions_run_side_by_side(program):
    async def test():
        async with AsyncHost(program=program) as host:
            shells = await asyncio.gather(*[host.session("bash", channel="pipes") for _ in range(4)])
            results = await asyncio.gather(*[shell.run(f"echo {shell.id}") for shell in shells])
            assert [one.stdout.text.strip() for one in results] == [shell.id for shell in shells]
            receipts = await asyncio.gather(*[shell.close() for shell in shells])
            assert all(one.clean for one in receipts)

    run(test())


def test_cancelling_and_interrupting(program):
    async def test():
        async with AsyncHost(program=program) as host, host.session("bash", channel="pipes") as shell:
            task = asyncio.ensure_future(shell.run("sleep 1000"))
            while (await shell.info()).busy_ms is None:
                pass
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            while (await shell.info()).busy_ms is not None:
                pass
            stream = await shell.stream("echo begun; sleep 1000")
            async for _ in stream:
                assert await shell.interrupt()
                break
            assert (await stream.result()).how == "interrupted"
            assert (await shell.run("echo on")).stdout.text == "on\n"

    run(test())


def test_scopes_and_a_running_host(running, program, tmp_path):
    async def test():
        async with AsyncHost(running.url, running.token) as host:
            shell = await host.session("bash")
            assert (await shell.run("true")).ok and (await host.health()).clients == 1
        async with AsyncHost(running.url, running.token, tied=False) as host:
            assert await host.sessions() == [] and (await host.health()).clients == 0
            answer = await host.call(f"{running.url}/v1/health", timeout_ms=60_000)
            assert answer.status == 200 and await host.calls() == []
        async with AsyncHost(program=program, options=["--root", str(tmp_path)]) as host:
            async with host.scope("agent", str(tmp_path)) as scope:
                await scope.add_session(await host.session("python"))
                await scope.add_directory("work")
                await scope.add_program(["sleep", "1000"])
                assert len((await scope.view()).resources) == 3 and len(await host.scopes()) == 1
            assert scope.clean_up.success

    run(test())


def test_a_private_host_must_be_started(program):
    async def test():
        with pytest.raises(HostError, match="await host.start"):
            await AsyncHost(program=program).health()

    run(test())
