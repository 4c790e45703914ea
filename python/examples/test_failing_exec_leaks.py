"""The same canary over a launcher that forgets its pipe when exec fails. This one fails, with the line of os.pipe()."""

import os
import subprocess

import pytest


def start_tool(command):
    reader, writer = os.pipe()
    tool = subprocess.Popen(command, stdout=writer)  # raises, and nobody closes the two ends
    os.close(writer)
    return tool, reader


def test_a_missing_tool_leaves_nothing():
    for _ in range(20):
        with pytest.raises(FileNotFoundError):
            start_tool(["no-such-tool"])
