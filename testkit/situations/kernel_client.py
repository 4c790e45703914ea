"""The client of a Jupyter kernel: runs one cell, which opens RATE files a second for SECONDS, then shuts the
kernel down.

    kernel_client.py CONNECTION_FILE RATE SECONDS

Waits for the connection file. Prints HELD with the number of files that the cell held.
"""

import json
import os
import sys
import time

from jupyter_client import BlockingKernelClient

CELL = """import time
held = []
def work():
    held.append(open("/etc/passwd"))
begin = time.monotonic()
while time.monotonic() - begin < {seconds}:
    work()
    time.sleep(max(0, begin + len(held) / {rate} - time.monotonic()))
print("HELD", len(held))
"""


def connection(path):
    """The file is written in one go, but not atomically."""
    while True:
        try:
            with open(path) as file:
                return json.load(file)
        except (OSError, ValueError):
            time.sleep(0.05)


def main():
    path, rate, seconds = sys.argv[1], float(sys.argv[2]), float(sys.argv[3])
    connection(path)
    client = BlockingKernelClient(connection_file=path)
    client.load_connection_file()
    client.start_channels()
    client.wait_for_ready(timeout=60)
    client.execute_interactive(CELL.format(rate=rate, seconds=seconds), timeout=seconds + 60)
    client.shutdown()
    client.stop_channels()


main()
sys.stdout.flush()
os._exit(0)
