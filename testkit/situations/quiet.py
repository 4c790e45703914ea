"""Programs that hold descriptors on purpose, or for a while, and leak none.

    quiet.py SHAPE SECONDS

Each prints OPENED with the number of descriptors it opened, and HELD with what it holds when it ends.
"""

import collections
import os
import socket
import sys
import tempfile
import threading
import time

opened = 0


def open_one(path="/etc/passwd"):
    global opened
    opened += 1
    return os.open(path, os.O_RDONLY)


def until(seconds):
    """The turns of a run, fifty a second; on a busy machine it is the run that becomes longer."""
    for turn in range(int(seconds * 50)):
        yield turn
        time.sleep(0.02)


def pool_unused(seconds):
    """Twenty files at start-up, held to the end, never touched."""
    pool = [open_one() for _ in range(20)]
    time.sleep(seconds)
    return len(pool)


def pool_used(seconds):
    """Twenty files at start-up, held to the end and read in turn."""
    pool = [open_one() for _ in range(20)]
    for turn in until(seconds):
        os.pread(pool[turn % 20], 64, 0)
    return len(pool)


def pool_connections(seconds):
    """Twenty connections at start-up to a server thread of the same program, used in turn, held to the end."""
    global opened
    listener = socket.create_server(("127.0.0.1", 0), backlog=32)
    served = []

    def echo(peer):
        while data := peer.recv(64):
            peer.sendall(data)

    def serve():
        for _ in range(20):
            peer, _ = listener.accept()
            served.append(peer)
            threading.Thread(target=echo, args=(peer,), daemon=True).start()

    threading.Thread(target=serve, daemon=True).start()
    pool = [socket.create_connection(listener.getsockname()) for _ in range(20)]
    opened += 41
    for turn in until(seconds):
        pool[turn % 20].sendall(b"ping")
        pool[turn % 20].recv(64)
    print("OPENED", opened, "HELD", 41, flush=True)
    os._exit(0)


def cache_hits(seconds):
    """A cache that fills in the first quarter and is only read afterwards."""
    cache = []
    for turn in until(seconds):
        if len(cache) < 25 and turn < seconds * 50 / 4:
            cache.append(open_one())
        os.pread(cache[turn % len(cache)], 64, 0)
    return len(cache)


def cache_evictions(seconds):
    """A cache of 25 that closes its oldest for each new one."""
    cache = collections.deque()
    for turn in until(seconds):
        if turn % 2 == 0:
            cache.append(open_one())
            if len(cache) > 25:
                os.close(cache.popleft())
    return len(cache)


def burst(seconds):
    """Sixty at once in the middle of the run, closed soon after."""
    for turn in until(seconds):
        os.close(open_one())
        if turn == int(seconds * 25):
            files = [open_one() for _ in range(60)]
            time.sleep(seconds / 10)
            for file in files:
                os.close(file)
    return 0


def sawtooth(seconds):
    """Five teeth: as a garbage collector does that comes now and then."""
    files = []
    tooth = max(1, int(seconds * 50 / 5))
    for turn in until(seconds):
        files.append(open_one())
        if turn % tooth == tooth - 1:
            while files:
                os.close(files.pop())
    while files:
        os.close(files.pop())
    return 0


def merge(seconds):
    """Two hundred files opened one after the other over SECONDS, then merged and all closed; and the end."""
    with tempfile.TemporaryDirectory() as folder:
        names = [os.path.join(folder, str(number)) for number in range(200)]
        for name in names:
            with open(name, "w") as file:
                file.write("line\n")
        begin, files = time.monotonic(), []
        for name in names:
            files.append(open_one(name))
            time.sleep(max(0, begin + len(files) * seconds / 200 - time.monotonic()))
        b"".join(os.read(file, 64) for file in files)
        for file in files:
            os.close(file)
    return 0


def main():
    held = globals()[sys.argv[1].replace("-", "_")](float(sys.argv[2]))
    print("OPENED", opened, "HELD", held, flush=True)


main()
