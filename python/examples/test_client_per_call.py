"""The canary for a client per call: each is closed before the call returns. This one passes."""

import contextlib
import http.client


def fetch(port):
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=10)) as client:
        client.request("GET", "/")
        return client.getresponse().read()


def test_calls_leave_nothing(port):
    for _ in range(5):
        assert fetch(port) == b"ok\n"
