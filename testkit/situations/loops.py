"""Leaks one event loop per job beside the one that it works with: both come from one helper.

    loops.py PERIOD SECONDS

Prints HELD with the number of loops that the jobs left.
"""

import asyncio
import os
import sys
import time

held = []


def new_loop():
    return asyncio.new_event_loop()  # HELPER


def job():
    held.append(new_loop())  # LEAK


def main():
    period, seconds = float(sys.argv[1]), float(sys.argv[2])
    own = new_loop()  # KEPT
    print("READY", os.getpid(), flush=True)
    begin = time.monotonic()
    while time.monotonic() - begin < seconds:
        job()
        own.run_until_complete(asyncio.sleep(max(0, begin + len(held) * period - time.monotonic())))
    print("HELD", len(held), flush=True)
    # Past the interpreter's clean-up: what is held stays held.
    os._exit(0)


main()
