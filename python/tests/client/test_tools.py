"""A session as a tool of a model, and the types of the package."""

import asyncio
import json
import os
import subprocess
import sys
from types import SimpleNamespace

import pytest

import fdguard
from fdguard import AsyncHost
from fdguard.tools import AsyncSessionTool, SessionTool


def test_the_definition_and_the_answer_for_the_messages_api(shell):
    tool = SessionTool(shell, name="bash")
    assert tool.anthropic()["name"] == "bash" and tool.anthropic()["input_schema"]["required"] == ["code"]
    answer = tool.anthropic_result({"type": "tool_use", "id": "t1", "name": "bash", "input": {"code": "echo hi; false"}})
    assert answer == {"type": "tool_result", "tool_use_id": "t1", "content": "hi\n[exited 1]", "is_error": False}
    wrong = tool.anthropic_result(SimpleNamespace(id="t2", input={"command": "ls"}))
    assert wrong["is_error"] and "code" in wrong["content"]


def test_the_definition_and_the_answer_for_function_calls(shell):
    tool = SessionTool(shell)
    assert tool.openai()["function"]["parameters"] == tool.openai_response()["parameters"]
    arguments = json.dumps({"code": "echo oh >&2; sleep 1000", "timeout_ms": 500})
    answer = tool.openai_result(SimpleNamespace(id="c1", function=SimpleNamespace(name="run", arguments=arguments)))
    assert answer == {"role": "tool", "tool_call_id": "c1", "content": "stderr:\noh\n[timed-out]"}
    item = tool.openai_response_result({"call_id": "c2", "arguments": "not json"})
    assert item["type"] == "function_call_output" and item["output"].startswith("error: ")


def test_long_output_is_cut_in_the_middle(shell):
    text = SessionTool(shell, longest=100).run("seq 1000")
    assert text.startswith("1\n2\n") and text.endswith("1000\n[exited 0]") and "characters left out" in text


def test_a_tool_of_langchain(shell):
    pytest.importorskip("langchain_core")
    tool = SessionTool(shell, name="bash").langchain()
    assert tool.name == "bash" and "persistent" in tool.description
    assert set(tool.args) == {"code", "timeout_ms"}
    assert tool.invoke({"code": "echo hi"}) == "hi\n[exited 0]"
    assert tool.invoke({"code": "sleep 1000", "timeout_ms": 300}) == "[timed-out]"
    call = {"type": "tool_call", "id": "l1", "name": "bash", "args": {"code": "x=3; echo $x"}}
    message = tool.invoke(call)
    assert (message.tool_call_id, message.content) == ("l1", "3\n[exited 0]")


def test_tools_for_asyncio(program):
    async def test():
        async with AsyncHost(program=program) as host, host.session("bash", channel="pipes") as shell:
            tool = AsyncSessionTool(shell, name="bash")
            assert tool.openai()["function"]["name"] == "bash"
            answer = await tool.anthropic_result({"id": "t1", "input": {"code": "echo hi; false"}})
            assert answer["content"] == "hi\n[exited 1]" and not answer["is_error"]
            message = await tool.openai_result({"id": "c1", "function": {"arguments": "[]"}})
            assert message["content"].startswith("error: ")
            item = await tool.openai_response_result({"call_id": "c2", "arguments": '{"code": "pwd"}'})
            assert item["output"].endswith("[exited 0]")

    asyncio.run(asyncio.wait_for(test(), 300))


def test_a_tool_of_langchain_for_asyncio(program):
    pytest.importorskip("langchain_core")

    async def test():
        async with AsyncHost(program=program) as host, host.session("bash", channel="pipes") as shell:
            tool = AsyncSessionTool(shell).langchain()
            assert await tool.ainvoke({"code": "echo hi"}) == "hi\n[exited 0]"

    asyncio.run(asyncio.wait_for(test(), 300))


def test_the_types_are_strict():
    pytest.importorskip("mypy")
    package = os.path.dirname(fdguard.__file__)
    assert os.path.exists(os.path.join(package, "py.typed"))
    cache = os.path.join(os.environ.get("TMPDIR", "/tmp"), "fdguard-mypy")
    # The sources: mypy does not check what is installed.
    source = os.path.join(os.path.dirname(__file__), "../../fdguard/src/fdguard")
    words = ["--strict", "--cache-dir", cache, source]
    checked = subprocess.run([sys.executable, "-m", "mypy", *words], capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout
