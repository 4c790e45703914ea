"""The examples of the guide run as they are printed."""

import os
import re
import subprocess
import sys

import pytest

PAGE = os.path.join(os.path.dirname(__file__), "../../../docs/guide/clients.md")


def examples():
    with open(PAGE, encoding="utf-8") as file:
        return re.findall(r"```python\n(.*?)```\n\n```text\n(.*?)```", file.read(), re.DOTALL)


@pytest.mark.parametrize("code, output", examples())
def test_an_example_prints_what_the_page_says(program, code, output):
    paths = [os.path.dirname(program), os.environ["PATH"]]
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=300, env={**os.environ, "PATH": ":".join(paths)}
    )
    assert (ended.returncode, ended.stdout) == (0, output), ended.stderr


def test_all_examples_of_the_page_are_here():
    assert len(examples()) == 4
