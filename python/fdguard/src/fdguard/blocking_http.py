"""HTTP over TCP and unix sockets, blocking. One connection for each request: a session in use does
not hold a descriptor between its commands, and closing the connection interrupts the command."""

import http.client
import socket
from typing import Optional, Tuple

from .address import Address
from .errors import ConnectionFailed
from .requests import Request


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str, timeout: Optional[float]) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


class Exchange:
    """One request and its answer. Close it in any case."""

    def __init__(self, address: Address, token: Optional[str], request: Request) -> None:
        self._address = address
        self._connection = _connection(address, request.patience)
        try:
            self._connection.request(request.method, request.path, request.content(), request.headers(token))
            # The response takes the socket over.
            self._socket = self._connection.sock
            self._response = self._connection.getresponse()
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise self._translated(error) from error
        except BaseException:
            self.close()
            raise

    @property
    def status(self) -> int:
        return self._response.status

    def content(self) -> bytes:
        try:
            return self._response.read()
        except (OSError, http.client.HTTPException) as error:
            raise self._translated(error) from error

    def line(self) -> bytes:
        """The next line of a stream; empty at its end."""
        try:
            return self._response.readline()
        except (OSError, http.client.HTTPException) as error:
            raise self._translated(error) from error

    def shut_down(self) -> None:
        """Ends the connection, from another thread than the one that reads."""
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass

    def close(self) -> None:
        response = getattr(self, "_response", None)
        if response is not None:
            response.close()
        self._connection.close()

    def _translated(self, error: Exception) -> ConnectionFailed:
        if isinstance(error, socket.timeout):
            return ConnectionFailed(f"the host at {self._address} did not answer in time")
        return ConnectionFailed(f"no answer from the host at {self._address}: {error}")


def _connection(address: Address, timeout: Optional[float]) -> http.client.HTTPConnection:
    if address.path is not None:
        return _UnixConnection(address.path, timeout)
    kind = http.client.HTTPSConnection if address.is_tls else http.client.HTTPConnection
    return kind(address.host, address.port, timeout=timeout)


def ask(address: Address, token: Optional[str], request: Request) -> Tuple[int, bytes]:
    """Sends a request and returns status and content of the answer."""
    exchange = Exchange(address, token, request)
    try:
        return exchange.status, exchange.content()
    finally:
        exchange.close()
