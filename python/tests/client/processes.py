"""Processes that the tests of the client start and wait for."""

import os
import select
import subprocess

# Seconds. Enough on a busy machine.
PATIENCE = 60


class Running:
    """A host that listens on a free port, as people start it."""

    def __init__(self, program, folder):
        token = folder / "token"
        command = [program, "host", "--listen", "127.0.0.1:0", "--token-file", str(token)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.url = self.process.stdout.readline().split()[-1]
        self.token = token.read_text().strip()

    def end(self):
        self.process.terminate()
        assert self.process.wait(PATIENCE) == 0
        self.process.stdout.close()


def wait_for_end(pid):
    """Waits for the end of a process that need not be a child."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        poll = select.poll()
        poll.register(handle, select.POLLIN)
        assert poll.poll(PATIENCE * 1000), f"process {pid} is still running"
    finally:
        os.close(handle)
