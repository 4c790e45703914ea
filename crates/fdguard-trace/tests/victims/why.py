"""Holds descriptors in every way, and says which: `NAME FD FD ...`, then READY. Then it obeys."""
import array
import asyncio
import atexit
import contextlib
import ctypes
import gc
import io
import logging
import mmap
import multiprocessing
import os
import resource
import select
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import threading
import weakref
import zlib

ended = []
signal.signal(signal.SIGCHLD, lambda *_: ended.append(1))
gc.collect()
gc.disable()
work = tempfile.mkdtemp()


def say(name, *fds):
    print(name, *fds, flush=True)


def churn():
    while True:
        [{"a": [number], "b": (number, str(number))} for number in range(2000)]


def compress():
    while True:
        zlib.compress(bytes(1 << 20))


def new():
    return open("/dev/null", "rb")


class Writer:
    def __init__(self):
        self.f = open("/dev/null", "w")


class Slot:
    __slots__ = ("sock",)

    def __init__(self):
        self.sock = socket.socket()


class Tool:
    pool = []


class Document:
    def __init__(self):
        self.me = self
        self.text = new()

    def save(self):
        pass


registry = {}
for turn in range(3):
    registry[f"task{turn}"] = {"stream": Writer(), "state": 1}
say("registry", *(one["stream"].f.fileno() for one in registry.values()))

slots = {Slot() for _ in range(3)}
say("slots", *(one.sock.fileno() for one in slots))

Tool.pool.extend(select.epoll() for _ in range(3))
say("class", *(one.fileno() for one in Tool.pool))


def closed_over():
    kept = new()
    say("closure", kept.fileno())
    return lambda: kept


callbacks = [closed_over()]


def at_exit():
    kept = new()
    say("atexit", kept.fileno())
    atexit.register(lambda: kept)


at_exit()


def lines():
    opened = new()
    say("generator", opened.fileno())
    yield 1
    yield opened


def with_default(kept=new()):
    say("default", kept.fileno())


def with_keyword(*, kept=[new()]):
    say("keyword", kept[0].fileno())


with_default()
with_keyword()

logger = logging.getLogger("app")
handler = logging.FileHandler("/dev/null")
logging.getLogger("job.1").addHandler(handler)
say("logging", handler.stream.fileno())
del handler

exits = contextlib.ExitStack()
say("exits", exits.enter_context(new()).fileno())

generators = [lines()]
next(generators[0])


async def worker():
    conn = new()
    say("task", conn.fileno())
    begun.set()
    await asyncio.sleep(1000)
    return conn


def run_loop():
    asyncio.run(worker())


class Forgets(asyncio.Protocol):
    def connection_made(self, transport):
        say("loop", transport.get_extra_info("socket").fileno())
        begun.set()


async def server():
    # A task knows its loop, but does not keep it.
    tasks.append(asyncio.current_task())
    near, far = socket.socketpair()
    peers.append(far)
    await asyncio.get_running_loop().create_connection(Forgets, sock=near)
    del near
    await asyncio.sleep(1000)


def run_server():
    asyncio.run(server())


tasks, peers = [], []


def waiter():
    held = new()
    say("thread", held.fileno())
    begun.set()
    threading.Event().wait()
    return held


local = threading.local()


def with_local():
    local.file = new()
    say("local", local.file.fileno())
    begun.set()
    threading.Event().wait()


def receiver():
    near, far = socket.socketpair()
    say("recv", near.fileno(), far.fileno())
    begun.set()
    near.recv(1)
    return far


for target in (waiter, with_local, receiver, run_loop, run_server):
    begun = threading.Event()
    threading.Thread(target=target, daemon=True).start()
    begun.wait()


def job():
    bad = new()
    say("traceback", bad.fileno())
    raise ValueError(bad.fileno())


errors = []
try:
    job()
except ValueError as error:
    errors.append(error)

document = Document()
methods = [document.save]
del document.me
say("method", document.text.fileno())
del document

reader, writer = os.pipe()
pairs = [io.BufferedRWPair(io.FileIO(reader, "r"), io.FileIO(writer, "w"))]
say("pair", reader, writer)

with tempfile.TemporaryFile() as file:
    file.write(b"x" * 4096)
    file.flush()
    name = os.readlink(f"/proc/self/fd/{file.fileno()}")
    maps = [mmap.mmap(file.fileno(), 4096)]



def open_below(path):
    names = {}
    for fd in os.listdir("/proc/self/fd"):
        try:
            names[int(fd)] = os.readlink(f"/proc/self/fd/{fd}")
        except FileNotFoundError:
            pass
    return [fd for fd, name in names.items() if name.startswith(path)]


say("mmap", *open_below(name))
# Its path is held by so many that the count could be the number of a descriptor.
extra = [work] * 9
scans = [os.scandir(work)]
say("scandir", *open_below(work))

database = sqlite3.connect(os.path.join(work, "a.db"))
database.execute("pragma journal_mode=wal")
database.execute("create table t (x)")
database.execute("insert into t values (1)")
database.commit()
say("sqlite", *open_below(work + "/a.db"))

journalled = sqlite3.connect(os.path.join(work, "c.db"), isolation_level=None)
journalled.execute("create table t (x)")
journalled.execute("attach ? as more", (os.path.join(work, "d.db"),))
journalled.execute("create table more.u (x)")
say("attached", *open_below(work + "/d.db"))
journalled.execute("begin")
journalled.execute("insert into t values (1)")
say("journal", *open_below(work + "/c.db-journal"))
# A temporary database has a file when it does not fit into its cache.
before = open_below("/")
journalled.execute("pragma temp_store = file")
journalled.execute("pragma temp.cache_size = 2")
journalled.execute("create temp table v (x)")
journalled.execute("insert into v select zeroblob(100000) from (values (1), (2), (3), (4))")
say("temporary", *(fd for fd in set(open_below("/")) - set(before) if fd > 2))

cursors = [sqlite3.connect(os.path.join(work, "b.db")).cursor()]
cursors[0].execute("create table t (x)")
say("cursor", *open_below(work + "/b.db"))

near, far = multiprocessing.Pipe()
say("connection", near.fileno(), far.fileno())

owner = new()
borrowers = [io.FileIO(owner.fileno(), closefd=False)]
say("borrowed", owner.fileno())

gc.collect()
gc.freeze()
frozen = [new()]
say("frozen", frozen[0].fileno())
gc.freeze()

observed = new()
observers = [weakref.ref(observed)]
watched = weakref.WeakValueDictionary(a=observed)
say("weak", observed.fileno())


class Slow(Document):
    """The collector calls it, and waits."""

    def __del__(self):
        say("in-collection")
        sys.stdin.readline()


class Numbered:
    __slots__ = ("fd",)

    def __init__(self):
        self.fd = os.dup(0)


def number_in_closure():
    fd = os.dup(0)
    return lambda: fd


def number_in_thread(begun):
    fd = os.dup(0)
    begun.set()
    threading.Event().wait()
    return fd


def start_thread():
    begun = threading.Event()
    threading.Thread(target=number_in_thread, args=(begun,), daemon=True).start()
    begun.wait()


# One number each: a place is what they have in common.
alike = {
    "tuples": ([], lambda: (70000, 8080, 4711, os.dup(0))),
    "dicts": ([], lambda: {"fd": os.dup(0), "port": 8080}),
    "slotted": ([], Numbered),
    "closed": ([], number_in_closure),
    "threads": ([], start_thread),
    "arrays": ([], lambda: array.array("i", [os.dup(0)])),
}


def open_now():
    # The list's own number is gone by then.
    return {int(fd) for fd in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{fd}")}


def add_alike():
    for name, (kept, make) in alike.items():
        before = open_now()
        kept.extend(make() for _ in range(4))
        say(f"new-{name}", *sorted(open_now() - before))


raw = [os.open("/dev/null", os.O_RDONLY) for _ in range(4)]
say("raw", *raw)
dropped = tuple(os.dup(raw[0]) for _ in range(4))
say("dropped", *dropped)
constants = {f"c{number}": number for number in range(400)}
del dropped
documents = [Document() for _ in range(40)]
say("cycle", *(one.text.fileno() for one in documents))
# Without callbacks: those would count as collected, too.
weakly = [weakref.ref(one) for one in documents[:3]]
say("weak-cycle", *(one.text.fileno() for one in documents[:3]))
del documents
say("READY")

for line in sys.stdin:
    word = line.strip()
    if word == "collect":
        say("collected", gc.collect())
    elif word == "more":
        # A table of constants that did not exist before.
        late = {f"c{number}": number for number in range(1000)}
        raw.extend(os.open("/dev/null", os.O_RDONLY) for _ in range(4))
        say("new-raw", *raw[-4:])
        say("new-dropped", *[os.dup(raw[0]) for _ in range(4)])
        # What prints them holds them until it returns: only now nothing but `raw` does.
        say("done")
    elif word == "more-alike":
        add_alike()
        say("done")
    elif word == "collect-slowly":
        slow = Slow()
        del slow
        say("done", gc.collect())
    elif word == "become-nobody":
        resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))
        os.setuid(65534)
        say("nobody")
    elif word == "work":
        for job in (churn, churn, compress, compress):
            threading.Thread(target=job, daemon=True).start()
        say("working")
    elif word == "child":
        child = subprocess.Popen(["sleep", "1000"])
        threading.Thread(target=lambda: say("reaped", os.waitpid(-1, 0)[0]), daemon=True).start()
        say("child", child.pid)
    elif word == "end-child":
        child.kill()
    elif word == "keep-gil":
        threading.Thread(target=lambda: ctypes.PyDLL(None).sleep(20), daemon=True).start()
    elif word == "unharmed":
        try:
            os.waitpid(-1, os.WNOHANG)
            state = "children"
        except ChildProcessError:
            state = "alone"
        fds = sorted(int(fd) for fd in os.listdir("/proc/self/fd"))
        say(state, *fds)
    elif word == "signals":
        say("signals", len(ended))
