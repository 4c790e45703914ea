"""Holds files in callbacks of event loops that run, and says which: `NAME FD FD ...`, then READY."""
import asyncio
import functools
import gc
import socket
import sys
import threading

gc.disable()


def say(name, *fds):
    print(name, *fds, flush=True)


def new():
    return open("/dev/null", "rb")


def use(*held):
    return held


class Job:
    def __init__(self):
        self.log = new()

    def finish(self, *_):
        pass


def closed_over():
    kept = new()
    say("closure", kept.fileno())
    return lambda: kept


async def later():
    held = [new() for _ in range(3)]
    say("later", *(one.fileno() for one in held))
    loop = asyncio.get_running_loop()
    for one in held:
        loop.call_later(1000, use, one)
    del held, one
    job = Job()
    say("bound", job.log.fileno())
    loop.call_later(1000, job.finish)
    del job
    loop.call_later(1000, closed_over())
    begun.set()
    await asyncio.sleep(1000)


async def soon():
    """Its loop does not come to what it is to call soon."""
    held = [new() for _ in range(3)]
    say("soon", *(one.fileno() for one in held))
    for one in held:
        asyncio.get_running_loop().call_soon(use, one)
    del held, one
    begun.set()
    threading.Event().wait()


async def done():
    """A future that never comes, and a task that waits; each has what is to be called then."""
    held = [new() for _ in range(2)]
    say("future", *(one.fileno() for one in held))
    loop = asyncio.get_running_loop()
    for one in held:
        futures.append(loop.create_future())
        futures[-1].add_done_callback(functools.partial(use, one))
    del held, one
    held = new()
    say("task", held.fileno())
    tasks.append(loop.create_task(asyncio.sleep(1000)))
    tasks[-1].add_done_callback(functools.partial(use, held))
    del held
    begun.set()
    await asyncio.sleep(1000)


async def reads():
    """A callback of a descriptor that is watched."""
    loop = asyncio.get_running_loop()
    held = new()
    say("reader", held.fileno())
    near, far = socket.socketpair()
    peers.extend((near, far))
    loop.add_reader(near.fileno(), use, held)
    del held, near, far
    begun.set()
    await asyncio.sleep(1000)


class Client:
    """Its loop watches the transport, too, and does not run any more."""

    def __init__(self, transport):
        self.pools = {"host": [[[[[[[[[transport]]]]]]]]]}


async def connects():
    for _ in range(3):
        near, far = socket.socketpair()
        peers.append(far)
        transport, _ = await stopped.create_connection(asyncio.Protocol, sock=near)
        clients.append(Client(transport))
        held.append(near.fileno())


futures, tasks, peers, clients, held = [], [], [], [], []
stopped = asyncio.new_event_loop()
stopped.run_until_complete(connects())
say("watched", *held)
for work in (later, soon, done, reads):
    begun = threading.Event()
    threading.Thread(target=lambda: asyncio.run(work()), daemon=True).start()
    begun.wait()
say("READY")
sys.stdin.read()
