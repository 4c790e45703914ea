"""The README's example: a tool server that keeps an interactive program per call. Stopping a session terminates the
program and never closes its terminal. Ends by itself.

    sessions.py PERIOD SECONDS
"""

import os
import sys
import time

import pexpect

history = []


class ReplSession:
    def begin(self):
        self.child = pexpect.spawn("/bin/cat", echo=False, timeout=30)  # LEAK
        self.child.sendline("hello")
        self.child.expect("hello")

    def stop(self):
        self.child.terminate(force=True)


def main():
    period, seconds = float(sys.argv[1]), float(sys.argv[2])
    print("READY", os.getpid(), flush=True)
    begin = time.monotonic()
    while time.monotonic() - begin < seconds:
        session = ReplSession()
        session.begin()
        session.stop()
        history.append(session)
        time.sleep(max(0, begin + len(history) * period - time.monotonic()))
    print("HELD", len(history), flush=True)


main()
