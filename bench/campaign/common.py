"""What the campaigns share: the binary, a row for each attack, a host, who was left behind."""

import contextlib
import http.client
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
KEPT = ROOT / "target/bench"
FDGUARD = os.environ.get("FDGUARD") or str(ROOT / "target/release/fdguard")
ROUNDS = int(os.environ.get("ROUNDS", "0"))
# Anything that takes longer counts as a hang.
LIMIT = 60


class Row:
    """One attack: how often it was tried, who lived on that should not, and what was lost."""

    def __init__(self, name, lost):
        self.name, self.lost = name, lost
        self.attempts = self.survivors = self.losses = 0
        self.notes = []

    def note(self, text):
        """Something to look into. The first few of a kind are enough."""
        if len(self.notes) < 5:
            self.notes.append(text)

    def lose(self, text):
        self.losses += 1
        self.note(text)

    def is_clean(self):
        return self.attempts > 0 and not self.survivors and not self.losses


def rounds(usual):
    return ROUNDS or usual


def skip(what, why):
    """Says aloud what was not tried."""
    print(f"SKIPPED: {what}: {why}", file=sys.stderr, flush=True)


def needs(what, *programs):
    """Whether these programs are there."""
    missing = [program for program in programs if not shutil.which(program)]
    if missing:
        skip(what, f"no {', '.join(missing)}")
    return not missing


def is_root(what):
    if os.geteuid() != 0:
        skip(what, "needs root")
    return os.geteuid() == 0


def build():
    """The binary, unless FDGUARD names one."""
    if "FDGUARD" not in os.environ:
        subprocess.run(["cargo", "build", "-q", "--release", "-p", "fdguard"], cwd=ROOT, check=True)
    KEPT.mkdir(parents=True, exist_ok=True)


def table(rows):
    print(f"\n{'attack':44} {'attempts':>8} {'survivors':>9} {'losses':>7}  a loss is")
    for row in rows:
        print(f"{row.name:44} {row.attempts:8} {row.survivors:9} {row.losses:7}  {row.lost}")
        for note in row.notes:
            print(f"    {note}")
    print(f"load {os.getloadavg()[1]:.0f}", flush=True)


def main(sections, usage):
    """Runs the sections that were asked for, all of them otherwise; 1 where something was lost."""
    words = sys.argv[1:]
    if not set(words) <= set(sections):
        print(usage.strip(), file=sys.stderr)
        print("sections: " + " ".join(sections), file=sys.stderr)
        return 2
    build()
    rows = []
    for name, section in sections.items():
        if not words or name in words:
            print(f"== {name}", flush=True)
            rows += section()
    table(rows)
    return int(any(row.attempts and not row.is_clean() for row in rows))


class Marked:
    """A word in the environment of everything that an attack starts: who has it is its."""

    NAME = "FDGUARD_CAMPAIGN"

    def __init__(self):
        self.word = uuid.uuid4().hex

    def env(self, **more):
        return dict(os.environ, **{self.NAME: self.word}, **more)

    def pids(self):
        """Everybody who has the word and has not ended."""
        sign = f"{self.NAME}={self.word}".encode()
        found = []
        for entry in os.scandir("/proc"):
            if entry.name.isdigit():
                with contextlib.suppress(OSError):
                    environ = pathlib.Path(entry.path, "environ").read_bytes()
                    if sign in environ.split(b"\0"):
                        found.append(int(entry.name))
        return found

    def survivors(self, within=10):
        """Who is left when this time is up. They are killed then: each is known by the word."""
        deadline = time.monotonic() + within
        while (left := self.pids()) and time.monotonic() < deadline:
            time.sleep(0.05)
        for pid in left:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        return left


class Host:
    """An `fdguard host` at work, with a directory of its own."""

    def __init__(self, *options, mark=None, state=None, unix=False):
        self.mark = mark or Marked()
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="campaign-"))
        self.token = uuid.uuid4().hex + uuid.uuid4().hex
        (self.dir / "token").write_text(self.token)
        (self.dir / "token").chmod(0o600)
        words = [FDGUARD, "host", "--listen", "127.0.0.1:0", "--token-file", str(self.dir / "token")]
        words += ["--log-format", "json", "--no-warm", "--state", str(state or self.dir / "state")]
        if unix:
            words += ["--listen", f"unix:{self.dir}/socket"]
        self.events = open(self.dir / "events", "w")
        self.process = subprocess.Popen(
            words + list(options), env=self.mark.env(), stdout=subprocess.PIPE, stderr=self.events, text=True
        )
        # One line names all addresses.
        line = self.process.stdout.readline()
        places = [word for word in line.split() if word.startswith("http://")]
        self.address = places[0].removeprefix("http://") if places else None
        if not self.address:
            raise RuntimeError((self.dir / "events").read_text())

    def ask(self, method, path, body=None, timeout=LIMIT):
        """An answer: its status and its document."""
        connection = http.client.HTTPConnection(self.address, timeout=timeout)
        return self._ask(connection, method, path, body)

    def ask_at_socket(self, method, path, body=None, timeout=LIMIT):
        connection = http.client.HTTPConnection("localhost", timeout=timeout)
        connection.sock = socket.socket(socket.AF_UNIX)
        connection.sock.settimeout(timeout)
        connection.sock.connect(str(self.dir / "socket"))
        return self._ask(connection, method, path, body)

    def _ask(self, connection, method, path, body):
        headers = {"Authorization": f"Bearer {self.token}"}
        if body is not None:
            headers["Content-Type"] = "application/json"
        with contextlib.closing(connection):
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            answer = connection.getresponse()
            text = answer.read()
        return answer.status, json.loads(text) if text else None

    def open_bash(self):
        status, session = self.ask("POST", "/v1/sessions", {"program": "bash", "channel": "pipes"})
        if status != 201:
            raise RuntimeError(f"{status} {session}")
        return session["id"]

    def exec(self, session, code, timeout_ms=20_000):
        return self.ask("POST", f"/v1/sessions/{session}/exec", {"code": code, "timeout_ms": timeout_ms})

    def kill(self):
        self.process.kill()
        self.process.wait()

    def end(self, within=LIMIT):
        """Asks it to end; whether it did in time."""
        self.process.terminate()
        try:
            self.process.wait(within)
            return True
        except subprocess.TimeoutExpired:
            self.kill()
            return False

    def forget(self):
        """Removes its directory; call it last."""
        if self.process.poll() is None:
            self.kill()
        self.process.stdout.close()
        self.events.close()
        shutil.rmtree(self.dir, ignore_errors=True)
