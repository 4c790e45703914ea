"""The wheels, as installed: the command, its version, and that the plugin does without it."""

import importlib.metadata
import subprocess


def test_the_wheel_gives_the_command(program):
    said = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout
    assert said.split() == ["fdguard", importlib.metadata.version("fdguard")]
    helped = subprocess.run([program, "trace", "--help"], capture_output=True, text=True, check=True).stdout
    assert "--report" in helped


def test_the_wheel_is_for_linux_and_any_python():
    tags = importlib.metadata.distribution("fdguard").read_text("WHEEL")
    assert "Tag: py3-none-linux_" in tags or "Tag: py3-none-manylinux" in tags


def test_the_plugin_is_pure_and_takes_the_program_only_where_lines_are_wanted():
    plugin = importlib.metadata.distribution("pytest-fdguard")
    assert "Tag: py3-none-any" in plugin.read_text("WHEEL")
    needs = [one for one in plugin.requires if "extra" not in one]
    assert len(needs) == 1 and needs[0].startswith("pytest"), needs
    assert any(one.startswith("fdguard") and "lines" in one for one in plugin.requires)
    assert plugin.version == importlib.metadata.version("fdguard"), "both are released together"
