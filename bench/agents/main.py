#!/usr/bin/env python3
"""What sessions of agents cost, beside their peers, in one run.

fdguard is measured twice: in the process itself (the example session_bench, which also measures archives and aborts) and as the real `fdguard host` over
HTTP. The peers are measured by the scripts beside the project (../shared/perf/run).

    bench/run agents [none|bare|tmux|crates|jupyter|pexpect ...]

Prints a table of medians; the whole with least, most and counts goes to target/bench/agents.json. Exits 1 when a goal of docs/performance.md is missed.
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import over_http
import peers

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
FDGUARD = pathlib.Path(os.environ.get("FDGUARD", ROOT / "target/release/fdguard"))
EXAMPLE = ROOT / "target/release/examples/session_bench"
OURS, HTTP = "fdguard", "fdguard host, HTTP"

# Figure, where it is measured, the bound, and its kind.
GOALS = [
    ("bash_ready_ms", OURS, 4.0, "most"), ("bash_exec_ms", OURS, 0.3, "most"), ("bash_exec_ms", HTTP, 1.0, "most"),
    ("bash_close_ms", OURS, 10.0, "most"), ("bash_close_ms", HTTP, 10.0, "most"), ("bash_sessions_per_s", OURS, 150.0, "least"),
    ("output_mb_per_s", OURS, 50.0, "least"), ("output_memory_growth_mib", OURS, 8.0, "most"), ("output_memory_growth_mib", HTTP, 8.0, "most"),
    ("descriptors_per_session", OURS, 2, "most"), ("descriptors_per_session", HTTP, 2, "most"),
    ("descriptors_left", OURS, 0, "exactly"), ("descriptors_left", HTTP, 0, "exactly"), ("survivors", HTTP, 0, "most"),
    ("python_cold_ms", OURS, 70.0, "most"), ("python_warm_ms", OURS, 5.0, "most"),
    ("archive_ms", OURS, 5.0, "most"), ("abort_wake_ms", OURS, 1.0, "most"),
]


def in_process():
    ran = subprocess.run([EXAMPLE, FDGUARD], stdout=subprocess.PIPE, text=True, check=True)
    figures = {}
    for line in ran.stdout.splitlines():
        figure = json.loads(line)
        figures[figure.pop("name")] = figure
    figures["python_exec_ms"] = figures["python_warm_exec_ms"]
    figures["python_close_ms"] = figures["python_warm_close_ms"]
    return figures


def number(figure):
    return figure["median"] if isinstance(figure, dict) else figure


def shown(figure):
    if figure is None:
        return ""
    value = number(figure)
    return f"{value:.0f}" if value >= 100 or value == int(value) else f"{value:.3g}"


def table(run):
    """Figures down, programs across."""
    names = ["bash_ready_ms", "bash_exec_ms", "bash_close_ms", "bash_sessions_per_s", "output_mb_per_s", "output_memory_growth_mib",
             "python_cold_ms", "python_warm_ms", "python_exec_ms", "python_close_ms", "descriptors_per_session", "descriptors_left", "survivors",
             "archive_ms", "archive_with_disk_ms", "abort_wake_ms"]
    print("| | " + " | ".join(run) + " |\n|" + " --- |" * (len(run) + 1))
    for name in names:
        print(f"| {name} | " + " | ".join(shown(figures.get(name)) for figures in run.values()) + " |")


def judge(run):
    met = True
    for name, where, bound, how in GOALS:
        value = run[where].get(name)
        value = None if value is None else number(value)
        holds = value is not None and {"most": value <= bound, "least": value >= bound, "exactly": value == bound}[how]
        met &= holds
        print(f"{'met   ' if holds else 'MISSED'} {name} of {where}: {value} (goal: {how} {bound})")
    return 0 if met else 1


def main():
    asked = sys.argv[1:] or list(peers.PEERS)
    asked = [] if asked == ["none"] else asked
    unknown = [name for name in asked if name not in peers.PEERS]
    if unknown:
        raise SystemExit(f"bench/agents: no peer is called {unknown[0]}: none, {', '.join(peers.PEERS)}")
    # Use the same Python for all, and the interpreter itself: a version manager's wrapper script
    # would take longer to start than the interpreter.
    os.environ["PATH"] = os.path.dirname(os.path.realpath(sys.executable)) + os.pathsep + os.environ["PATH"]
    load = [os.getloadavg()[0]]
    run = {OURS: in_process()}
    with tempfile.TemporaryDirectory(prefix="fdguard-bench-") as folder:
        over = over_http.measure(str(FDGUARD), folder)
    over["python_exec_ms"], over["python_close_ms"] = over["python_warm_exec_ms"], over["python_warm_close_ms"]
    run[HTTP] = over
    for name, figures in peers.measure(asked):
        run[name] = figures
    load.append(os.getloadavg()[0])
    whole = {"cores": os.cpu_count(), "kernel": os.uname().release, "load_average_before_and_after": load, "figures": run}
    (ROOT / "target/bench/agents.json").write_text(json.dumps(whole, indent=1))
    table(run)
    print(f"load average before and after: {load[0]:.1f}, {load[1]:.1f}; everything: target/bench/agents.json")
    return judge(run)


if __name__ == "__main__":
    sys.exit(main())
