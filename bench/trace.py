"""What tracing costs a program, beside its peers: processor time of the program itself, in turns. Run through `bench/run trace`;
what protection costs, through `bench/run protect`."""
import glob, os, re, resource, shutil, subprocess, sys, time

HERE = os.path.dirname(os.path.abspath(__file__))
OUT = "target/bench"
ROUNDS = int(os.environ.get("ROUNDS", "7"))
BINARY = os.environ.get("FDGUARD", "target/release/fdguard")
FDGUARD = [BINARY, "trace", "-o", "/dev/null", "--"]
CHECK = [BINARY, "check", "-o", "/dev/null", "--"]
PROTECT = [BINARY, "run", "--once", "--protect", "--"]
# A check costs the same as a trace, except for noise.
SAME = 1.05
# The baseline for the ratios.
BASE = "alone"
# For each tool: the words before the command, and the factor by which its rounds are shorter than
# those of the program alone.
TOOLS = {
    BASE: ([], 1),
    "fdguard trace": (FDGUARD, 1),
    "fdguard check": (CHECK, 1),
    "fdguard run --protect": (PROTECT, 1),
    "strace -f -e %desc": (["strace", "-f", "-qq", "-o", "/dev/null", "-e", "trace=%desc"], 20),
    "strace -f --seccomp-bpf": (["strace", "-f", "-qq", "-o", "/dev/null", "--seccomp-bpf", "-e", "trace=openat,socket,accept4,close"], 20),
    "strace -f -k": (["strace", "-f", "-qq", "-k", "-o", "/dev/null", "-e", "trace=%desc"], 100),
    "valgrind none --track-fds": (["valgrind", "-q", "--tool=none", "--track-fds=yes", "--log-file=/dev/null"], 20),
    "valgrind memcheck --track-fds": (["valgrind", "-q", "--track-fds=yes", "--log-file=/dev/null"], 20),
}
PROBE = (
    "tracepoint:syscalls:sys_exit_openat,tracepoint:syscalls:sys_exit_socket /comm == \"%s\"/ { @[ustack(16)] = count(); } "
    "tracepoint:syscalls:sys_enter_close /comm == \"%s\"/ { @closed[ustack(16)] = count(); }"
)
SLOW_ROUNDS = 2
missed = []


def python():
    found = sorted(glob.glob(os.path.expanduser("~/.pyenv/versions/3.11.*/bin/python3.11")))
    return found[-1] if found else "python3"


def is_there(tool):
    words = TOOLS[tool][0]
    return not words or "/" in words[0] or shutil.which(words[0])


def run(words, command, count):
    """Nanoseconds of the program's turns by its own clock, and of everything, the tool with it."""
    child = subprocess.Popen([*words, *command, str(count)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    text = child.stderr.read()
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    said = re.search(r"SPENT (\d+)", text)
    assert said, f"{words}: {text[-500:]}"
    return int(said[1]), (usage.ru_utime + usage.ru_stime) * 1e9


def loop(words, command, count):
    """Nanoseconds that one turn took the program, and the program with the tool, without their start."""
    own, everything = run(words, command, count)
    start = run(words, command, 1)[1] if words[:1] != ["valgrind"] else everything
    return own / count, (everything - start) / count


def turns(title, command, count, tools):
    """The least that a turn cost with each tool."""
    best = {}
    for number in range(ROUNDS):
        for tool in tools:
            words, shorter = TOOLS[tool]
            if number >= (ROUNDS if shorter == 1 else SLOW_ROUNDS if shorter < 100 else 1):
                continue
            costs = loop(words, command, max(count // shorter, 20))
            best[tool] = tuple(map(min, costs, best.get(tool, costs)))
    print(f"\n{title} (least of {ROUNDS} rounds, {SLOW_ROUNDS} of the slow tools, 1 of the slowest; processor time)")
    print(f"  {'':32} {'the program':>15} {'':>9} {'with the tool':>15}")
    for tool, costs in best.items():
        # valgrind and the program are one process.
        row(tool, costs[: 1 if tool.startswith("valgrind") else 2], best[BASE])
    return {tool: own for tool, (own, _) in best.items()}


def row(tool, costs, base):
    texts = (f"{cost / 1e3:9.2f} µs {cost / alone:9.2f}" for cost, alone in zip(costs, base))
    print(f"  {tool:32}    {'    '.join(texts)}")


def goal(text, value, limit):
    if value > limit:
        missed.append(text)
    print(f"  {'ok  ' if value <= limit else 'MISS'} {text}: {value:.2f} (goal at most {limit})")


def clock_of(pid):
    """Nanoseconds that a process has run, all of its threads: the clock id of another process, clock_getcpuclockid(3)."""
    return time.clock_gettime_ns((~pid << 3) | 2)


class Server:
    """A program that says READY, its pid and its port on stderr."""

    def __init__(self, words, **more):
        self.child = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, **more)
        for line in self.child.stderr:
            if line.startswith("READY"):
                self.pid, self.port = map(int, line.split()[1:])
                return
        raise RuntimeError(f"{words} did not come up")

    def end(self):
        # The tool ends with the program; a tool that survives it is ended, too.
        subprocess.run(["kill", str(self.pid)], stderr=subprocess.DEVNULL)
        try:
            self.child.communicate(timeout=20)
        except subprocess.TimeoutExpired:
            self.child.kill()
            self.child.communicate()


def requests(server, seconds):
    """Nanoseconds of the server for each request that wrk made."""
    before = clock_of(server.pid)
    said = subprocess.run(["wrk", "-t1", "-c16", f"-d{seconds}s", f"http://127.0.0.1:{server.port}/"], capture_output=True, text=True).stdout
    after = clock_of(server.pid)
    return (after - before) / int(re.search(r"(\d+) requests in", said)[1])


def served(title, command, tools, rounds=None):
    """The least that a request cost with each tool: all servers run, one is asked at a time."""
    best, servers = {}, {}
    try:
        for tool in tools:
            servers[tool] = Server([*TOOLS[tool][0], *command])
            requests(servers[tool], 1)
        for _ in range(rounds or ROUNDS):
            for tool, server in servers.items():
                cost = requests(server, 2)
                best[tool] = min(best.get(tool, cost), cost)
    finally:
        for server in servers.values():
            server.end()
    print(f"\n{title} (least of {rounds or ROUNDS} rounds, processor time of the server)")
    for tool, cost in best.items():
        print(f"  {tool:32} {cost / 1e3:10.2f} µs a request {cost / best[BASE]:6.2f}")
    return best


def bpftrace(name, command, count):
    """The least that a turn cost while bpftrace counted user stacks (by frame pointers: wrong ones) in the kernel."""
    if not shutil.which("bpftrace"):
        print("  SKIPPED: bpftrace is not installed", file=sys.stderr)
        return None
    program = 'interval:s:1 { printf("READY\\n"); } ' + PROBE % (name, name)
    # Its tracepoints are in a file system that not every machine has mounted.
    script = 'mount -t tracefs none /sys/kernel/tracing 2> /dev/null; exec bpftrace -e "$1"'
    probe = subprocess.Popen(["unshare", "-m", "sh", "-c", script, "sh", program], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        said = []
        for line in probe.stdout:
            said.append(line)
            if line.strip() == "READY":
                return min(run([], command, count)[0] / count for _ in range(3))
        print(f"  SKIPPED: bpftrace: {''.join(said).strip()[-300:]}", file=sys.stderr)
        return None
    finally:
        probe.terminate()
        probe.communicate()


def resident(pid, wanted):
    """Rss and Pss in KiB of the mappings whose name has one of these in it."""
    total, counts = {"Rss": 0, "Pss": 0}, False
    for line in open(f"/proc/{pid}/smaps"):
        if re.match(r"[0-9a-f]+-[0-9a-f]+ ", line):
            counts = any(part in line for part in wanted)
        elif counts and line.split(":")[0] in total:
            total[line.split(":")[0]] += int(line.split()[1])
    return total


def anonymous(pid):
    """KiB of memory that is the process's own."""
    return int(re.search(r"^Anonymous:\s+(\d+)", open(f"/proc/{pid}/smaps_rollup").read(), re.M)[1])


def memory():
    # A few stay free for the program's start.
    count = min(20_000, resource.getrlimit(resource.RLIMIT_NOFILE)[0] - 10)
    held = []
    try:
        for words in ([], FDGUARD):
            held.append(Server([*words, f"{OUT}/hold", str(count)], stdin=subprocess.PIPE))
        alone, traced = held
        maps = resident(traced.pid, [".fdguard", "fdguard"])
        own = anonymous(traced.pid) - anonymous(alone.pid)
        print(f"\nmemory in a program with {count:,} descriptors")
        print(f"  table and library: Rss {maps['Rss']} KiB, Pss {maps['Pss']} KiB; private memory beyond the program's own {own} KiB")
        goal("MiB", maps["Rss"] / 1024, 8)
    finally:
        for server in held:
            server.child.communicate()


def protect(sections):
    """What protection costs, beside the program alone and under the tracer."""
    tools = [BASE, "fdguard trace", "fdguard run --protect"]
    ours = tools[-1]
    if "c" in sections:
        cost = turns("C: open and close", [f"{OUT}/loop"], 300_000, tools)
        goal("C loop, protected", cost[ours] / cost[BASE], 1.5)
    if "python" in sections:
        cost = turns("Python: (open or socket) and close", [python(), f"{HERE}/trace/loop.py"], 100_000, tools)
        goal("Python loop, protected", cost[ours] / cost[BASE], 1.35)
    if shutil.which("wrk") is None:
        print("SKIPPED: wrk is not installed", file=sys.stderr)
        sections = []
    if "web" in sections:
        cost = served("asyncio web server, one connection and one file a request", [python(), f"{HERE}/trace/web.py"], tools)
        goal("asyncio web server, protected", cost[ours] / cost[BASE], 1.25)
    if "node" in sections and shutil.which("node"):
        cost = served("Node web server, one connection a request", ["node", f"{HERE}/trace/web.js"], tools)
        goal("Node web server, protected", cost[ours] / cost[BASE], 1.35)
    return conclude()


def conclude():
    print(f"\n{len(missed)} goals missed" + "".join(f"\n  {text}" for text in missed))
    return 1 if missed else 0


def main(sections):
    if sections[0] == "protect":
        return protect(sections[1:] or ["c", "python", "web", "node"])
    fast = [BASE, "fdguard trace"]
    there = [tool for tool in TOOLS if is_there(tool) and tool != "fdguard run --protect"]
    for tool in TOOLS:
        if not is_there(tool):
            print(f"SKIPPED: {tool} is not installed", file=sys.stderr)
    if "peers" not in sections:
        there = fast
    if "c" in sections:
        command = [f"{OUT}/loop"]
        cost = turns("C: open and close", command, 300_000, [*there, "fdguard check"] if there == fast else there)
        if "peers" in sections and (kernel := bpftrace("loop", command, 100_000)):
            row("bpftrace ustack", [kernel], [cost[BASE]])
        goal("C loop", cost["fdguard trace"] / cost[BASE], 1.30)
        goal("C loop, check beside trace", cost["fdguard check"] / cost["fdguard trace"], SAME)
    if "python" in sections:
        command = [python(), f"{HERE}/trace/loop.py"]
        cost = turns(f"Python {os.path.basename(os.path.dirname(os.path.dirname(command[0])))}: (open or socket) and close", command, 100_000, there)
        if "peers" in sections and (kernel := bpftrace("python3.11", command, 50_000)):
            row("bpftrace ustack", [kernel], [cost[BASE]])
        goal("Python loop", cost["fdguard trace"] / cost[BASE], 1.25)
    # strace -k would need minutes for a request. Python under valgrind takes seconds to start and
    # is covered by the loops.
    quick = [tool for tool in there if tool in fast or tool.startswith("strace") and not tool.endswith("-k")]
    if shutil.which("wrk") is None:
        print("SKIPPED: wrk is not installed", file=sys.stderr)
    elif "web" in sections:
        cost = served("asyncio web server, one connection and one file a request", [python(), f"{HERE}/trace/web.py"], quick)
        goal("asyncio web server", cost["fdguard trace"] / cost[BASE], 1.15)
    if "node" in sections and shutil.which("wrk") and shutil.which("node"):
        cost = served("Node web server, one connection a request", ["node", f"{HERE}/trace/web.js"], quick)
        goal("Node web server, connections", cost["fdguard trace"] / cost[BASE], 1.25)
        cost = served("Node web server, one file a request", ["node", f"{HERE}/trace/web.js", "file"], quick)
        goal("Node web server, files", cost["fdguard trace"] / cost[BASE], 1.25)
    if "memory" in sections:
        memory()
    return conclude()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or ["c", "python", "web", "node", "memory", "peers"]))
