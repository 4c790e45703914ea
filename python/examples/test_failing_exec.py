"""The canary for failing exec: a tool that is not installed must not cost descriptors. This one passes."""

import subprocess

import pytest


def run_tool(command, log):
    """The log is closed on every path, also when there is no such program."""
    with open(log, "ab") as output:
        return subprocess.run(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output).returncode


def test_a_missing_tool_leaves_nothing(tmp_path):
    for _ in range(20):
        with pytest.raises(FileNotFoundError):
            run_tool(["no-such-tool"], tmp_path / "tool.log")


def test_popen_itself_leaves_nothing():
    for _ in range(20):
        with pytest.raises(FileNotFoundError):
            subprocess.Popen(["no-such-tool"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
