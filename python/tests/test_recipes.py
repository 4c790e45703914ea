"""The recipes for CI systems in the guide are what those systems take, and call what our command line has."""

import pathlib
import re
import shlex
import subprocess

import pytest
import yaml

ROOT = pathlib.Path(__file__).parent.parent.parent
RECIPES = ROOT / "docs" / "examples" / "ci"
STAGES = {"pre-commit", "pre-push", "commit-msg", "manual"}
# Options of `fdguard check` that recipes may use, and whether a value follows.
CHECK = {"--annotations": True, "--sarif": True, "--junit": True, "--ready": True, "--exercise": True}


def load(name):
    # `on` is a boolean in YAML 1.1: read keys as text.
    return yaml.load((RECIPES / name).read_text(), Loader=yaml.BaseLoader)


def commands():
    """Every command that a recipe runs, with its recipe."""
    for job in load("github-actions.yml")["jobs"].values():
        yield from (("github-actions.yml", step["run"]) for step in job["steps"] if "run" in step)
    for job in load("gitlab-ci.yml").values():
        if isinstance(job, dict):
            lines = job.get("before_script", []) + job.get("script", [])
            yield from (("gitlab-ci.yml", line) for line in lines)
    for hook in hooks():
        yield ("pre-commit", hook["entry"])


def hooks():
    for repo in load("pre-commit-config.yaml")["repos"]:
        yield from repo["hooks"]
    yield from load("pre-commit-hooks.yaml")


def test_the_github_workflow_has_its_shape():
    workflow = load("github-actions.yml")
    assert set(workflow) <= {"name", "on", "permissions", "jobs", "env", "concurrency"}
    assert {"push", "pull_request"} <= set(workflow["on"])
    assert workflow["permissions"]["security-events"] == "write", "SARIF is uploaded"
    for job in workflow["jobs"].values():
        assert job["runs-on"] and int(job["timeout-minutes"]) > 0
        for step in job["steps"]:
            assert ("uses" in step) != ("run" in step), step
            assert set(step) <= {"name", "uses", "run", "with", "if", "env", "id"}, step
            assert re.fullmatch(r"[\w-]+/[\w/-]+@v\d+", step.get("uses", "a/b@v1")), step


def test_the_gitlab_pipeline_has_its_shape():
    pipeline = load("gitlab-ci.yml")
    jobs = {name: job for name, job in pipeline.items() if name not in ("stages", "variables", "default")}
    for name, job in jobs.items():
        base = jobs.get(job.get("extends"), {})
        assert job.get("stage", base.get("stage")) in pipeline["stages"], name
        if not name.startswith("."):
            assert all(isinstance(line, str) for line in job["script"]), name
            reports = job["artifacts"]["reports"]
            assert job["artifacts"]["when"] == "always" and any(reports["junit"] in line for line in job["script"]), name


def test_the_hooks_of_pre_commit_have_their_shape():
    found = list(hooks())
    assert len(found) == 3
    for hook in found:
        assert {"id", "name", "language", "entry"} <= set(hook), hook
        assert hook["language"] in ("python", "system"), hook
        assert set(hook["stages"]) <= STAGES and hook["pass_filenames"] == "false", hook


@pytest.mark.parametrize(("recipe", "command"), list(commands()))
def test_commands_are_what_our_programs_take(recipe, command):
    words = shlex.split(command)
    assert words[0] in ("fdguard", "pytest", "pip", "pipx"), recipe
    if words[0] == "pytest":
        assert "--fdguard" in words
    if words[0] != "fdguard":
        return
    assert words[1] == "check" and "--" in words
    options = words[2 : words.index("--")]
    while options:
        option = options.pop(0)
        assert option in CHECK, f"{recipe}: {option}"
        if CHECK[option]:
            assert not options.pop(0).startswith("--"), f"{recipe}: {option} needs a value"


def test_the_options_are_those_of_the_program(program):
    ended = subprocess.run([program, "check", "--help"], capture_output=True, text=True)
    if ended.returncode != 0:
        pytest.skip("this fdguard has no check yet")
    missing = [option for option in CHECK if not re.search(rf"{option}\b", ended.stdout)]
    assert not missing


def test_every_recipe_is_in_the_guide_and_every_one_there_exists():
    page = (ROOT / "docs" / "guide" / "ci.md").read_text()
    named = set(re.findall(r"\.\./examples/ci/([\w.-]+)", page))
    assert named == {path.name for path in RECIPES.iterdir()}
