"""Opens one file object per PERIOD for SECONDS and keeps all of them in a list: what a script does that never
thinks of closing. The interpreter closes them while it ends.

    objects.py PERIOD SECONDS
"""

import os
import sys
import time

held = []


def work():
    held.append(open("/etc/passwd"))  # LEAK


def main():
    period, seconds = float(sys.argv[1]), float(sys.argv[2])
    print("READY", os.getpid(), flush=True)
    begin = time.monotonic()
    while time.monotonic() - begin < seconds:
        work()
        time.sleep(max(0, begin + len(held) * period - time.monotonic()))
    print("HELD", len(held), flush=True)


main()
