"""What `fdguard trace PID` costs a program that runs already, beside its peers. Run through `bench/run attach`."""
import os, re, shutil, signal, statistics, subprocess, sys, tempfile, time

import trace as costs
from trace import BASE, BINARY, HERE, OUT, ROUNDS, goal, python

LAUNCH, ATTACH, LEFT = "fdguard trace -- COMMAND", "fdguard trace PID", "the same, detached"
STRACE, STACKS, BPFTRACE = "strace -p", "strace -k -p", "bpftrace ustack -p"
# An attached program may cost this much more than a launched one, as a ratio.
MORE = 0.05
# The rounds of slow tools are shorter by this factor.
SHORTER = {STRACE: 20, STACKS: 200}


class Turns:
    """A program that does as many turns as it is told, and tells what they cost."""

    def __init__(self, words, command):
        self.child = subprocess.Popen([*words, *command, "-"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        self.pid = int(self.read("READY").split()[0])

    def read(self, word):
        for line in self.child.stderr:
            if line.startswith(word):
                return line[len(word):]
        raise RuntimeError(f"the program ended without {word}")

    def cost(self, count):
        self.child.stdin.write(f"{count}\n")
        self.child.stdin.flush()
        return int(self.read("SPENT")) / count

    def end(self):
        self.child.stdin.close()
        self.child.stderr.read()
        assert self.child.wait() in (0, 1), self.child.returncode


class Tool:
    """A tool that looks at a running program."""

    def __init__(self, words, ready):
        self.child = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        said = []
        for line in self.child.stderr:
            said.append(line)
            if re.search(ready, line):
                break
        else:
            raise RuntimeError(f"{words[0]}: {''.join(said)[-300:]}")
        self.said = said[-1]

    def end(self):
        self.child.send_signal(signal.SIGINT)
        self.child.stderr.read()
        self.child.wait()


def fdguard(pid):
    return Tool([BINARY, "trace", str(pid), "-o", "/dev/null"], "attached to")


def strace(pid, *words):
    return Tool(["strace", "-f", *words, "-o", "/dev/null", "-e", "trace=%desc", "-p", str(pid)], "attached")


def bpftrace(pid):
    probe = (f"tracepoint:syscalls:sys_exit_openat,tracepoint:syscalls:sys_exit_socket /pid == {pid}/ {{ @[ustack(16)] = count(); }} "
             f"tracepoint:syscalls:sys_enter_close /pid == {pid}/ {{ @closed[ustack(16)] = count(); }}")
    program = 'interval:s:1 { printf("READY\\n"); } ' + probe
    # Its tracepoints are in a file system that not every machine has mounted.
    script = 'mount -t tracefs none /sys/kernel/tracing 2> /dev/null; exec bpftrace -e "$1" >&2'
    return Tool(["unshare", "-m", "sh", "-c", script, "sh", program], "READY")


def attached_turns(title, command, count, peers):
    """The least that a turn cost the program with each tool: all run at once, one works at a time."""
    programs, tools, best = {}, {}, {}
    try:
        programs[BASE] = Turns([], command)
        programs[LAUNCH] = Turns(costs.FDGUARD, command)
        starts = {ATTACH: fdguard, LEFT: fdguard}
        if peers:
            starts |= {STRACE: strace, STACKS: lambda pid: strace(pid, "-k"), BPFTRACE: bpftrace}
        for tool, start in starts.items():
            program = Turns([], command)
            try:
                tools[tool] = start(program.pid)
                programs[tool] = program
            except (OSError, RuntimeError) as error:
                print(f"  SKIPPED: {tool}: {error}", file=sys.stderr)
                program.end()
        programs[LEFT].cost(1000)
        tools.pop(LEFT).end()
        for number in range(ROUNDS):
            for tool, program in programs.items():
                if tool in SHORTER and number > 1:
                    continue
                cost = program.cost(max(count // SHORTER.get(tool, 1), 20))
                best[tool] = min(best.get(tool, cost), cost)
    finally:
        for running in (*tools.values(), *programs.values()):
            running.end()
    print(f"\n{title} (least of {ROUNDS} rounds, 2 of strace; processor time of the program)")
    for tool, cost in best.items():
        print(f"  {tool:32} {cost / 1e3:9.2f} µs {cost / best[BASE]:9.2f}")
    return {tool: cost / best[BASE] for tool, cost in best.items()}


def resident(pid):
    status = open(f"/proc/{pid}/status").read()
    return {name: int(re.search(rf"^{name}:\s+(\d+)", status, re.M)[1]) for name in ("VmRSS", "RssAnon", "RssFile", "RssShmem")}


def memory():
    """What the target's resident memory grows by: with few and with many descriptors, attached and left again."""
    print("\nresident memory that the attach adds, KiB")
    for count in (0, min(19_990, costs.resource.getrlimit(costs.resource.RLIMIT_NOFILE)[0] - 10)):
        server = costs.Server([f"{OUT}/hold", str(count)], stdin=subprocess.PIPE)
        try:
            before = resident(server.pid)
            tool = fdguard(server.pid)
            time.sleep(0.5)
            during = resident(server.pid)
            tool.end()
            after = resident(server.pid)
        finally:
            server.child.communicate()
        parts = ", ".join(f"{name[3:].lower()} {during[name] - before[name]}" for name in before if name != "VmRSS")
        print(f"  {count:6,} descriptors: {during['VmRSS'] - before['VmRSS']} ({parts}); after the detach {after['VmRSS'] - before['VmRSS']}")
        goal(f"MiB, {count:,} descriptors", (during["VmRSS"] - before["VmRSS"]) / 1024, 8)


def by_gdb(pid):
    """What a debugger's user does: the library is loaded by a call from gdb. Nothing is rebound."""
    library = f"{OUT}/empty.so"
    call = f'call (void *)dlopen("{os.path.abspath(library)}", 2)'
    subprocess.run(["gdb", "-q", "-nx", "-batch", "-ex", call, "-p", str(pid)], capture_output=True)


def by_fdguard(pid):
    tool = fdguard(pid)
    return tool


def stops(peers):
    """How long a program that computes did not run, by its own clock, while a tool came in."""
    ways = {"nothing": lambda pid: time.sleep(0.2), ATTACH: by_fdguard}
    if peers:
        ways |= {"gdb, call dlopen": by_gdb} if shutil.which("gdb") else {}
        ways |= {STRACE: strace} if shutil.which("strace") else {}
    times = {way: [] for way in ways}
    said = []
    for _ in range(ROUNDS):
        for way, enter in ways.items():
            server = costs.Server([f"{OUT}/gaps"], stdin=subprocess.PIPE)
            ask = lambda: (server.child.stdin.write("\n"), server.child.stdin.flush(), int(server.child.stderr.readline().split()[1]))[2]
            ask()
            tool = enter(server.pid)
            times[way].append(ask())
            if isinstance(tool, Tool):
                if way == ATTACH:
                    said.append(float(re.search(r"stopped ([\d.]+) ms", tool.said)[1]))
                tool.end()
            server.child.stdin.close()
            server.child.wait()
    print(f"\nlongest time that a computing program did not run while the tool came in ({ROUNDS} times, its own clock)")
    for way, gaps in times.items():
        print(f"  {way:32} median {statistics.median(gaps) / 1e6:8.1f} ms, least {min(gaps) / 1e6:8.1f} ms, longest {max(gaps) / 1e6:8.1f} ms")
    print(f"  the stop as fdguard reports it: median {statistics.median(said):.1f} ms, least {min(said):.1f} ms, longest {max(said):.1f} ms")
    other = f"{HERE}/attach_stops"
    if os.path.exists(other):
        subprocess.run([other], check=False)


def main(sections):
    peers = "peers" in sections
    if "c" in sections:
        ratio = attached_turns("C: open and close", [f"{OUT}/loop"], 300_000, peers)
        goal("C loop, attached beyond launched", ratio[ATTACH] - ratio[LAUNCH], MORE)
        goal("C loop, detached", ratio[LEFT], 1 + MORE)
    if "python" in sections:
        ratio = attached_turns("Python: (open or socket) and close", [python(), f"{HERE}/trace/loop.py"], 100_000, peers)
        goal("Python loop, attached beyond launched", ratio[ATTACH] - ratio[LAUNCH], MORE)
        goal("Python loop, detached", ratio[LEFT], 1 + MORE)
    if "memory" in sections:
        memory()
    if "stops" in sections:
        stops(peers)
    return costs.conclude()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or ["c", "python", "memory", "stops", "peers"]))
