"""Opens one file per PERIOD for SECONDS and closes none of them.

    drip.py PERIOD SECONDS leave|close

`leave` ends with all of them open. `close` closes them in one sweep and ends a second later.
Prints READY, then HELD with the number of files that it held.
"""

import os
import sys
import time

held = []


def work():
    held.append(os.open("/etc/passwd", os.O_RDONLY))  # LEAK


def main():
    period, seconds, end = float(sys.argv[1]), float(sys.argv[2]), sys.argv[3]
    print("READY", os.getpid(), flush=True)
    begin = time.monotonic()
    while time.monotonic() - begin < seconds:
        work()
        time.sleep(max(0, begin + len(held) * period - time.monotonic()))
    print("HELD", len(held), flush=True)
    if end == "close":
        for fd in held:
            os.close(fd)
        time.sleep(1)


main()
