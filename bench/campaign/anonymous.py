"""Connections without a token: they must not keep out who has it."""

import contextlib
import socket
import time

from .common import Host, Row, rounds

MANY = 300
# A client with the token gets its answer within this time.
SOON = 5


def crowd(host, text):
    """As many connections as there may be and more, each of which sent this."""
    name, port = host.address.split(":")
    all_of_them = []
    for _ in range(MANY):
        with contextlib.suppress(OSError):
            one = socket.create_connection((name, int(port)), timeout=2)
            one.sendall(text)
            all_of_them.append(one)
    return all_of_them


def attack(name, text):
    row = Row(f"{MANY} connections, {name}", "a caller with the token that is kept out")
    host = Host(unix=True)
    for _ in range(rounds(5)):
        others = crowd(host, text)
        for way, ask in (("tcp", host.ask), ("unix", host.ask_at_socket)):
            row.attempts += 1
            began = time.monotonic()
            try:
                status, _ = ask("GET", "/v1/sessions", timeout=SOON)
                if status != 200:
                    row.lose(f"{way}: status {status} after {time.monotonic() - began:.1f} s")
            except (OSError, ValueError) as error:
                row.lose(f"{way}: {type(error).__name__} after {time.monotonic() - began:.1f} s")
        for one in others:
            one.close()
    if not host.end():
        row.lose("the host did not end")
    row.survivors += len(host.mark.survivors(3))
    host.forget()
    return row


def section():
    half = b"GET /v1/sessions HTTP/1.1\r\nHost: 127.0.0.1\r\n"
    whole = b"GET /v1/sessions HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    return [
        attack("silent", b""),
        attack("half a head", half),
        attack("fifty requests at once", whole * 50),
    ]
