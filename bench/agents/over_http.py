"""The real `fdguard host`, asked over one connection that is kept: TCP and a unix socket."""
import http.client
import json
import os
import pathlib
import socket
import subprocess
import time

from figures import row

LIVES = 200
COMMANDS = 1000
WARM = 50
TEN_MEGABYTES = "head -c 10000000 /dev/zero | tr '\\0' x"


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("localhost")
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(self.path)


class Host:
    """One process, one connection."""

    def __init__(self, program, folder):
        self.unix = os.path.join(folder, "host.sock")
        words = [program, "host", "--listen", "127.0.0.1:0", "--listen", f"unix:{self.unix}", "--no-token", "--root", folder]
        self.process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        said = self.process.stdout.readline()
        places = [word for word in said.split() if word.startswith("http://")]
        if not places:
            raise SystemExit(f"bench/agents: the host does not listen: {said!r}")
        self.address = places[0].removeprefix("http://")
        self.connection = http.client.HTTPConnection(self.address)
        self.connection.connect()
        self.connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def ask(self, method, path, body=None, connection=None):
        connection = connection or self.connection
        text = None if body is None else json.dumps(body)
        connection.request(method, path, text, {"Content-Type": "application/json"} if text else {})
        answer = connection.getresponse()
        said = answer.read()
        if answer.status >= 300:
            raise SystemExit(f"bench/agents: {method} {path}: {answer.status} {said[:300]!r}")
        return json.loads(said)

    def open(self, program):
        return self.ask("POST", "/v1/sessions", {"program": program})["id"]

    def exec(self, name, code, connection=None):
        done = self.ask("POST", f"/v1/sessions/{name}/exec", {"code": code}, connection)
        if done["outcome"] != {"how": "exited", "status": 0}:
            raise SystemExit(f"bench/agents: {code}: {done['outcome']}")
        return done["stdout"]

    def close(self, name):
        receipt = self.ask("DELETE", f"/v1/sessions/{name}")
        if not receipt["clean"]:
            raise SystemExit(f"bench/agents: a close is not proven: {receipt}")

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def memory(self, field):
        for line in pathlib.Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith(field + ":"):
                return int(line.split()[1])
        raise SystemExit(f"bench/agents: no {field}")

    def end(self):
        self.process.terminate()
        self.process.wait(20)


def timed(times, work, *words):
    began = time.perf_counter()
    result = work(*words)
    times.append((time.perf_counter() - began) * 1000)
    return result


def lives(host):
    """Sessions one after the other."""
    ready, close, before = [], [], host.descriptors()
    began, held = time.perf_counter(), 0
    for round_ in range(LIVES):
        name = timed(ready, host.open, "bash")
        if round_ % 50 == 0:
            held = max(held, host.descriptors() - before)
        timed(close, host.close, name)
    per_second = LIVES / (time.perf_counter() - began)
    return {"bash_ready_ms": row(ready), "bash_close_ms": row(close), "bash_sessions_per_s": row([per_second]),
            "descriptors_per_session": row([held]), "descriptors_left": row([host.descriptors() - before])}


def commands(host):
    """Short commands in one session, by TCP and by the unix socket."""
    name = host.open("bash")
    tcp, unix, other = [], [], UnixConnection(host.unix)
    for _ in range(COMMANDS):
        timed(tcp, host.exec, name, "echo 1")
        timed(unix, host.exec, name, "echo 1", other)
    other.close()
    host.close(name)
    return {"bash_exec_ms": row(tcp), "bash_exec_unix_ms": row(unix)}


def output(host):
    name, rates = host.open("bash"), []
    pathlib.Path(f"/proc/{host.process.pid}/clear_refs").write_text("5")
    before = host.memory("VmRSS")
    for _ in range(10):
        took = []
        said = timed(took, host.exec, name, TEN_MEGABYTES)
        if said["bytes"] != 10_000_000:
            raise SystemExit(f"bench/agents: {said['bytes']} bytes came")
        rates.append(10_000 / took[0])
    growth = (host.memory("VmHWM") - before) / 1024
    host.close(name)
    return {"output_mb_per_s": row(rates), "output_memory_growth_mib": row([growth])}


def wait_until_warm(host):
    """Its interpreter starts beside it; what is counted before that is no baseline."""
    deadline = time.monotonic() + 20
    while not (host.ask("GET", "/v1/health").get("warm") or {}).get("ready"):
        if time.monotonic() > deadline:
            raise SystemExit(f"bench/agents: no warm interpreter: {host.ask('GET', '/v1/health').get('warm')}")
        time.sleep(0.01)


def python(host):
    """From the warm interpreter of the host."""
    ready, trips, close = [], [], []
    for _ in range(WARM):
        name = timed(ready, host.open, "python")
        for _ in range(5):
            timed(trips, host.exec, name, "print(1)")
        timed(close, host.close, name)
    return {"python_warm_ms": row(ready), "python_warm_exec_ms": row(trips), "python_warm_close_ms": row(close)}


def survivors(host):
    """What is left of a child in a session of its own and of one that ignores TERM, after a close."""
    name = host.open("bash")
    said = host.exec(name, "setsid sleep 300 & a=$!; (trap '' TERM; exec sleep 300) & echo $a $!")["text"]
    pids = [int(word) for word in said.split()[-2:]]
    host.close(name)
    return {"survivors": row([sum(os.path.exists(f"/proc/{pid}") for pid in pids)])}


def measure(program, folder):
    host = Host(program, folder)
    try:
        wait_until_warm(host)
        figures = {}
        for part in (lives, commands, output, python, survivors):
            figures.update(part(host))
        return figures
    finally:
        host.end()
