"""Times fdguard and other tools in turns and reports which goals are met. Run by bench/run."""
import contextlib, os, shutil, statistics, subprocess, sys, tempfile, time

OUT = "target/bench"
FDGUARD = os.environ.get("FDGUARD", "target/release/fdguard")
PYTHON = os.environ.get("PSUTIL_PYTHON", "python3")  # a Python with psutil
TICK = "target/release/examples/tick"
ROUNDS = int(os.environ.get("ROUNDS", "11"))
missed = []


def once(argv):
    """Wall seconds, processor seconds, exit status of one run with its output thrown away."""
    begin = time.perf_counter()
    child = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    return time.perf_counter() - begin, usage.ru_utime + usage.ru_stime, child.returncode


def memory(argv):
    """Peak memory in KiB, by a small program that starts it: a child begins with its parent's figure."""
    text = subprocess.run(["/usr/bin/time", "-f", "%M", *argv], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True).stderr
    return int(text.split()[-1])


def race(title, commands):
    """Runs the commands in turns, so that a busy moment falls on all alike; returns median wall times."""
    times = {name: [] for name in commands}
    for command in commands.values():
        once(command.split())
    for _ in range(ROUNDS):
        for name, command in commands.items():
            wall, cpu, status = once(command.split())
            assert status in (0, 1), f"{name} ended with {status}"
            times[name].append((wall, cpu))
    print(f"\n{title} ({ROUNDS} rounds, medians)")
    medians = {name: statistics.median(w for w, _ in runs) for name, runs in times.items()}
    for name, runs in times.items():
        cpu = statistics.median(c for _, c in runs)
        print(f"  {name:38} {medians[name] * 1e3:9.1f} ms wall {cpu * 1e3:9.1f} ms cpu")
    return medians


def psutil(word):
    """A row for psutil, where it is installed."""
    command = f"{PYTHON} bench/psutil_look.py {word}"
    return {"psutil": command} if once(command.split())[2] == 0 else {}


def goal(text, value, limit, at_least=False):
    met = value >= limit if at_least else value <= limit
    if not met:
        missed.append(text)
    print(f"  {'ok  ' if met else 'MISS'} {text}: {value:.2f} (goal {'at least' if at_least else 'at most'} {limit})")


@contextlib.contextmanager
def holder(program, *words):
    """A process that holds descriptors until its input ends."""
    folder = tempfile.mkdtemp(prefix="fdguard-bench-")
    command = [f"{OUT}/{program}", *words] + (["--dir", folder] if program == "fdzoo" else [folder])
    if program == "fdzoo":
        command = [f"{OUT}/fdzoo", words[0], "--dir", folder, *words[1:]]
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        if not any(line.startswith("READY") for line in iter(child.stdout.readline, "")):
            raise RuntimeError(f"{program} did not come up")
        yield child.pid
    finally:
        child.stdin.close()
        child.wait()
        # In its own pid namespace this process is the init process and must reap orphans.
        with contextlib.suppress(ChildProcessError):
            while True:
                os.waitpid(-1, 0)
        shutil.rmtree(folder, ignore_errors=True)


def one():
    with holder("fdzoo", "19000") as pid:
        t = race("one process, 19,000 mixed descriptors", {
            "C floor + sock_diag": f"{OUT}/floor -lioS {pid}",
            "fdguard snap --json": f"{FDGUARD} snap --json {pid}",
            "fdguard snap --json --tier full": f"{FDGUARD} snap --json --tier full {pid}",
            "lsof -nP -F -p": f"lsof -nP -F -p {pid}",
            "lsfd -J -p": f"lsfd -J -p {pid}",
            **psutil(pid),
        })
        ours = t["fdguard snap --json"]
        goal("fdguard / C floor", ours / t["C floor + sock_diag"], 0.2)
        goal("lsof / fdguard", t["lsof -nP -F -p"] / ours, 10, at_least=True)
        goal("lsfd / fdguard", t["lsfd -J -p"] / ours, 10, at_least=True)
        goal("peak memory in MiB", memory([FDGUARD, "snap", "--json", str(pid)]) / 1024, 32)


def host():
    with holder("fdherd", "2000", "30"):
        t = race("2,000 processes with 30 descriptors each", {
            "C counting loop": f"{OUT}/floor --count-stat -a",
            "fdguard top --once --json": f"{FDGUARD} top --once --json",
            "C floor + sock_diag": f"{OUT}/floor -lioS -a",
            "fdguard snap --all --json": f"{FDGUARD} snap --all --json",
            "fdguard snap --all --tier full": f"{FDGUARD} snap --all --json --tier full",
            "lsof -nP": "lsof -nP",
            "lsof -nP -F": "lsof -nP -F",
            "lsfd -J": "lsfd -J",
            **psutil("all"),
        })
        radar, every = t["fdguard top --once --json"], t["fdguard snap --all --json"]
        goal("top / C counting loop", radar / t["C counting loop"], 2)
        goal("lsof -nP / top", t["lsof -nP"] / radar, 100, at_least=True)
        goal("lsof -nP -F / snap --all", t["lsof -nP -F"] / every, 20, at_least=True)
        goal("lsfd -J / snap --all", t["lsfd -J"] / every, 4, at_least=True)


def postgres():
    """A real server: PostgreSQL with fifty connections."""
    where = shutil.which("initdb") or next(iter(sorted(__import__("glob").glob("/usr/lib/postgresql/*/bin/initdb"))), None)
    if where is None:
        print("SKIPPED: PostgreSQL is not installed", file=sys.stderr)
        return
    programs = os.path.dirname(os.path.realpath(where))
    folder = tempfile.mkdtemp(prefix="fdguard-pg-")
    shutil.chown(folder, "postgres", "postgres")
    user = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups", "env", f"HOME={folder}"]
    quiet = dict(stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=folder)
    data, port = f"{folder}/data", "15432"
    subprocess.run([*user, f"{programs}/initdb", "-D", data, "-A", "trust", "-N"], check=True, **quiet)
    server = subprocess.Popen([*user, f"{programs}/postgres", "-D", data, "-k", folder, "-p", port, "-c", "fsync=off"], **quiet)
    try:
        ready = [*user, f"{programs}/pg_isready", "-q", "-t", "1", "-h", folder, "-p", port]
        until = time.time() + 60
        while subprocess.run(ready, **quiet).returncode != 0:
            assert time.time() < until, "PostgreSQL did not come up"
        bench = [*user, f"{programs}/pgbench", "-h", folder, "-p", port, "postgres"]
        subprocess.run([*bench, "-i"], check=True, **quiet)
        load = subprocess.Popen([*bench, "-n", "-S", "-c", "50", "-R", "20", "-T", "600"], **quiet)
        while len(names := subprocess.run(["pgrep", "-x", "postgres"], capture_output=True, text=True).stdout.split()) < 50:
            assert time.time() < until, "the connections did not come up"
        t = race(f"PostgreSQL, {len(names)} processes", {
            "C floor + sock_diag": f"{OUT}/floor -lioS {' '.join(names)}",
            "fdguard snap --json": f"{FDGUARD} snap --json {' '.join(names)}",
            "lsof -nP -F -p": f"lsof -nP -F -p {','.join(names)}",
            "lsfd -J -p": f"lsfd -J -p {','.join(names)}",
        })
        ours = t["fdguard snap --json"]
        print(f"  fdguard / C floor {ours / t['C floor + sock_diag']:.2f}, lsof / fdguard {t['lsof -nP -F -p'] / ours:.2f}, "
              f"lsfd / fdguard {t['lsfd -J -p'] / ours:.2f}")
        load.terminate()
        load.wait()
    finally:
        server.terminate()
        server.wait()
        shutil.rmtree(folder, ignore_errors=True)


def tick():
    def run(*words):
        line = subprocess.run([TICK, *map(str, words)], capture_output=True, text=True, check=True).stdout.strip()
        print("  " + line)
        return {k: float(v) for k, v in (word.split("=") for word in line.split())}
    print("\nwatching one process with 10,000 descriptors")
    with holder("fdzoo", "10000", "--quiet") as pid:
        still = run(pid, 200000, 0)
        goal("µs of CPU for a tick that changes nothing", still["cpu_us_per_tick"], 5)
    with holder("fdzoo", "10000", "--quiet", "--leak-ms", "500") as pid:
        leaking = run(pid, 20, 1)
        goal("descriptors looked at per tick, leaking two a second", leaking["looked_at"] / leaking["ticks"], 3)
        goal("percent of a core, leaking two a second", leaking["cpu_percent"], 2.5)


def running(pid):
    """Nanoseconds that a process has run, by the scheduler's own count, all of its threads."""
    return sum(int(open(f"/proc/{pid}/task/{task}/schedstat").read().split()[0]) for task in os.listdir(f"/proc/{pid}/task"))


def share(pid, seconds=30):
    """Percent of one core that `fdguard watch` takes at one look a second, once it has settled."""
    child = subprocess.Popen([FDGUARD, "watch", str(pid), "--every", "1s", "--json"], stdout=subprocess.DEVNULL)
    try:
        time.sleep(5)
        before, begin = running(child.pid), time.perf_counter()
        time.sleep(seconds)
        after, end = running(child.pid), time.perf_counter()
        resident = [line for line in open(f"/proc/{child.pid}/status") if line.startswith("VmHWM")][0].split()[1]
        return 100 * (after - before) / 1e9 / (end - begin), int(resident)
    finally:
        child.terminate()
        child.wait()


CHURN = """
import os, sys, time
keep = [os.open("/dev/null", os.O_RDONLY) for _ in range(int(sys.argv[1]))]
print("READY", flush=True)
while True:
    for i in range(len(keep)):
        os.close(keep[i])
        keep[i] = os.open(f"/proc/self/{('stat', 'status', 'maps', 'limits')[(i + int(time.time() * 4)) % 4]}", os.O_RDONLY)
"""


def watch():
    """The whole command, watching 10,000 descriptors once a second."""
    print("\nfdguard watch --every 1s, 10,000 descriptors")
    with holder("fdzoo", "10000", "--quiet") as pid:
        percent, kib = share(pid)
        goal("percent of a core when nothing changes", percent, 0.1)
        goal("MiB", kib / 1024, 16)
    with holder("fdzoo", "10000", "--quiet", "--leak-ms", "500") as pid:
        goal("percent of a core when two a second leak", share(pid)[0], 2.5)
    churn = subprocess.Popen([sys.executable, "-c", CHURN, "10000"], stdout=subprocess.PIPE, text=True)
    churn.stdout.readline()
    listing = statistics.median(once([f"{OUT}/floor", "-lioS", str(churn.pid)])[1] for _ in range(ROUNDS))
    percent = share(churn.pid)[0]
    churn.kill()
    churn.wait()
    print(f"  one full listing in C takes {listing * 1e3:.1f} ms of CPU")
    goal("C listings a second when everything churns", percent / 100 / listing, 1)


def month():
    """Peak memory after a month of one look a second, made up and replayed."""
    print("\na month of one look a second: 10,000 descriptors, two replaced a second, one lost every ten minutes")
    command = f"target/release/examples/month 30 | /usr/bin/time -f %M {FDGUARD} watch --from - --json"
    begin = time.perf_counter()
    run = subprocess.run(command, shell=True, capture_output=True, text=True)
    said = run.stdout.split('"verdict":')[1].split(",")[0]
    print(f"  replayed in {time.perf_counter() - begin:.0f} s, verdict {said}")
    goal("MiB at its peak", int(run.stderr.split()[-1]) / 1024, 16)


if __name__ == "__main__":
    sections = {"one": one, "host": host, "postgres": postgres, "tick": tick, "watch": watch, "month": month}
    for name in sys.argv[1:] or sections:
        sections[name]()
    print(f"\n{len(missed)} goals missed" + "".join(f"\n  {text}" for text in missed))
    sys.exit(1 if missed else 0)
