"""Starts children, in the way that its first word says.

task    a coroutine starts one for each request and forgets it; nothing is piped
pipes   the same with pipes to it
kept    Popen objects that are kept and never waited for; half of the children end by themselves
pool    workers that are forked first, and one that dies and is replaced
waits   a child for each request, and each is waited for
The children that are left are ended with it."""
import asyncio
import os
import signal
import subprocess
import sys
import time

REQUESTS, PAUSE = 24, 0.1
LONG = ["sleep", "1000"]
kept, pids = [], []


async def handle(pipe):
    process = await asyncio.create_subprocess_exec(*LONG, stdin=pipe, stdout=pipe)  # START task
    kept.append(process)
    pids.append(process.pid)


async def serve(pipe):
    for _ in range(REQUESTS):
        await handle(pipe)
        work()
        await asyncio.sleep(PAUSE)


def keep(number):
    words = LONG if number % 2 else ["true"]
    process = subprocess.Popen(words)  # START kept
    kept.append(process)
    pids.append(process.pid)


def start_worker():
    pid = os.fork()  # START worker
    if pid == 0:
        signal.pause()
        os._exit(0)
    pids.append(pid)
    return pid


def work():
    with open("/etc/passwd") as file:
        file.read()


def pool():
    for _ in range(12):
        start_worker()
    for request in range(REQUESTS):
        work()
        if request % 8 == 4:
            dead = pids.pop(0)
            os.kill(dead, signal.SIGKILL)
            os.waitpid(dead, 0)
            start_worker()
        time.sleep(PAUSE)


def main(mode):
    if mode in ("task", "pipes"):
        pipe = subprocess.PIPE if mode == "pipes" else subprocess.DEVNULL
        asyncio.run(serve(pipe))
    elif mode == "pool":
        pool()
    else:
        for number in range(REQUESTS):
            if mode == "kept":
                keep(number)
            else:
                subprocess.run(["true"], check=True)
            work()
            time.sleep(PAUSE)
    print("done", flush=True)
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    os._exit(0)


main(sys.argv[1])
