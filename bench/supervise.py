#!/usr/bin/env python3
"""What the supervisor costs, beside its peers, in one run.

The peers are measured by the script beside the project (../shared/perf/run/bench_supervisors.py), fdguard by the same steps:
a service that has been up for more than two seconds is killed by SIGKILL, and writes down when its successor started.

    bench/run supervise [runsv s6 supervisord circus monit pm2]     RUNS=7 for more or fewer kills

Exits 1 when a goal of docs/performance.md is missed.
"""
import json
import os
import pathlib
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
PEERS = ROOT.parent / "shared/perf/run/bench_supervisors.py"
FDGUARD = pathlib.Path(os.environ.get("FDGUARD", ROOT / "target/release/fdguard"))
COMMANDS = {"runsv": "runsv", "s6": "s6-supervise", "supervisord": "supervisord", "circus": "circusd", "monit": "monit", "pm2": "pm2"}
RUNS = int(os.environ.get("RUNS", "7"))
SERVICE = ROOT / "target/bench/stamp"


def stamps(path):
    """(nanoseconds, pid) of every start that is written down whole."""
    try:
        text = pathlib.Path(path).read_text()
    except FileNotFoundError:
        return []
    return [tuple(map(int, line.split())) for line in text.splitlines(True) if line.endswith("\n")]


def wait_for(path, count, seconds=40):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        seen = stamps(path)
        if len(seen) >= count:
            return seen
        time.sleep(0.0005)
    raise SystemExit(f"bench/supervise: no start number {count} within {seconds} s")


def status(pid, field):
    for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1])
    return None


def cpu_ms(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) * 1000 / os.sysconf("SC_CLK_TCK")


def alive(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


def children(pid):
    return [int(word) for task in pathlib.Path(f"/proc/{pid}/task").iterdir() for word in (task / "children").read_text().split()]


def start(folder, *words):
    stamp = os.path.join(folder, "stamps")
    if os.path.exists(stamp):
        os.unlink(stamp)
    command = [FDGUARD, "run", "--restart", "always", "--", SERVICE, stamp, *words]
    began = time.monotonic_ns()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return process, stamp, began


def killed(stamp):
    count, pid, at = len(stamps(stamp)), stamps(stamp)[-1][1], time.monotonic_ns()
    os.kill(pid, signal.SIGKILL)
    return (wait_for(stamp, count + 1)[count][0] - at) / 1e6


def ours(folder):
    process, stamp, began = start(folder)
    first = (wait_for(stamp, 1)[0][0] - began) / 1e6
    late = []
    for _ in range(RUNS):
        time.sleep(2.2)
        late.append(killed(stamp))
    quick = [killed(stamp) for _ in range(3)]
    time.sleep(1)
    used = cpu_ms(process.pid)
    time.sleep(20)
    result = {
        "first_start_ms": round(first, 1),
        "restart_ms": {"median": round(statistics.median(late), 2), "min": round(min(late), 2), "max": round(max(late), 2), "n": len(late)},
        "fast_restart_ms": [round(one, 1) for one in quick],
        "idle_cpu_ms_per_s": round((cpu_ms(process.pid) - used) / 20, 2),
        "RSS_kB": status(process.pid, "VmRSS"), "Threads": status(process.pid, "Threads"), "fds": len(os.listdir(f"/proc/{process.pid}/fd")),
        "keeper_RSS_kB": [status(pid, "VmRSS") for pid in children(process.pid)],
    }
    end(process)
    return result


def end(process):
    began = time.monotonic()
    process.send_signal(signal.SIGTERM)
    process.wait(20)
    return (time.monotonic() - began) * 1000


def left(folder):
    """What is left of a service with children after a stop, and after the supervisor itself was killed."""
    result = {}
    for how in ("after_stop", "service_outlives_killed_supervisor"):
        process, stamp, _ = start(folder, "kids")
        service = wait_for(stamp, 1)[0][1]
        pids = [service]
        while len(pids) < 3:
            pids = [service, *children(service)]
        if how == "after_stop":
            result["stop_ms"] = round(end(process), 1)
        else:
            process.kill()
            process.wait()
            deadline = time.monotonic() + 10
            while any(map(alive, pids)) and time.monotonic() < deadline:
                time.sleep(0.001)
        result[how] = sum(map(alive, pids))
    return result


def main():
    asked = sys.argv[1:] or list(COMMANDS)
    there = [name for name in asked if name in COMMANDS and shutil.which(COMMANDS[name])]
    for name in asked:
        if name not in there:
            print(f"SKIPPED {name}: not installed", file=sys.stderr)
    folder = tempfile.mkdtemp(prefix="fdguard-bench-")
    figures = {"fdguard": {**ours(folder), **left(folder)}}
    print(json.dumps({"fdguard": figures["fdguard"]}), flush=True)
    if there and not PEERS.exists():
        print("SKIPPED the peers: no scripts beside the project", file=sys.stderr)
    elif there:
        words = [sys.executable, str(PEERS), *there, "--runs", str(RUNS)]
        peers = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        for line in peers.stdout:
            print(line, end="", flush=True)
            figures.update(json.loads(line))
    shutil.rmtree(folder)
    return judge(figures)


def judge(figures):
    own = figures["fdguard"]
    median = own["restart_ms"]["median"]
    goals = [("restart after SIGKILL, ms", median, "<=", 10.0), ("resident memory, kB", own["RSS_kB"], "<=", 4096),
             ("idle, ms of processor a second", own["idle_cpu_ms_per_s"], "<=", 1.0), ("survivors of a stop", own["after_stop"], "<=", 0),
             ("survivors of a killed supervisor", own["service_outlives_killed_supervisor"], "<=", 0)]
    for peer, times, sign in (("runsv", 2.5, "<="), ("supervisord", 1 / 50, "<=")):
        figure = figures.get(peer)
        if isinstance(figure, dict) and figure.get("restart_ms"):
            goals.append((f"restart beside {peer}", round(median / figure["restart_ms"]["median"], 4), sign, times))
    met = True
    for name, value, _, bound in goals:
        holds = value is not None and value <= bound
        met &= holds
        print(f"{'met   ' if holds else 'MISSED'} {name}: {value} (goal {bound})")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
