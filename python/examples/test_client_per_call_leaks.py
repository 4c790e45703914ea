"""The same canary over a client that wants to be closed when the program ends: so each of them is kept until then.
This one fails, with the line that connects."""

import atexit
import http.client


class Client:
    def __init__(self, port):
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        atexit.register(self.connection.close)

    def get(self, path):
        self.connection.request("GET", path)
        return self.connection.getresponse().read()


def fetch(port):
    return Client(port).get("/")  # one more connection for each call


def test_calls_leave_nothing(port):
    for _ in range(5):
        assert fetch(port) == b"ok\n"
