"""The peers, each measured by its script beside the project, with its figures under our names. What is not there is skipped, and said."""
import json
import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
SCRIPTS = ROOT.parent / "shared/perf/run"
PLACE = ROOT / "target/bench"


def skipped(name, why):
    print(f"SKIPPED {name}: {why}", file=sys.stderr)


def answer(name, *words):
    """What a script printed as JSON."""
    ran = subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=600, cwd=PLACE)
    if ran.returncode:
        last = (ran.stderr.strip().splitlines() or ["without a word"])[-1]
        return skipped(name, f"its script failed: {last}")
    return ran.stdout


def interpreter():
    """Python with the packages of the peers, in a folder of its own."""
    python = PLACE / "venv/bin/python"
    packages = ["pexpect", "jupyter_client", "ipykernel"]
    if not python.exists() and subprocess.run([sys.executable, "-m", "venv", str(PLACE / "venv")]).returncode:
        return skipped("pexpect and Jupyter", "no virtual environment")
    if subprocess.run([str(python), "-c", "import " + ", ".join(packages)], capture_output=True).returncode:
        if subprocess.run([str(python), "-m", "pip", "install", "-q", *packages]).returncode:
            return skipped("pexpect and Jupyter", "their packages cannot be installed")
    return python


def pexpect():
    python = interpreter()
    said = python and answer("pexpect", python, SCRIPTS / "bench_pexpect.py", "--runs", "5")
    if not said:
        return {}
    found = json.loads(said)
    bash, other = found["bash"], found["python"]
    survive = found["grandchild_alive_after_close"]
    common = {"bash_close_ms": bash["close_ms"], "output_mb_per_s": bash["out10MB_MBps"], "descriptors_per_session": bash["fds_per_session"],
              "descriptors_left": bash["fds_after_close"], "python_close_ms": other["close_ms"], "survivors": sum(survive.values())}
    default = {**common, "bash_ready_ms": bash["spawn_ms"], "bash_exec_ms": bash["exec_default_ms"], "bash_sessions_per_s": bash["churn_per_s"],
               "python_cold_ms": other["spawn_ms"], "python_exec_ms": other["exec_default_ms"]}
    tuned = {**common, "bash_exec_ms": bash["exec_nodelay_ms"], "python_cold_ms": other["spawn_nodelay_ms"], "python_exec_ms": other["exec_nodelay_ms"]}
    return {f"pexpect {found['pexpect']}": default, "pexpect, no delay": tuned}


def jupyter():
    python = interpreter()
    said = python and answer("Jupyter", python, SCRIPTS / "bench_jupyter.py", "5")
    if not said:
        return {}
    found = json.loads(said)
    left = [value for name, value in found.items() if re.fullmatch(r"host_fds_left_after_\d+_kernels", name)]
    return {f"Jupyter (ipykernel {found['ipykernel']})": {
        "python_cold_ms": found["start_ms"], "python_exec_ms": found["exec_print1_ms"], "python_close_ms": found["shutdown_ms"],
        "output_mb_per_s": found["out10MB_MBps"], "descriptors_per_session": found["host_fds_per_kernel"], "descriptors_left": left[0],
        "survivors": sum(found["grandchild_alive_after_shutdown"].values())}}


def tmux():
    if not shutil.which("tmux") and subprocess.run(["apt-get", "install", "-y", "-qq", "tmux"], capture_output=True).returncode:
        skipped("tmux", "not installed")
        return {}
    said = answer("tmux", sys.executable, SCRIPTS / "bench_tmux.py", "7")
    if not said:
        return {}
    found = json.loads(said)
    return {found["tmux"]: {
        "bash_ready_ms": found["new_session_to_prompt_ms"], "bash_exec_ms": found["echo_roundtrip_ms"], "bash_close_ms": found["kill_session_ms"],
        "bash_sessions_per_s": found["churn_per_s"], "descriptors_per_session": found["server_fds_per_session"],
        "descriptors_left": found["server_fds_left"], "survivors": len(found["alive_after_kill_session"])}}


def spread(text, label):
    """`LABEL: median 1.00 min 1.00 max 1.00 n 5`, as the crates' program prints it."""
    found = re.search(re.escape(label) + r": median (\S+) min (\S+) max (\S+) n (\d+)", text)
    if not found:
        return None
    *figures, count = found.groups()
    return {**dict(zip(("median", "min", "max"), map(float, figures))), "n": int(count)}


def crates():
    """Three crates for terminals. Built in a folder of ours: theirs may not be written to."""
    folder = PLACE / "rustpty"
    shutil.copytree(SCRIPTS / "rustpty", folder, dirs_exist_ok=True)
    for path in [folder, *folder.rglob("*")]:
        path.chmod(path.stat().st_mode | 0o200)
    manifest = folder / "Cargo.toml"
    # It is not part of the surrounding workspace.
    manifest.write_text(manifest.read_text() + "\n[workspace]\n")
    built = subprocess.run(["cargo", "build", "-q", "--release", "--manifest-path", str(manifest)], capture_output=True, text=True)
    if built.returncode:
        skipped("the crates", f"they cannot be built: {(built.stderr.strip().splitlines() or [''])[-1]}")
        return {}
    said = answer("the crates", folder / "target/release/rustpty", "11")
    if not said:
        return {}
    figures = {}
    for part in re.split(r"(?m)^(?=\S)", said)[1:]:
        name = part.split()[0]
        counts = re.search(r"fds/session (\d+) left (\d+)", part)
        found = {"bash_ready_ms": spread(part, "spawn->prompt ms"), "bash_exec_ms": spread(part, "echo ms"),
                 "bash_close_ms": spread(part, "kill+wait+drop ms") or spread(part, "drop ms"), "output_mb_per_s": spread(part, "10MB MB/s"),
                 "bash_sessions_per_s": spread(part, "churn sessions/s"),
                 "descriptors_per_session": int(counts[1]), "descriptors_left": int(counts[2])}
        figures[name] = {key: value for key, value in found.items() if value is not None}
    return figures


def zygote():
    """What a fork of a warm interpreter costs at least, without a keeper, a driver or a proof."""
    said = answer("the bare fork", sys.executable, SCRIPTS / "bench_zygote.py")
    if not said:
        return {}
    found = json.loads(said)
    return {"bare start": {"bash_ready_ms": found["bash --norc -i (first prompt)"], "python_cold_ms": found["python -q -i (first prompt)"],
                           "python_warm_ms": found["zygote fork -> ready"]}}


PEERS = {"bare": zygote, "tmux": tmux, "crates": crates, "jupyter": jupyter, "pexpect": pexpect}


def measure(asked):
    if not SCRIPTS.is_dir():
        skipped("the peers", "no scripts beside the project")
        return
    for name in asked:
        print(f"… {name}", file=sys.stderr, flush=True)
        yield from PEERS[name]().items()
