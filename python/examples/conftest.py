import pathlib
import subprocess
import sys

import pytest

SERVER = pathlib.Path(__file__).with_name("server.py")


@pytest.fixture(scope="session")
def port():
    """A server for all tests. Its pipe and its process belong to the session: no test is blamed for them."""
    with subprocess.Popen([sys.executable, str(SERVER)], stdout=subprocess.PIPE, text=True) as server:
        yield int(server.stdout.readline())
        server.terminate()
