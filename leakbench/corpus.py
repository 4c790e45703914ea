"""What `score` and `compare` share: what a case needs, how it is built and run, and names of classes."""
import atexit
import fcntl
import os
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile

QUIET = ("clean", "bounded", "load")
NAMES = {"unix-socket": "unix", "deleted-file": "deleted", "socket:unbound": "tcp:UNBOUND", "pty-slave": "tty"}

LANGUAGES = {"c": ["gcc"], "c++": ["g++"], "elixir": ["elixir"], "go": ["go"], "java": ["java", "javac"],
             "node": ["node"], "perl": ["perl"], "php": ["php"], "python": ["python3"], "ruby": ["ruby"],
             "rust": ["rustc"]}


def cache(variable, name):
    """The directory that `setup` fills: a variable of the environment, or its place in the cache."""
    home = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    return pathlib.Path(os.environ.get(variable) or pathlib.Path(home, "leakbench", name))


def has_pip(requirement):
    name, _, version = requirement.partition("==")
    wanted = re.sub(r"[-_.]+", "_", name).lower()
    for info in cache("LB_VENV", "venv").glob("lib/python*/site-packages/*.dist-info"):
        found, _, number = info.name[:-len(".dist-info")].rpartition("-")
        if re.sub(r"[-_.]+", "_", found).lower() == wanted and version in ("", number):
            return True
    return False


def has_npm(requirement):
    name = requirement.rsplit("@", 1)[0] if "@" in requirement[1:] else requirement
    return (cache("LB_BUILD", "build") / "node/node_modules" / name / "package.json").is_file()


def expand(path):
    """A path of case.json: `${NAME:-default}` is as in a shell."""
    return re.sub(r"\$\{(\w+):-([^}]*)\}", lambda m: os.environ.get(m[1]) or m[2], path)


def missing(case):
    """The names of what is missing, in words that an error line can end with."""
    setup = case.get("setup", {})
    commands = dict.fromkeys(LANGUAGES.get(case["language"], []) + setup.get("commands", []))
    out = [c for c in commands if not shutil.which(c)]
    out += [f"{p} (pip)" for p in setup.get("pip", []) if not has_pip(p)]
    out += [f"{p} (npm)" for p in setup.get("npm", []) if not has_npm(p)]
    out += [expand(f) for f in case.get("files", []) if not pathlib.Path(expand(f)).exists()]
    return out


def canon(c):
    return NAMES.get(c, c)


def environment(case, seconds):
    """What a run of the case gets; its work directory is removed when this program ends."""
    work = tempfile.mkdtemp(prefix="leakbench-")
    atexit.register(shutil.rmtree, work, ignore_errors=True)
    env = dict(os.environ, LB_SECONDS=str(seconds), LB_WORK=work)
    if case.get("cycles_per_second"):
        env["LB_RATE"] = str(case["cycles_per_second"])
    return env


def prepare(folder):
    """Do what the case's start does up to its last line, which is `exec`: build the program if it is older than its source."""
    build = cache("LB_BUILD", "build")
    build.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="leakbench-") as work, open(build / f".lock-{folder.name}", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        r = subprocess.run(["bash", "-c", 'exec() { exit 0; }; . "$1"', "bash", str(folder / "start")],
                           env=dict(os.environ, LB_WORK=work), stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if r.returncode:
        raise RuntimeError(f"not built: {r.stderr.strip()[-160:]}")


def finish(proc, limit):
    try:
        proc.wait(limit)
    except subprocess.TimeoutExpired:
        proc.send_signal(signal.SIGTERM)
        try:
            proc.wait(5)
        except subprocess.TimeoutExpired:
            proc.kill()


def at(place, want):
    """Does a reported place name the expected file and line?"""
    return bool(place) and bool(want) and pathlib.PurePath(str(place.get("file"))).name == want["file"] \
        and place.get("line") == want["line"]
